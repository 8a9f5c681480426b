"""Frames, and the scope that all frames of one live session share while it runs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeAlias, TypeVar

from msgspec import UNSET, Struct
from msgspec.structs import replace

from adjourn._schemas.answers import choices_of, to_json_data
from adjourn._values import codec
from adjourn.errors import CheckpointCorrupt, Conflict
from adjourn.events import Event
from adjourn.messages import Usage

from .address import address_below, is_under
from .asked import Questions
from .concurrency import MAX_OF_A_SESSION, Cancellation, Share, waiting
from .dormant import Dormant
from .memos import NONE
from .record import (
    APPROVALS,
    FORMAT,
    Change,
    Image,
    Question,
    Record,
    Tree,
    Unsettled,
    UserImage,
    drop_values,
    place_of,
    without_message,
)
from .values import GONE, check_tags

P = ParamSpec("P")
T = TypeVar("T")


TURN = 0.005
"""Seconds after which code that never suspends yields to the event loop."""


NOTHING_USED = Usage()
NOTHING_UNSETTLED: Mapping[str, Unsettled] = MappingProxyType({})
NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})
NO_METADATA: dict[str, Any] = {}  # never changed; a dict, since it is encoded as it is


live_scopes: set[Scope] = set()
"""The sessions that run in this process."""


class RunCancelled(BaseException):
    """Unwinds the engine when a run is cancelled; what was under way runs again when it is recovered."""


class Recorder(Protocol):
    """What frames need of the log writer: the only writer of the session's log."""

    store: Any  # Any: stores are defined above this layer
    owner: str

    @property
    def is_unsure(self) -> bool:
        """Whether the lease that this run has secured is over by its own clock."""
        ...

    def soon(self) -> None:
        """Write what is marked, without waiting for it."""
        ...

    async def durable(self, *, here: bool = False) -> None:
        """Return when everything marked so far is stored; `here` is for a task that nothing cancels meanwhile."""
        ...

    async def reported(self) -> None:
        """Return when readers have everything emitted so far, so that a live event can follow it."""
        ...

    async def note_begin(self, digest: str) -> bool:
        """Store that something begins, and return whether it has begun in a place that does not lead here."""
        ...

    async def assure(self) -> None:
        """Make sure that this run still has the session before something begins.

        If its lease is over by its own clock, the store must confirm that first, or the run stops.
        """
        ...

    def assure_here(self) -> None:
        """Do what `assure` does where nothing can be awaited: a run whose lease is over by its own clock stops."""
        ...

    async def boundary(self, source: str, frame: Frame, step: int, following: Callable[[], tuple[str, ...]]) -> None:
        """Add a listed checkpoint at the boundary of a superstep, and wait for it as the durability requires."""
        ...

    def emit(self, event: Event) -> None:
        """Emit a durable event with the next commit."""
        ...

    def emit_live(self, event: Event) -> None:
        """Emit an event now, unstored."""
        ...

    def close(self, error: Exception) -> None:
        """Refuse everything from now on."""
        ...


class _Path:
    """A frame's key within its session: computed when first needed, a plain attribute from then on.

    Like a `cached_property`, but without its lock and without a dict for every frame.
    """

    def __get__(self, frame: Frame, _: type[Frame]) -> str:
        assert frame.parent is not None
        frame.path = path = f"{frame.parent.path};{frame.segment}"
        return path


class _FromAbove:
    """What a frame has by the frame above it: computed when first needed, a plain attribute from then on.

    It climbs and then computes from the top, since the calls of nested programs have most of the stack by then.
    """

    def __init__(self, name: str, compute: Callable[[Frame], Any]) -> None:
        self._name = name
        self._compute = compute

    def __get__(self, frame: Frame, _: type[Frame]) -> Any:
        missing = [frame]
        while (above := missing[-1].parent) is not None and self._name not in above.__dict__:
            missing.append(above)
        value: Any = None
        for each in reversed(missing):
            value = self._compute(each)
            setattr(each, self._name, value)
        return value


def _address(frame: Frame) -> str:
    assert frame.parent is not None
    return address_below(frame.parent.address, frame.segment)


Level: TypeAlias = tuple[bool, tuple[Any, ...]]
"""The middleware that one frame puts around what runs below, and whether it surrounds the calls of nodes only."""


