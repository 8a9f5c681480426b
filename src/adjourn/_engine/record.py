"""Records: what one commit writes about the frames, and how records fold back into their images.

An *image* is the durable data of one frame. A full record holds the image of every live frame; a partial one holds,
per changed frame, only what changed. `fold` is the mirror of the frames' `snapshot`: a test compares the two. A frame
is *dormant* while its stored image has no program bound to it.
"""

from __future__ import annotations

import re
from binascii import crc32
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import astuple

from adjourn._hiding import known
from adjourn._values import codec
from adjourn._values.codec import check_nesting
from adjourn.errors import CheckpointCorrupt, CheckpointTooNew, NotStorable
from adjourn.messages import Message, Usage

from .memos import NONE, Memo, without_writes
from .proof import DIGEST_SIZE, Proof

FORMAT = 5
OLDEST = 5
"""The oldest format that is still read."""

MAX_BYTES = 256 * 1024 * 1024
"""The limit, in bytes, on a record that is read, and on all records that a session is loaded from."""


APPROVALS = frozenset({"need_approval", "need_review", "need_decision"})
"""The reasons of questions whose answer permits something, rather than giving data."""


_ASKS_ANEW = {"tool": ("approval", "need_approval"), "wrap": ("review", "need_review")}
"""The keys and reasons of the questions that Adjourn itself asks before a tool call, by where it asks them."""


