"""Frames, and the scope that all frames of one live session share while it runs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar

import msgspec
from msgspec import Raw

from adjourn.errors import Conflict
from adjourn.events import Event
from adjourn.messages import Usage

from .address import address_of, is_under, segment_text
from .record import FORMAT, Change, GraphImage, Image, Question, Record, Tree, UserImage, join

P = ParamSpec("P")
T = TypeVar("T")


TURN = 0.005
"""Seconds after which code that never suspends gives the event loop a turn."""


NOTHING_USED = Usage()
NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})


class RunCancelled(BaseException):
    """Unwinds the engine when a run is cancelled; what was under way runs again when it is recovered."""


class Recorder(Protocol):
    """What frames need of the journal: the one writer of the session's log."""

    store: Any  # Any: what a store is, is said above this layer

    def soon(self) -> None:
        """Have what is marked written without waiting for it."""
        ...

    async def durable(self) -> None:
        """Return when everything marked so far is stored."""
        ...

    async def assure(self) -> None:
        """Return when the session is still this run's for sure: who has slept past his lease must ask the store."""
        ...

    async def boundary(self, source: str, frame: Frame, step: int, following: Callable[[], tuple[str, ...]]) -> None:
        """Add a listed checkpoint at the boundary of a superstep, and wait for it as the durability says."""
        ...

    def emit(self, event: Event) -> None:
        """Let a durable event out with the next commit."""
        ...

    def emit_live(self, event: Event) -> None:
        """Let an event out now, unstored."""
        ...


GONE = object()
"""Marks a session value that was deleted."""


class _Path:
    """A frame's key among all of its session: computed when it is first needed, an attribute of its own from then on.

    As a `cached_property`, without its lock and the dict that it makes of every frame.
    """

    def __get__(self, frame: Frame, _: type[Frame]) -> str:
        assert frame.parent is not None
        frame.path = path = f"{frame.parent.path};{frame.segment}"
        return path


class _Address:
    """The address that people see, computed as a path is: segments of the engine's own are no part of it."""

    def __get__(self, frame: Frame, _: type[Frame]) -> str:
        frame.address = address = address_of(frame.path)
        return address


class Audience(NamedTuple):
    """Who hears what frames emit, and as whose it is heard: under which name, and by which path it came about."""

    name: str = ""
    path: tuple[str, ...] = ()
    hears: bool = True


EVERYONE = Audience()


class Request(msgspec.Struct, frozen=True):
    """What code wants of a frame above it, to be done when the code has returned; that frame knows what it means."""

    name: str
    arguments: dict[str, str] = {}


