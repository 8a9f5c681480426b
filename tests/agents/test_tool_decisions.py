"""What people decide about a call: approve, edit, refuse, or give the result themselves."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from msgspec import Meta, Struct

from adjourn import Approve, ChatModelAgent, Edit, InvalidAnswer, Reject, Respond, Runner, ToolCall, tool
from adjourn.events import ToolCalled
from adjourn.stores import SessionRef, Store
from adjourn.stores.kit import GiveAnswers
from adjourn.stores.types import Answer
from adjourn.testing import ScriptedModel
from tests.agents.calling import agent, all_of, call, lone, results, runner, told

ran: list[Any] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()


@tool(approval=True)
async def pay(amount: Annotated[int, Meta(le=1000)], to: str = "bob") -> str:
    """Pay somebody."""
    ran.append((amount, to))
    return f"paid {amount} to {to}"


async def answered(store: Store, answer: Any, **options: Any) -> Any:
    asked = await runner([pay], call("pay", amount=5), store=store, **options).run("go", session_id="s")
    return await runner([pay], store=store, **options).resume("s", {lone(asked): answer}, by="ann")


@pytest.mark.parametrize("answer", [True, "yes", Approve(), {"decision": "approve"}], ids=repr)
async def test_yes(store: Store, answer: Any) -> None:
    result = await answered(store, answer)
    assert (result.status, ran, results(result)) == ("done", [(5, "bob")], ["paid 5 to bob"])


@pytest.mark.parametrize("answer", [False, "no", Reject(), {"decision": "reject"}], ids=repr)
async def test_no(store: Store, answer: Any) -> None:  # rule T4
    result = await answered(store, answer)
    assert (result.status, ran) == ("done", [])
    assert results(result) == ["A person refused this call."]


@pytest.mark.parametrize("answer", [Reject("too much"), {"decision": "reject", "reason": "too much"}], ids=repr)
async def test_the_model_is_given_the_reason(store: Store, answer: Any) -> None:  # rule T4
    result = await answered(store, answer)
    assert ran == []
    assert results(result) == ["A person refused this call: too much"]


@pytest.mark.parametrize("answer", [Respond("it is done"), {"decision": "respond", "text": "it is done"}], ids=repr)
async def test_a_person_gives_the_result(store: Store, answer: Any) -> None:  # rule T4
    result = await answered(store, answer)
    assert (results(result), ran) == (["it is done"], [])


EDITS: list[Any] = [
    Edit({"amount": 7, "to": "eve"}),
    {"decision": "edit", "arguments": {"amount": 7, "to": "eve"}},
]


@pytest.mark.parametrize("answer", EDITS, ids=repr)
async def test_edited_it_runs_with_the_new_arguments_and_shows_them(store: Store, answer: Any) -> None:  # rule T4
    result = await answered(store, answer)
    assert (ran, results(result)) == ([(7, "eve")], ["paid 7 to eve"])
    (said,) = [message for message in result.messages if message.tool_calls]
    assert said.tool_calls[0].arguments == {"amount": 7, "to": "eve"}
    again = await runner([pay], store=store).messages("s")
    assert again == result.messages


async def test_the_model_sees_the_edited_call(store: Store) -> None:  # rule T4
    asked = await runner([pay], call("pay", amount=5), store=store).run("go", session_id="s")
    made = agent([pay])
    await Runner(made, store=store).resume("s", {lone(asked): Edit({"amount": 7})})
    model: Any = made.models[0]
    (said,) = [message for message in model.requests[0].messages if message.role == "assistant"]
    assert said.tool_calls[0].arguments == {"amount": 7, "to": "bob"}


async def test_the_original_stays_on_record_with_who_edited_it(store: Store) -> None:  # rule T4
    made = runner([pay], call("pay", amount=5), store=store)
    asked = await made.run("go", session_id="s")
    await made.resume("s", {lone(asked): Edit({"amount": 7})}, by="ann")
    before = await made.checkpoint("s", asked.checkpoint_id)
    (said,) = [message for message in before.state["messages"] if message.tool_calls]
    assert said.tool_calls[0].arguments == {"amount": 5}


async def test_those_who_follow_see_the_call_that_runs(store: Store) -> None:  # rule T4
    asked = await runner([pay], call("pay", amount=5), store=store).run("go", session_id="s")
    events = await all_of(runner([pay], store=store).resume("s", {lone(asked): Edit({"amount": 7})}))
    (called,) = [event for event in events if isinstance(event, ToolCalled)]
    assert called.call.arguments == {"amount": 7, "to": "bob"}
    assert [event.result for event in told(events)] == ["paid 7 to bob"]


async def test_an_edit_has_the_whole_arguments(store: Store) -> None:  # rule T4
    asked = await runner([pay], call("pay", amount=5, to="carol"), store=store).run("go", session_id="s")
    (again,) = (await runner([pay], store=store).resume("s", {lone(asked): Edit({"amount": 7})})).interrupts
    assert ("leave out 'to'" in (again.prompt or ""), ran) == (True, [])  # carol was shown, and the default is bob
    await runner([pay], store=store).resume("s", {again.id: Edit({"amount": 7, "to": "carol"})})
    assert ran == [(7, "carol")]


WRONG: list[dict[str, Any]] = [
    {},
    {"to": "bob"},
    {"amount": "7"},
    {"amount": 7, "x": 1},
    {"amount": 7.5},
    {"amount": None},
    {"amount": 5000},
]


@pytest.mark.parametrize("arguments", WRONG, ids=repr)
async def test_an_edit_that_does_not_fit_is_refused_and_the_question_stays(arguments: dict[str, Any]) -> None:
    # rules R2, T4
    made = runner([pay], call("pay", amount=5))
    asked = await made.run("go", session_id="s")
    with pytest.raises(InvalidAnswer):
        await made.resume("s", {lone(asked): Edit(arguments)})
    assert [each.id for each in await made.pending("s")] == [lone(asked)]
    assert ran == []
    assert (await made.resume("s", {lone(asked): True})).status == "done"


class Even(Struct):
    number: int

    def __post_init__(self) -> None:
        if self.number % 2:
            raise ValueError("it is odd")


async def test_an_edit_that_only_the_type_refuses_is_asked_for_again(store: Store) -> None:  # rule T4
    @tool(approval=True)
    async def halve(even: Even) -> str:
        """Halve it."""
        ran.append(even.number)
        return str(even.number // 2)

    made = runner([halve], call("halve", even={"number": 4}), store=store)
    asked = await made.run("go", session_id="s")
    for _ in range(2):
        asked = await runner([halve], store=store).resume("s", {lone(asked): Edit({"even": {"number": 3}})})
        assert asked.interrupts[0].prompt is not None
        assert "odd" in asked.interrupts[0].prompt
        assert asked.interrupts[0].info.arguments == {"even": {"number": 4}}
    assert ran == []
    result = await runner([halve], store=store).resume("s", {lone(asked): Edit({"even": {"number": 6}})})
    assert (ran, results(result)) == ([6], ["3"])


async def test_each_call_is_decided_by_itself_and_the_order_is_that_of_the_calls(store: Store) -> None:
    # rules R7, T4
    calls = [call("pay", f"c{number}", amount=number) for number in range(1, 6)]
    made = runner([pay], calls, store=store)
    asked = await made.run("go", session_id="s")
    ids = [each.id for each in asked.interrupts]
    answers: list[Any] = [True, Reject("no"), Edit({"amount": 30}), Respond("paid by hand"), "yes"]
    for place in (3, 0, 4):
        paused = await made.resume("s", {ids[place]: answers[place]})
        assert paused.status == "interrupted"
    result = await runner([pay], store=store).resume("s", {ids[1]: answers[1], ids[2]: answers[2]})
    assert ran == [(1, "bob"), (5, "bob"), (30, "bob")]
    assert results(result) == [
        "paid 1 to bob",
        "A person refused this call: no",
        "paid 30 to bob",
        "paid by hand",
        "paid 5 to bob",
    ]
    said = next(message for message in result.messages if message.tool_calls)
    assert [each.arguments["amount"] for each in said.tool_calls] == [1, 2, 30, 4, 5]


async def test_what_was_not_answered_stays_open_under_its_id_and_does_not_run(store: Store) -> None:  # rule R7
    made = runner([pay], [call("pay", "c1", amount=1), call("pay", "c2", amount=2)], store=store)
    first, second = (await made.run("go", session_id="s")).interrupts
    paused = await made.resume("s", {second.id: True})
    assert (lone(paused), ran) == (first.id, [(2, "bob")])
    events = await all_of(made.resume("s", {first.id: True}))
    assert [event.call_id for event in told(events)] == ["c1"]
    assert ran == [(2, "bob"), (1, "bob")]


async def test_a_refusal_is_no_failure(store: Store) -> None:  # rule T4
    for answer in (False, Respond("done by hand")):
        asked = await runner([pay], call("pay", amount=5), store=store).run("go", session_id=repr(answer))
        made = runner([pay], store=store, on_tool_error="raise")
        assert (await made.resume(repr(answer), {lone(asked): answer})).status == "done"
    assert ran == []


async def test_a_refused_call_does_not_end_the_turn_of_a_tool_that_returns_directly(store: Store) -> None:
    # rules A2, T4
    asked = await runner([pay], call("pay", amount=5), store=store, return_directly=["pay"]).run("go", session_id="s")
    result = await runner([pay], "sorry", store=store, return_directly=["pay"]).resume("s", {lone(asked): False})
    assert result.output == "sorry"


async def test_a_given_result_of_a_tool_that_returns_directly_is_the_output(store: Store) -> None:  # rules A2, T4
    asked = await runner([pay], call("pay", amount=5), store=store, return_directly=["pay"]).run("go", session_id="s")
    made = runner([pay], store=store, return_directly=["pay"])
    assert (await made.resume("s", {lone(asked): Respond("by hand")})).output == "by hand"


async def test_edited_again_in_later_steps_the_ids_of_the_turn_stay_known(store: Store) -> None:  # rules T2, T4
    made = runner([pay], call("pay", amount=1), store=store)
    asked = await made.run("go", session_id="s")
    asked = await runner([pay], call("pay", "c2", amount=2), store=store).resume(
        "s", {lone(asked): Edit({"amount": 9})}
    )
    asked = await runner([pay], call("pay", "c1", amount=3), store=store).resume("s", {lone(asked): True})
    assert lone(asked) == "agent:A;tool:pay:c1~2"
    result = await runner([pay], store=store).resume("s", {lone(asked): Edit({"amount": 8})})
    said = [message.tool_calls[0] for message in result.messages if message.tool_calls]
    assert [(each.id, each.arguments["amount"]) for each in said] == [("c1", 9), ("c2", 2), ("c1~2", 8)]


async def test_the_same_id_in_the_next_turn_leaves_the_first_turns_edit_alone(store: Store) -> None:  # rule T4
    made = runner([pay], call("pay", amount=1), "one", call("pay", amount=2), "two", store=store)
    await made.resume("s", {lone(await made.run("go", session_id="s")): Edit({"amount": 7})})
    result = await made.resume("s", {lone(await made.run("on", session_id="s")): Edit({"amount": 8})})
    said = [message.tool_calls[0].arguments["amount"] for message in result.messages if message.tool_calls]
    assert said == [7, 8]


async def test_what_to_remember_is_not_said_without_for_how_long(store: Store) -> None:  # rule R2
    asked = await runner([pay], call("pay", amount=5), store=store).run("go", session_id="s")
    with pytest.raises(InvalidAnswer, match="remember"):
        await runner([pay], store=store).resume("s", {lone(asked): {"decision": "approve", "pattern": {"amount": 5}}})
    result = await runner([pay], store=store).resume("s", {lone(asked): True})
    assert (result.status, ran) == ("done", [(5, "bob")])


@pytest.mark.parametrize("answer", [b"42", b"null", b'"maybe"', b'{"decision":"approve","as":"root"}'], ids=repr)
async def test_an_answer_that_came_past_the_checks_is_asked_for_again(store: Store, answer: bytes) -> None:  # rule R2
    asked = await runner([pay], call("pay", amount=5), store=store).run("go", session_id="s")
    await store.write(GiveAnswers(ref=SessionRef("s"), answers=[Answer(id=lone(asked), value=answer)]))
    again = await runner([pay], store=store).recover("s")
    assert (lone(again), ran) == (f"{lone(asked)}#2", [])
    assert "does not fit" in (again.interrupts[0].prompt or "")
    assert (await runner([pay], store=store).resume("s", {lone(again): True})).status == "done"
    assert ran == [(5, "bob")]


async def test_single_arguments_are_edited(store: Store) -> None:  # rule T4
    ran: list[tuple[int, str]] = []

    @tool(approval=True)
    def send(cents: int, to: str) -> str:
        """Send money."""
        ran.append((cents, to))
        return "sent"

    model = ScriptedModel([ToolCall(id="c1", name="send", arguments={"cents": 100, "to": "ann"}), "end"])
    runner = Runner(ChatModelAgent("A", model=model, tools=[send]), store=store)
    (asked,) = (await runner.run("go", session_id="s")).interrupts
    assert asked.info.edit(cents=90) == Edit({"cents": 90, "to": "ann"})
    with pytest.raises(InvalidAnswer):
        await runner.resume("s", {asked.id: asked.info.edit(cents="ninety")})
    with pytest.raises(InvalidAnswer):
        await runner.resume("s", {asked.id: asked.info.edit(cent=90)})
    await runner.resume("s", {asked.id: asked.info.edit(cents=90)})
    assert ran == [(90, "ann")]
