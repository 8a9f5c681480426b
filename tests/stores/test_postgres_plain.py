"""The plain statements of the Postgres store and its function `apply` write the same, or both refuse."""

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Self

import pytest
from msgspec.structs import replace

from adjourn.errors import AdjournError, NotStorable
from adjourn.stores import Answer, Head, Input, Lease, Notice, PostgresStore, Question, SessionRef, Store, Write
from adjourn.stores.kit.effects import Effects
from adjourn.stores.postgres._plain import Plain
from adjourn.stores.postgres._writes import call_of
from adjourn.stores.types import Outcome
from adjourn.testing import FakeClock
from adjourn.testing.suite.bench import Drive, record
from tests.effort import amount
from tests.servers import postgres

from .postgres_clock import Timed, fresh_schema

TTL = 10.0
NAMES = (SessionRef("s"), SessionRef("t", "shop", "ann\\\0b"))
OWNERS = ("ann", "bob")

# What one table keeps, with the id of its session instead of the numbers that each schema gives out for itself.
ROWS = """SELECT '{table}', s.app, s.id, (to_jsonb(t) - 'session' - '{number}')::text
    FROM {schema}.{table} AS t JOIN {schema}.sessions AS s ON s.no = t.session"""
DUMP = " UNION ALL ".join(
    [
        "SELECT 'sessions', s.app, s.id, (to_jsonb(s) - 'no')::text FROM {schema}.sessions AS s",
        ROWS.replace("{table}", "branches").replace("{number}", ""),
        *(ROWS.replace("{table}", table).replace("{number}", "no") for table in ("records", "questions", "inputs")),
        """SELECT 'inbox', s.app, s.id, concat_ws(' ', i.term, i.asked, i.expires, q.id) FROM {schema}.inbox AS i
            LEFT JOIN {schema}.questions AS q ON q.no = i.no LEFT JOIN {schema}.sessions AS s ON s.no = q.session""",
        "SELECT 'outbox', o.app, o.id, to_jsonb(o)::text FROM {schema}.outbox AS o",
    ]
)


Call = Callable[[Store], Awaitable[object]]


class Decided(Exception):
    """What a store would have written."""

    def __init__(self, ref: SessionRef, effects: Effects) -> None:
        super().__init__()
        self.ref = ref
        self.effects = effects


class Plainly(PostgresStore):
    """A store that tells what it would write, and which plain statements have written something."""

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **options)
        self.used: Counter[bytes] = Counter()
        self.only_decides = False

    async def _write(self, ref: SessionRef, effects: Effects) -> list[tuple[Any, ...]]:
        if self.only_decides:
            raise Decided(ref, effects)
        return await super()._write(ref, effects)

    async def _try_plainly(self, plain: Plain, ref: SessionRef) -> list[tuple[Any, ...]]:
        rows = await super()._try_plainly(plain, ref)
        self.used[plain.statement] += bool(rows)
        return rows


class Wholly(PostgresStore):
    """A store that writes everything with `apply`."""

    async def _write(self, ref: SessionRef, effects: Effects) -> list[tuple[Any, ...]]:
        return await self.try_to(*call_of(self._schema, ref, effects), ref.id)


class Tables(Timed):
    """Tables for stores of one of these kinds."""

    kind: type[PostgresStore] = Plainly

    def store(self) -> PostgresStore:
        return self.kind(self.url, schema=self.schema)

    def rows(self) -> list[tuple[Any, ...]]:
        """All that is in the tables."""
        return sorted(self._execute(DUMP.replace("{schema}", self.schema)), key=str)


class WholeTables(Tables):
    """Tables whose stores write everything with `apply`."""

    kind = Wholly


async def outcome(call: Awaitable[object]) -> object:
    try:
        return await call
    except AdjournError as error:
        return type(error), str(error)


async def decision(store: PostgresStore, call: Call) -> Decided | None:
    """What a call would write first; None if that is nothing."""
    assert isinstance(store, Plainly)
    store.only_decides = True
    try:
        await call(store)
    except Decided as found:
        return found
    except AdjournError:
        pass
    finally:
        store.only_decides = False
    return None


def used_by(store: PostgresStore) -> Counter[bytes]:
    assert isinstance(store, Plainly)
    return store.used