class Frame:
    """A place that runs: its durable data is what `take` gives to a record.

    Frames are made by the thousand and most never ask or keep anything, so what is rare has its default in the class.
    """

    alive: bool = True
    recorded: bool = False
    questions: list[Question] | None = None
    questions_stored: int = 0
    has_withdrawn: bool = False
    composites: dict[str, Question] | None = None
    path: str = _Path()  # pyright: ignore[reportAssignmentType]  # it gives a str, and becomes one
    address: str = _Address()  # pyright: ignore[reportAssignmentType]  # likewise

    def __init__(self, scope: Scope, parent: Frame | None, segment: str) -> None:
        self.scope = scope
        self.parent = parent
        self.segment = segment
        self.alive, self.recorded, self.questions = True, False, None
        if parent is None:
            self.path = self.address = segment

    @property
    def instance(self) -> str:
        """Which entry into this place this is: equal over crashes and resumes, new for each loop pass and turn."""
        return self.parent.instance if self.parent else str(self.scope.turn)

    @property
    def values(self) -> dict[str, Any] | None:
        """Session values written in this frame that have not reached its parent yet."""
        raise NotImplementedError

    def wake(self) -> None:
        """Let this frame run again, if it waits."""

    @property
    def audience(self) -> Audience:
        """Who hears what is emitted here."""
        return EVERYONE if self.parent is None else self.parent.audience

    def accept(self, request: Request) -> str | None:
        """Return the reserved name under which code below keeps a request for this frame; None if it is not for it.

        What cannot be done raises here, in the code that asks for it.
        """
        return None

    def find(self, path: str) -> Frame:
        """The live frame at `path`, or the nearest one above it."""
        for child in self.live_children():
            if is_under(path, child.path):
                return child.find(path)
        return self

    def live_children(self) -> Iterable[Frame]:
        """The frames directly below this one, in task order."""
        return ()

    def bind_dormant(self) -> None:
        """Bind what sleeps directly below this frame, as far as its program is known before any code runs."""

    def take(self) -> Image:
        """What changed since the last record."""
        raise NotImplementedError

    def take_all(self, into: dict[str, Image]) -> None:
        """Everything about this frame and those below it, sleeping ones included."""
        raise NotImplementedError

    def close(self) -> None:
        """End this frame and all below it: they write nothing more."""
        scope, self.alive = self.scope, False
        for question in self.questions or ():
            scope.open.pop(question.id, None)
        if scope.askers:
            scope.askers.pop(self.path, None)
        for child in self.live_children():
            child.close()
        if scope.dormant:
            scope.forget_below(self.path)

    def drop(self) -> None:
        """End this frame, and have the next record forget it."""
        self.close()
        if self.recorded:
            self.scope.dropped[self.path] = None

    def withdraw_questions(self, after: int = 0) -> None:
        """Forget the questions of this frame but for the first ones."""
        questions = self.questions or []
        for question in questions[after:]:
            self.scope.open.pop(question.id, None)
        del questions[after:]
        if self.questions_stored > after:
            self.questions_stored, self.has_withdrawn = after, True

    def put_questions(self, image: Image) -> None:
        """Add to an image what is new about which questions there are."""
        if self.has_withdrawn and not image.fresh:
            image.kept = self.questions_stored
        if self.questions:
            image.questions = self.questions[0 if image.fresh else self.questions_stored :]
            if self.scope.changed:
                for question in image.questions:
                    self.scope.changed.pop(question.id, None)
        self.questions_stored, self.has_withdrawn = len(self.questions or ()), False

    def read_value(self, key: str) -> object:
        """A session value as seen from here: own writes first; `GONE` if there is none."""
        frame: Frame | None = self
        while frame is not None:
            if frame.values and key in frame.values:
                return frame.values[key]
            frame = frame.parent
        return GONE

    def all_values(self) -> dict[str, Any]:
        """Every session value as seen from here, uncopied."""
        above = self.parent.all_values() if self.parent else {}
        return {key: value for key, value in {**above, **(self.values or {})}.items() if value is not GONE}


