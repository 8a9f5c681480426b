"""The inbox: open questions over many sessions, selected, counted and paged."""

from __future__ import annotations

import random
from itertools import count
from typing import get_args

from msgspec.structs import replace

from adjourn.errors import UsageError
from adjourn.stores.kit import CountQuestions, Delete, FindSessions, GiveAnswers, ListOpen, ListQuestions
from adjourn.stores.protocol import Store
from adjourn.stores.types import OpenQuestion, Order, Question, QuestionFilter, SessionRef
from adjourn.testing.clock import FakeClock

from .bench import Bench, Drive, paused, record, refused, yes
from .log import HOSTILE

_ADDRESSES = (
    *("", "agent:A", "agent:A;tool:pay:c1", "agent:AB;tool:pay:c1", "agent:A;agent:B;tool:pay:c2", "node:a"),
    *("runnable:desk;node:a", "runnable:desk;node:ab", "runnable:desk;node:a;node:b", "node:%", "node:_"),
)
_BEYOND = "1.0_99999999999999999999999999999"  # no database counts that far
_AGENTS = ("", "A", "B", "a", "%")
_REASONS = ("need_input", "tool_approval", "tool", "")
_TAGS = ("money", "urgent", "mone", "money ", "%", "_")


class InboxSuite(Bench):
    """Which questions a filter selects, in which order, and in which pages."""

    async def test_filters_select_what_a_plain_search_selects(self) -> None:
        """Any combination of them, with limits, counts and cursors."""
        chance, clock = random.Random(12), FakeClock()
        async with self.fresh(clock) as store:
            asked = await self._fill(store, chance, clock())
            for _ in range(150):
                wanted, order = _some_filter(chance, clock()), chance.choice(get_args(Order))
                in_order = sorted(asked, key=lambda pair: _place(order, pair[1]))
                expected = [(session.id, each.id) for session, each in in_order if _is_wanted(wanted, session, each)]
                found = await store.read(ListQuestions(filter=wanted, order=order))
                assert _names(found) == expected, (wanted, order)
                assert await store.read(CountQuestions(wanted)) == len(expected)
                place = chance.randrange(len(found) + 1)
                after = found[place - 1].cursor if place else None
                page = ListQuestions(filter=wanted, after=after, limit=2, order=order)
                assert await store.read(page) == found[place : place + 2], (wanted, order)

    async def _fill(self, store: Store, chance: random.Random, now: float) -> list[tuple[SessionRef, Question]]:
        """Ask questions in some sessions, and return them in the order of writing."""
        asked: list[tuple[SessionRef, Question]] = []
        numbers = count()
        for number in range(12):
            run = Drive(store, f"s{number}")
            await run.start(app=chance.choice(("shop", "desk", "~own")), user=chance.choice((None, "u1", "u2")))
            asks = [_some_question(chance, f"q{next(numbers)}", now) for _ in range(chance.randrange(6))]
            asked += [(run.ref, each) for each in asks]
            await run.pause(*asks)
        return asked

    async def test_a_question_is_listed_with_what_it_is_selected_by(self) -> None:
        """The labels come back as they were given, also of one session."""
        async with self.fresh() as store:
            labels = ("agent:A;tool:pay:c1", "A", "tool_approval")
            address, agent, reason = labels
            tags = ("money", "urgent")
            asked = Question(id="q", body=b"{}", address=address, agent=agent, reason=reason, tags=tags, asked=12.25)
            asked = replace(asked, requested_by="u2")
            await _ask(store, "s", asked, user="u1")
            (found,) = await store.read(ListQuestions())
            assert (found.address, found.agent, found.reason) == labels
            assert (found.tags, found.asked, found.user) == (("money", "urgent"), 12.25, "u1")
            assert (found.requested_by, found.removed_after) == ("u2", None)
            assert await store.read(ListOpen(SessionRef("s", user="u1"))) == [found]

    async def test_labels_and_filters_are_only_text(self) -> None:
        """Whatever a database would make of them."""
        async with self.fresh() as store:
            for n, text in enumerate(HOSTILE):
                asked = Question(id="q", body=b"{}", address=text, agent=text, reason=text, tags=(text,), asked=n)
                await _ask(store, f"s{n}", asked, user=text)
            for n, text in enumerate(HOSTILE):
                filters = (
                    *(QuestionFilter(user=text), QuestionFilter(agent=text), QuestionFilter(reason=text)),
                    *(QuestionFilter(tag=text), QuestionFilter(user=text, agent=text, reason=text, tag=text)),
                )
                for wanted in filters:
                    assert _names(await store.read(ListQuestions(filter=wanted))) == [(f"s{n}", "q")]
                    assert await store.read(CountQuestions(wanted)) == 1
                assert (f"s{n}", "q") in _names(await store.read(ListQuestions(filter=QuestionFilter(under=text))))

    async def test_what_is_under_an_address(self) -> None:
        """At the borders of segments; nothing is a pattern."""
        async with self.fresh() as store:
            for n, address in enumerate(_ADDRESSES):
                await _ask(store, f"s{n}", Question(id="q", body=b"{}", address=address, asked=n))

            async def under(address: str) -> list[str]:
                return [each.address for each in await store.read(ListQuestions(filter=QuestionFilter(under=address)))]

            assert await under("") == list(_ADDRESSES)
            assert await under("agent:A") == ["agent:A", "agent:A;tool:pay:c1", "agent:A;agent:B;tool:pay:c2"]
            assert await under("runnable:desk;node:a") == ["runnable:desk;node:a", "runnable:desk;node:a;node:b"]
            assert await under("node:%") == ["node:%"]
            for nothing in ("agent", "agent:", "agent:A;", "tool:pay:c1", ";", "%"):
                assert await under(nothing) == []

    async def test_pages_while_others_ask_and_answer(self) -> None:
        """Whatever is open all the while comes exactly once."""
        chance = random.Random(7)
        async with self.fresh() as store:
            for n in range(20):
                await _ask(store, f"s{n}", Question(id="q", body=b"{}", asked=float(n // 3)))
            stays, seen = {f"s{n}" for n in range(0, 20, 2)}, list[str]()
            after, new = None, 100
            while page := await store.read(ListQuestions(after=after, limit=3)):
                seen += [each.session for each in page]
                after = page[-1].cursor
                for name in {page[-1].session, f"s{chance.randrange(1, 20, 2)}"} - stays:
                    if await store.read(ListOpen(SessionRef(name))):
                        await store.write(GiveAnswers(ref=SessionRef(name), answers=[yes("q")]))
                if new < 105:
                    await _ask(store, f"s{new}", Question(id="q", body=b"{}", asked=float(chance.randrange(7))))
                    new += 1
            assert len(seen) == len(set(seen))
            assert stays <= set(seen)

    async def test_a_cursor_is_one_that_was_listed(self) -> None:
        """Anything else is an error, not an empty page."""
        async with self.fresh() as store:
            await paused(store, "q", "r")
            for wrong in (
                "",
                "1",
                "x_1",
                "nan_1",
                "inf_1",
                "1.0_",
                "1.0_-",
                "1_0",
                " 0.0_1",
                "0.0_1 ",
                "q",
                _BEYOND,
                *HOSTILE,
            ):
                for order in get_args(Order):
                    await refused(UsageError, store.read(ListQuestions(after=wrong, order=order)))
                await refused(UsageError, store.read(ListOpen(SessionRef("s"), after=wrong)))
            first, second = await store.read(ListQuestions())
            assert await store.read(ListQuestions(after=first.cursor)) == [second]
            assert await store.read(ListQuestions(after=second.cursor)) == []
            await refused(UsageError, store.read(ListQuestions(after=first.cursor, order="expiry")))
            by_expiry = await store.read(ListQuestions(order="expiry"))
            await refused(UsageError, store.read(ListQuestions(after=by_expiry[0].cursor)))
            assert await store.read(ListOpen(SessionRef("s"), after=first.cursor)) == [second]
            assert await store.read(ListOpen(SessionRef("s"), after=second.cursor)) == []

    async def test_the_few_that_expire_soon_are_listed_by_age(self) -> None:
        """However many others there are, in pages, and together with other terms."""
        chance, clock = random.Random(3), FakeClock()
        async with self.fresh(clock) as store:
            run, soon, late = Drive(store), clock() + 1_000.0, clock() + 2_000.0
            await run.start()
            numbers = list(range(80))
            chance.shuffle(numbers)
            for number in numbers:
                expires, tags = soon if number % 20 == 7 else late, ("rare",) if number in (7, 8, 47) else ()
                asked = Question(id=f"q{number}", body=b"{}", expires=expires, tags=tags, asked=float(number))
                await run.commit(run.next(asks=(asked,)))
            wanted = QuestionFilter(expires_before=soon + 1.0)
            assert [each.id for each in await store.read(ListQuestions(filter=wanted))] == ["q7", "q27", "q47", "q67"]
            (first,) = await store.read(ListQuestions(filter=wanted, limit=1))
            rest = await store.read(ListQuestions(filter=wanted, after=first.cursor, limit=2))
            assert [each.id for each in rest] == ["q27", "q47"]
            for narrower, ids in (
                (replace(wanted, tag="rare"), ["q7", "q47"]),
                (replace(wanted, asked_after=20.0, asked_before=60.0), ["q27", "q47"]),
            ):
                assert [each.id for each in await store.read(ListQuestions(filter=narrower))] == ids
                assert await store.read(CountQuestions(narrower)) == len(ids)

    async def test_only_what_can_be_answered_is_listed_and_counted(self) -> None:
        """Not what has ended or expired, nor what a branch asks that the head has left, nor a deleted session."""
        clock = FakeClock()
        async with self.fresh(clock) as store:
            labels = QuestionFilter(reason="r", tag="t", under="node:a")

            def asks(id: str, expires: float | None = None) -> Question:
                return Question(id=id, body=b"{}", expires=expires, address="node:a", reason="r", tags=("t",))

            run = Drive(store)
            await run.start(run.next(asks=(asks("left"), asks("kept"))))
            head = record(1, "b.0", branch="c", full=True, asks=(asks("kept"), asks("soon", clock() + self.tick)))
            await run.commit(head)
            await _ask(store, "gone", asks("q"))
            await self._expect(store, labels, ["kept", "soon", "q"])
            await store.write(Delete(SessionRef("gone")))
            await self._expect(store, labels, ["kept", "soon"])
            await self.pass_time(clock, 2 * self.tick)
            await self._expect(store, labels, ["kept"])
            await store.write(GiveAnswers(ref=SessionRef("s"), answers=[yes("kept")]))
            await self._expect(store, labels, [])

    async def _expect(self, store: Store, labels: QuestionFilter, ids: list[str]) -> None:
        for wanted in (QuestionFilter(), QuestionFilter(app="adjourn"), labels):
            assert [each.id for each in await store.read(ListQuestions(filter=wanted))] == ids
            assert await store.read(CountQuestions(wanted)) == len(ids)

    async def test_a_session_is_found_by_its_id_alone(self) -> None:  # rule C12
        """In every app that has one, for its user; those of the library are not shown."""
        async with self.fresh() as store:
            for app, user in (("shop", "u1"), ("desk", "u2"), ("~own", "u1"), ("late", None)):
                await Drive(store, "s").start(app=app, user=user)
                await Drive(store, f"only {app}").start(app=app, user=user)
            found = await store.read(FindSessions("s"))
            assert found == [SessionRef("s", "desk", "u2"), SessionRef("s", "late"), SessionRef("s", "shop", "u1")]
            assert await store.read(FindSessions("s", user="u1")) == [SessionRef("s", "shop", "u1")]
            assert await store.read(FindSessions("only late")) == [SessionRef("only late", "late")]
            for nothing in ("only ~own", "S", *HOSTILE):
                assert await store.read(FindSessions(nothing)) == []


async def _ask(store: Store, session: str, asked: Question, user: str | None = None) -> None:
    run = Drive(store, session)
    await run.start(user=user)
    await run.pause(asked)


def _place(order: Order, asked: Question) -> tuple[bool, float]:
    if order == "age":
        return False, asked.asked
    return asked.expires is None, asked.asked if asked.expires is None else asked.expires


def _names(found: list[OpenQuestion]) -> list[tuple[str, str]]:
    return [(each.session, each.id) for each in found]


def _some_question(chance: random.Random, id: str, now: float) -> Question:
    return Question(
        id=id,
        body=b"{}",
        expires=chance.choice((None, now + 1_000.0, now + 2_000.0)),
        address=chance.choice(_ADDRESSES),
        agent=chance.choice(_AGENTS),
        reason=chance.choice(_REASONS),
        tags=tuple(chance.sample(_TAGS, chance.randrange(4))),
        asked=chance.choice((0.0, 1.5, 2.5, 1e9)),
        requested_by=chance.choice((None, "u1", "u2", "u3")),
    )


def _some_filter(chance: random.Random, now: float) -> QuestionFilter:
    choices: dict[str, tuple[object, ...]] = {
        "app": ("shop", "desk", "~own"),
        "user": ("u1", "u2"),
        "agent": _AGENTS,
        "under": ("", *_ADDRESSES, "agent"),
        "reason": _REASONS,
        "tag": _TAGS,
        "requested_by": ("u1", "u2"),
        "asked_after": (0.0, 1.0, 1.5, 2.0),
        "asked_before": (0.0, 1.5, 2.0, 1e9, 2e9),
        "expires_before": (now + 1_000.0, now + 1_500.0, now + 1e6),
    }
    names = chance.sample(list(choices), chance.choice((0, 1, 1, 2, 2, 3, 4)))
    return QuestionFilter(**{name: chance.choice(choices[name]) for name in names})  # pyright: ignore[reportArgumentType]


def _is_wanted(filter: QuestionFilter, session: SessionRef, asked: Question) -> bool:
    """Tell whether a filter selects a question, as its documentation says it."""
    segments, above = asked.address.split(";"), (filter.under or "").split(";")
    tests = (
        (filter.app, session.app == filter.app),
        (filter.user, session.user == filter.user),
        (filter.agent, asked.agent == filter.agent),
        (filter.under or None, segments[: len(above)] == above),
        (filter.reason, asked.reason == filter.reason),
        (filter.tag, filter.tag in asked.tags),
        (filter.requested_by, asked.requested_by == filter.requested_by),
        (filter.asked_after, asked.asked >= (filter.asked_after or 0.0)),
        (filter.asked_before, asked.asked < (filter.asked_before or 0.0)),
        (filter.expires_before, asked.expires is not None and asked.expires < (filter.expires_before or 0.0)),
    )
    in_own_app = session.app.startswith("~") and filter.app is None
    return not in_own_app and all(holds for wanted, holds in tests if wanted is not None)