class Story:
    """Random calls, most of them sensible; the same seed makes the same calls."""

    def __init__(self, seed: int, clock: FakeClock) -> None:
        self.random = random.Random(seed)
        self.clock = clock
        self.count = 0
        self.leases: dict[SessionRef, Lease] = {}

    def look(self, heads: Mapping[SessionRef, Head | None]) -> None:
        """Know the leases."""
        held = {ref: head for ref, head in heads.items() if head is not None}
        self.leases = {
            ref: Lease(ref=ref, owner=head.owner, fence=head.fence, ttl=TTL) for ref, head in held.items() if head.owner
        }

    def call(self, heads: Mapping[SessionRef, Head | None], open: Mapping[SessionRef, list[str]]) -> Call:
        """The next call, to be made on each store."""
        choose = self.random
        self.count += 1
        ref = choose.choice(NAMES)
        head, chance = heads[ref], choose.random()
        if choose.random() < 0.1:
            self.clock.advance(choose.choice([0.5, 3.0, 11.0]))
        if head is None or chance < 0.2:
            return self.beside(ref, head, open[ref])
        if head.owner is not None and chance < 0.85:
            return self.commit(ref, head)
        return self.claim(ref, head, open[ref])

    def named(self, ref: SessionRef) -> SessionRef:
        """The session, now and then without its user."""
        return ref if self.random.random() < 0.6 else SessionRef(ref.id, ref.app)

    def write(self, head: Head | None, **more: Any) -> Write:
        choose = self.random
        branch, _, number = (head.checkpoint if head and head.checkpoint else "b.-1").rpartition(".")
        parent = head.checkpoint or None if head else None
        if parent and choose.random() < 0.05:
            branch, number = f"c{self.count}", "-1"
        notices = (Notice(id=f"n{self.count}", to="desk", body=b"{}"),) if choose.random() < 0.1 else ()
        events = {"events": b"[]", "event_count": 1} if choose.random() < 0.3 else {}
        facts: dict[str, Any] = {
            "full": number == "-1" or choose.random() < 0.2,
            "program": choose.choice(["", "p"]),
            "status": "running",
            **events,
        }
        made = record(int(number) + 1, parent, choose.randbytes(3), branch=branch, **(facts | more))
        return replace(made, notices=notices)

    def asks(self, most: int) -> tuple[Question, ...]:
        choose = self.random
        return tuple(
            Question(
                id=f"q{self.count % 9}/{each}",
                body=b"{}",
                expires=choose.choice([None, self.clock() + 5]),
                address=choose.choice(["", "a", "a;;b\0", "ü" * 300]),
                agent=choose.choice(["", "desk"]),
                reason=choose.choice(["", "x" * 501]),
                tags=choose.choice([(), ("t",), ("t", "t", 'a "b"', "\\")]),
                asked=self.clock(),
            )
            for each in range(choose.choice([0, 1, 1, most]))
        )

    def commit(self, ref: SessionRef, head: Head) -> Call:
        choose, lease = self.random, replace(self.leases[ref], ref=self.named(ref))
        kind = choose.choice(["step", "step", "ask", *["pause"] * 6, "end", "hand over", "several"])
        if kind == "several":
            first = self.write(head)
            writes = (first, record(first.number + 1, first.id, branch=first.branch))
            return lambda store: store.commit(lease, *writes, after=head.checkpoint)
        more: dict[str, Any] = {
            "step": {},
            "ask": {"asks": self.asks(2)},
            "pause": {"asks": self.asks(2), "status": "waiting"},
            "end": {"status": choose.choice(["done", "failed"])},
            "hand over": {"status": "queued"},
        }[kind]
        write, release = self.write(head, **more), kind not in ("step", "ask")
        if choose.random() < 0.05:
            lease = replace(lease, fence=lease.fence - 1)
        return lambda store: store.commit(lease, write, after=head.checkpoint, release=release)

    def claim(self, ref: SessionRef, head: Head, open: list[str]) -> Call:
        choose = self.random
        how: Outcome = choose.choice(["answered", "answered", "answered", "expired", "abandoned"])
        most = min(len(open), choose.choice([0, 1, 1, 1, 2]))
        answers = [Answer(id=each, value=b"1", how=how, by="eve") for each in choose.sample(open, most)]
        write = replace(self.write(head), overtakes=choose.random() < 0.5) if choose.random() < 0.9 else None
        owner, over = choose.choice(OWNERS), choose.choice([None, None, "ann"])
        ref = self.named(ref)
        return lambda store: store.claim(
            ref, owner, TTL, after=head.checkpoint or None, write=write, answers=answers, replaces=over
        )

    def beside(self, ref: SessionRef, head: Head | None, open: list[str]) -> Call:
        choose, lease = self.random, self.leases.get(ref)
        given = Input(id=choose.choice("ijklm"), body=b"1", program="p")
        answers = [Answer(id=each, value=b"2") for each in open[:1]]
        first, owner = self.write(None), choose.choice(OWNERS)

        def submit(store: Store) -> Awaitable[object]:
            return store.submit(ref, given)

        def answer(store: Store) -> Awaitable[object]:
            return store.answer(ref, answers)

        def begin(store: Store) -> Awaitable[object]:
            return store.claim(ref, owner, TTL, after=None, write=first)

        if head is None or choose.random() < 0.1:
            return choose.choice([begin, begin, begin, submit])
        calls: list[Call] = [
            *(submit, submit),
            lambda store: store.withdraw(ref, given.id),
            *(answer, answer, answer),
            lambda store: store.cancel(ref, "now"),
            lambda store: store.renew([] if lease is None else [lease]),
        ]
        return choose.choice(calls)

    def disturbed(self, effects: Effects) -> Effects:
        """A write, under a guard that may not hold."""
        choose, guard = self.random, effects.guard
        if not guard.exists:
            return effects
        changes: list[dict[str, Any]] = [
            *[dict[str, Any]()] * 8,
            {"fence": None if guard.fence is None else guard.fence + choose.choice([-1, 1])},
            {"owner": None if guard.owner is None else "eve"},
            {"waiting": choose.choice([0, 1])},
            {"inputs": choose.choice([0, 1])},
            {"live": choose.choice([True, False])},
            {"replaces": choose.choice(OWNERS)},
            {"branch": choose.choice(["b", "c"])},
            {"idle": 1.0},
        ]
        return replace(effects, guard=replace(guard, **choose.choice(changes)))


