"""Whatever people do to sessions, in any order: each of them can be read, verified and gone on with.

The sessions are those of an agent that pays after an approval, asks the user, rings a bell at most once, or fails. Two
runners have a store object each, as two processes would, and keep what a process keeps.
"""

import asyncio
import contextlib
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Literal

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from adjourn import ChatModelAgent, Edit, Message, Reject, Runner, ToolCall, current, interrupt, tool
from adjourn.errors import AdjournError
from adjourn.models import ModelRequest
from adjourn.sessions import Sessions
from adjourn.stores import EncryptedStore, MemoryStore, PostgresStore, RedisStore, SQLiteStore, Store
from adjourn.testing import FunctionModel
from tests.effort import amount
from tests.servers import postgres, redis

LONGEST = 60.0  # seconds that a call may take; without it, one that hangs would say nothing
FORKS = ("f1", "f2")
names = st.sampled_from(("s1", "s1", "s1", "s1", "s2", *FORKS))  # Most of what happens, happens to one of them.
numbers = st.integers(0, 7)
runners = st.integers(0, 1)
texts = st.sampled_from(["hello", "pay:1", "pay:1 pay:1", "ask:a", "ask:a pay:3", "ring", "fail", "ring pay:4"])


class Refused(Exception):
    """What the tool raises that fails."""


class Bank:
    """What was paid, by idempotency key."""

    def __init__(self) -> None:
        self.paid: list[str] = []


def clerk(bank: Bank) -> ChatModelAgent:
    """Return an agent that calls the tools that the user names."""

    @tool(approval=True)
    def pay(cents: int) -> str:
        """Pay."""
        bank.paid.append(current().idempotency_key)
        return f"paid {cents}"

    @tool(at_most_once=True)
    def ring() -> str:
        """Ring the bell."""
        return "rang"

    @tool
    def ask(question: str) -> str:
        """Ask the user."""
        return str(interrupt(question, key="who"))

    @tool
    def fail() -> str:
        """Fail."""
        raise Refused

    tools = {each.name: each for each in (pay, ring, ask, fail)}
    options = {"pay": "cents", "ask": "question"}

    def think(request: ModelRequest) -> str | list[ToolCall]:
        *before, last = request.messages
        if last.role == "tool":
            return "so be it"
        calls: list[ToolCall] = []
        for place, (name, _, given) in enumerate(word.partition(":") for word in last.text.split()):
            if name in tools:
                arguments = {options[name]: int(given) if given.isdigit() else given} if given else {}
                calls.append(ToolCall(id=f"c{len(before)}-{place}", name=name, arguments=arguments))
        return calls or f"you said {last.text}"

    return ChatModelAgent("clerk", model=FunctionModel(think), tools=list(tools.values()), on_tool_error="raise")


