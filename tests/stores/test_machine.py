"""A state machine over every store: any calls in any order, against a simple model of one log, one lease, questions.

Every call is also made on a memory store, and must end there in the same way: with the same result, or with the same
error and text.
"""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace

from adjourn.errors import (
    AdjournError,
    AlreadyResumed,
    CheckpointNotFound,
    Conflict,
    InterruptExpired,
    SessionBusy,
    UnknownInterrupt,
)
from adjourn.stores import (
    Answer,
    Claimed,
    Committed,
    Due,
    EncryptedStore,
    Header,
    Input,
    Lease,
    MemoryStore,
    Notice,
    OpenQuestion,
    Question,
    RedisStore,
    SessionRef,
    SQLiteStore,
    Store,
    TakenNotice,
    Write,
)
from adjourn.stores.kit import (
    Audit,
    Cancel,
    Claim,
    Commit,
    Delete,
    DeleteIdle,
    GetHead,
    GiveAnswers,
    ListAsked,
    ListBranches,
    ListCheckpoints,
    ListDecisions,
    ListDue,
    ListEvents,
    ListInputs,
    ListOpen,
    ListQuestions,
    ListRecords,
    ListSessions,
    Load,
    Prune,
    SettleNotice,
    StoreQuery,
    Submit,
    TakeNotices,
    Withdraw,
)
from adjourn.stores.types import Decided
from adjourn.testing import FakeClock
from tests.effort import amount
from tests.servers import redis

from .postgres_clock import Timed
from .test_docs_store import EXAMPLE, DictStore

T = TypeVar("T")
NAMES = (SessionRef("s"), SessionRef("s", "shop", "ann"))
OWNERS = ("ann", "bob", "carl")
TTL = 10.0
WRONG = (
    *("a gap", "another parent", "an unknown base", "a branch that is not full", "a branch that was left"),
    *("asked before", "asked twice", "ends what was never asked", "ends what it asks", "ends twice"),
    *("an unknown input", "not JSON"),
)
"""What is wrong with a record."""


class Refused(NamedTuple):
    """How a call was refused."""

    error: type[AdjournError]
    text: str


async def outcome(call: Awaitable[T]) -> T | Refused:
    """What a call returns, in an order that is the same for all stores, or how it was refused."""
    try:
        return in_order(await call)
    except AdjournError as error:
        return Refused(type(error), str(error))


def in_order(found: Any) -> Any:  # Any: what any call may return
    """Lists that have no order of their own, and cursors, which have a store's own numbers."""
    if not isinstance(found, list):
        return found
    listed = cast("list[Any]", found)
    if all(isinstance(each, SessionRef | Due) for each in listed):
        return sorted(listed, key=repr)
    return [replace(each, cursor="") if isinstance(each, OpenQuestion | Decided) else each for each in listed]


class Asked:
    """A question of the model."""

    def __init__(self, expires: float | None) -> None:
        self.expires = expires
        self.value: bytes | None = None
        self.how: str | None = None
        self.taken = False


