"""Tools that have changed while somebody was asked: nothing else runs than what was approved."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from adjourn import Approve, Edit, Runner, ToolCall, interrupt, tool
from adjourn.errors import InvalidAnswer, ProgramChanged
from adjourn.sessions import Sessions
from adjourn.stores import Store
from tests.agents.calling import agent, call, lone, results, runner

ran: list[Any] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()


@tool(name="pay", approval=True)
async def pay(amount: int, currency: str = "EUR") -> str:
    """Pay."""
    ran.append((amount, currency))
    return "paid"


async def paused(store: Store, *tools: Any, **arguments: Any) -> str:
    made = runner(tools or [pay], call("pay", **(arguments or {"amount": 5})), store=store)
    return lone(await made.run("go", session_id="s"))


async def changed_and_mended(store: Store, asked: str, changed: list[Any], mended: Any = pay) -> None:
    """The changed tools are refused before the answer counts, and the session goes on when they are mended."""
    for answer in (True, Approve(remember="session"), Edit({"amount": 5, "currency": "EUR"})):
        with pytest.raises(ProgramChanged, match="pay"):
            await runner(changed, store=store).resume("s", {asked: answer})
    assert ran == []
    assert [each.id for each in await Sessions(store).pending("s")] == [asked]
    await Sessions(store).answer("s", {asked: True})  # by somebody who does not have the program
    with pytest.raises(ProgramChanged, match="pay"):
        await runner(changed, store=store).recover("s")
    assert results(await runner([mended], store=store).recover("s")) == ["paid"]
    assert ran == [(5, "EUR")]


async def test_a_tool_that_is_gone_is_missed_and_nothing_runs(store: Store) -> None:  # rules R10, R17
    await changed_and_mended(store, await paused(store), [])


async def test_a_tool_of_another_name_is_not_taken_for_it(store: Store) -> None:  # rules R10, R17
    await changed_and_mended(store, await paused(store), [tool(pay.fn, name="Pay"), tool(pay.fn, name="pays")])


async def test_arguments_that_do_not_fit_any_more_are_refused(store: Store) -> None:  # rules R10, R17
    async def other(cents: int) -> str:
        """Pay cents."""
        ran.append(cents)
        return "paid"

    await changed_and_mended(store, await paused(store), [tool(other, name="pay", approval=True)])


async def test_a_parameter_of_another_type_is_refused(store: Store) -> None:  # rules R10, R17
    async def other(amount: str, currency: str = "EUR") -> str:
        """Pay a text."""
        ran.append(amount)
        return "paid"

    await changed_and_mended(store, await paused(store), [tool(other, name="pay", approval=True)])


async def test_a_tool_that_asked_by_itself_and_is_gone_is_missed(store: Store) -> None:  # rules R10, R17
    @tool
    async def ask() -> str:
        """Ask."""
        return f"got {interrupt('What?')}"

    made = runner([ask], call("ask"), store=store)
    asked = lone(await made.run("go", session_id="s"))
    with pytest.raises(ProgramChanged, match="ask"):
        await runner([], store=store).resume("s", {asked: "it"})
    assert results(await runner([ask], store=store).resume("s", {asked: "it"})) == ["got it"]


async def test_a_parameter_that_was_seen_and_is_gone_is_refused(store: Store) -> None:  # rules R10, T1, attack 5
    async def other(amount: int) -> str:
        """Pay in whatever currency."""
        ran.append(amount)
        return "paid"

    await changed_and_mended(store, await paused(store), [tool(other, name="pay", approval=True)])


async def test_an_added_tool_is_fine(store: Store) -> None:  # rules R10, R17
    asked = await paused(store)
    tools = [pay, tool(lambda: "new", name="new")]
    assert (await runner(tools, store=store).resume("s", {asked: True})).status == "done"


async def test_a_tool_that_needs_no_approval_any_more_is_still_decided_by_it(store: Store) -> None:  # rule T4
    asked = await paused(store)
    free = tool(pay.fn, name="pay")
    result = await runner([free], store=store).resume("s", {asked: False})
    assert (result.status, ran) == ("done", [])


async def test_a_tool_that_needs_approval_now_asks_for_what_it_does_from_now_on(store: Store) -> None:  # rule T4
    made = runner([tool(pay.fn, name="pay")], call("pay", amount=1), "one", store=store)
    await made.run("go", session_id="s")
    assert (await runner([pay], call("pay", amount=2), store=store).run("go", session_id="s")).status == "interrupted"
    assert ran == [(1, "EUR")]


async def test_an_edit_is_checked_by_the_tool_as_it_is_now(store: Store) -> None:  # rules R10, T4
    asked = await paused(store)

    async def other(amount: int, currency: str = "EUR", *, limit: int) -> str:
        """Pay with a limit."""
        ran.append((amount, limit))
        return "paid"

    made = runner([tool(other, name="pay", approval=True)], store=store)
    with pytest.raises(ProgramChanged):
        await made.resume("s", {asked: Edit({"amount": 6, "currency": "EUR"})})
    assert ran == []


async def test_the_other_questions_stay_open_when_one_tool_is_gone(store: Store) -> None:  # rules R7, R10
    second = tool(pay.fn, name="pay2", approval=True)
    made = runner([pay, second], [call("pay", "c1", amount=5), call("pay2", "c2", amount=6)], store=store)
    first_id, second_id = [each.id for each in (await made.run("go", session_id="s")).interrupts]
    with pytest.raises(ProgramChanged, match="pay2"):
        await runner([pay], store=store).resume("s", {second_id: True})
    assert [each.id for each in await made.pending("s")] == [first_id, second_id]
    result = await runner([pay, second], store=store).resume("s", {first_id: True, second_id: True})
    assert (result.status, sorted(ran)) == ("done", [(5, "EUR"), (6, "EUR")])


async def test_another_agent_is_not_taken_for_it(store: Store) -> None:  # rules R10, R17
    asked = await paused(store)
    with pytest.raises(ProgramChanged):
        await Runner(agent([pay], name="B"), store=store).resume("s", {asked: True})
    assert ran == []
    assert results(await _finished(store, asked)) == ["paid"]


async def _finished(store: Store, asked: str) -> Any:
    made = runner([pay], store=store)
    return await (made.resume("s", {asked: True}) if await made.pending("s") else made.recover("s"))


async def test_a_remembered_decision_is_no_decision_about_a_tool_of_another_name(store: Store) -> None:  # rule T5
    asked = await paused(store)
    await runner([pay], store=store).resume("s", {asked: Approve(remember="session")})
    other = tool(pay.fn, name="pay2", approval=True)
    again = runner([pay, other], ToolCall(id="c1", name="pay2", arguments={"amount": 1}), store=store)
    assert (await again.run("go", session_id="s")).status == "interrupted"


@pytest.mark.parametrize("pattern", [{"amount": "*"}, {"amount": "5"}, {"amount": True}, {"amount": {"$path": "/a"}}])
async def test_a_pattern_that_cannot_match_is_refused(store: Store, pattern: dict[str, Any]) -> None:  # rules T9, R2
    asked, made = await paused(store), runner([pay], store=store)
    with pytest.raises(InvalidAnswer):
        await made.resume("s", {asked: Approve(remember="session", pattern=pattern)})
    assert len(await made.pending("s")) == 1


@pytest.mark.parametrize("pattern", [{"euros": 100}, {"each": [100]}])
async def test_so_is_a_number_for_a_decimal(pattern: dict[str, Any]) -> None:  # rules T9, R2
    @tool(approval=True)
    async def pay(euros: Decimal, each: list[Decimal] | None = None) -> str:
        """Pay."""
        return "paid"

    made = runner([pay], call("pay", euros="100.00"))
    asked = await made.run("go", session_id="s")
    with pytest.raises(InvalidAnswer, match="expected "):
        await made.resume("s", {lone(asked): Approve(remember="session", pattern=pattern)})
