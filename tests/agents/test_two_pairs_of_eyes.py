"""Two pairs of eyes: with `self_approval=False`, nobody approves what they ask for, edited, or led the model to."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

import pytest

from adjourn import (
    AgentTool,
    AlreadyResumed,
    Approve,
    Edit,
    InvalidAnswer,
    Reject,
    Respond,
    Runner,
    Sessions,
    StaleCheckpoint,
    ToolCallInfo,
    current,
    interrupt,
    tool,
    workflow,
)
from adjourn.agents import Approvals, RememberedApproval
from adjourn.errors import AnswerRefused
from adjourn.graph import START, StateGraph
from adjourn.stores import SessionRef, Store
from adjourn.stores.kit import GiveAnswers
from adjourn.stores.types import Answer
from adjourn.tools import approved, decision, reviewed

from .crew import ask, call, chat, ids, model_of, said, seen

PAY = call("pay", euros=100, to="bob")
OWN = {"decision": "edit", "arguments": {"euros": 500, "to": "mallory"}}

paid: list[Any] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    paid.clear()


@tool(approval=True)
async def pay(euros: int, to: str) -> str:
    """Pay somebody."""
    paid.append((euros, to))
    return f"paid {euros} to {to}"


@tool(approval=True)
async def wire(euros: int, to: str) -> str:
    """Pay somebody by wire."""
    paid.append((euros, to))
    return f"wired {euros} to {to}"


check = reviewed(pay.fn)


def desk(store: Store, *script: Any, self_approval: bool = False, **options: Any) -> Runner[Any]:
    """A process that goes on with a model that follows a script."""
    tools = [pay, wire, ask]
    return Runner(chat("A", *(script or ("done",)), tools=tools, **options), store=store, self_approval=self_approval)


async def begun(store: Store, *script: Any, user_id: str | None = "ann", **options: Any) -> None:
    await desk(store, *(script or (PAY,)), **options).run("go", session_id="s", user_id=user_id)


async def opened(store: Store) -> Any:
    (asked,) = await Sessions(store).pending("s")
    return asked


async def edited_by(store: Store) -> str | None:
    """Whose edit the transcript shows."""
    (edited,) = [each.edited for each in (await Sessions(store).state("s"))["entries"] if each.edited is not None]
    return edited.by


def ways(store: Store) -> list[Any]:
    """Every way to answer, none of which has been told of the rule."""
    bare = Runner(chat("A", "done", tools=[pay, wire, ask]), store=store)
    return [bare.resume, bare.for_user("ann").resume, bare.answer, Sessions(store).answer]


# Who may approve


@pytest.mark.parametrize("way", range(4))
async def test_what_is_stored_with_the_question_counts_through_every_door(store: Store, way: int) -> None:  # rule V19
    await begun(store)
    asked = await opened(store)
    assert asked.requesters == ("ann",)
    for yes in (True, "yes", Approve(), {"decision": "approve"}, Respond("done")):
        for name in (asked.id, asked.token):
            with pytest.raises(AnswerRefused, match="somebody else than those who ask for it must approve it"):
                await ways(store)[way]("s", {name: yes}, by="ann")
    assert (await opened(store), paid) == (asked, [])
    await ways(store)[way]("s", {asked.id: True}, by="rita")
    await desk(store).recover("s")
    assert paid == [(100, "bob")]


@pytest.mark.parametrize("way", range(4))
@pytest.mark.parametrize("by", [None, "", "  "])
async def test_an_answer_needs_a_name(store: Store, way: int, by: str | None) -> None:  # rule V18
    await begun(store, [PAY, call("ask", "c2", question="?")])
    for answers in ({"agent:A;tool:pay:c1": True}, {"agent:A;tool:pay:c1": False}, {"agent:A;tool:ask:c2": "x"}, None):
        with pytest.raises(AnswerRefused, match=r"must say who gives it: by=\.\.\."):
            await ways(store)[way]("s", answers, by=by)
    assert len(await Sessions(store).pending("s")) == 2


@pytest.mark.parametrize("no", [False, "no", Reject(), Reject("changed my mind"), {"decision": "reject"}], ids=repr)
async def test_whoever_asks_for_it_may_take_it_back(store: Store, no: Any) -> None:  # rule V19
    await begun(store)
    await desk(store).resume("s", {(await opened(store)).token: no}, by="ann")
    assert ([each.by for each in await Sessions(store).audit("s")], paid) == (["ann"], [])


async def test_a_turn_of_nobody_has_no_requester_and_still_needs_a_name(store: Store) -> None:  # rule V18
    await begun(store, user_id=None)
    asked = await opened(store)
    assert asked.requesters == ()
    with pytest.raises(AnswerRefused):
        await desk(store).resume("s", {asked.id: True})
    await desk(store).resume("s", {asked.id: True}, by="rita")
    assert paid == [(100, "bob")]


async def test_a_response_of_another_person_is_a_decision(store: Store) -> None:  # rule V19
    await begun(store)
    result = await desk(store).resume("s", {(await opened(store)).id: Respond("paid by hand")}, by="rita")
    assert said(result.messages)[1] == "tool: paid by hand"


@pytest.mark.parametrize("reason", ["need_approval", "need_review", "need_decision"])
async def test_questions_of_code_too(store: Store, reason: str) -> None:  # rule V19
    @workflow
    async def refund(_: Any) -> Any:
        name = interrupt("To whom?", key="whom")
        return name, interrupt(f"Refund {name}?", key="sure", reason=reason)

    runner = Runner(refund, store=store, self_approval=False)
    await runner.run(None, session_id="s", user_id="ann")
    await runner.resume("s", {"whom": "bob"}, by="rita")
    for by in ("ann", "rita"):  # She has asked for it; the other one has said to whom.
        for answers in ({"sure": True}, None):
            with pytest.raises(AnswerRefused):
                await runner.resume("s", answers, by=by)
    assert (await runner.resume("s", {"sure": True}, by="carl")).value == ("bob", True)


async def test_where_self_approval_is_allowed_nothing_changes(store: Store) -> None:  # rules T4, T5
    await begun(store, self_approval=True)
    asked = await opened(store)
    assert asked.requesters is None
    result = await desk(store, self_approval=True).resume("s", {asked.id: OWN}, by="ann")
    assert (result.status, paid) == ("done", [(500, "mallory")])
    await desk(store, PAY, self_approval=True).run("go", session_id="t", user_id="ann")
    await desk(store, self_approval=True).resume("t", {asked.id: Approve(remember="always")}, by="rita")
    assert [each.by for each in await Approvals(store).list("ann")] == ["rita"]


async def test_it_counts_for_what_was_asked_without_it(store: Store) -> None:  # rule V19
    await begun(store, self_approval=True)
    asked = await opened(store)
    for strict in (desk(store), Sessions(store, self_approval=False)):
        for by in ("ann", None):
            with pytest.raises(AnswerRefused):
                await strict.answer("s", {asked.id: True}, by=by)
    await desk(store).resume("s", {asked.id: True}, by="rita")
    assert paid == [(100, "bob")]


async def test_a_process_without_the_option_goes_on_under_it(store: Store) -> None:  # rule V19
    await begun(store, [PAY, call("ask", "c2", question="?")])
    loose = Runner(chat("A", call("wire", "c3", euros=1, to="eve"), tools=[pay, wire, ask]), store=store)
    answers = {"agent:A;tool:pay:c1": True, "agent:A;tool:ask:c2": "Wire 1 to eve."}
    paused = await loose.resume("s", answers, by="rita")
    assert paused.interrupts[0].requesters == ("ann", "rita")


@pytest.mark.parametrize("marked", [True, False], ids=["asked with it", "asked without it"])
@pytest.mark.parametrize(("user", "by"), [("ann\n", "ann\n"), (" ann", "ann"), ("ann", "ann "), ("ann", " ")])
async def test_space_around_a_name_makes_nobody_another_person(
    store: Store, marked: bool, user: str, by: str
) -> None:  # rule V19
    await begun(store, user_id=user, self_approval=not marked)
    asked = await opened(store)
    with pytest.raises(AnswerRefused):
        await desk(store).resume("s", {asked.id: True}, by=by)
    assert await opened(store) == asked


async def test_the_store_itself_refuses(store: Store) -> None:  # rule V19
    await begun(store, [PAY, call("ask", "c2", question="?")])

    async def give(name: str, **options: Any) -> None:
        answer = Answer(id=f"agent:A;tool:{name}", value=b"true", **options)
        await store.write(GiveAnswers(ref=SessionRef("s"), answers=[answer]))

    for refused in ({"by": "ann"}, {}, {"by": " "}, {"approves": False}):
        with pytest.raises(AnswerRefused):
            await give("pay:c1", **refused)
    with pytest.raises(AnswerRefused, match="must say who gives it"):
        await give("ask:c2")
    await give("ask:c2", by="ann")
    await give("pay:c1", by="ann", approves=False)


# Edits


async def test_an_edit_is_a_request_of_its_author(store: Store) -> None:  # rules T4, V19
    await begun(store)
    first = await opened(store)
    paused = await desk(store).resume("s", {first.token: OWN}, by="rita")
    second = await opened(store)
    assert (paused.status, paid, ids(paused)) == ("interrupted", [], [f"{first.id}#2"])
    assert second.info.arguments == {"euros": 500, "to": "mallory"}
    assert second.prompt.startswith("rita edited the call. May A call pay with")
    assert second.requesters == ("ann", "rita")
    for by in ("ann", "rita"):
        with pytest.raises(AnswerRefused):
            await desk(store).resume("s", {second.token: True}, by=by)
    with pytest.raises(AlreadyResumed):
        await desk(store).resume("s", {first.token: True}, by="carl")
    result = await desk(store).resume("s", {second.token: True}, by="carl")
    assert paid == [(500, "mallory")]
    # The transcript shows what ran, and the record whose edit it was; the original stays in it.
    (message,) = [each for each in result.messages if each.tool_calls]
    assert message.tool_calls[0].arguments == {"euros": 500, "to": "mallory"}
    assert await edited_by(store) == "rita"
    entries = (await Sessions(store).state("s"))["entries"]
    assert [each.message.tool_calls[0].arguments for each in entries if each.message and each.message.tool_calls] == [
        {"euros": 100, "to": "bob"}
    ]
    audit = [(each.by, each.answer, each.outcome) for each in await Sessions(store).audit("s")]
    assert audit == [("rita", OWN, "answered"), ("carl", True, "answered")]


async def test_edits_of_edits_gather_their_authors(store: Store) -> None:  # rule V19
    await begun(store)
    edits = [("ann", 5), ("rita", 10), ("carl", 2_000), ("carl", 20)]
    for by, euros in edits:
        asked = await opened(store)
        await desk(store).resume("s", {asked.id: asked.info.edit(euros=euros)}, by=by)
    asked = await opened(store)
    assert (asked.id, asked.requesters, paid) == ("agent:A;tool:pay:c1#5", ("ann", "rita", "carl"), [])
    await Sessions(store).answer("s", {asked.id: True}, by="dora")
    await desk(store).recover("s")
    assert paid == [(20, "bob")]
    assert await edited_by(store) == "carl"


@dataclass
class Even:
    n: int

    def __post_init__(self) -> None:
        if self.n % 2:
            raise ValueError(f"{self.n} is odd")


async def test_an_edit_that_does_not_fit_has_no_author(store: Store) -> None:  # rules R2, V19
    @tool(approval=True)
    async def even(euros: Even) -> str:
        """Pay."""
        paid.append(euros.n)
        return "paid"

    def process(*script: Any) -> Runner[Any]:
        return Runner(chat("A", *(script or ("done",)), tools=[even]), store=store, self_approval=False)

    await process(call("even", euros={"n": 2})).run("go", session_id="s", user_id="ann")
    for by, n in (("rita", 4), ("carl", 5)):  # The second one fits the schema, and not the type.
        await process().resume("s", {(await opened(store)).id: Edit({"euros": {"n": n}})}, by=by)
    asked = await opened(store)
    assert (asked.info.arguments, asked.requesters) == ({"euros": {"n": 4}}, ("ann", "rita"))
    await process().resume("s", {asked.id: True}, by="carl")
    assert (paid, await edited_by(store)) == ([4], "rita")


async def test_code_that_shows_a_call_does_not_take_edits_of_its_requesters(store: Store) -> None:  # rule V19
    @tool
    async def refund(euros: int) -> str:
        """Refund an amount."""
        info = ToolCallInfo(tool="refund", arguments={"euros": euros})
        found = decision(interrupt(info, reason="need_approval"))
        paid.append(found.arguments["euros"] if isinstance(found, Edit) else euros)
        return "paid"

    runner = Runner(chat("A", call("refund", euros=1), "done", tools=[refund]), store=store, self_approval=False)
    await runner.run("go", session_id="s", user_id="ann")
    with pytest.raises(AnswerRefused):
        await runner.resume("s", {(await opened(store)).id: Edit({"euros": 500})}, by="ann")
    assert paid == []


async def test_a_review_that_edits_is_reviewed_by_another_person(store: Store) -> None:  # rules T4, V19
    def process(*script: Any) -> Runner[Any]:
        return Runner(chat("A", *(script or ("done",)), tools=[check]), store=store, self_approval=False)

    await process(PAY).run("go", session_id="s", user_id="ann")
    first = await opened(store)
    await process().resume("s", {first.id: OWN}, by="rita")
    second = await opened(store)
    assert (second.id, second.requesters) == (f"{first.id}#2", ("ann", "rita"))
    assert (second.info.arguments, paid) == ({"euros": 500, "to": "mallory"}, [])
    with pytest.raises(AnswerRefused):
        await process().resume("s", {second.id: True}, by="rita")
    await process().resume("s", {second.id: True}, by="carl")
    assert (paid, await edited_by(store)) == ([(500, "mallory")], "rita")


async def test_whoever_edited_a_call_requests_what_is_asked_in_it(store: Store) -> None:  # rules A6, V19
    def process(*script: Any, inner: Any = ()) -> Runner[Any]:
        below = AgentTool(chat("B", *inner, tools=[wire], description="Wires."))
        tools = [approved(check), approved(below)]
        return Runner(chat("A", *(script or ("done",)), tools=tools), store=store, self_approval=False)

    await process([PAY, call("B", "c2", request="wire 1")]).run("go", session_id="s", user_id="ann")
    edits = {"agent:A;tool:pay:c1": OWN, "agent:A;tool:B:c2": Edit({"request": "wire 500 to eve"})}
    await process().resume("s", edits, by="rita")
    yes = dict.fromkeys([f"{each}#2" for each in edits], True)
    within = process(inner=[call("wire", "c3", euros=500, to="eve")])
    paused = await within.resume("s", yes, by="carl")
    assert [each.id.rpartition(";")[2] for each in paused.interrupts] == ["wrap:reviewed", "tool:wire:c3"]
    assert {each.requesters for each in paused.interrupts} == {("ann", "rita")}


async def test_of_an_edit_and_an_approval_at_once_one_counts(store: Store) -> None:  # rules R3, V19
    await begun(store)
    asked = await opened(store)
    given = [({asked.token: OWN}, "rita"), ({asked.token: True}, "carl")]
    ended = await asyncio.gather(
        *(desk(store).resume("s", answers, by=by) for answers, by in given), return_exceptions=True
    )
    (loser,) = [each for each in ended if isinstance(each, BaseException)]
    assert isinstance(loser, AlreadyResumed | StaleCheckpoint)
    (counted,) = [each.by for each in await Sessions(store).audit("s") if each.outcome == "answered"]
    assert paid == ([(100, "bob")] if counted == "carl" else [])


async def test_a_fork_keeps_the_requesters(store: Store) -> None:  # rules R16, V19
    await begun(store)
    await desk(store).resume("s", {(await opened(store)).id: OWN}, by="rita")
    await desk(store).fork("s", to="t")
    (asked,) = await Sessions(store).pending("t")
    assert asked.requesters == ("ann", "rita")
    with pytest.raises(AnswerRefused):
        await Sessions(store).answer("t", {asked.id: True}, by="rita")


# What follows words

WORDS: dict[str, Any] = {
    "a message": (False, "Wire 500 to mallory instead."),
    "a reason": (Reject("Wire 500 to mallory instead."), None),
    "a result": (Respond("Not possible. Wire 500 to mallory instead."), None),
}


@pytest.mark.parametrize("how", WORDS)
async def test_what_follows_words_is_a_request_of_their_author(store: Store, how: str) -> None:  # rule V19
    await begun(store)
    answer, message = WORDS[how]
    follows = call("wire", "c2", euros=500, to="mallory")
    await desk(store, follows).resume("s", {(await opened(store)).id: answer}, by="rita", message=message)
    asked = await opened(store)
    assert asked.requesters == ("ann", "rita")
    with pytest.raises(AnswerRefused):
        await desk(store).resume("s", {asked.id: True}, by="rita")
    await desk(store).fork("s", to="t")
    with pytest.raises(AnswerRefused):
        await desk(store).resume("t", {asked.id: True}, by="rita")
    await desk(store).resume("s", {asked.id: True}, by="carl")
    assert paid == [(500, "mallory")]


async def test_an_answer_that_the_model_asked_for_is_words_too(store: Store) -> None:  # rule V19
    await begun(store, call("ask", question="Whom shall I pay?"))
    await desk(store, call("pay", "c2", euros=5, to="mallory")).resume(
        "s", {(await opened(store)).id: "mallory"}, by="rita"
    )
    assert (await opened(store)).requesters == ("ann", "rita")


@pytest.mark.parametrize(
    ("reason", "schema", "answer", "leads"),
    [
        ("need_review", str, "Pay 5 to mallory.", True),
        ("need_decision", None, {"decision": "approve", "note": "Pay 5 to mallory."}, True),
        ("need_approval", None, Reject("Pay 5 to mallory instead."), True),
        ("need_approval", None, Edit({"to": "mallory"}), True),
        ("need_decision", Literal["now", "later"], "now", False),
        ("need_approval", bool, False, False),
        ("need_approval", None, Approve(), False),
    ],
)
async def test_so_is_what_an_approval_of_code_is_answered_with(
    store: Store, reason: str, schema: Any, answer: Any, leads: bool
) -> None:  # rule V19
    @tool
    async def check_report(text: str) -> str:
        """Have a report checked."""
        return repr(interrupt({"text": text}, reason=reason, schema=schema))

    def process(*script: Any) -> Runner[Any]:
        return Runner(chat("A", *script, tools=[check_report, pay]), store=store, self_approval=False)

    await process(call("check_report", text="?")).run("go", session_id="s", user_id="ann")
    follows = process(call("pay", "c2", euros=5, to="mallory"))
    await follows.resume("s", {(await opened(store)).id: answer}, by="rita")
    assert (await opened(store)).requesters == (("ann", "rita") if leads else ("ann",))


@pytest.mark.parametrize("self_approval", [False, True])
async def test_what_follows_an_edit_of_the_state_is_a_request_of_its_author(
    store: Store, self_approval: bool
) -> None:  # rule V19
    class Bill(TypedDict, total=False):
        to: str
        ok: bool

    def check_bill(state: Bill) -> Bill:
        return {"ok": interrupt({"to": state.get("to")}, key="ok", reason="need_approval", schema=bool)}

    graph = StateGraph(Bill, name="bill").add_sequence(check_bill).add_edge(START, "check_bill").compile()

    def process() -> Runner[Any]:
        return Runner(graph, store=store, self_approval=self_approval)

    await process().run({"to": "bob"}, session_id="s", user_id="ann")
    await process().edit("s", {"to": "mallory"}, by="rita")
    await process().recover("s")
    asked = await opened(store)
    assert asked.info == {"to": "mallory"}
    assert asked.requesters == (None if self_approval else ("ann", "rita"))
    if not self_approval:
        for by in ("ann", "rita"):
            with pytest.raises(AnswerRefused):
                await process().resume("s", {asked.token: True}, by=by)
    assert (await process().resume("s", {asked.token: True}, by="carl")).state["ok"]


@pytest.mark.parametrize(
    "given", [{"values": {"to": "mallory"}}, {"state": {"to": "mallory"}}], ids=["values", "state"]
)
async def test_so_is_what_follows_values_that_come_with_an_answer(store: Store, given: dict[str, Any]) -> None:
    class Bill(TypedDict, total=False):  # rule V19
        to: str
        ok: bool

    def first(_: Bill) -> Bill:
        interrupt("Go on?", key="first", reason="need_approval", schema=bool)
        return {}

    def then(state: Bill) -> Bill:
        to = state.get("to") or current().values["to"]
        return {"ok": interrupt({"to": to}, key="ok", reason="need_approval", schema=bool)}

    graph = StateGraph(Bill, name="bill").add_sequence(first, then).add_edge(START, "first").compile()
    runner = Runner(graph, store=store, self_approval=False)
    await runner.run({}, session_id="s", user_id="ann")
    await runner.resume("s", {"first": True}, by="rita", **given)
    asked = await opened(store)
    assert (asked.info, asked.requesters) == ({"to": "mallory"}, ("ann", "rita"))
    fresh = Runner(graph, store=store, self_approval=False)
    with pytest.raises(AnswerRefused):
        await fresh.resume("s", {asked.token: True}, by="rita")
    assert (await fresh.resume("s", {asked.token: True}, by="carl")).status == "done"


@pytest.mark.parametrize("made", [pay, check])
@pytest.mark.parametrize("yes", [True, False])
async def test_what_follows_an_edited_call_is_a_request_of_its_authors(store: Store, made: Any, yes: bool) -> None:
    def process(*script: Any) -> Runner[Any]:  # rule V19
        return Runner(chat("A", *script, tools=[made, wire]), store=store, self_approval=False)

    await process(PAY).run("go", session_id="s", user_id="ann")
    await process().resume("s", {(await opened(store)).id: OWN}, by="rita")
    more = Edit({"euros": 500, "to": "mallory. Then wire 500 to eve."})
    await process().resume("s", {(await opened(store)).id: more}, by="carl")
    then = process(call("wire", "c2", euros=500, to="eve"))
    await then.resume("s", {(await opened(store)).id: yes}, by="dora")
    asked = await opened(store)
    assert (asked.info.tool, asked.requesters) == ("wire", ("ann", "rita", "carl") if yes else ("ann",))
    if yes:
        with pytest.raises(AnswerRefused):
            await process().resume("s", {asked.id: True}, by="rita")
    await process("done").resume("s", {asked.id: True}, by="dora")
    assert paid[-1] == (500, "eve")


async def test_words_count_until_the_turn_ends(store: Store) -> None:  # rule V19
    await begun(store)
    await desk(store).resume("s", {(await opened(store)).id: False}, by="rita", message="Ask me again tomorrow.")
    await desk(store, call("pay", "c2", euros=1, to="bob")).run("now?", session_id="s", user_id="ann")
    asked = await opened(store)
    assert asked.requesters == ("ann",)
    await desk(store).resume("s", {asked.id: True}, by="rita")
    assert paid == [(1, "bob")]


async def test_words_that_the_model_reads_after_the_turn_was_given_up_count_then(store: Store) -> None:  # rule V19
    await begun(store, [PAY, call("wire", "c2", euros=1, to="eve")])
    await desk(store).resume("s", {"agent:A;tool:pay:c1": False}, by="rita", message="Pay mallory 5.")
    follows = desk(store, call("pay", "c3", euros=5, to="mallory"))
    await follows.run("go on", session_id="s", user_id="ann", on_pending="abandon")
    asked = await opened(store)
    assert asked.requesters == ("ann", "rita")
    await desk(store).resume("s", {asked.id: True}, by="carl")
    await desk(store, call("pay", "c4", euros=1, to="bob")).run("now?", session_id="s", user_id="ann")
    assert (await opened(store)).requesters == ("ann",)


async def test_a_plain_yes_or_no_leads_nobody_anywhere(store: Store) -> None:  # rule V19
    await begun(store)
    paused = await desk(store, call("pay", "c2", euros=1, to="bob")).resume(
        "s", {(await opened(store)).id: "no"}, by="rita"
    )
    assert paused.interrupts[0].requesters == ("ann",)


async def test_words_to_an_agent_are_words_to_those_below_it(store: Store) -> None:  # rules A6, V19
    def outer(*script: Any, inner: Any = ()) -> Runner[Any]:
        below = AgentTool(chat("B", *inner, tools=[wire], description="Wires."))
        return Runner(chat("A", *script, tools=[pay, below]), store=store, self_approval=False)

    await outer(PAY).run("go", session_id="s", user_id="ann")
    follows = outer(call("B", "c2", request="wire"), inner=[call("wire", "c3", euros=1, to="eve")])
    await follows.resume("s", {(await opened(store)).id: False}, by="rita", message="Let B wire it.")
    assert (await opened(store)).requesters == ("ann", "rita")


async def test_a_message_bears_the_name_of_its_author(store: Store) -> None:  # rule V19
    await begun(store, self_approval=True)
    last = chat("A", "fine", tools=[pay])
    runner = Runner(last, store=store)
    result = await runner.resume("s", {(await opened(store)).id: True}, by="rita", message="Thanks.")
    assert [each.name for each in result.messages if each.role == "user"] == [None, "rita"]
    assert model_of(last).requests[0].messages[-1].name == "rita"
    assert seen(model_of(last).requests[0])[-1] == "user: Thanks."
    assert [each.name for each in await Sessions(store).messages("s") if each.text == "Thanks."] == ["rita"]


async def test_a_message_whose_turn_is_abandoned_bears_its_name(store: Store) -> None:  # rule V19
    await begun(store, [PAY, call("wire", "c2", euros=1, to="eve")])
    await desk(store).resume("s", {"agent:A;tool:pay:c1": True}, by="rita", message="Thanks.")
    result = await desk(store).run("next", session_id="s", user_id="ann", on_pending="abandon")
    assert [each.name for each in result.messages if each.text == "Thanks."] == ["rita"]


# Remembering


@pytest.mark.parametrize("remember", ["session", "always"])
@pytest.mark.parametrize("pattern", [None, {}, {"to": "*"}, {"to": "**"}, {"to": {"$path": "/**"}}], ids=repr)
async def test_remembering_for_others_needs_a_pattern(store: Store, remember: Any, pattern: Any) -> None:  # rule V19
    await begun(store)
    asked = await opened(store)
    for given in (
        Approve(remember=remember, pattern=pattern),
        {"decision": "approve", "remember": remember, **({} if pattern is None else {"pattern": pattern})},
    ):
        for way in ways(store):
            with pytest.raises(InvalidAnswer, match="needs a pattern"):
                await way("s", {asked.id: given}, by="rita")
    assert (await opened(store), await Approvals(store).list("ann")) == (asked, [])


@pytest.mark.parametrize("remember", ["session", "always"])
async def test_what_is_remembered_does_not_let_its_author_through(store: Store, remember: Any) -> None:  # rule V19
    await begun(store)
    given = Approve(remember=remember, pattern={"to": "bob"})
    await desk(store).resume("s", {(await opened(store)).id: given}, by="rita")
    again = await desk(store, call("pay", "c2", euros=7, to="bob"), "done").run("go", session_id="s", user_id="ann")
    assert (again.status, paid) == ("done", [(100, "bob"), (7, "bob")])
    # What rita leads the model to is her request, which her own approval does not cover.
    await desk(store, call("wire", "c3", euros=1, to="bob")).run("go", session_id="s", user_id="ann")
    follows = desk(store, call("pay", "c4", euros=9_999, to="bob"))
    paused = await follows.resume("s", {(await opened(store)).id: False}, by="rita", message="Pay bob 9999.")
    assert (paused.status, paid[-1] == (7, "bob")) == ("interrupted", True)


async def test_nor_within_a_call_that_its_author_has_edited(store: Store) -> None:  # rules A6, V19
    await Approvals(store).add("ann", RememberedApproval.of("B", wire, pattern={"to": "eve"}, by="rita"))

    def process(*script: Any, inner: Any = ()) -> Runner[Any]:
        below = AgentTool(chat("B", *inner, tools=[wire], description="Wires."))
        return Runner(chat("A", *script, tools=[approved(below)]), store=store, self_approval=False)

    await process(call("B", request="wire 1 to eve")).run("go", session_id="s", user_id="ann")
    await process().resume("s", {(await opened(store)).id: Edit({"request": "wire 9999 to eve"})}, by="rita")
    within = process(inner=[call("wire", "c2", euros=9999, to="eve")])
    await within.resume("s", {(await opened(store)).id: True}, by="carl")
    assert ((await opened(store)).requesters, paid) == (("ann", "rita"), [])


@pytest.mark.parametrize("by", ["ann", "ann\n", " ", None])
async def test_what_somebody_remembered_for_themselves_does_not_count(store: Store, by: str | None) -> None:  # rule V19
    await Approvals(store).add("ann", RememberedApproval.of("A", pay, by=by))
    await begun(store)
    assert ((await opened(store)).requesters, paid) == (("ann",), [])


async def test_an_edited_call_that_would_get_more_is_asked_anew_as_edited(store: Store) -> None:  # rules V19, R17
    async def pay(euros: int, to: str, note: str = "urgent") -> str:
        """Pay somebody."""
        paid.append((euros, to, note))
        return "paid"

    after = Runner(chat("A", "done", tools=[tool(pay, approval=True)]), store=store, self_approval=False)
    await begun(store)
    await desk(store).resume("s", {(await opened(store)).token: OWN}, by="rita")
    with pytest.raises(StaleCheckpoint):
        await after.resume("s", {(await opened(store)).token: True}, by="tom")
    asked = await opened(store)
    assert asked.info.arguments == {"euros": 500, "to": "mallory", "note": "urgent"}
    assert (set(asked.requesters or ()), paid) == ({"ann", "rita"}, [])
    with pytest.raises(AnswerRefused):
        await after.resume("s", {asked.token: True}, by="rita")
    await after.resume("s", {asked.token: True}, by="tom")
    assert (paid, await edited_by(store)) == ([(500, "mallory", "urgent")], "rita")