class Model:
    """A session as anybody would explain it; without any record, it has a queue."""

    def __init__(self) -> None:
        self.log: list[Write | None] = []
        self.names: list[str] = []
        self.questions: dict[str, dict[str, Asked]] = {}
        self.owner: str | None = None
        self.end = 0.0
        self.fence = 0
        self.claims = 0
        self.cancel: str | None = None
        self.touched = 0.0
        self.queue: dict[str, Input] = {}
        self.begun: dict[str, Input] = {}

    @property
    def head(self) -> str | None:
        return self.last.id if self.log else None

    @property
    def last(self) -> Write:
        write = self.log[-1]
        assert write is not None
        return write

    @property
    def asked(self) -> dict[str, Asked]:
        return self.questions[self.last.branch] if self.log else {}

    def add(self, write: Write) -> None:
        self.log.append(write)
        self.names.append(write.id)
        self.questions.setdefault(write.branch, {})
        if write.input is not None:
            self.begun[write.input] = self.queue.pop(write.input)
        self.asked.update({each.id: Asked(each.expires) for each in write.asks})
        self.answer(write.closes, taken=True)
        for each in write.takes:
            if each in self.asked and self.asked[each].value is not None:
                self.asked[each].taken = True

    def is_live(self, now: float) -> bool:
        return self.owner is not None and self.end > now

    def untaken(self) -> set[str]:
        return {name for name, each in self.asked.items() if each.value is not None and not each.taken}

    def due(self, now: float) -> list[str]:
        """Why somebody should take it up."""
        over = any(each.value is None and _over(each, now) for each in self.asked.values())
        if self.is_live(now):
            return []
        if self.owner or self.untaken() or over:
            return ["lease"] if self.owner else ["answer"] if self.untaken() else ["question"]
        first, ended = next(iter(self.queue.values()), None), self.last.status if self.log else "done"
        can_begin = first is not None and (ended == "done" or (ended == "failed" and first.abandons))
        return ["input"] if can_begin else []

    def refused_input(self, id: str | None) -> bool:
        """Whether a record cannot begin the turn of this input."""
        return id is not None and id != next(iter(self.queue), None)

    def fold(self, name: str) -> tuple[bytes, ...]:
        bodies: list[bytes] = []
        for write in reversed(self.log[: self.names.index(name) + 1]):
            assert write is not None, "a kept checkpoint is folded from records that are kept"
            bodies.insert(0, write.body)
            if write.full:
                break
        return tuple(bodies)

    def refusal(self, answers: Sequence[Answer], now: float) -> type[AdjournError] | None:
        """Why answers are refused."""
        for given in answers:
            asked = self.asked.get(given.id)
            if asked is None:
                return UnknownInterrupt
            if asked.value is not None:
                return InterruptExpired if (asked.how, given.how) == ("expired", "answered") else AlreadyResumed
            if _over(asked, now) and given.how == "answered":
                return InterruptExpired
        return None

    def answer(self, answers: Sequence[Answer], *, taken: bool) -> None:
        for given in answers:
            asked = self.asked[given.id]
            asked.value, asked.how, asked.taken = given.value, given.how, taken


class Noted:
    """A notice in the outbox of the model."""

    def __init__(self, notice: Notice, ref: SessionRef, now: float) -> None:
        self.notice = notice
        self.ref = ref
        self.due = now if notice.due is None else notice.due
        self.attempt = 0


