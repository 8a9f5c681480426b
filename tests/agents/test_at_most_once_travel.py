"""Going back before a tool that runs at most once: on the new branch it asks before it runs again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise

import pytest

from adjourn import ChatModelAgent, Message, Reject, Respond, Runner, RunResult, ToolCall, interrupt, tool
from adjourn.errors import ModelError
from adjourn.events import ToolCalled
from adjourn.models import ModelRequest
from adjourn.sessions import Sessions
from adjourn.stores import Store
from adjourn.testing import FunctionModel, ScriptedModel
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

        self.pay = pay
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

    async def before_it_ever_ran(self) -> str:
        """A checkpoint of a session that was cut off before its tool began."""

        def stop(request: ModelRequest) -> Message:
            raise RuntimeError("cut off")

        broken = ChatModelAgent("shop", model=FunctionModel(stop), tools=[self.pay])
        with pytest.raises(ModelError, match="cut off"):
            await Runner(broken, store=self.runner.store).run("buy", session_id="s")
        return (await self.runner.history("s"))[0].id

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
    assert "may have run before, on another branch or fork of this session" in asked.prompt
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
    (told,) = results(result)
    assert told.startswith("Error: it may have run before, on another branch or fork of this session, and running it")


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


@pytest.mark.parametrize("how", ["delete", "prune"])
async def test_what_ran_is_known_after_its_session_is_gone(store: Store, how: str) -> None:  # rule T6
    shop = Shop(store)
    await shop.runner.run("buy", session_id="s")
    await shop.runner.fork("s", checkpoint_id=await shop.before_the_tool(), to="copy")
    if how == "delete":
        await shop.runner.delete("s")
    else:
        (asked,) = (await shop.back()).interrupts  # On a new branch, so that nothing needs the old one.
        await shop.runner.resume("s", {asked.id: Respond("known")})
        assert await shop.runner.prune("s", keep=1)
    paused = await shop.runner.recover("copy")
    assert (paused.status, shop.paid) == ("interrupted", [5])


async def test_siblings_know_of_each_other(store: Store) -> None:  # rule T6
    shop = Shop(store, amounts=[5])
    first = await shop.before_it_ever_ran()
    for name in ("one", "two", "three"):
        await shop.runner.fork("s", checkpoint_id=first, to=name)
    statuses = [(await shop.runner.recover(name)).status for name in ("one", "two", "three")]
    assert (statuses, shop.paid) == (["done", "interrupted", "interrupted"], [5])


async def test_a_sibling_that_was_deleted_is_still_known(store: Store) -> None:  # rule T6
    shop = Shop(store)
    first = await shop.before_it_ever_ran()
    await shop.runner.fork("s", checkpoint_id=first, to="one")
    await shop.runner.fork("s", checkpoint_id=first, to="two")
    await shop.runner.recover("one")
    await shop.runner.delete("one")
    await shop.runner.delete("s")
    assert ((await shop.runner.recover("two")).status, shop.paid) == ("interrupted", [5])


async def test_siblings_at_the_same_moment_do_not_both_run(store: Store) -> None:  # rule T6
    shop = Shop(store)
    first = await shop.before_it_ever_ran()
    names = [f"fork{number}" for number in range(5)]
    for name in names:
        await shop.runner.fork("s", checkpoint_id=first, to=name)
    await asyncio.gather(*(shop.runner.recover(name) for name in names))
    assert len(shop.paid) <= 1


async def test_forks_of_forks_belong_together(store: Store) -> None:  # rule T6
    shop = Shop(store)
    first = await shop.before_it_ever_ran()
    await shop.runner.fork("s", checkpoint_id=first, to="one")
    await shop.runner.fork("one", to="two")
    await shop.runner.fork("two", to="three")
    await shop.runner.recover("three")
    statuses = [(await shop.runner.recover(name)).status for name in ("one", "two")]
    assert (statuses, shop.paid) == (["interrupted", "interrupted"], [5])


async def edited(shop: Shop, session_id: str) -> None:
    """Give a session some more branches."""
    for tone in ("dry", "kind", "brief"):
        await shop.runner.edit(session_id, {"values": {"tone": tone}})


async def test_a_call_of_the_branches_that_lead_here_is_no_repetition(store: Store) -> None:  # rule T6
    shop = Shop(store)
    for _ in range(2):
        await shop.runner.run("buy", session_id="s")
        await edited(shop, "s")
    other = Shop(store)
    assert (await other.runner.run("buy", session_id="s")).status == "done"
    assert (shop.paid, other.paid) == ([5, 5], [5])


async def test_a_call_after_the_point_where_its_branch_was_left_has_begun_elsewhere(store: Store) -> None:  # rule T6
    shop = Shop(store, amounts=[7, 5])
    await shop.runner.run("buy", session_id="s")
    left = (await shop.runner.history("s"))[0].id
    await edited(shop, "s")
    await shop.runner.run("buy", session_id="s")
    await shop.runner.edit("s", {"values": {"tone": "dry"}}, checkpoint_id=left)
    await edited(shop, "s")
    assert (await Shop(store).runner.run("buy", session_id="s")).status == "interrupted"
    assert shop.paid == [7, 5]


@pytest.mark.parametrize("how", ["keep", "prune", "delete"])
async def test_forks_know_the_branches_that_lead_to_them(store: Store, how: str) -> None:  # rule T6
    shop, names = Shop(store), ["s", "one", "two", "three"]
    await shop.runner.run("buy", session_id="s")
    for name, to in pairwise(names):
        await edited(shop, name)
        await shop.runner.fork(name, to=to)
        if how == "delete":
            await shop.runner.delete(name)
    await edited(shop, "three")
    if how == "prune":
        for name in names:
            await shop.runner.prune(name, keep=1)
    other = Shop(store)
    assert (await other.runner.run("buy", session_id="three")).status == "done"
    assert other.paid == [5]
    if how != "delete":
        # What the fork has done has begun elsewhere, seen from where it was forked.
        assert (await Shop(store).runner.run("buy", session_id="two")).status == "interrupted"


async def test_a_fork_goes_on_with_a_tool_that_was_asking(store: Store) -> None:  # rule T6
    paid: list[bool] = []

    @tool(at_most_once=True)
    async def pay() -> str:
        """Pay."""
        paid.append(interrupt("Which account?", key="account", schema=bool))
        return "paid"

    agent = ChatModelAgent("shop", model=ScriptedModel([ToolCall(id="c1", name="pay"), *["done"] * 9]), tools=[pay])
    runner = Runner(agent, store=store)
    await runner.run("buy", session_id="s")
    for name in ("one", "two"):
        await runner.fork("s", to=name)
    statuses = [(await runner.resume(name, {"account": True})).status for name in ("one", "s", "two")]
    assert (statuses, paid) == (["done", "interrupted", "interrupted"], [True])


async def test_a_new_session_under_an_old_id_is_another_one(store: Store) -> None:  # rule T6
    shop = Shop(store)
    for _ in range(2):
        await shop.runner.run("buy", session_id="s")
        await shop.runner.delete("s")
    assert shop.paid == [5, 5]


async def test_readers_are_told_of_the_call_once(store: Store) -> None:  # rule A11
    shop = Shop(store)
    told = [event async for event in shop.runner.run("buy", session_id="s")]
    assert sum(isinstance(event, ToolCalled) for event in told) == 1
    assert not any(isinstance(event, ToolCalled) for event in [event async for event in shop.runner.attach("s")])


async def test_without_a_store_nothing_is_looked_up() -> None:
    shop = Shop(None)
    assert (await shop.runner.run("buy")).status == "done"
    assert shop.paid == [5]
