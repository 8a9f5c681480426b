"""Records: what one commit writes about the frames, and how records fold back into their images.

An *image* is the durable data of one frame. A full record holds the image of every live frame; a partial one holds,
per changed frame, only what changed. `fold` is the mirror of the frames' `snapshot`: a test compares the two. A frame
is *dormant* while its stored image has no program bound to it.
"""

from __future__ import annotations

import re
from binascii import crc32
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, Raw, UnsetType

from adjourn._values import codec
from adjourn._values.codec import check_nesting
from adjourn.errors import CheckpointCorrupt, CheckpointTooNew, NotStorable
from adjourn.messages import Usage

from .address import segment_text
from .memos import NONE, Memo, without_writes

FORMAT = 3
OLDEST = 3
"""The oldest format that is still read."""

MAX_BYTES = 256 * 1024 * 1024
"""The limit, in bytes, on a record that is read, and on all records that a session is loaded from."""


APPROVALS = frozenset({"need_approval", "need_review", "need_decision"})
"""The reasons of questions whose answer permits something, rather than giving data."""


class Question(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A question in the frame that asked it; values are encoded, since most are only carried around.

    What it asks and how it ended is stored once, in the row that people read. A record names it, and keeps what only
    the engine changes (see `Change`).
    """

    id: str
    info: Raw
    created: float
    reason: str = "need_input"
    key: str | None = None
    prompt: str | None = None
    schema: dict[str, object] | None = None
    expires: float | None = None
    default: Raw = NONE
    raised: bool = False
    concurrent: bool = False
    state: Raw = NONE
    void: bool = False
    """Whether its answer does not count: it was refused, or has been applied for good."""
    optional: bool = False
    """Whether the code need not reach it again: what it works on was changed by hand."""
    how: str | None = None
    value: Raw = NONE
    by: str | None = None
    at: float | None = None

    @property
    def is_open(self) -> bool:
        return self.how is None

    @property
    def address(self) -> str:
        """Where it is asked; the number after it in the id distinguishes it from others at the same place."""
        return self.id.partition("#")[0]

    @property
    def is_spent(self) -> bool:
        """Whether it is an approval that was given: it counts only on the branch where it was given."""
        return self.how == "answered" and self.reason in APPROVALS and not self.void

    def reopen(self, now: float) -> None:
        """Ask it again, with as much time as it had."""
        self.how, self.value, self.by, self.at = None, NONE, None, None
        if self.expires is not None:
            self.expires += now - self.created
        self.created = now


_shown = msgspec.json.Encoder(order="deterministic")
_TOKEN = re.compile(r"(.+)~[0-9a-f]{32}", re.DOTALL)


def token_of(question: Question, app: str, session: str, branch: str) -> str:
    """Return the name of a question as it is shown to people: its id, and a digest of where and what it asks."""
    what = _shown.encode((app, session, branch, question.id, question.reason, question.prompt, question.schema))
    return f"{question.id}~{blake2b(what + bytes(question.info), digest_size=16).hexdigest()}"


def id_of_token(name: str) -> str | None:
    """Return the id in what may be a token; None if it cannot be one."""
    found = _TOKEN.fullmatch(name)
    return None if found is None else found[1]


class Change(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a record keeps of a question besides its id: that it has ended by then, and what only the engine uses.

    An earlier checkpoint has the same question open, although its row has the answer.
    """

    ended: bool = False
    void: bool = False
    optional: bool = False
    state: Raw = NONE

    @classmethod
    def of(cls, question: Question) -> Change:
        """Return what a question has become."""
        return cls(ended=question.how is not None, void=question.void, optional=question.optional, state=question.state)


UNCHANGED = Change()


class UserImage(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="k", tag="u"):
    """The image of a frame of user code: a node's task, a routing, a workflow.

    A session value is kept as a list of one, and as an empty list when it was deleted. `questions` are the ids of
    those that were asked since the last record; `kept` is how many older ones are left, if some were withdrawn. What
    becomes of a question later is in the record itself. `composites` are what the code adds to questions of its
    children, by address.
    """

    fresh: bool = False
    status: str | UnsetType = UNSET
    overlay: dict[str, Raw] | None | UnsetType = UNSET
    writes: list[tuple[str, Raw]] | UnsetType = UNSET
    goto: list[str] | None | UnsetType = UNSET
    sends: list[tuple[str, dict[str, Raw]]] | None | UnsetType = UNSET
    values: dict[str, list[Raw]] | UnsetType = UNSET
    questions: list[str] = []
    kept: int | UnsetType = UNSET
    composites: dict[str, Question] = {}
    memos: dict[str, Memo] = {}
    input: Raw = NONE
    output: Raw = NONE
    attempt: int | UnsetType = UNSET
    emitted: int | UnsetType = UNSET
    paused: int | UnsetType = UNSET
    error: dict[str, str] | None | UnsetType = UNSET


class GraphImage(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="k", tag="g"):
    """The image of a graph: its channels and how far its superstep has got; its tasks are separate frames."""

    fresh: bool = False
    graph: str | UnsetType = UNSET
    set: dict[str, Raw] = {}
    add: dict[str, Raw] = {}
    gone: list[str] = []
    values: dict[str, list[Raw]] = {}
    step: int | UnsetType = UNSET
    count: int | UnsetType = UNSET
    phase: str | UnsetType = UNSET
    ids: int | UnsetType = UNSET
    joins: dict[str, list[str]] | UnsetType = UNSET
    deferred: list[tuple[str, dict[str, Raw] | None]] | UnsetType = UNSET
    targets: list[tuple[str, dict[str, Raw] | None]] | UnsetType = UNSET
    finished: list[str] | UnsetType = UNSET
    ended: list[str] | UnsetType = UNSET
    questions: list[str] = []
    kept: int | UnsetType = UNSET


Image: TypeAlias = UserImage | GraphImage


class Left(msgspec.Struct, frozen=True, array_like=True):
    """A branch of a session, as `place_of` names it, and the number of the record after which it was left."""

    place: str
    number: int


def place_of(app: str, session_id: str, branch: str) -> str:
    """Return the name of one branch of one session, which reveals neither session nor branch."""
    return codec.fingerprint([app, session_id, branch])


class Record(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One commit. `dropped` names frames that ended, with all below them; a trailing `;` keeps the frame itself.

    With a `turn` come its `options`, and whether it was begun with deps, so that it needs them again. `changed` are
    questions with something new, by id: mostly that they have ended. The questions themselves and their answers
    are stored beside the log, once, in rows that people and engine both read.

    `session` and `app` say whose record it is, and must match its row. `user` is who began the turn.
    `line`, of a full record on a branch that is not a lineage's first, has the branches that lead to it, the first one
    first.
    """

    v: int
    full: bool = False
    turn: int | UnsetType = UNSET
    usage: Usage | UnsetType = UNSET
    options: dict[str, Any] = {}
    needs_deps: bool = False
    session: str | UnsetType = UNSET
    app: str | UnsetType = UNSET
    user: str | None | UnsetType = UNSET
    dropped: list[str] = []
    frames: dict[str, Image] = {}
    asked: dict[str, int] = {}
    changed: dict[str, Change] = {}
    line: list[Left] = []


class Tree(msgspec.Struct, kw_only=True):
    """The folded images of a session at one point; channels are kept as lists of encoded pieces."""

    turn: int = 0
    usage: Usage | None = None
    options: dict[str, Any] = {}
    needs_deps: bool = False
    session: str = ""
    app: str = ""
    user: str | None = None
    frames: dict[str, Image] = {}
    pieces: dict[str, dict[str, list[Raw]]] = {}
    asked: dict[str, int] = {}
    changed: dict[str, Change] = {}
    line: list[Left] = []
    questions: dict[str, Question] = {}
    """The questions that the frames name, once somebody has read them."""

    def asking(self) -> list[str]:
        """Return the ids of the questions that the frames name."""
        return [each for image in self.frames.values() for each in image.questions]


class _Version(msgspec.Struct):
    v: int = 0


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Record)
_version = msgspec.json.Decoder(_Version)
_DAMAGE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


# A record is one JSON object that begins with the checksum of the rest. An altered letter can leave valid JSON that
# sends a run anywhere; the checksum reveals it, and anything that reads JSON can still read what is stored.
_SEAL = b'{"crc":"%08x",'
_SEAL_SIZE = len(_SEAL % 0)


def seal(encoded: bytes) -> bytes:
    """Return the JSON of a non-empty object with its checksum."""
    rest = encoded[1:]
    return _SEAL % crc32(rest) + rest


def encode(record: Record) -> bytes:
    """Return the bytes of a record.

    Raises:
        NotStorable: it is too large to be read back.
    """
    body = seal(_encoder.encode(record))
    if len(body) > MAX_BYTES:
        raise too_large(len(body), MAX_BYTES)
    return body


def too_large(size: int, limit: int) -> NotStorable:
    """Return the error for a session that could not be loaded again."""
    return NotStorable(
        "session",
        {},
        f"What it holds takes {size} bytes, and {limit} is the limit: store files and other large data elsewhere, and "
        "references to them here.",
    )


def decode(body: bytes) -> Record:
    """Read a record, refusing what is damaged or newer than this code."""
    if len(body) > MAX_BYTES:
        raise CheckpointCorrupt(f"a record of {len(body)} bytes is larger than any that is written")
    check_nesting(body)
    try:
        check_seal(body)
        record = _decoder.decode(body)
    except _DAMAGE as error:
        # A newer format may not fit our types: then its version explains more.
        _check_version(_version_of(body))
        raise CheckpointCorrupt(f"a record is not valid ({error})") from error
    _check_version(record.v)
    return record


def check_seal(body: bytes) -> None:
    """Refuse bytes that are not as `seal` gave them."""
    if body[:_SEAL_SIZE] != _SEAL % crc32(memoryview(body)[_SEAL_SIZE:]):
        raise msgspec.DecodeError("its checksum does not match")


def _version_of(body: bytes) -> int:
    try:
        return _version.decode(body).v
    except _DAMAGE:
        return FORMAT


def _check_version(version: int) -> None:
    if version > FORMAT:
        raise CheckpointTooNew(version, FORMAT)
    if version < OLDEST:
        raise CheckpointCorrupt(f"a record has format {version}, and the oldest supported is {OLDEST}")


def fold(bodies: Iterable[bytes]) -> Tree:
    """Return the state after all of these records, the first of which is full."""
    tree = Tree()
    for number, body in enumerate(bodies):
        record = decode(body)
        if record.full:
            tree = Tree()
        elif number == 0:
            raise CheckpointCorrupt("the first record is not a full one")
        apply(tree, record)
    return tree


def apply(tree: Tree, record: Record) -> None:
    """Change `tree` as one record says."""
    if record.turn is not UNSET:
        tree.turn, tree.options, tree.needs_deps = record.turn, record.options, record.needs_deps
    if record.usage is not UNSET:
        tree.usage = record.usage
    if record.session is not UNSET:
        tree.session = record.session
    if record.app is not UNSET:
        tree.app = record.app
    if record.user is not UNSET:
        tree.user = record.user
    tree.asked.update(record.asked)
    for path in record.dropped:
        _drop(tree, path)
    for path, image in record.frames.items():
        _fold_frame(tree, path, image)
    tree.changed.update(record.changed)
    if record.line:
        tree.line = record.line


_TAGS = re.compile(rb'"\$t":"((?:[^"\\]|\\.)*)"')


def tags_in(*encoded: object) -> set[str]:
    """Return the names of the types of encoded values, or of those in images, found without decoding any of them."""
    found = _TAGS.findall(_encoder.encode(encoded))
    return {msgspec.json.decode(b'"%b"' % tag, type=str) for tag in found}


def drop_values(image: Image, is_dropped: Callable[[str], bool]) -> None:
    """Forget session values of an image, by their names, also those that kept calls would write again."""
    if image.values is not UNSET:
        image.values = {key: kept for key, kept in image.values.items() if not is_dropped(key)}
    if isinstance(image, UserImage):
        image.memos = {key: without_writes(memo, is_dropped) for key, memo in image.memos.items()}


def _drop(tree: Tree, path: str) -> None:
    below = path if path.endswith(";") else path + ";"
    for key in [key for key in tree.frames if key.startswith(below) or key == path]:
        del tree.frames[key]
        tree.pieces.pop(key, None)


def _fold_frame(tree: Tree, path: str, new: Image) -> None:
    old = tree.frames.get(path)
    if old is None or new.fresh:
        tree.frames[path] = old = type(new)()
        tree.pieces.pop(path, None)
    match old, new:
        case GraphImage(), GraphImage():
            _fold_fields(old, new)
            old.values = {**old.values, **new.values}
            _fold_channels(tree.pieces.setdefault(path, {}), new)
        case UserImage(), UserImage():
            if new.status is not UNSET and new.status != "done":
                # It failed after it was done, as when its writes could not be applied: its result is void.
                old.values = old.writes = old.goto = old.sends = UNSET
            _fold_fields(old, new)
            old.memos.update(new.memos)
            old.composites.update(new.composites)
        case _:
            raise CheckpointCorrupt(f"the frame '{path}' changes its type")
    if new.kept is not UNSET:
        del old.questions[new.kept :]
    old.questions += new.questions


_MERGED = frozenset({"fresh", "set", "add", "gone", "values", "memos", "questions", "kept", "composites"})


def _fold_fields(old: Image, new: Image) -> None:
    skip = _MERGED if isinstance(old, GraphImage) else _MERGED - {"values"}
    for name in old.__struct_fields__:
        value = getattr(new, name)
        if name not in skip and value is not UNSET and value is not NONE:
            setattr(old, name, value)


def _fold_channels(pieces: dict[str, list[Raw]], new: GraphImage) -> None:
    for name in new.gone:
        pieces.pop(name, None)
    for name, value in new.set.items():
        pieces[name] = [value]
    for name, tail in new.add.items():
        pieces.setdefault(name, []).append(tail)


def join(pieces: list[Raw]) -> bytes:
    """Return the JSON of a channel from its stored pieces: several are arrays to be concatenated."""
    if len(pieces) == 1:
        return bytes(pieces[0])
    inner = [body for piece in pieces if (body := bytes(piece).strip()[1:-1].strip())]
    return b"[" + b",".join(inner) + b"]"


class Asked:
    """The questions of a frame that its code can reach again, by key, oldest first."""

    def __init__(self, questions: Iterable[Question]) -> None:
        self._by_key: dict[str | None, list[Question]] = {}
        self._open: dict[str | None, Question] = {}
        for question in questions:
            self.add(question)

    def add(self, question: Question) -> None:
        """Note a question; one that was raised by hand, or refused, is not reached again."""
        if question.raised or question.void:
            return
        self._by_key.setdefault(question.key, []).append(question)
        if question.is_open:
            self._open[question.key] = question

    def forget(self, question: Question) -> None:
        """Note that a question is not reached again."""
        if question in (same := self._by_key.get(question.key, [])):
            same.remove(question)

    def under(self, key: str | None) -> Sequence[Question]:
        """Return the questions with this key, oldest first."""
        return self._by_key.get(key, ())

    def is_ambiguous(self, key: str | None) -> bool:
        """Return whether a question with this key could be mistaken for another open one."""
        if not self._open or not (key is None or None in self._open or key in self._open):
            return False
        # Some may have been answered meanwhile.
        rivals = {key for key, question in self._open.items() if question.is_open}
        return bool(rivals) and (key is None or None in rivals or key in rivals)


_NOTHING: Mapping[str, Image] = MappingProxyType({})


class Dormant(dict[str, dict[str, Image]]):
    """The images of a loaded session whose places the program has not reached yet, by parent and segment.

    What a program never reaches stays here and is written into the next full record, so nothing is lost. `pieces` are
    the channels of dormant graphs, still encoded as they were stored.
    """

    # A dict, since every step asks whether there are any: with a custom `__bool__` that would be a call.
    __slots__ = ("pieces",)

    def __init__(self) -> None:
        super().__init__()
        self.pieces: dict[str, dict[str, list[Any]]] = {}

    def restore(self, tree: Tree) -> None:
        """Take in the frames of a folded session."""
        self.pieces = tree.pieces
        for path, image in tree.frames.items():
            parent, _, segment = path.rpartition(";")
            if not segment:
                raise CheckpointCorrupt(f"'{path}' is not the path of a frame")
            self.setdefault(parent, {})[segment] = image

    def below(self, path: str) -> Mapping[str, Image]:
        """Return the dormant frames directly below `path`, by segment."""
        return self.get(path, _NOTHING)

    def at(self, path: str) -> Image | None:
        """Return the dormant frame at `path`, if there is one."""
        parent, _, segment = path.rpartition(";")
        return self.below(parent).get(segment)

    def bind(self, parent: str, segment: str) -> Image | None:
        """Hand out a dormant frame, to be bound."""
        siblings = self.get(parent)
        if siblings is None:
            return None
        image = siblings.pop(segment, None)
        if not siblings:
            del self[parent]
        return image

    def everything(self) -> Iterator[tuple[str, Image]]:
        """Yield every dormant frame with its path, wherever it is."""
        for parent, siblings in self.items():
            for segment, image in siblings.items():
                yield _path(parent, segment), image

    def all_below(self, path: str) -> Iterator[tuple[str, Image]]:
        """Yield every dormant frame below `path`, parents first."""
        for segment, image in list(self.below(path).items()):
            below = _path(path, segment)
            yield below, image
            yield from self.all_below(below)
            if isinstance(image, GraphImage) and image.finished:
                # Routings are below the node that they lead away from, which has ended.
                for name in image.finished:
                    yield from self.all_below(f"{below};{segment_text('node', name)}")

    def snapshot(self, path: str) -> Iterator[tuple[str, Image]]:
        """Yield every dormant frame below `path` as a full record needs it: with its channels, kept separately."""
        for below, image in self.all_below(path):
            pieces = self.pieces.get(below)
            if pieces and isinstance(image, GraphImage):
                whole = {name: msgspec.Raw(join(parts)) for name, parts in pieces.items()}
                yield below, msgspec.structs.replace(image, set=whole)
            else:
                yield below, image

    def forget_below(self, path: str) -> list[tuple[str, Image]]:
        """Drop the dormant frames below `path`, and return them: their parent has ended."""
        forgotten = list(self.all_below(path))
        for below, _ in forgotten:
            self.pieces.pop(below, None)
            self.pop(below, None)
        self.pop(path, None)
        return forgotten


def _path(parent: str, segment: str) -> str:
    return f"{parent};{segment}" if parent else segment