class Scope:
    """The live session: its identity, the marks of its frames, its questions, and the frames that sleep.

    A stored frame *sleeps* as an image until the program reaches its place again and binds it. What a program never
    reaches stays asleep and is written again into the next full record, so nothing is lost on the way.
    """

    # Slots for what most runs have: an object with more than 30 attributes of its own is slow to make and to read.
    __slots__ = (
        "__dict__",
        "app",
        "asked",
        "asked_new",
        "askers",
        "branch",
        "cancel_mode",
        "changed",
        "clock",
        "closed",
        "dirty",
        "dropped",
        "has_boundaries",
        "journal",
        "loop",
        "open",
        "pieces",
        "root",
        "session_id",
        "sleeping",
        "slots",
        "stirred",
        "telling",
        "thread",
        "turn",
        "turn_ends",
        "turn_stored",
        "user_cuts",
        "user_id",
    )

    journal: Recorder
    root: Frame
    loop: asyncio.AbstractEventLoop
    thread: int

    # What is seldom anything else:
    deps: Any = None  # Any: whatever the user brings
    interrupts: bool = True
    watched: bool = False
    has_composites: bool = False
    max_steps: int | None = None
    program_options: Any = None  # Any: whatever the runner has for its program, which knows what it is
    turn_options: Mapping[str, Any] = NO_OPTIONS
    usage: Usage = NOTHING_USED
    usage_stored: Usage = NOTHING_USED

    def __init__(self, session_id: str, *, app: str, user_id: str | None, clock: Callable[[], float]) -> None:
        self.session_id = session_id
        self.app = app
        self.user_id = user_id
        self.clock = clock
        self.branch = ""
        self.turn = self.turn_stored = 0
        self.yield_deadline = 0.0
        self.has_boundaries = True
        self.telling = False
        self.slots: asyncio.Semaphore | None = None
        self.closed: Exception | None = None
        self.cancel_mode: str | None = None
        self.asked: dict[str, int] = {}
        self.asked_new: dict[str, int] = {}
        self.askers: dict[str, Frame | Image] = {}
        self.open: dict[str, tuple[str, Question]] = {}
        self.changed: dict[str, Question] = {}
        self.dormant: dict[str, dict[str, Image]] = {}
        self.pieces: dict[str, dict[str, list[Any]]] = {}
        self.touched: dict[str, Image] = {}
        self.dirty: dict[Frame, None] = {}
        self.dropped: dict[str, None] = {}
        self.user_cuts: set[asyncio.Task[Any] | None] = set()

    def next_input(self, options: Mapping[str, Any]) -> None:
        """Begin a turn: what it uses is counted from here, and its options are stored with it for the program."""
        self.turn += 1
        self.usage = NOTHING_USED
        self.turn_options = options

    # Sleeping frames

    def restore(self, tree: Tree) -> None:
        """Put the frames of a folded session to sleep here."""
        self.turn, self.app, self.user_id = tree.turn, tree.app, tree.user
        self.turn_stored = self.turn
        self.turn_options = tree.options
        self.usage = self.usage_stored = tree.usage or NOTHING_USED
        self.asked = tree.asked
        self.pieces = tree.pieces
        for path, image in tree.frames.items():
            parent, _, segment = path.rpartition(";")
            self.dormant.setdefault(parent, {})[segment] = image
            self._index(path, image)

    def _index(self, path: str, image: Image) -> None:
        questions = image.questions
        is_composite = isinstance(image, UserImage) and bool(image.composites)
        if questions or is_composite:
            self.askers[path] = image
            self.has_composites |= is_composite
        for question in questions:
            if question.is_open:
                self.open[question.id] = (path, question)

    def pop_dormant(self, parent: str, segment: str) -> Image | None:
        """Take a sleeping frame out to bind it."""
        siblings = self.dormant.get(parent)
        if siblings is None:
            return None
        image = siblings.pop(segment, None)
        if not siblings:
            del self.dormant[parent]
        return image

    def bound(self, frame: Frame) -> None:
        """Note that `frame` has become what slept at its place: what that had to store, the frame has now."""
        if self.touched and self.touched.pop(frame.path, None) is not None:
            self.dirty[frame] = None

    def dormant_below(self, path: str) -> Iterator[tuple[str, Image]]:
        """Every sleeping frame below `path`, parents first."""
        for segment, image in list(self.dormant.get(path, {}).items()):
            below = f"{path};{segment}" if path else segment
            yield below, image
            yield from self.dormant_below(below)
            if isinstance(image, GraphImage) and image.finished:
                # Routings stand below the node that they lead away from, and that has ended.
                for name in image.finished:
                    yield from self.dormant_below(f"{below};{segment_text('node', name)}")

    def stored_below(self, path: str) -> Iterator[tuple[str, Image]]:
        """Every sleeping frame below `path` as a full record needs it: with its channels, which are kept beside it."""
        for below, image in self.dormant_below(path):
            pieces = self.pieces.get(below)
            if pieces and isinstance(image, GraphImage):
                whole = {name: msgspec.Raw(join(parts)) for name, parts in pieces.items()}
                yield below, msgspec.structs.replace(image, set=whole)
            else:
                yield below, image

    def forget_below(self, path: str) -> None:
        """Drop the sleeping frames below `path`: their parent has ended."""
        for below, image in list(self.dormant_below(path)):
            for question in image.questions:
                self.open.pop(question.id, None)
            self.askers.pop(below, None)
            self.pieces.pop(below, None)
            self.touched.pop(below, None)
            self.dormant.pop(below, None)
        self.dormant.pop(path, None)

    @property
    def is_dormant(self) -> bool:
        """Whether no program has been bound to what was restored."""
        return not hasattr(self, "root")

    # Questions

    def wake(self, path: str) -> None:
        """Let the frame at `path`, and all above it, run again, whether live or sleeping."""
        asker = self.askers.get(path)
        frame = asker if isinstance(asker, Frame) else self._touch(path)
        while frame is not None:
            frame.wake()
            frame = frame.parent

    def _touch(self, path: str) -> Frame:
        """Wake the images from `path` up, and give the live frame that they sleep below."""
        while (image := self._dormant_at(path)) is not None:
            if isinstance(image, UserImage):
                image.status = "pending"
                self.touched[path] = UserImage(status="pending")
            path, _, segment = path.rpartition(";")
            if segment.startswith("branch:"):
                # A routing's node has ended: what is above it is the graph.
                path = path.rpartition(";")[0]
        return self.root.find(path)

    def _dormant_at(self, path: str) -> Image | None:
        parent, _, segment = path.rpartition(";")
        return self.dormant.get(parent, {}).get(segment)

    def ask(self, frame: Frame, question: Question, address: str) -> None:
        """Open a question of `frame`: it is asked at `address`, under the next id of that place."""
        self.asked[address] = self.asked_new[address] = count = self.asked.get(address, 0) + 1
        question.id = address if count == 1 else f"{address}#{count}"
        path = frame.path
        self.askers[path] = frame
        self.open[question.id] = (path, question)
        self.dirty[frame] = None

    def answer(self, question_id: str, *, how: str, value: Raw, by: str | None = None, at: float | None = None) -> None:
        """End an open question, and let the frame that asked it run again."""
        path, question = self.open.pop(question_id)
        question.how, question.value, question.by, question.at = how, value, by, at
        self.changed[question_id] = question
        self.wake(path)

    def has_ended(self, question_id: str) -> bool:
        """Whether this question was asked on this branch and is not open any more."""
        address, _, number = question_id.partition("#")
        count = int(number) if number.isdigit() else 1
        return count <= self.asked.get(address, 0) and question_id not in self.open

    # Calls from user code

    def on_loop(self, call: Callable[P, T]) -> Callable[P, T]:
        """`call` as it can be made from here: on the session's own thread, where alone frames are touched."""
        return call if threading.get_ident() == self.thread else partial(self._carry_over, call)

    def _carry_over(self, call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        done: threading.Event = threading.Event()
        outcome: list[tuple[T | None, BaseException | None]] = []

        def deliver() -> None:
            try:
                outcome.append((call(*args, **kwargs), None))
            except BaseException as error:  # noqa: BLE001  # it belongs to the waiting thread, Pause included
                outcome.append((None, error))
            done.set()

        self.loop.call_soon_threadsafe(deliver)
        while not done.wait(1.0):
            if self.loop.is_closed():
                raise Conflict(self.session_id, "the event loop of its run is closed")
        value, error = outcome[0]
        if error is not None:
            raise error
        return value  # pyright: ignore[reportReturnType]  # it is a T: there was no error

    def cut(self, mode: str) -> None:
        """Stop at the next safe point, or with mode "now" in the middle of user code."""
        self.cancel_mode = mode
        if mode == "now":
            for task in list(self.user_cuts):
                if task is not None:
                    task.cancel()

    async def yield_to_loop(self) -> None:
        """Give the event loop a turn. Who has slept over his may have lost the session meanwhile."""
        await asyncio.sleep(0)
        await self.journal.assure()
        self.yield_deadline = time.monotonic() + TURN

    def check_open(self) -> None:
        """Refuse what comes after the run has let go of its session."""
        if self.closed is not None:
            raise Conflict(self.session_id, "the run that made this call has ended") from self.closed

    # What a record takes

    def mark(self, frame: Frame) -> None:
        """Note that `frame` has something new to store."""
        self.dirty[frame] = None

    def take(self, *, full: bool) -> Record:
        """A record of all that was marked, or of everything; the marks are gone afterwards."""
        frames: dict[str, Image] = {} if full else self.touched
        if full and self.root.recorded:
            self.root.take_all(frames)
        else:
            # Of a session of which nothing is stored yet, all is marked.
            for frame in self.dirty:
                if frame.alive:
                    frames[frame.path] = frame.take()
        if full:
            record = Record(v=FORMAT, full=True, frames=frames, app=self.app, user=self.user_id, asked=self.asked)
        else:
            record = Record(v=FORMAT, frames=frames, dropped=list(self.dropped), asked=self.asked_new)
            if self.changed:
                record.changed = {name: Change.of(question) for name, question in self.changed.items()}
        if full or self.turn != self.turn_stored:
            record.turn = self.turn_stored = self.turn
            record.options = dict(self.turn_options)
        if self.usage is not self.usage_stored or (full and self.usage.calls):
            record.usage = self.usage_stored = self.usage
        self.dirty, self.touched, self.dropped, self.asked_new, self.changed = {}, {}, {}, {}, {}
        return record
