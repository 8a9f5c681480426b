"""Stores agree: whatever is done in the same order to a memory store, and to SQLite or Redis, ends the same."""

import asyncio
import random
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from adjourn.errors import AdjournError
from adjourn.stores import (
    Answer,
    Head,
    Header,
    Input,
    Lease,
    MemoryStore,
    Question,
    RedisStore,
    SessionRef,
    SQLiteStore,
    Store,
    Write,
)
from adjourn.stores.kit import (
    Audit,
    Cancel,
    Claim,
    Commit,
    Delete,
    DeleteIdle,
    GiveAnswers,
    ListCheckpoints,
    ListDue,
    ListEvents,
    ListInputs,
    ListQuestions,
    ListSessions,
    Load,
    Prune,
    Submit,
    Withdraw,
)
from adjourn.testing import FakeClock
from tests.servers import redis

SESSIONS = ("s", "t")
QUESTIONS = ("q", "r", "p")


class Story:
    """Random calls, many of them sensible; the same seed makes the same calls."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.leases: dict[str, Lease] = {}
        self.heads: dict[str, str] = {}
        self.writes: list[tuple[Lease, list[Write], str, bool]] = []

    def write(self, session: str) -> Write:
        choose = self.random
        branch, _, number = self.heads.get(session, "b.-1").rpartition(".")
        parent = self.heads.get(session)
        if parent and choose.random() < 0.1:
            parent = f"{choose.choice('bcd')}.{choose.randrange(4)}"
            branch, number = choose.choice("bcde"), "-1"
        return Write(
            branch=branch,
            number=int(number) + 1 + (choose.random() < 0.03),
            parent=parent,
            full=number == "-1" or choose.random() < 0.3,
            body=choose.randbytes(choose.randrange(4)),
            header=Header(source=choose.choice(["step", "end", None]), address=choose.choice(["", "a", "a;b"])),
            status=choose.choice(["running", "waiting", "waiting", "done"]),
            asks=tuple(Question(id=each, body=b"{}", expires=self.expiry()) for each in self.some()),
            takes=self.some(),
            closes=tuple(Answer(id=each, value=b"0", how="abandoned") for each in self.some(0.1)),
            events=b"[]",
            event_count=choose.randrange(2),
            program=choose.choice(["", "p"]),
            input=choose.choice([None, None, "i", "j"]),
        )

    def several(self, session: str) -> list[Write]:
        """Mostly one; if more, each after the one before it."""
        writes = [self.write(session)]
        while self.random.random() < 0.2:
            self.heads[session] = writes[-1].id
            writes.append(self.write(session))
        return writes

    def look(self, heads: list[Head]) -> None:
        """Know where the sessions stand; a lease that has expired goes by another name and is refused."""
        self.heads = {head.session: head.checkpoint for head in heads if head.checkpoint}
        self.leases = {
            head.session: Lease(ref=head.ref, owner=head.owner or "x", fence=head.fence, ttl=10) for head in heads
        }

    def some(self, chance: float = 0.25) -> tuple[str, ...]:
        return tuple(each for each in QUESTIONS if self.random.random() < chance)

    def expiry(self) -> float | None:
        return self.random.choice([None, 1_700_000_000.0 + self.random.randrange(60)])

    def answers(self) -> tuple[Answer, ...]:
        return tuple(
            Answer(id=each, value=b"1", how=self.random.choice(["answered", "expired"])) for each in self.some()
        )

    def calls(self, clock: Callable[[float], object]) -> Callable[[Store], Awaitable[object]]:
        """The next call, to be made on each store."""
        choose = self.random
        session = choose.choice(SESSIONS)
        head, lease = self.heads.get(session), self.leases.get(session)
        what = choose.choice(
            ["claim", "claim", "commit", "commit", "commit", "again", "answer", "submit", "other", "time"]
        )
        if what == "commit" and lease and head:
            writes, release = self.several(session), choose.random() < 0.3
            self.writes.append((lease, writes, head, release))
            return lambda store: store.write(Commit(lease=lease, writes=writes, after=head, release=release))
        if what == "again" and self.writes:
            old, writes, after, release = choose.choice(self.writes[-3:])
            return lambda store: store.write(Commit(lease=old, writes=writes, after=after, release=release))
        if what in ("answer", "submit"):
            return self.beside(session, what)
        if what == "other":
            return self.other(session)
        if what == "time":
            clock(choose.choice([0.5, 5.0, 20.0]))
            return due
        first = self.write(session) if choose.random() < 0.8 or head is None else None
        answers = self.answers() if choose.random() < 0.4 else ()
        owner, over = choose.choice("xyz"), choose.choice([None, None, "x"])
        return lambda store: store.write(
            Claim(ref=SessionRef(session), owner=owner, ttl=10, after=head, write=first, answers=answers, replaces=over)
        )

    def beside(self, session: str, what: str) -> Callable[[Store], Awaitable[object]]:
        choose = self.random
        if what == "answer":
            answers, seen = self.answers(), choose.choice([None, None, self.heads.get(session)])
            return lambda store: store.write(GiveAnswers(ref=SessionRef(session), answers=answers, after=seen))
        given = Input(id=choose.choice("ijk"), body=choose.choice([b"1", b"1", b"2"]), program=choose.choice("pq"))
        return lambda store: store.write(Submit(ref=SessionRef(session), input=given))

    def other(self, session: str) -> Callable[[Store], Awaitable[object]]:
        choose = self.random
        keep, ttl, leases = choose.randrange(4), choose.choice([1.0, 30.0]), list(self.leases.values())
        rare: list[Callable[[Store], Awaitable[object]]] = [
            lambda store: store.write(Delete(SessionRef(session))),
            lambda store: deleted(store, ttl),
        ]
        named = choose.choice("ijk")
        usual: list[Callable[[Store], Awaitable[object]]] = [
            lambda store: store.write(Withdraw(SessionRef(session), named)),
            lambda store: store.write(Prune(SessionRef(session), keep=keep)),
            lambda store: store.renew(leases),
            lambda store: store.write(Cancel(SessionRef(session), "now")),
        ]
        return choose.choice(rare if choose.random() < 0.1 else usual)


async def outcome(call: Awaitable[object]) -> object:
    try:
        return await call
    except AdjournError as error:
        return type(error), str(error)


async def deleted(store: Store, ttl: float) -> object:
    return sorted(ref.id for ref in await store.write(DeleteIdle(ttl=ttl)))


async def due(store: Store) -> object:
    return sorted((each.session, each.why) for each in await store.read(ListDue()))


async def everything(store: Store) -> object:
    # Cursors hold a store's own numbers, which have gaps of their own; the order is the same.
    asked = [replace(question, cursor="") for question in await store.read(ListQuestions())]
    found: list[object] = [asked, await due(store)]
    for session in SESSIONS:
        found += [
            await store.read(Load(SessionRef(session))),
            await outcome(store.read(ListCheckpoints(SessionRef(session)))),
            await outcome(store.read(ListEvents(SessionRef(session)))),
            await outcome(store.read(ListInputs(SessionRef(session)))),
        ]
        found += [
            await outcome(store.read(Audit(SessionRef(session)))),
            await outcome(store.read(ListEvents(SessionRef(session), 50, limit=2))),
        ]
        found += [
            await outcome(store.read(Load(SessionRef(session), f"{branch}.{n}"))) for branch in "bcde" for n in range(6)
        ]
        found += [
            await outcome(
                store.read(ListCheckpoints(SessionRef(session), source="step", under="a", before="b.2", limit=2))
            )
        ]
    return found


async def play(seed: int, make: Callable[[FakeClock], Store]) -> None:
    story, clock, choose = Story(seed), FakeClock(), random.Random(seed)
    memory = MemoryStore(clock)
    # As in two processes: what one of them keeps in mind, the other may have changed.
    stores = [make(clock) for _ in range(2)]
    try:
        for _ in range(60):
            call = story.calls(clock.advance)
            assert await outcome(call(memory)) == await outcome(call(choose.choice(stores)))
            heads = await memory.read(ListSessions())
            assert heads == await choose.choice(stores).read(ListSessions())
            story.look(heads)
        assert await everything(memory) == await everything(choose.choice(stores))
    finally:
        for store in stores:
            await store.close()


@given(seed=st.integers(0, 10**9))
def test_memory_and_sqlite_agree(seed: int):  # rule C14
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        asyncio.run(play(seed, lambda clock: SQLiteStore(path, synchronous="NORMAL", clock=clock)))


@given(seed=st.integers(0, 10**9))
@example(seed=16520)  # a record that closes what it asks, decided from memory
@example(seed=614793650)  # a claim that answers what it asks, likewise
@example(seed=25122)  # an owner that does not know which program has been submitted to meanwhile
def test_memory_and_redis_agree(seed: int):  # rule C14
    url = redis().fresh()
    asyncio.run(play(seed, lambda clock: RedisStore(url, clock=clock)))