class StoreMachine(RuleBasedStateMachine):
    """Calls on two store objects that share their data, as two processes do, against the model and a memory store."""

    sessions = st.sampled_from(NAMES)
    which = st.integers(0, 1)
    seldom = st.sampled_from([False, False, False, False, True])
    some = st.lists(st.integers(0, 5), max_size=2, unique=True)

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = FakeClock()
        self.stores = self.make(Path(self.folder.name), self.clock)
        self.twin: Store = MemoryStore(self.clock)
        self.older: list[tuple[SessionRef, Commit]] = []
        self.leases: dict[SessionRef, list[Lease]] = {ref: [] for ref in NAMES}
        self.models: dict[SessionRef, Model] = {}
        self.outbox: dict[str, Noted] = {}
        self.taken: list[TakenNotice] = []
        self.count = 0
        self.repeat: Callable[[], object] | None = None

    def make(self, folder: Path, clock: FakeClock) -> list[Store]:
        raise NotImplementedError

    def teardown(self) -> None:
        for store in self.stores:
            self.loop.run(store.close())
        self.loop.close()
        self.folder.cleanup()

    @initialize()
    def begin_all(self) -> None:
        for ref in NAMES:
            self.begin_one(ref, 0, "ann", 1)

    def lease(self, ref: SessionRef, stale: bool) -> Lease:
        """The newest lease of a session, or the one before it."""
        given = self.leases[ref]
        return given[-2] if stale and len(given) > 1 else given[-1]

    def named(self, model: Model | None, some: list[int]) -> list[str]:
        """Names of questions: mostly of those that are open, sometimes of others or of none."""
        if model is None:
            return ["q" for _ in some[:1]]
        waiting = [name for name, each in model.asked.items() if each.value is None]
        names = [*waiting[-4:], *list(model.asked)[:1], "unknown"]
        return list(dict.fromkeys(names[each % len(names)] for each in some))

    def call(self, which: int, make: Callable[[Store], Awaitable[T]], refusal: type[AdjournError] | None) -> T | None:
        """Make a call that must succeed, or be refused with just this error."""
        made = self.alike(which, make)
        if isinstance(made, Refused):
            assert made.error is refusal, f"{made} instead of {refusal}"
            return None
        assert refusal is None, f"{made!r} instead of {refusal}"
        return made

    def alike(self, which: int, make: Callable[[Store], Awaitable[T]]) -> T | Refused:
        """Make a call that may succeed or be refused, as the memory store decides."""
        made = self.loop.run(outcome(make(self.stores[which])))
        assert made == self.loop.run(outcome(make(self.twin)))
        return made

    def alone(self, which: int, make: Callable[[Store], Awaitable[T]]) -> T:
        """Make a call only on the store, since others may do the same in another order."""
        made = self.loop.run(outcome(make(self.stores[which])))
        assert not isinstance(made, Refused), made
        return made

    def forget(self, ref: SessionRef) -> None:
        """Know nothing more of a session that was removed."""
        self.models.pop(ref, None)
        self.older = [each for each in self.older if each[0] != ref]
        self.repeat = None

    def write(self, model: Model | None, asks: int, **more: Any) -> Write:  # Any: fields of Write
        """The record that would come next."""
        self.count += 1
        model = None if model is None or not model.log else model
        branch, number = ("b", 0) if model is None else (model.last.branch, model.last.number + 1)
        expires = self.clock() + 5 if self.count % 3 == 0 else None
        facts: dict[str, Any] = {
            "branch": branch,
            "number": number,
            "parent": None if model is None else model.last.id,
            "full": number == 0 or self.count % 4 == 0,
            "body": b"%d" % self.count,
            "header": Header(source="step" if self.count % 5 else None, address=("", "a", "a;b")[self.count % 3]),
            "status": "running",
            "events": b"[]",
            "event_count": self.count % 2,
            "program": ("", "p", "q")[self.count % 3],
            "asks": tuple(Question(id=f"q{self.count}/{n}", body=b"{}", expires=expires) for n in range(asks)),
            "notices": self._notices(),
        }
        return Write(**(facts | more))

    def _notices(self) -> tuple[Notice, ...]:
        now = Notice(id=f"n{self.count}", to="desk", body=b"%d" % self.count)
        later = Notice(id=f"l{self.count}", to="audit", body=b"later", due=self.clock() + self.count % 7)
        return ((), (now,), (later, now))[self.count % 3]

    def note(self, ref: SessionRef, notices: tuple[Notice, ...]) -> None:
        self.outbox.update({each.id: Noted(each, ref, self.clock()) for each in notices})

    def lend(self, ref: SessionRef, owner: str, made: Claimed) -> None:
        assert made.lease is not None
        model = self.models[ref]
        self.leases[ref].append(made.lease)
        model.owner, model.end, model.cancel = owner, self.clock() + TTL, None
        model.fence += 1
        model.claims += 1
        model.touched = self.clock()

    # Rules

    @rule(ref=sessions, which=which, owner=st.sampled_from(OWNERS), asks=st.integers(0, 2))
    def begin(self, ref: SessionRef, which: int, owner: str, asks: int) -> None:
        self.begin_one(ref, which, owner, asks)

    def begin_one(self, ref: SessionRef, which: int, owner: str, asks: int) -> None:
        model, write = self.models.get(ref), self.write(None, asks)
        is_new = model is None or not model.log
        refusal = None if is_new else SessionBusy if model and model.is_live(self.clock()) else Conflict
        claim = Claim(ref=ref, owner=owner, ttl=TTL, after=None, write=write)
        made = self.call(which, lambda store: store.write(claim), refusal)
        if made is None:
            return
        model = self.models.setdefault(ref, Model())
        model.add(write)
        self.note(ref, write.notices)
        self.lend(ref, owner, made)
        self.repeat = lambda: self._again(ref, made, which, lambda store: store.write(claim))

    @rule(
        ref=sessions,
        which=which,
        owner=st.sampled_from(OWNERS),
        takes_over=st.booleans(),
        asks=st.integers(0, 2),
        some=st.one_of(st.just([]), some),
        writes=st.booleans(),
        begins=st.sampled_from([None, None, 0, 0, 1]),
    )
    def claim(
        self,
        ref: SessionRef,
        which: int,
        owner: str,
        *,
        takes_over: bool,
        asks: int,
        some: list[int],
        writes: bool,
        begins: int | None,
    ) -> None:
        model, now = self.models.get(ref), self.clock()
        replaces = model.owner if takes_over and model is not None else None
        queued = None if begins is None or model is None else [*model.queue, "unknown"][:2][-1 if begins else 0]
        write = self.write(model, asks, input=queued) if writes else None
        after = "b.0" if model is None else model.head
        given = [Answer(id=each, value=b"%d" % self.count, by="eve") for each in self.named(model, some)]
        request = Claim(ref=ref, owner=owner, ttl=TTL, after=after, write=write, answers=given, replaces=replaces)

        def call(store: Store) -> Awaitable[Claimed]:
            return store.write(request)

        if model is None:
            self.call(which, call, CheckpointNotFound)
            return
        live = model.is_live(now) and model.owner != replaces
        refusal = model.refusal(given, now) or (SessionBusy if live and not given else None)
        if refusal is None and not live and write is None and not model.log:
            refusal = CheckpointNotFound
        if refusal is None and not live and write is not None and model.refused_input(write.input):
            refusal = Conflict
        made = self.call(which, call, refusal)
        if made is None:
            return
        model.answer(given, taken=not live and write is not None)
        model.touched = now
        if live:
            assert made.lease is None
            self.repeat = None
            return
        if write is not None:
            model.add(write)
            self.note(ref, write.notices)
        self.lend(ref, owner, made)
        assert made.claims == model.claims
        self.repeat = (lambda: self._again(ref, made, which, call)) if write is not None else None

    @rule(
        ref=sessions,
        stale=seldom,
        which=which,
        asks=st.integers(0, 2),
        takes=st.booleans(),
        ends=st.sampled_from([None, None, "waiting", "done", "done", "failed"]),
        count=st.integers(1, 3),
        fork=st.sampled_from([None, None, None, 0, 1, 3]),
        closes=st.one_of(st.just([]), some),
        begins=st.sampled_from([False, False, True]),
    )
    def commit(
        self,
        ref: SessionRef,
        which: int,
        *,
        stale: bool,
        asks: int,
        takes: bool,
        ends: Any,  # Any: a status, or None
        count: int,
        fork: int | None,
        closes: list[int],
        begins: bool,
    ) -> None:
        lease = self.lease(ref, stale)
        model = self.models.get(ref)
        if model is None or not model.log:
            first = Commit(lease=lease, writes=(self.write(None, 0),), after="b.0" if model is None else "")
            self.call(which, lambda store: store.write(first), Conflict)
            return
        writes, release = self._writes(model, asks, takes, count, fork), ends is not None
        if ends is not None:
            writes[-1] = _with(writes[-1], status=ends)
        ended = () if fork is not None else self.named(model, closes)
        given = tuple(Answer(id=each, value=b"0", how="abandoned", by="run") for each in ended)
        writes[0] = _with(writes[0], closes=given, input=next(iter(model.queue), None) if begins else None)
        held = (model.fence, model.owner) == (lease.fence, lease.owner)
        request = Commit(lease=lease, writes=writes, after=model.last.id, release=release)

        def call(store: Store) -> Awaitable[Committed]:
            return store.write(request)

        made = self.call(which, call, model.refusal(given, self.clock()) if held else Conflict)
        if made is None:
            return
        self.older = [*self.older[-3:], (ref, request)]
        self._committed(model, writes, ends, made)
        for write in writes:
            is_kept = write is not writes[-1] or not made.answers
            self.note(ref, tuple(each for each in write.notices if is_kept or each.due is not None))
        self.repeat = (lambda: self._again(ref, made, which, call)) if made.cancel is None else None

    def _writes(self, model: Model, asks: int, takes: bool, count: int, fork: int | None) -> list[Write]:
        kept = [name for name, write in zip(model.names, model.log, strict=True) if write is not None]
        if fork is not None:
            self.count += 1
            first = self.write(model, asks, branch=f"b{self.count}", number=0, parent=kept[fork % len(kept)], full=True)
        else:
            first = self.write(model, asks, takes=tuple(model.untaken()) if takes else ())
        writes = [first]
        for number in range(1, count):
            more = self.write(model, 0, branch=first.branch, number=first.number + number, parent=writes[-1].id)
            writes.append(_with(more, full=False))
        return writes

    def _committed(self, model: Model, writes: list[Write], ends: str | None, made: Committed) -> None:
        cancel = model.cancel
        for write in writes:
            model.add(write)
        left = model.untaken() if ends == "waiting" else set[str]()
        assert {each.id for each in made.answers} == left
        assert made.released == (ends is not None and not left)
        assert made.cancel == cancel
        assert made.inputs == len(model.queue)
        model.claims, model.touched = 0, self.clock()
        if made.released:
            model.owner, model.end, model.cancel = None, 0.0, None
        else:
            model.end = self.clock() + TTL

    @rule(
        ref=sessions,
        which=which,
        some=some,
        how=st.sampled_from(["answered", "answered", "expired"]),
        sees=st.booleans(),
    )
    def answer(self, ref: SessionRef, which: int, some: list[int], how: Any, *, sees: bool) -> None:  # Any: an outcome
        model = self.models.get(ref)
        given = [Answer(id=each, value=b"1", how=how) for each in self.named(model, some)]
        refusal = CheckpointNotFound if model is None else model.refusal(given, self.clock())
        request = GiveAnswers(ref=ref, answers=given, after=model.head if sees and model is not None else None)
        if self.call(which, lambda store: store.write(request), refusal) is not None and model is not None and given:
            model.answer(given, taken=False)
            model.touched = self.clock()
            self.repeat = None

    @rule(
        ref=sessions, which=which, to=st.sampled_from([["desk"], ["audit"], ["desk", "audit"]]), limit=st.integers(1, 4)
    )
    def take(self, ref: SessionRef, which: int, to: list[str], limit: int) -> None:
        now = self.clock()
        taken = self.alone(which, lambda store: store.write(TakeNotices(ref.app, to, TTL, limit=limit)))
        ready = [
            each
            for each in self.outbox.values()
            if each.ref.app == ref.app and each.notice.to in to and each.due <= now
        ]
        oldest = sorted(each.due for each in ready)[:limit]
        assert [self.outbox[each.id].due for each in taken] == oldest
        for each in taken:
            known = self.outbox[each.id]
            known.due, known.attempt = now + TTL, known.attempt + 1
            assert (each.attempt, each.body, each.session) == (known.attempt, known.notice.body, known.ref.id)
        self.taken += taken

    @rule(which=which, one=st.integers(0, 100), again=st.sampled_from([None, None, 0.0, 8.0]))
    def settle(self, which: int, one: int, again: float | None) -> None:
        if not self.taken:
            return
        taken = self.taken[one % len(self.taken)]
        known = self.outbox.get(taken.id)
        done = self.alone(which, lambda store: store.write(SettleNotice(taken, again=again)))
        assert done == (known is not None and known.attempt == taken.attempt)
        if known is not None and done and again is None:
            del self.outbox[taken.id]
        elif known is not None and done and again is not None:
            known.due = self.clock() + again

    @rule(ref=sessions, which=which, again=st.integers(0, 5), abandons=st.booleans())
    def submit(self, ref: SessionRef, which: int, again: int, abandons: bool) -> None:
        model = self.models.get(ref)
        known = [] if model is None else [*model.queue.values(), *model.begun.values()]
        self.count += 1
        given = Input(id=f"i{self.count}", body=b"%d" % self.count, program="p", abandons=abandons)
        if again < 2 and known:  # the same once more, or another one under its id
            given = known[self.count % len(known)]
            other = Input(id=given.id, body=b"other")
            if again:
                self.call(which, lambda store: store.write(Submit(ref=ref, input=other)), Conflict)
        head = self.call(which, lambda store: store.write(Submit(ref=ref, input=given)), None)
        assert head is not None
        if given not in known:
            model = self.models.setdefault(ref, Model())
            model.queue[given.id] = given
            model.touched = self.clock()
            self.repeat = None
        assert model is not None
        assert head.inputs == len(model.queue)

    @rule(ref=sessions, which=which, number=st.integers(0, 3))
    def withdraw(self, ref: SessionRef, which: int, number: int) -> None:
        model = self.models.get(ref)
        named = [*(model.queue if model else ()), *(model.begun if model else ()), "unknown"]
        chosen = named[number % len(named)]
        refusal = CheckpointNotFound if model is None else None
        gone = self.call(which, lambda store: store.write(Withdraw(ref, chosen)), refusal)
        if model is None:
            return
        assert gone == (chosen in model.queue)
        if gone:
            del model.queue[chosen]
            self.repeat = None
        if not model.log and not model.queue:
            self.forget(ref)

    @rule(which=which, some=st.lists(sessions, max_size=3), stale=seldom)
    def renew(self, which: int, some: list[SessionRef], stale: bool) -> None:
        held = [(ref, self.lease(ref, stale)) for ref in some]
        renewed = self.call(which, lambda store: store.renew([lease for _, lease in held]), None)
        for (ref, lease), state in zip(held, renewed or [], strict=True):
            model = self.models.get(ref)
            lost = model is None or (model.fence, model.owner) != (lease.fence, lease.owner)
            assert state.lost == lost
            if model is not None and not lost:
                assert state.cancel == model.cancel
                model.end, model.touched = self.clock() + TTL, self.clock()

    @rule(ref=sessions, which=which, mode=st.sampled_from(["now", "after_step"]))
    def cancel(self, ref: SessionRef, which: int, mode: str) -> None:
        model = self.models.get(ref)
        refusal = CheckpointNotFound if model is None else None
        stopped = self.call(which, lambda store: store.write(Cancel(ref, mode)), refusal)
        if model is not None:
            assert stopped == model.is_live(self.clock())
            model.cancel = mode if stopped else model.cancel
            self.repeat = None

    @rule(ref=sessions, which=which, keep=st.integers(0, 3))
    def prune(self, ref: SessionRef, which: int, keep: int) -> None:
        model, store = self.models.get(ref), self.stores[which]
        refusal = CheckpointNotFound if model is None else None
        gone = self.call(which, lambda store: store.write(Prune(ref, keep=keep)), refusal)
        if model is None:
            return
        if not model.log:
            assert gone == 0
            return
        listed = [each for each in model.log if each is not None and each.header.source is not None]
        left = [each.id for each in self.call(which, lambda store: store.read(ListCheckpoints(ref)), None) or []]
        assert len(left) == len(listed) - (gone or 0)
        assert {each.id for each in listed[len(listed) - keep :]} <= set(left)
        for position, write in enumerate(model.log[:-1]):
            # What is not listed goes with what it belongs to; whether it was kept, the store tells.
            if write is not None and not self._has(store, ref, write.id):
                model.log[position] = None
        self.repeat = None

    def _has(self, store: Store, ref: SessionRef, name: str) -> bool:
        async def loaded() -> bool:
            try:
                return await store.read(Load(ref, name)) is not None
            except CheckpointNotFound:
                return False

        return self.loop.run(loaded())

    @rule(ref=sessions, which=which, sure=seldom)
    def delete(self, ref: SessionRef, which: int, sure: bool) -> None:
        model = self.models.get(ref)
        if not sure:
            return
        busy = model is not None and model.is_live(self.clock())
        self.call(which, lambda store: store.write(Delete(ref)), SessionBusy if busy else None)
        if not busy:
            self.forget(ref)

    @rule(which=which, ttl=st.sampled_from([1.0, 15.0, 40.0, 100.0]))
    def delete_idle(self, which: int, ttl: float) -> None:
        now = self.clock()
        idle = {ref for ref, each in self.models.items() if not each.is_live(now) and each.touched < now - ttl}
        gone = self.call(which, lambda store: store.write(DeleteIdle(ttl=ttl)), None)
        assert {(ref.app, ref.id) for ref in gone or []} == {(ref.app, ref.id) for ref in idle}
        for ref in idle:
            self.forget(ref)

    @rule(seconds=st.sampled_from([0.5, 4.0, 11.0, 30.0]))
    def jump(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def lose_the_reply(self) -> None:
        """The last write was made, and its caller, who did not hear of it, makes it again."""
        if self.repeat is not None:
            self.repeat()

    def _again(
        self, ref: SessionRef, made: Claimed | Committed, which: int, call: Callable[[Store], Awaitable[object]]
    ) -> None:
        model = self.models[ref]
        assert self.call(which, call, None) == made
        if model.owner is not None:
            model.end = self.clock() + TTL
            model.touched = self.clock()

    @rule(which=which, one=st.integers(0, 3))
    def repeat_an_older_one(self, which: int, one: int) -> None:
        """A commit comes once more after others, which is a success or not; its records are not written again."""
        if not self.older:
            return
        ref, request = self.older[one % len(self.older)]
        model = self.models[ref]
        made = self.alike(which, lambda store: store.write(request))
        if isinstance(made, Refused):
            return
        self.repeat = None
        if not made.released:
            model.end = model.touched = self.clock()
            model.end += TTL
        elif (model.fence, model.owner) == (request.lease.fence, request.lease.owner):
            model.owner, model.end, model.cancel, model.touched = None, 0.0, None, self.clock()

    @rule(
        ref=sessions,
        which=which,
        stale=seldom,
        wrong=st.sampled_from(WRONG),
        claims=st.booleans(),
        second=st.booleans(),
    )
    def go_wrong(self, ref: SessionRef, which: int, wrong: str, *, stale: bool, claims: bool, second: bool) -> None:
        """A record that does not fit is refused, also behind one that does, and leaves no trace."""
        model = self.models.get(ref)
        if model is None or not model.log or (wrong == "asked before" and not model.asked):
            return
        asked, first = [*model.asked, "unknown"][0], self.write(model, 1)
        new, writes = first, tuple[Write, ...]()
        if second and not claims:
            writes = (first,)
            new = self.write(model, 0, branch=first.branch, number=first.number + 1, parent=first.id)
        fork: dict[str, Any] = {"branch": f"n{self.count}", "number": 0, "full": True, "asks": ()}
        once = Question(id="once", body=b"{}")
        end = Answer(id="once", value=b"", how="abandoned")
        changes: dict[str, dict[str, Any]] = {
            "a gap": {"number": new.number + 1},
            "another parent": {"parent": "c.9"},
            "an unknown base": {**fork, "parent": "c.9"},
            "a branch that is not full": {**fork, "full": False},
            "a branch that was left": {**fork, "branch": next(iter(model.questions))},
            "asked before": {"asks": (Question(id=asked, body=b"{}"), *first.asks[:1])},
            "asked twice": {"asks": (once, once)},
            "ends what was never asked": {"closes": (end,)},
            "ends what it asks": {"asks": (once,), "closes": (end,)},
            "ends twice": {"closes": (replace(end, id=asked), replace(end, id=asked))},
            "an unknown input": {"input": "unknown"},
            "not JSON": {"header": Header(metadata={"x": object()})},
        }
        writes = (*writes, _with(new, **changes[wrong]))
        if claims:
            claim = Claim(ref=ref, owner="dan", ttl=TTL, after=model.head, write=writes[0], replaces=model.owner)
            made = self.alike(which, lambda store: store.write(claim))
        else:
            commit = Commit(lease=self.lease(ref, stale), writes=writes, after=model.last.id)
            made = self.alike(which, lambda store: store.write(commit))
        assert isinstance(made, Refused), (wrong, made)

    @rule(ref=sessions, which=which, after=st.sampled_from(["c.9", "", "b.0"]), answers=st.booleans())
    def see_another_head(self, ref: SessionRef, which: int, after: str, *, answers: bool) -> None:
        """A caller that has not seen the head is refused, and so is a claim that answers what it asks."""
        model = self.models.get(ref)
        if model is None or after == (model.head or ""):
            return
        write = self.write(model, 1)
        given = [Answer(id=each.id, value=b"1") for each in write.asks] if answers and model.log else []
        claim = Claim(ref=ref, owner="dan", ttl=TTL, after=after, write=write, answers=given, replaces=model.owner)
        requests = (claim, replace(claim, after=model.head) if given else claim)
        for request in requests:
            assert isinstance(self.alike(which, lambda store, request=request: store.write(request)), Refused)
        refused = self.alike(which, lambda store: store.write(GiveAnswers(ref, (), after=after)))
        assert isinstance(refused, Refused)

    # What holds between any two calls

    @invariant()
    def the_store_is_as_the_model_says(self) -> None:
        for store in self.stores:
            for ref in NAMES:
                self.loop.run(self._compare(store, ref, self.models.get(ref)))
        self.loop.run(self._compare_with_twin(self.stores[self.count % 2]))

    async def _compare_with_twin(self, store: Store) -> None:  # rule C14
        queries: list[StoreQuery[Any]] = [ListSessions(), ListQuestions(), ListDecisions(), ListDue()]
        for ref in NAMES:
            before = model.head if (model := self.models.get(ref)) is not None else None
            queries += [GetHead(ref), Load(ref), Audit(ref, all_branches=True), ListBranches(ref), ListRecords(ref)]
            queries += [ListEvents(ref), ListEvents(ref, 3, limit=2), ListInputs(ref, limit=2)]
            queries += [ListCheckpoints(ref), ListCheckpoints(ref, 2, before, "step", "a")]
        for query in queries:
            found, expected = await outcome(store.read(query)), await outcome(self.twin.read(query))
            assert found == expected, query

    async def _compare(self, store: Store, ref: SessionRef, model: Model | None) -> None:
        loaded, now, head = await store.read(Load(ref)), self.clock(), await store.read(GetHead(ref))
        assert (head is None) == (model is None)
        assert (loaded is None) == (model is None or not model.log)
        if head is None or model is None:
            return
        assert head.inputs == len(model.queue)
        assert [each.id for each in await store.read(ListInputs(ref))] == list(model.queue)
        due = [each.why for each in await store.read(ListDue(app=ref.app)) if each.session == ref.id]
        assert due == model.due(now)
        if loaded is None:
            assert head.status == "queued"
            return
        assert head == loaded.head
        assert (head.checkpoint, head.fence, head.claims) == (model.last.id, model.fence, model.claims)
        assert head.owner == (model.owner if model.is_live(now) else None)
        assert loaded.rows == model.fold(model.last.id)
        assert {each.id for each in loaded.answers} == model.untaken()
        open_ids = [name for name, each in model.asked.items() if each.value is None and not _over(each, now)]
        assert [each.id for each in await store.read(ListOpen(ref))] == open_ids
        audit = {each.id: each.value for each in await store.read(Audit(ref))}
        assert audit == {name: each.value for name, each in model.asked.items()}
        for branch, asked in model.questions.items():
            found = await store.read(ListAsked(ref, branch, [*asked, "unknown"]))
            assert [(each.id, each.value) for each in found] == [(name, each.value) for name, each in asked.items()]
        for each in await store.read(ListCheckpoints(ref)):
            kept = await store.read(Load(ref, each.id))
            assert kept is not None
            assert kept.rows == model.fold(each.id)


def _over(asked: Asked, now: float) -> bool:
    return asked.expires is not None and asked.expires <= now


def _with(write: Write, **fields: Any) -> Write:  # Any: fields of Write
    return Write(**({name: getattr(write, name) for name in Write.__struct_fields__} | fields))


class MemoryMachine(StoreMachine):
    def make(self, folder: Path, clock: FakeClock) -> list[Store]:
        return [MemoryStore(clock)] * 2


class SQLiteMachine(StoreMachine):
    def make(self, folder: Path, clock: FakeClock) -> list[Store]:
        return [SQLiteStore(folder / "s.db", synchronous="NORMAL", clock=clock) for _ in range(2)]


class EncryptedMachine(StoreMachine):
    def make(self, folder: Path, clock: FakeClock) -> list[Store]:
        inner, keys = MemoryStore(clock), {"a": b"a" * 32, "b": b"b" * 32}
        return [EncryptedStore(inner, keys)] * 2


class RemoteMachine(StoreMachine):
    """Over the example of docs/stores.md."""

    def make(self, folder: Path, clock: FakeClock) -> list[Store]:
        shared = EXAMPLE.Database()
        return [DictStore(shared, clock) for _ in range(2)]


class PostgresMachine(StoreMachine):
    """Over a real server, whose clock the test sets."""

    def make(self, folder: Path, clock: FakeClock) -> list[Store]:
        self.timed = Timed(clock)
        return [self.loop.run(self.timed.open()), self.timed.store()]

    @rule(seconds=st.sampled_from([0.5, 4.0, 11.0, 30.0]))
    def jump(self, seconds: float) -> None:
        super().jump(seconds)
        self.timed.sync()

    def teardown(self) -> None:
        super().teardown()
        self.timed.drop()


class RedisMachine(StoreMachine):
    def make(self, folder: Path, clock: FakeClock) -> list[Store]:
        url = redis().fresh()
        return [RedisStore(url, clock=clock) for _ in range(2)]


TestMemoryMachine = MemoryMachine.TestCase
TestSQLiteMachine = SQLiteMachine.TestCase
TestEncryptedMachine = EncryptedMachine.TestCase
TestRemoteMachine = RemoteMachine.TestCase
TestPostgresMachine = PostgresMachine.TestCase
TestRedisMachine = RedisMachine.TestCase
# Each call takes trips to a server, so there are fewer of them.
TestRedisMachine.settings = settings(max_examples=max(1, settings().max_examples // 5))
TestPostgresMachine.settings = settings(
    TestRedisMachine.settings, stateful_step_count=amount(default=25, proof=50, long=50)
)
