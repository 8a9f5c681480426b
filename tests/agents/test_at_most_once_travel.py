"""Going back before a tool that runs at most once: on the new branch it asks before it runs again."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from adjourn import ChatModelAgent, Message, Reject, Respond, Runner, RunResult, ToolCall, tool
from adjourn.events import ToolCalled
from adjourn.models import ModelRequest
from adjourn.sessions import Sessions
from adjourn.stores import Store
from tests.agents.calling import results


class Shop:
    """An agent that pays what its model says, and a ledger of what was paid."""

    def __init__(self, store: Store | None, amounts: Sequence[int] = (5,)) -> None:
        self.paid: list[int] = []
        self.amounts = list(amounts)

        @tool(at_most_once=True)
        async def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            return f"paid {amount}"

        self.agent = ChatModelAgent("shop", model=self, tools=[pay])
        self.runner = Runner(self.agent, store=store)

    async def generate(self, request: ModelRequest) -> Message:
        if request.messages[-1].role == "tool":
            return Message.assistant("done")
        amount = self.amounts.pop(0) if len(self.amounts) > 1 else self.amounts[0]
        return Message.assistant("", tool_calls=[ToolCall(id="c1", name="pay", arguments={"amount": amount})])

    async def before_the_tool(self, session_id: str = "s") -> str:
        """The checkpoint that the model's answer stands in, and the tool's result does not."""
        points = await self.runner.history(session_id)
        return next(point.id for point in points if "pay" in str(point.next))

    async def back(self, session_id: str = "s") -> RunResult:
        point = await self.before_the_tool()
        return await self.runner.run(session_id=session_id, checkpoint_id=point)


async def test_it_asks_on_the_new_branch_and_runs_when_told_to(store: Store) -> None:  # failures 30
    shop = Shop(store)
    await shop.runner.run("buy", session_id="s")
    assert shop.paid == [5]
    paused = await shop.back()
    (asked,) = paused.interrupts
    assert (asked.reason, asked.info.tool, asked.info.arguments) == ("need_decision", "pay", {"amount": 5})
    assert asked.prompt is not None
    assert "ran before, on a branch that this session has left" in asked.prompt
    assert shop.paid == [5]
    result = await shop.runner.resume("s", {asked.id: True})
    assert (result.status, shop.paid, results(result)) == ("done", [5, 5], ["paid 5"])


async def test_a_person_gives_its_result_instead(store: Store) -> None:  # failures 30
    shop = Shop(store)
    await shop.runner.run("buy", session_id="s")
    (asked,) = (await shop.back()).interrupts
    result = await shop.runner.resume("s", {asked.id: Respond("paid 5, in March")})
    assert (shop.paid, results(result)) == ([5], ["paid 5, in March"])


async def test_a_person_refuses_and_the_model_is_told(store: Store) -> None:  # failures 30
    shop = Shop(store)
    await shop.runner.run("buy", session_id="s")
    (asked,) = (await shop.back()).interrupts
    result = await shop.runner.resume("s", {asked.id: Reject()})
    assert shop.paid == [5]
    assert results(result) == [
        "Error: it ran before, on a branch that this session has left, and running it again was not approved"
    ]


async def test_another_process_asks_too(store: Store) -> None:  # failures 30
    await Shop(store).runner.run("buy", session_id="s")
    other = Shop(store)
    paused = await other.back()
    assert (paused.status, other.paid) == ("interrupted", [])


async def test_each_further_branch_asks_again(store: Store) -> None:  # failures 30
    shop = Shop(store)
    await shop.runner.run("buy", session_id="s")
    point = await shop.before_the_tool()
    for _ in range(3):
        paused = await shop.runner.run(session_id="s", checkpoint_id=point)
        (asked,) = paused.interrupts
        await shop.runner.resume("s", {asked.id: Respond("known")})
    assert shop.paid == [5]


async def test_other_arguments_are_another_call(store: Store) -> None:  # failures 30
    shop = Shop(store, amounts=[5, 7])
    await shop.runner.run("buy", session_id="s")
    first = (await shop.runner.history("s"))[-1].id
    result = await shop.runner.run(session_id="s", checkpoint_id=first)
    assert (result.status, shop.paid) == ("done", [5, 7])


async def test_the_next_turn_of_the_same_branch_is_no_repetition(store: Store) -> None:  # rule T6
    shop = Shop(store)
    for _ in range(2):
        assert (await shop.runner.run("buy", session_id="s")).status == "done"
    assert shop.paid == [5, 5]


@pytest.mark.parametrize("to", ["s", "copy"])
async def test_a_fork_asks_whether_here_or_as_a_session_of_its_own(store: Store, to: str) -> None:  # failures 30
    shop = Shop(store)
    await shop.runner.run("buy", session_id="s")
    await shop.runner.fork("s", checkpoint_id=await shop.before_the_tool(), to=to)
    paused = await shop.runner.recover(to)
    assert (paused.status, shop.paid) == ("interrupted", [5])


async def test_a_fork_without_the_program_asks_too(store: Store) -> None:  # failures 30
    shop = Shop(store)
    await shop.runner.run("buy", session_id="s")
    await Sessions(store).fork("s", checkpoint_id=await shop.before_the_tool(), to="copy")
    paused = await shop.runner.recover("copy")
    assert (paused.status, shop.paid) == ("interrupted", [5])


async def test_a_fork_after_it_has_its_result_and_asks_nothing(store: Store) -> None:  # failures 30
    shop = Shop(store)
    await shop.runner.run("buy", session_id="s")
    await shop.runner.fork("s", to="copy")
    result = await shop.runner.run("buy", session_id="copy")
    assert (result.status, shop.paid) == ("done", [5, 5])


async def test_a_session_that_was_deleted_is_known_no_more(store: Store) -> None:
    shop = Shop(store)
    await shop.runner.run("buy", session_id="s")
    await shop.runner.fork("s", checkpoint_id=await shop.before_the_tool(), to="copy")
    await shop.runner.delete("s")
    assert (await shop.runner.recover("copy")).status == "done"


async def test_readers_are_told_of_the_call_once(store: Store) -> None:  # rule A11
    shop = Shop(store)
    told = [event async for event in shop.runner.run("buy", session_id="s")]
    assert sum(isinstance(event, ToolCalled) for event in told) == 1
    assert not any(isinstance(event, ToolCalled) for event in [event async for event in shop.runner.attach("s")])


async def test_without_a_store_nothing_is_looked_up() -> None:
    shop = Shop(None)
    assert (await shop.runner.run("buy")).status == "done"
    assert shop.paid == [5]