class Both:
    """Two sets of tables that get the same calls, each through two store objects, as in two processes."""

    def __init__(self, seed: int) -> None:
        self.clock = FakeClock()
        self.plain, self.whole = Tables(self.clock), WholeTables(self.clock)
        self.story = Story(seed, self.clock)
        self.stores: list[tuple[PostgresStore, PostgresStore]] = []

    async def __aenter__(self) -> Self:
        self.stores.append((await self.plain.open(), await self.whole.open()))
        self.stores.append((self.plain.store(), self.whole.store()))
        return self

    async def __aexit__(self, *_: object) -> None:
        for each in (store for pair in self.stores for store in pair):
            await each.close()
        self.plain.drop()
        self.whole.drop()

    @property
    def used(self) -> Counter[bytes]:
        """Which plain statements have written something, and how often."""
        schema = self.plain.schema.encode()
        return Counter(text.replace(schema, b"schema") for one, _ in self.stores for text in used_by(one).elements())

    async def go_on(self) -> None:
        """Make the next call; or decide on it, let others be faster, and write what was decided."""
        choose, story = self.story.random, self.story
        one, two = choose.choice(self.stores)
        heads = {ref: await two.head(ref) for ref in NAMES}
        asked = {ref: [each.id for each in await two.questions(ref)] if heads[ref] else [] for ref in NAMES}
        story.look(heads)
        call = story.call(heads, asked)
        self.sync()
        decided = await decision(one, call) if choose.random() < 0.5 else None
        if decided is None:
            assert await outcome(call(one)) == await outcome(call(two))
            return
        if choose.random() < 0.7:
            (ref,) = [each for each in NAMES if each.id == decided.ref.id]
            named = [end.answer.id for end in decided.effects.ends]
            faster = story.beside(ref, heads[ref], named or asked[ref])
            self.clock.advance(choose.choice([0.0, 6.0]))
            self.sync()
            assert await outcome(faster(one)) == await outcome(faster(two))
        effects = story.disturbed(decided.effects)
        assert await outcome(one.apply(decided.ref, effects)) == await outcome(two.apply(decided.ref, effects)), effects

    def sync(self) -> None:
        self.plain.sync()
        self.whole.sync()


@pytest.mark.proof
async def test_plain_statements_write_what_apply_writes():  # rules C1, C14
    used = Counter[bytes]()
    for seed in range(amount(default=8, proof=12, long=100)):
        async with Both(seed) as both:
            for _ in range(90):
                await both.go_on()
                assert both.plain.rows() == both.whole.rows(), seed
            used += both.used
    assert len(used) == 6, used  # a run begins, steps, pauses, ends, is resumed, and goes on with something new
    assert min(used.values()) >= 5, used


@pytest.mark.parametrize("count", [1, 2])  # one is asked plainly
@pytest.mark.parametrize(
    "labels", [{"agent": "\ud800"}, {"reason": "\ud800"}, {"address": "\ud800"}, {"tags": ("\ud800",)}]
)
async def test_labels_that_are_not_text_are_refused(labels: dict[str, Any], count: int):
    store = PostgresStore(postgres().url, schema=fresh_schema())
    run = Drive(store)
    await run.start()
    with pytest.raises(NotStorable):
        await run.pause(*(Question(id=f"q{number}", body=b"{}", **labels) for number in range(count)))
    assert (await run.head()).checkpoint == run.checkpoint
    await store.close()