def _surrounding(frame: Frame) -> tuple[Level, ...]:
    around = () if frame.parent is None else frame.parent.surrounding
    if frame.around_nodes:
        around = (*around, (True, frame.around_nodes))
    return (*around, (False, frame.around_all)) if frame.around_all else around


class Audience(NamedTuple):
    """Who receives what frames emit, and as whose: under which name, and by which path."""

    name: str = ""
    path: tuple[str, ...] = ()
    hears: bool = True


EVERYONE = Audience()


OWN = "~own:"
"""Prefix of the session values that the library's middleware keeps; people can see them, and only it writes them."""

SESSION_ONLY = "~session:"
"""Prefix of session values that count only in their own session: a fork does not get them."""


class Action(Struct, frozen=True):
    """What code wants from a frame above it, once the code has returned; that frame knows what it means."""

    name: str
    arguments: dict[str, str] = {}


ACTION = "~action"
"""The session value by which a task leaves an action for its agent; user-defined names cannot start with "~"."""


class Frame:
    """A place that runs: its durable data is what `snapshot` gives to a record.

    Frames are made by the thousand and most never ask or keep anything, so rare attributes have class defaults.
    """

    alive: bool = True
    recorded: bool = False
    questions: list[Question] | None = None
    questions_stored: int = 0
    has_withdrawn: bool = False
    composites: dict[str, Question] | None = None
    around_all: tuple[Any, ...] = ()
    """The middleware of the program that runs here: it surrounds whatever runs below, as that of a runner does."""
    around_nodes: tuple[Any, ...] = ()
    """The middleware that surrounds the calls of nodes below, but not those of agents."""
    path: str = _Path()  # pyright: ignore[reportAssignmentType]  # it returns a str, and becomes one
    address: str = _FromAbove("address", _address)  # pyright: ignore[reportAssignmentType]  # likewise
    """The address that people see: the path without the engine's internal segments."""
    surrounding: tuple[Level, ...] = _FromAbove("surrounding", _surrounding)  # pyright: ignore[reportAssignmentType]  # likewise
    """The middleware of this frame and of those above it, outermost first."""

    def __init__(self, scope: Scope, parent: Frame | None, segment: str) -> None:
        self.scope = scope
        self.parent = parent
        self.segment = segment
        self.alive, self.recorded, self.questions = True, False, None
        if parent is None:
            self.path = self.address = segment

    @property
    def title(self) -> str:
        """The name that people see instead of its own; empty if it has none."""
        return ""

    @property
    def instance(self) -> str:
        """Which entry into this place this is: the same across crashes and resumes, new for each loop pass and turn."""
        return self.parent.instance if self.parent else str(self.scope.turn)

    @property
    def values(self) -> dict[str, Any] | None:
        """Session values written in this frame that have not reached its parent yet."""
        raise NotImplementedError

    @property
    def is_done(self) -> bool:
        """Whether it has finished, and is only kept for its result."""
        return False

    def drop_values(self, is_dropped: Callable[[str], bool]) -> None:
        """Forget session values that were written here or below, by their names."""
        for child in self.live_children():
            child.drop_values(is_dropped)
        for _, image in self.scope.dormant.all_below(self.path):
            drop_values(image, is_dropped)

    def wake(self) -> None:
        """Let this frame run again, if it waits."""

    def wait(self) -> None:
        """Keep this frame from running until it is woken."""

    def check_answer(self, question: Question) -> None:
        """Refuse the answer of a question that was asked here or below, if the code could not use it (rule R17).

        Raises:
            ProgramChanged: what asked is gone, or has changed.
            Superseded: the code would ask something else in its place.
        """

    def check_types(self) -> None:
        """Refuse to run code here, or below, with values of types that this process lacks (rule R17).

        Raises:
            ProgramChanged: naming the type.
        """
        for child in self.live_children():
            child.check_types()

    def start_over(self) -> None:
        """Start over what is unfinished, here and below: what it works on was changed by hand."""
        for child in self.live_children():
            child.start_over()

    @property
    def audience(self) -> Audience:
        """Who receives what is emitted here."""
        return EVERYONE if self.parent is None else self.parent.audience

    def accept(self, action: Action) -> str | None:
        """Return the reserved name under which code below keeps an action for this frame; None if it is not for it.

        What cannot be done raises here, in the code that wants it.
        """
        return None

    def find(self, path: str) -> Frame:
        """Return the live frame at `path`, or the nearest one above it."""
        for child in self.live_children():
            if is_under(path, child.path):
                return child.find(path)
        return self

    def live_children(self) -> Iterable[Frame]:
        """Return the frames directly below this one, in task order."""
        return ()

    def bind_dormant(self) -> None:
        """Bind dormant frames directly below this one, if their program is known before any code runs."""

    def snapshot(self) -> Image:
        """Return what changed since the last record."""
        raise NotImplementedError

    def snapshot_all(self, into: dict[str, Image]) -> None:
        """Add everything about this frame and those below it, dormant ones included."""
        raise NotImplementedError

    def close(self) -> None:
        """End this frame and all below it: they write nothing more."""
        scope, self.alive = self.scope, False
        if self.questions or scope.questions.askers:
            scope.questions.forget(self.path, [question.id for question in self.questions or ()])
        for child in self.live_children():
            child.close()
        if scope.dormant:
            scope.forget_below(self.path)

    def drop(self) -> None:
        """End this frame, and drop it with the next record."""
        self.close()
        if self.recorded:
            self.scope.changes.dropped[self.path] = None

    def withdraw_questions(self, after: int = 0) -> None:
        """Forget the questions of this frame, except the first ones."""
        questions = self.questions or []
        for question in questions[after:]:
            self.scope.questions.drop(question.id)
        del questions[after:]
        if self.questions_stored > after:
            self.questions_stored, self.has_withdrawn = after, True

    def put_questions(self, image: Image) -> None:
        """Add to an image which questions are new or gone."""
        if self.has_withdrawn and not image.fresh:
            image.kept = self.questions_stored
        if self.questions:
            new = self.questions[0 if image.fresh else self.questions_stored :]
            image.questions = [question.id for question in new]
            for question in new:
                if question.state is not NONE or question.how is not None or question.optional:
                    self.scope.questions.changed[question.id] = question
        self.questions_stored, self.has_withdrawn = len(self.questions or ()), False

    def read_value(self, key: str) -> object:
        """Return a session value as seen from here: own writes first; `GONE` if there is none."""
        frame: Frame | None = self
        while frame is not None:
            if frame.values and key in frame.values:
                return frame.values[key]
            frame = frame.parent
        return GONE

    def all_values(self) -> dict[str, Any]:
        """Return every session value as seen from here, uncopied."""
        above = self.parent.all_values() if self.parent else {}
        return {key: value for key, value in {**above, **(self.values or {})}.items() if value is not GONE}