class Words(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an author says about a question, besides its prompt: see `Interrupt`."""

    title: str | None = None
    summary: str | None = None
    description: str | None = None
    priority: int = 0
    link: str | None = None


class Question(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A question in the frame that asked it; values are encoded, since most are only carried around.

    What it asks and how it ended is stored once, in the row that people read. A record names it, and keeps what only
    the engine changes (see `Change`).
    """

    id: str
    info: Raw
    created: float
    reason: str = "need_input"
    tags: tuple[str, ...] = ()
    key: str | None = None
    prompt: str | None = None
    words: Words | None = None
    node: str = ""
    schema: dict[str, object] | None = None
    expires: float | None = None
    default: Raw = NONE
    requested_by: str | None = None
    """The user whose turn asks."""
    requesters: tuple[str, ...] | None = None
    """Who asks for it, and so must not approve it; None if they may (rule V19)."""
    raised: bool = False
    concurrent: bool = False
    turn: int = 0
    """Of an approval: the turn in which it was asked."""
    again: bool = False
    """Whether its answer counts on this branch although it had acted before (rule R19), since a caller said so."""
    state: Raw = NONE
    void: bool = False
    """Whether its answer does not count: it was refused, or has been applied for good."""
    optional: bool = False
    """Whether the code need not reach it again: what it works on was changed by hand."""
    how: str | None = None
    value: Raw = NONE
    said: str | None = None
    """What was said together with the answer."""
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
    def message(self) -> Message | None:
        """What was said together with the answer, as the model reads it: it bears the name of its author."""
        return None if self.said is None else Message.user(self.said, name=self.by)

    @property
    def is_spent(self) -> bool:
        """Whether it is an approval that was given: it counts only on the branch where it was given."""
        return self.how == "answered" and self.reason in APPROVALS and not self.void

    @property
    def is_superseded_by_edits(self) -> bool:
        """Whether an edit only leads to a question that shows it: so it is where Adjourn asks about a tool call.

        Code that asks by itself may show a tool call, too; what it makes of an edit is its own business.
        """
        asks = _ASKS_ANEW.get(self.address.rpartition(";")[2].partition(":")[0])
        return (self.key, self.reason) == asks and bytes(self.info).startswith(b'{"$t":"tool_call_info"')

    def reopen(self, now: float) -> None:
        """Ask it again, with as much time as it had."""
        self.how, self.value, self.said, self.by, self.at = None, NONE, None, None, None
        if self.expires is not None:
            self.expires += now - self.created
        self.created = now


class Called(msgspec.Struct, frozen=True):
    """What the sender of answers calls them, and the number of the event before what they led to.

    `rest` is a digest of what else came with them, such as session values; empty if nothing did.
    """

    id: str
    after: int
    rest: str = ""


class _AnswerAndMessage(msgspec.Struct, frozen=True, tag_field="$t", tag="answer_and_message", omit_defaults=True):
    """An answer with what was said together with it, as they are stored: one cannot come without the other.

    `id`, `after` and `rest` are those of `Called`.
    """

    value: Raw
    message: str | None = None
    id: str | None = None
    after: int = 0
    rest: str = ""


_WITH_MESSAGE = b'{"$t":"answer_and_message"'


def with_message(value: bytes, message: str | None) -> bytes:
    """Return an answer as it is stored, with what was said together with it."""
    return value if message is None else msgspec.json.encode(_AnswerAndMessage(Raw(value), message))


def with_answer_id(stored: bytes, called: Called) -> bytes:
    """Return an answer as it is stored, with what its sender calls it."""
    value, message = without_message(stored)
    return msgspec.json.encode(_AnswerAndMessage(value, message, called.id, called.after, called.rest))


def called_so(stored: bytes | None, id: str) -> Called | None:
    """Return what the sender of an answer calls it, if that is `id`."""
    if stored is None or not stored.startswith(_WITH_MESSAGE):
        return None
    found = msgspec.json.decode(stored, type=_AnswerAndMessage)
    return Called(id, found.after, found.rest) if found.id == id else None


def without_message(stored: bytes) -> tuple[Raw, str | None]:
    """Return the value of a stored answer, and what was said together with it."""
    if not stored:
        return NONE, None
    if not stored.startswith(_WITH_MESSAGE):
        return Raw(stored), None
    both = msgspec.json.decode(stored, type=_AnswerAndMessage)
    return Raw(bytes(both.value)), both.message


_shown = msgspec.json.Encoder(order="deterministic")
_TOKEN = re.compile(r"(.+)~[0-9a-f]{32}", re.DOTALL)


def token_of(question: Question, app: str, session: str, branch: str) -> str:
    """Return the name of a question as it is shown to people: its id, and a digest of where and what it asks."""
    what = _shown.encode((app, session, branch, question.id, question.reason, question.prompt, question.schema))
    if (words := question.words) is not None:
        what += _shown.encode((words.title, words.summary, words.description))
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
    """The image of a graph: its channels and how far its superstep has got; its tasks are separate frames.

    `types` are those that the schema declares for its fields. Of a channel, `set` has the whole value, `add` the items
    that a list got at its end, and `put` the members of a dict that are new or have changed (as pairs, in a dict that
    has a key that is not a text).
    """

    fresh: bool = False
    graph: str | UnsetType = UNSET
    types: dict[str, str] | UnsetType = UNSET
    set: dict[str, Raw] = {}
    add: dict[str, Raw] = {}
    put: dict[str, Raw] = {}
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


def place_of(app: str, session_id: str, branch: str) -> str:
    """Return the name of one branch of one session, which reveals neither session nor branch."""
    return codec.fingerprint([app, session_id, branch])


class Unsettled(msgspec.Struct, frozen=True, array_like=True):
    """A call that may happen at most once and has no result: the path of its frame, and how it ended, in words.

    `tool` is the digest of the tool that it began with.
    """

    path: str
    how: str
    tool: str = ""


class Record(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One commit. `dropped` names frames that ended, with all below them; a trailing `;` keeps the frame itself.

    With a `turn` come its `options`, those `for_agents` and its `metadata`, whether it was begun with deps, so that it
    needs them again, and its `speakers` (see `Scope`). `changed` are questions with something new, by id: mostly that
    they have ended. The questions themselves and their answers are stored beside the log, once, in rows that people and
    engine both read.
    `unsettled` are the calls of the turn that may happen at most once and have no result, by their digests.

    `session` and `app` say whose record it is, and must match its row. `user` is who began the turn.
    `lineage`, of a full record on a branch that is not its lineage's first, is the name of that first branch. Which
    branches lead from there to here stands in their rows. With `proof`, changes to the log are noticed.
    """

    v: int
    full: bool = False
    turn: int | UnsetType = UNSET
    usage: Usage | UnsetType = UNSET
    unsettled: dict[str, Unsettled] | UnsetType = UNSET
    options: dict[str, Any] = {}
    for_agents: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    needs_deps: bool = False
    speakers: list[str] | None = None
    session: str | UnsetType = UNSET
    app: str | UnsetType = UNSET
    user: str | None | UnsetType = UNSET
    dropped: list[str] = []
    frames: dict[str, Image] = {}
    asked: dict[str, int] = {}
    changed: dict[str, Change] = {}
    lineage: str = ""
    proof: Proof | UnsetType = UNSET


class Tree(msgspec.Struct, kw_only=True):
    """The folded images of a session at one point; channels are kept as lists of encoded pieces."""

    turn: int = 0
    usage: Usage | None = None
    unsettled: dict[str, Unsettled] = {}
    options: dict[str, Any] = {}
    for_agents: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    needs_deps: bool = False
    speakers: list[str] | None = None
    session: str = ""
    app: str = ""
    user: str | None = None
    frames: dict[str, Image] = {}
    pieces: dict[str, dict[str, list[Raw]]] = {}
    asked: dict[str, int] = {}
    changed: dict[str, Change] = {}
    lineage: str = ""
    pauses: bool = False
    """Whether the last record was made to pause."""
    questions: dict[str, Question] = {}
    """The questions that the frames name, once somebody has read them."""
    below: dict[str, dict[str, None]] = {}
    """The paths one segment below each path, so that what is dropped with a frame is found without a search."""

    def put(self, path: str, image: Image) -> None:
        """Add a frame, or replace it."""
        self.frames[path] = image
        # A path above may have no frame, as that of a node that has ended and is being routed from.
        while (parent := path.rpartition(";")[0]) and path not in self.below.setdefault(parent, {}):
            self.below[parent][path] = None
            path = parent

    def drop(self, path: str) -> None:
        """Remove what is at `path` and all below it; with a trailing `;`, only what is below."""
        above = path.removesuffix(";")
        dropped = [] if above != path else [path]
        dropped += self.below.pop(above, {})
        if above == path:
            self.below.get(path.rpartition(";")[0], {}).pop(path, None)
        while dropped:
            each = dropped.pop()
            self.frames.pop(each, None)
            self.pieces.pop(each, None)
            dropped += self.below.pop(each, {})

    def asking(self) -> list[str]:
        """Return the ids of the questions that the frames name."""
        return [each for image in self.frames.values() for each in image.questions]

    def open(self) -> list[str]:
        """Return the ids of the questions that are open."""
        return [each for each in self.asking() if not self.changed.get(each, UNCHANGED).ended]

    def copy(self) -> Tree:
        """Return the same images, for somebody who uses them up while this tree is folded further."""
        frames = {path: _copied(image) for path, image in self.frames.items()}
        pieces = {
            path: {name: list(parts) for name, parts in channels.items()} for path, channels in self.pieces.items()
        }
        return msgspec.structs.replace(
            self,
            frames=frames,
            pieces=pieces,
            asked=dict(self.asked),
            changed=dict(self.changed),
            questions={},
            below={path: dict(paths) for path, paths in self.below.items()},
        )


def _copied(image: Image) -> Image:
    if isinstance(image, GraphImage):
        return msgspec.structs.replace(image, questions=list(image.questions))
    return msgspec.structs.replace(
        image, questions=list(image.questions), memos=dict(image.memos), composites=dict(image.composites)
    )


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
_LARGEST = MAX_BYTES - _SEAL_SIZE


def seal(encoded: bytes) -> bytes:
    """Return the JSON of a non-empty object with its checksum."""
    return sealed((known.hide_in_json(encoded) if known.forms else encoded)[1:])


_CHAIN = b'"chain":"%b",'
_CHAIN_SIZE = len(_CHAIN % (b"." * DIGEST_SIZE))


def sealed(content: bytes, digest: str = "") -> bytes:
    """Return the content of an object with its checksum, and with the digest of a record if it carries one.

    Raises:
        NotStorable: it is too large to be read back.
    """
    rest = _CHAIN % digest.encode() + content if digest else content
    if len(rest) > _LARGEST:
        raise too_large(len(rest) + _SEAL_SIZE, MAX_BYTES)
    return _SEAL % crc32(rest) + rest


def encode(record: Record) -> bytes:
    """Return the bytes of a record that carries no digest.

    Raises:
        NotStorable: it is too large to be read back.
    """
    return sealed(content_of(record))


def content_of(record: Record) -> bytes:
    """Return what a record holds, of which its digest is made."""
    encoded = _encoder.encode(record)
    return (known.hide_in_json(encoded) if known.forms else encoded)[1:]


def chain_of(body: bytes) -> str:
    """Return the digest that a record carries, "" if it has none."""
    found = body[_SEAL_SIZE : _SEAL_SIZE + _CHAIN_SIZE]
    named = found[len(b'"chain":"') : -len(b'",')]
    return named.decode("ascii", "replace") if found == _CHAIN % named else ""


def unchained(body: bytes) -> bytes:
    """Return the content of a record that carries a digest, as the digest was made of it."""
    return body[_SEAL_SIZE + _CHAIN_SIZE :]


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
        detail = f"a record has format {version}, and the oldest supported is {OLDEST}"
        raise CheckpointCorrupt(detail, remedy="Continue the session with an older version of Adjourn")


def fold(bodies: Iterable[bytes]) -> Tree:
    """Return the state after all of these records, the first of which is full."""
    tree = None
    for body in bodies:
        tree = fold_onto(tree, body)
    return Tree() if tree is None else tree


def fold_onto(tree: Tree | None, body: bytes) -> Tree:
    """Return the state after one more record: `tree`, which is changed, or after a full record a new one."""
    record = decode(body)
    if record.full:
        if not record.frames:
            raise CheckpointCorrupt("a full record has no frames")
        tree = Tree()
    elif tree is None:
        raise CheckpointCorrupt("the first record is not a full one")
    apply(tree, record)
    return tree


def apply(tree: Tree, record: Record) -> None:
    """Change `tree` as one record says."""
    if record.turn is not UNSET:
        tree.turn, tree.options, tree.needs_deps = record.turn, record.options, record.needs_deps
        tree.for_agents, tree.metadata = record.for_agents, record.metadata
        tree.speakers = record.speakers
    if record.usage is not UNSET:
        tree.usage = record.usage
    if record.unsettled is not UNSET:
        tree.unsettled = record.unsettled
    if record.session is not UNSET:
        tree.session = record.session
    if record.app is not UNSET:
        tree.app = record.app
    if record.user is not UNSET:
        tree.user = record.user
    tree.asked.update(record.asked)
    for path in record.dropped:
        tree.drop(path)
    for path, image in record.frames.items():
        _fold_frame(tree, path, image)
    tree.changed.update(record.changed)
    if record.lineage:
        tree.lineage = record.lineage
    tree.pauses = record.proof is not UNSET and bool(record.proof.events)


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


def _fold_frame(tree: Tree, path: str, new: Image) -> None:
    old = tree.frames.get(path)
    if old is None or new.fresh:
        tree.pieces.pop(path, None)
        if isinstance(new, UserImage):
            # There is nothing to lay it over: it is what is known of the frame.
            new.fresh, new.kept = False, UNSET
            tree.put(path, new)
            return
        old = GraphImage()
        tree.put(path, old)
    match old, new:
        case GraphImage(), GraphImage():
            _fold_fields(old, new, _GRAPH_FIELDS)
            if new.values:
                old.values = {**old.values, **new.values}
            _fold_channels(tree.pieces.setdefault(path, {}), new)
        case UserImage(), UserImage():
            if new.status is not UNSET and new.status != "done":
                # It failed after it was done, as when its writes could not be applied: its result is void.
                old.values = old.writes = old.goto = old.sends = UNSET
            _fold_fields(old, new, _USER_FIELDS)
            old.memos.update(new.memos)
            old.composites.update(new.composites)
        case _:
            raise CheckpointCorrupt(f"the frame '{path}' changes its type")
    if new.kept is not UNSET:
        del old.questions[new.kept :]
    old.questions += new.questions


_MERGED = frozenset({"fresh", "set", "add", "put", "gone", "values", "memos", "questions", "kept", "composites"})


_GRAPH_FIELDS = [(at, name) for at, name in enumerate(GraphImage.__struct_fields__) if name not in _MERGED]
_USER_FIELDS = [(at, name) for at, name in enumerate(UserImage.__struct_fields__) if name not in _MERGED - {"values"}]


def _fold_fields(old: Image, new: Image, fields: list[tuple[int, str]]) -> None:
    values = astuple(new)
    for at, name in fields:
        value = values[at]
        if value is not UNSET and value is not NONE:
            setattr(old, name, value)


def _fold_channels(pieces: dict[str, list[Raw]], new: GraphImage) -> None:
    for name in new.gone:
        pieces.pop(name, None)
    for name, value in new.set.items():
        pieces[name] = [value]
    for name, tail in new.add.items():
        pieces.setdefault(name, []).append(tail)
    for name, members in new.put.items():
        pieces.setdefault(name, []).append(members)


def join(pieces: list[Raw]) -> bytes:
    """Return the JSON of a channel from its stored pieces: arrays to be concatenated, or objects or pairs to be united.

    A member that several objects have is in the result several times; whoever decodes it takes the last one.
    """
    first = bytes(pieces[0]).strip()
    if len(pieces) == 1:
        return first
    rest = [_inner(piece) for piece in pieces[1:]]
    if first.startswith(_PAIRS):
        return _MERGED_PAIRS + b",".join(filter(None, [first[len(_PAIRS) : -2], *rest])) + b"]}"
    return first[:1] + b",".join(filter(None, [_inner(pieces[0]), *rest])) + first[-1:]


_PAIRS = b'{"%b":"dict","v":[' % codec.TAG.encode()
_MERGED_PAIRS = b'{"%b":"%b","v":[' % (codec.TAG.encode(), codec.MERGED.encode())


def _inner(piece: Raw) -> bytes:
    """Return what is inside the brackets of an array or object."""
    return bytes(piece).strip()[1:-1].strip()