class Use(RuleBasedStateMachine):
    """Two processes that use the sessions of one store."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.bank = Bank()
        self.approvals = 0
        self.stores = self.make(Path(self.folder.name))
        self.runners = [Runner(clerk(self.bank), store=store) for store in self.stores]

    def make(self, folder: Path) -> list[Store]:
        raise NotImplementedError

    def teardown(self) -> None:
        async def close() -> None:
            for store in self.stores:
                await store.close()

        self.loop.run(close())
        self.loop.close()
        self.folder.cleanup()

    def attempt(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Do what may be refused, by one of our errors, or may fail because the tool does."""

        async def limited() -> None:
            async with asyncio.timeout(LONGEST):
                await work()

        with contextlib.suppress(AdjournError, Refused):
            self.loop.run(limited())

    async def point(self, name: str, number: int) -> str:
        """Return a checkpoint of a session, or one that cannot be."""
        history = await Sessions(self.stores[0]).history(name)
        return history[number % len(history)].id if history else "none.0"

    # What people do

    @initialize(text=texts)
    def begin(self, text: str) -> None:
        self.say(0, "s1", text, "error", "error")

    @rule(
        who=runners,
        name=names,
        text=texts,
        on_pending=st.sampled_from(["error", "abandon", "finish"]),
        on_busy=st.sampled_from(["error", "cancel"]),
    )
    def say(
        self,
        who: int,
        name: str,
        text: str,
        on_pending: Literal["error", "abandon", "finish"],
        on_busy: Literal["error", "cancel"],
    ) -> None:
        async def work() -> None:
            await self.runners[who].run(text, session_id=name, on_pending=on_pending, on_busy=on_busy)

        self.attempt(work)

    @rule(who=runners, name=names, text=texts, on_pending=st.sampled_from(["error", "abandon"]))
    def submit(self, who: int, name: str, text: str, on_pending: Literal["error", "abandon"]) -> None:
        self.attempt(lambda: self.runners[who].submit(text, session_id=name, on_pending=on_pending))

    @rule(who=runners, name=names)
    def advance(self, who: int, name: str) -> None:
        async def work() -> None:
            await self.runners[who].advance(name)

        self.attempt(work)

    @rule(
        who=runners,
        name=names,
        number=numbers,
        given=st.sampled_from([True, True, True, Reject("no"), Edit({"cents": 9}), "Ann"]),
        goes_on=st.booleans(),
        by_token=st.booleans(),
    )
    def reply(self, who: int, name: str, number: int, given: object, goes_on: bool, by_token: bool) -> None:
        async def work() -> None:
            runner = self.runners[who]
            if not (found := await runner.pending(name)):
                return
            asked = found[number % len(found)]
            answers = {asked.token if by_token else asked.id: given}
            is_approval = asked.reason == "need_approval" and (given is True or isinstance(given, Edit))
            self.approvals += is_approval  # at most: the answer may come too late
            if goes_on:
                await runner.resume(name, answers, by="bob")
            else:
                await runner.answer(name, answers, by="ann")

        self.attempt(work)

    @rule(who=runners, number=numbers)
    def approve(self, who: int, number: int) -> None:
        self.reply(who, "s1", number, given=True, goes_on=True, by_token=True)

    @rule(who=runners, name=names)
    def recover(self, who: int, name: str) -> None:
        async def work() -> None:
            await self.runners[who].recover(name)

        self.attempt(work)

    @rule(who=runners, name=names)
    def cancel(self, who: int, name: str) -> None:
        self.attempt(lambda: self.runners[who].cancel(name))

    @rule(who=runners, name=names, number=numbers)
    def go_back(self, who: int, name: str, number: int) -> None:
        async def work() -> None:
            await self.runners[who].run(None, session_id=name, checkpoint_id=await self.point(name, number))

        self.attempt(work)

    @rule(who=runners, name=names, number=numbers, to=st.sampled_from((*FORKS, None)))
    def fork(self, who: int, name: str, number: int, to: str | None) -> None:
        async def work() -> None:
            await self.runners[who].fork(name, checkpoint_id=await self.point(name, number), to=to or name)

        self.attempt(work)

    @rule(who=runners, name=names, number=st.none() | numbers, text=texts)
    def edit(self, who: int, name: str, number: int | None, text: str) -> None:
        async def work() -> None:
            point = None if number is None else await self.point(name, number)
            await self.runners[who].edit(name, {"messages": [Message.user(text)]}, checkpoint_id=point)

        self.attempt(work)

    @rule(who=runners, name=names, keep=st.integers(0, 3))
    def prune(self, who: int, name: str, keep: int) -> None:
        self.attempt(lambda: self.runners[who].prune(name, keep=keep))

    @rule(who=runners, name=st.sampled_from(("s2", *FORKS)))
    def delete(self, who: int, name: str) -> None:
        self.attempt(lambda: self.runners[who].delete(name))

    @rule(who=runners)
    def restart(self, who: int) -> None:
        """Put another process in the place of one."""
        self.runners[who] = Runner(clerk(self.bank), store=self.stores[who])

    # What holds

    @invariant()
    def all_are_sound_and_can_be_read(self) -> None:  # rules C2, C3, C4, K6
        async def look() -> None:
            async with asyncio.timeout(LONGEST):
                fresh = Runner(clerk(self.bank), store=self.stores[0])
                for session in await fresh.sessions():
                    await self.check(fresh, session.session_id)

        self.loop.run(look())

    async def check(self, runner: Runner, name: str) -> None:
        found = await runner.verify(name)
        assert found.is_sound, (name, found.problems)
        history = await runner.history(name)
        known = {point.id for point in history}
        assert len(known) == len(history)
        assert all(point.parent_id in known for point in history if point.parent_id is not None)
        tree = str(await runner.tree(name))
        assert all(point.id in tree for point in history)
        assert len(await runner.audit(name, all_branches=True)) >= len(await runner.audit(name))
        messages = await Sessions(self.stores[1]).messages(name)
        assert len({message.id for message in messages}) == len(messages)
        # A runner also knows results, and edited arguments, of calls while others of their message wait.
        known_here = (await runner.messages(name))[: len(messages)]
        assert [(each.id, each.text) for each in known_here] == [(each.id, each.text) for each in messages]
        assert list(await runner.pending(name)) == list((await runner.status(name)).interrupts)

    @invariant()
    def nothing_is_paid_unless_somebody_approved(self) -> None:  # rules I13, R3, R16
        assert len(self.bank.paid) <= self.approvals
        assert len(set(self.bank.paid)) == len(self.bank.paid)


class InMemory(Use):
    def make(self, folder: Path) -> list[Store]:
        return [MemoryStore()] * 2


class InSQLite(Use):
    def make(self, folder: Path) -> list[Store]:
        return [SQLiteStore(folder / "use.db", synchronous="NORMAL") for _ in range(2)]


class Encrypted(Use):
    def make(self, folder: Path) -> list[Store]:
        inner = MemoryStore()
        return [EncryptedStore(inner, {"a": b"a" * 32}) for _ in range(2)]


class InRedis(Use):
    def make(self, folder: Path) -> list[Store]:
        url = redis().fresh()
        return [RedisStore(url) for _ in range(2)]


class InPostgres(Use):
    def make(self, folder: Path) -> list[Store]:
        url = postgres().fresh()
        return [PostgresStore(url, pool_size=2) for _ in range(2)]


STEPS = settings(stateful_step_count=30)
TestInMemory = InMemory.TestCase
TestInMemory.settings = settings(STEPS, max_examples=amount(default=20, proof=300, long=3000))
TestInSQLite = InSQLite.TestCase
TestInSQLite.settings = settings(STEPS, max_examples=amount(default=3, proof=30, long=1000))
TestEncrypted = Encrypted.TestCase
TestEncrypted.settings = TestInSQLite.settings
TestInRedis = InRedis.TestCase
TestInRedis.settings = TestInSQLite.settings
TestInPostgres = InPostgres.TestCase
TestInPostgres.settings = settings(STEPS, max_examples=amount(default=1, proof=10, long=300))