class Changes(Struct, eq=False):
    """What the next record must hold: frames with something new, frames that ended, dormant frames that were touched.

    `turn`, `user_id`, `usage` and `unsettled` are those on record.
    """

    turn: int = 0
    user_id: str | None = None
    usage: Usage = NOTHING_USED
    unsettled: Mapping[str, Unsettled] = NOTHING_UNSETTLED
    dirty: dict[Frame, None] = {}
    dropped: dict[str, None] = {}
    touched: dict[str, Image] = {}

    def clear(self) -> None:
        """Start over after a record was made, which may have taken over what was touched."""
        self.dirty.clear()
        if self.dropped:
            self.dropped.clear()
        self.touched = {}

    def __bool__(self) -> bool:
        return bool(self.dirty or self.touched)


class Scope:
    """The live session: its identity, and what all of its frames share while it runs.

    `session_user` is whose session it is, and `user_id` whose turn: that of the session's user, or of nobody.

    Between two calls:

    - Frames, `questions`, `changes` and `dormant` are touched on `thread` alone, which runs `loop`. Code in another
      thread comes here through `on_loop` and `await_on_loop`.
    - `changes` has everything that the records made so far lack: a frame is marked by the code that changes it, before
      that code waits for anything.
    - A stored frame is either dormant or live, never both: `note_bound` takes over what it still had to store.
    - `questions.open` has exactly the questions without a `how`, of live and dormant frames.
    - Until a program is bound to what was restored, there is no `root`.
    - Once `closed` is set, the run has let go of its session. What its code left behind is refused (`check_open`).
    """

    # Slots: every run sets and reads nearly all of these, and there are too many for Python's fast instance attributes.
    __slots__ = (
        "app",
        "begun_by",
        "branch",
        "cancellation",
        "changes",
        "clock",
        "closed",
        "deps",
        "dormant",
        "first_place",
        "for_agents",
        "has_boundaries",
        "has_reader",
        "interrupts",
        "log",
        "logs_events",
        "loop",
        "max_steps",
        "metadata",
        "needs_deps",
        "program_options",
        "questions",
        "root",
        "session_id",
        "session_user",
        "share",
        "slots",
        "speakers",
        "thread",
        "turn",
        "turn_options",
        "unsettled",
        "usage",
        "user_id",
        "yield_deadline",
    )

    log: Recorder
    root: Frame
    loop: asyncio.AbstractEventLoop
    thread: int

    def __init__(self, session_id: str, *, app: str, user_id: str | None, clock: Callable[[], float]) -> None:
        self.session_id: str = session_id
        self.app: str = app
        self.session_user: str | None = user_id
        self.user_id: str | None = user_id
        self.clock: Callable[[], float] = clock
        self.branch: str = ""
        self.first_place: str = ""
        """The name of the very first branch of the lineage; empty if that is this one."""
        self.turn: int = 0
        self.turn_options: Mapping[str, Any] = NO_OPTIONS
        self.for_agents: Mapping[str, Any] = NO_OPTIONS  # Any: what a program stores for each of its agents, as JSON
        self.metadata: dict[str, Any] = NO_METADATA
        """What the caller of the turn noted; every checkpoint of the turn is listed with it."""
        self.needs_deps: bool = False
        self.speakers: tuple[str, ...] | None = None
        """Who has told the model something in this turn, beside its user; None if requesters may approve (rule V19)."""
        self.usage: Usage = NOTHING_USED
        self.unsettled: Mapping[str, Unsettled] = NOTHING_UNSETTLED
        """The calls of this turn that may happen at most once, have begun and have no result, by their digests."""
        self.yield_deadline: float = 0.0
        self.has_boundaries: bool = True
        self.has_reader: bool = False
        self.logs_events: bool = False
        self.interrupts: bool = True
        self.max_steps: int | None = None
        self.share: Share | None = None
        self.slots: asyncio.Semaphore | None = None
        self.deps: Any = None  # Any: whatever the user passes
        self.program_options: Any = None  # Any: whatever the runner has for its program, which knows the type
        self.begun_by: Scope | None = None
        """The session whose code began this run, and perhaps waits for it."""
        self.closed: Exception | None = None
        self.questions: Questions = Questions()
        self.changes: Changes = Changes()
        self.dormant: Dormant = Dormant()
        self.cancellation: Cancellation = Cancellation()

    def next_input(
        self,
        options: Mapping[str, Any],
        user_id: str | None,
        metadata: dict[str, Any],
        for_agents: Mapping[str, Any] = NO_OPTIONS,
    ) -> None:
        """Begin a turn of this user: usage is counted from here; its options, and whether it has deps, are stored."""
        self.turn += 1
        self.user_id = user_id
        self.usage, self.unsettled = NOTHING_USED, NOTHING_UNSETTLED
        self.turn_options, self.needs_deps = options, self.deps is not None
        self.for_agents, self.metadata = for_agents, metadata

    def replace_for_agents(self, for_agents: Mapping[str, Any]) -> None:
        """Give single agents other options for the rest of the turn."""
        if for_agents:
            self.for_agents = {**self.for_agents, **for_agents}
            self.changes.turn = -1  # What belongs to the turn is stored again.

    # Its lineage

    @property
    def place(self) -> str:
        """The name of this branch of this session."""
        return place_of(self.app, self.session_id, self.branch)

    @property
    def lineage(self) -> str:
        """The name of the very first branch, which all forks and branches of a session share."""
        return self.first_place or self.place

    def leave_branch(self, branch: str) -> None:
        """Continue on a new branch."""
        self.first_place, self.branch = self.lineage, branch

    # Dormant frames

    def restore(self, tree: Tree) -> None:
        """Take in a folded session, whose frames are dormant until a program is bound to them.

        Raises:
            CheckpointCorrupt: these are records of another session.
        """
        self._check_whose(tree)
        self.turn, self.user_id = tree.turn, tree.user
        self.turn_options, self.needs_deps = tree.options, tree.needs_deps
        self.for_agents, self.metadata = tree.for_agents, tree.metadata
        if tree.speakers is not None:
            self.speakers = tuple(tree.speakers)
        self.first_place = tree.lineage
        self.usage = tree.usage or NOTHING_USED
        self.unsettled = tree.unsettled or NOTHING_UNSETTLED
        self.changes.turn, self.changes.user_id = self.turn, self.user_id
        self.changes.usage, self.changes.unsettled = self.usage, self.unsettled
        self.questions.restore(tree)
        self.dormant.restore(tree)

    def count_crash(self) -> None:
        """Count the attempts that a crash has cut off: code that was under way, or about to begin."""
        for path, image in self.dormant.everything():
            if isinstance(image, UserImage) and image.status in (UNSET, "pending"):
                image.attempt = (1 if image.attempt is UNSET else image.attempt) + 1
                self.changes.touched[path] = UserImage(attempt=image.attempt)

    def _check_whose(self, tree: Tree) -> None:
        """Refuse records that contradict their row: they would run as another app or user (rule C12)."""
        is_here = tree.session == self.session_id and tree.app == self.app
        if not is_here or tree.user not in (None, self.session_user):
            raise CheckpointCorrupt(f"the records of session '{self.session_id}' are of another session, app or user")

    def note_bound(self, frame: Frame) -> None:
        """Note that `frame` has replaced what was dormant at its place, and took over what that had to store."""
        changes = self.changes
        if changes.touched and changes.touched.pop(frame.path, None) is not None:
            changes.dirty[frame] = None

    def forget_below(self, path: str) -> None:
        """Drop the dormant frames below `path`: their parent has ended."""
        for below, image in self.dormant.forget_below(path):
            self.questions.forget(below, image.questions)
            self.changes.touched.pop(below, None)

    def start_over_dormant(self, path: str) -> None:
        """Start over what is unfinished in the dormant frames below `path`."""
        for below, image in self.dormant.all_below(path):
            asked = self.questions.named(image.questions)
            image.questions = [question.id for question in asked if not question.is_open]
            for question in asked:
                question.optional = True
                if question.is_open:
                    self.questions.drop(question.id)
            if not image.questions:
                self.questions.askers.pop(below, None)
            if isinstance(image, UserImage) and image.status != "done":
                image.memos = {key: replace(memo.forget_failure(), optional=True) for key, memo in image.memos.items()}
                image.status, image.composites = "pending", {}

    def check_types(self, path: str) -> None:
        """Refuse to wake dormant frames, from `path` up, that hold values of types that this process lacks.

        Raises:
            ProgramChanged: naming the type.
        """
        while (image := self.dormant.at(path)) is not None:
            check_tags(path, image, self.dormant.pieces.get(path, {}))
            path = path.rpartition(";")[0]

    @property
    def is_dormant(self) -> bool:
        """Whether no program has been bound to what was restored."""
        return not hasattr(self, "root")

    # Questions

    def ask(self, frame: Frame, question: Question, address: str) -> None:
        """Open a question of `frame` at `address`, under the next id of that place."""
        questions, path = self.questions, frame.path
        question.requested_by = self.user_id
        if self.speakers is not None or question.requesters is not None:
            own = question.requesters or ()
            question.requesters = tuple(dict.fromkeys((*self._requesters(frame), *own)))
        questions.number(question, address)
        questions.askers[path] = frame
        questions.all[question.id] = question
        questions.add_open(path, question)
        self.changes.dirty[frame] = None

    def answer(
        self,
        question_id: str,
        *,
        how: str,
        value: bytes,
        by: str | None = None,
        at: float | None = None,
        find: Callable[[str], Frame] | None = None,
    ) -> None:
        """End an open question, and let the frame that asked it run again; `value` is the answer as it is stored.

        `find` returns the live frame at a path, or the nearest one above it; without it, one is looked for.

        Raises:
            CheckpointCorrupt: no frame has it open, so the stored answer is not to a question of this session.
        """
        asked = self.questions.close(question_id)
        if asked is None:
            raise CheckpointCorrupt(f"it has an answer to '{question_id}', which nothing asks", self.session_id)
        path, question = asked
        question.how, question.by, question.at = how, by, at
        question.value, question.said = without_message(value)
        self.questions.changed[question_id] = question
        if self.needs_another(question) and (question.said is not None or _is_data(question)):
            self.note_speaker(by)
        self._wake(path, find)

    def _requesters(self, frame: Frame) -> tuple[str, ...]:
        """Return who asks what a frame asks: who edited a call at or above it is in the questions about that call."""
        found = [self.user_id, *(self.speakers or ())]
        above: Frame | None = frame
        while above is not None:
            for asked in above.questions or ():
                found += asked.requesters or () if asked.reason in APPROVALS else ()
            above = above.parent
        return tuple(dict.fromkeys(each for each in found if each is not None))

    def needs_another(self, question: Question) -> bool:
        """Return whether those who ask a question cannot approve it (rule V19)."""
        return self.speakers is not None or question.requesters is not None

    def may_approve(self, frame: Frame, name: str | None) -> bool:
        """Return whether an approval by this person, given before, covers what a frame would ask now (rule V19)."""
        by = (name or "").strip()
        return self.speakers is None or by not in ("", *(each.strip() for each in self._requesters(frame)))

    def note_speaker(self, name: str | None) -> None:
        """Note who has told the model something: what it asks for next in this turn is their request, too."""
        if self.speakers is not None and name is not None and name != self.user_id and name not in self.speakers:
            self.speakers = (*self.speakers, name)
            self.changes.turn = -1  # What belongs to the turn is stored again.

    def note_editors(self, question: Question) -> None:
        """Note that a call runs as somebody has edited it: the model reads what those wrote who request it now."""
        for name in question.requesters or ():
            self.note_speaker(name)

    def forget_speakers(self) -> None:
        """Let what was said in a turn that has ended count no more."""
        if self.speakers:
            self.speakers = ()

    def reopen_approvals(self) -> None:
        """Reopen the approvals that were given on the branch being left, and make their askers wait.

        What has finished has spent its approval and stays finished.
        """
        for path, asker in self.questions.askers.items():
            if isinstance(asker, Frame):
                asked = () if asker.is_done else asker.questions or ()
            else:
                is_user = isinstance(asker, UserImage)
                asked = self.questions.named(asker.questions) if is_user and asker.status != "done" else ()
            spent = [question for question in asked if question.is_spent]
            for question in spent:
                question.reopen(self.clock())
                self.questions.add_open(path, question)
            if spent and isinstance(asker, UserImage):
                asker.status = "waiting"
            elif spent and isinstance(asker, Frame):
                asker.wait()

    def supersede(self, frame: Frame, question: Question) -> None:
        """End an open question because its code now asks something else in its place."""
        self.questions.close(question.id)
        question.how, question.void = "abandoned", True
        self.questions.changed[question.id] = question
        self.mark(frame)

    def _wake(self, path: str, find: Callable[[str], Frame] | None) -> None:
        """Let the frame at `path`, and all above it, run again, whether live or dormant."""
        asker = self.questions.askers.get(path)
        frame = asker if isinstance(asker, Frame) else self._touch(path, find)
        while frame is not None:
            frame.wake()
            frame = frame.parent

    def _touch(self, path: str, find: Callable[[str], Frame] | None) -> Frame | None:
        """Wake the images from `path` up, and return the live frame above them, if there is one."""
        while (image := self.dormant.at(path)) is not None:
            if isinstance(image, UserImage):
                image.status = "pending"
                touched = self.changes.touched.get(path)
                attempt = touched.attempt if isinstance(touched, UserImage) else UNSET
                self.changes.touched[path] = UserImage(status="pending", attempt=attempt)
            path, _, segment = path.rpartition(";")
            if segment.startswith("branch:"):
                # A routing's node has ended: what is above it is the graph.
                path = path.rpartition(";")[0]
        return None if self.is_dormant else (find or self.root.find)(path)

    # Calls from user code

    def in_thread(self, call: Callable[[], T]) -> Awaitable[T]:
        """Run a call of user code in one of the session's threads."""
        share = self.share
        if share is None:
            share = self.share = Share(MAX_OF_A_SESSION, self.session_id)
        return share.run(partial(self._assured, call))

    def _assured(self, call: Callable[[], T]) -> T:
        """Make a call in the thread that it has waited for."""
        if self.log.is_unsure:
            self.await_on_loop(self.log.assure)
        return call()

    def on_loop(self, call: Callable[P, T]) -> Callable[P, T]:
        """Return `call` as it can be made from here: on the session's thread, the only one that may touch frames."""
        return call if threading.get_ident() == self.thread else partial(self._carry_over, call)

    def _carry_over(self, call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        self.check_open()
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
            self._check_loop()
        value, error = outcome[0]
        if error is not None:
            raise error
        return value  # pyright: ignore[reportReturnType]  # it is a T: there was no error

    def await_on_loop(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result of a coroutine that runs on the session's event loop, while another thread waits here."""
        self.check_open()
        future = asyncio.run_coroutine_threadsafe(work(), self.loop)
        with waiting():
            while True:
                try:
                    return future.result(1.0)
                except TimeoutError:
                    if future.done():
                        raise  # The coroutine's own.
                self._check_loop()

    def _check_loop(self) -> None:
        if self.loop.is_closed():
            raise Conflict(self.session_id, "the event loop of its run is closed")

    async def yield_to_loop(self) -> None:
        """Yield to the event loop, and check that the session was not lost if that took long."""
        await asyncio.sleep(0)
        await self.log.assure()
        self.yield_deadline = time.monotonic() + TURN

    def check_open(self) -> None:
        """Refuse calls after the run has released its session."""
        if self.closed is not None:
            raise Conflict(self.session_id, "the run that made this call has ended") from self.closed

    # Records

    def mark(self, frame: Frame) -> None:
        """Note that `frame` has something new to store."""
        self.changes.dirty[frame] = None

    def describe_turn(self, record: Record) -> None:
        """Add to a record what belongs to the turn."""
        record.turn, record.options, record.needs_deps = self.turn, dict(self.turn_options), self.needs_deps
        record.for_agents, record.metadata = dict(self.for_agents), self.metadata
        record.speakers = None if self.speakers is None else list(self.speakers)

    def build_record(self, *, full: bool) -> Record:
        """Make a record of all that has changed, or of everything; no changes are left afterwards."""
        changes, questions = self.changes, self.questions
        frames: dict[str, Image] = {} if full else changes.touched
        if full and self.root.recorded:
            self.root.snapshot_all(frames)
        else:
            # In a session that has not been stored yet, everything is marked.
            for frame in changes.dirty:
                if frame.alive:
                    frames[frame.path] = frame.snapshot()
        if full:
            record = self._full_record(frames)
        else:
            record = Record(v=FORMAT, frames=frames, dropped=list(changes.dropped), asked=questions.asked_new)
            for name, question in questions.changed.items():
                record.changed[name] = Change.of(question)
        if full or self.turn != changes.turn:
            changes.turn = self.turn
            self.describe_turn(record)
        if full or self.user_id != changes.user_id:
            record.user = changes.user_id = self.user_id
        if self.usage is not changes.usage or (full and self.usage.calls):
            record.usage = changes.usage = self.usage
        if self.unsettled is not changes.unsettled or (full and self.unsettled):
            record.unsettled, changes.unsettled = dict(self.unsettled), self.unsettled
        changes.clear()
        if questions.asked_new or questions.changed:
            questions.asked_new, questions.changed = {}, {}
        return record

    def _full_record(self, frames: dict[str, Image]) -> Record:
        questions = self.questions
        return Record(
            v=FORMAT,
            full=True,
            frames=frames,
            session=self.session_id,
            app=self.app,
            asked=questions.asked,
            changed=questions.changes(frames) if questions.all else {},
            lineage=self.first_place,
        )


def _is_data(question: Question) -> bool:
    """Return whether an answer gives something to work with, rather than permitting it or only going on."""
    value = bytes(question.value)
    return value not in (b"", b"null") and (question.reason not in APPROVALS or _has_words(question, value))


def _has_words(question: Question, value: bytes) -> bool:
    """Return whether an approval was answered with more than a decision, such as a reason or a text."""
    try:
        given = to_json_data(codec.decode(value, lenient=True))
    except (TypeError, ValueError):
        return True
    match given:
        case bool() | "yes" | "no":
            return False
        case {"decision": "approve", **more}:
            return not more.keys() <= {"remember", "pattern"}
        case {"decision": "reject", **more}:
            return any(more.values())
        case {"decision": "edit"} if question.is_superseded_by_edits:
            return False
        case _:
            return given not in choices_of(question.schema)
