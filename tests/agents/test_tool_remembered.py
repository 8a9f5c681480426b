"""Approvals that are remembered for a session: what they cover, and what they do not."""

from __future__ import annotations

from typing import Any

import pytest

from adjourn import Approve, ChatModelAgent, InvalidAnswer, Runner, session_values, tool
from adjourn.agents import Approvals, RememberedApproval
from adjourn.stores import Store
from adjourn.testing import ScriptedModel
from adjourn.tools import PathPattern
from tests.agents.calling import call, lone, results, runner

ran: list[Any] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()


@tool(approval=True)
async def pay(amount: int, to: str = "bob", urgent: bool = False) -> str:
    """Pay somebody."""
    ran.append((amount, to))
    return "paid"


@tool(approval=True)
async def sell(what: str) -> str:
    """Sell something."""
    ran.append(what)
    return "sold"


async def remembering(store: Store, answer: Any, *next_calls: Any, first: Any = None) -> Any:
    """Answer a first call so, and run a second turn with more calls, as another process would."""
    made = runner([pay, sell], first or call("pay", amount=5), store=store)
    await made.resume("s", {lone(await made.run("go", session_id="s")): answer}, by="ann")
    ran.clear()
    return await runner([pay, sell], [*next_calls], store=store).run("go", session_id="s")


ANSWERS: list[Any] = [Approve(remember="session"), {"decision": "approve", "remember": "session"}]


@pytest.mark.parametrize("answer", ANSWERS, ids=repr)
async def test_the_tool_is_not_asked_about_again_and_others_are(store: Store, answer: Any) -> None:  # rule T5
    result = await remembering(store, answer, call("pay", "c1", amount=9, to="eve"), call("sell", "c2", what="car"))
    assert (lone(result), ran) == ("agent:A;tool:sell:c2", [(9, "eve")])


@pytest.mark.parametrize("answer", [True, "yes", Approve()], ids=repr)
async def test_a_plain_yes_is_for_one_call(store: Store, answer: Any) -> None:  # rule T5
    result = await remembering(store, answer, call("pay", amount=5))
    assert (result.status, ran) == ("interrupted", [])


COVERED: list[tuple[dict[str, Any], dict[str, Any], bool]] = [
    ({"to": "bob"}, {"amount": 1}, True),  # the default counts
    ({"to": "bob"}, {"amount": 1, "to": "bobby"}, False),
    ({"to": "b*"}, {"amount": 1, "to": "bobby"}, True),
    ({"to": "*"}, {"amount": 1, "to": ""}, True),
    ({"to": "a*z"}, {"amount": 1, "to": "a"}, False),
    ({"to": "*@example.org"}, {"amount": 1, "to": "eve@example.org.evil"}, False),
    ({"to": "*@example.org"}, {"amount": 1, "to": "bob@example.org"}, True),
    ({"to": "BOB"}, {"amount": 1}, False),
    ({"amount": 5}, {"amount": 5, "to": "eve"}, True),
    ({"amount": 5}, {"amount": 50}, False),
    ({"amount": 1}, {"amount": 1, "urgent": True}, True),
    ({"urgent": False}, {"amount": 1}, True),
    ({"amount": 5.0}, {"amount": 5}, True),
    ({}, {"amount": 5}, True),
]


@pytest.mark.parametrize(("pattern", "arguments", "covered"), COVERED, ids=repr)
async def test_a_pattern_covers_the_calls_that_fit_it(
    pattern: dict[str, Any], arguments: dict[str, Any], covered: bool
) -> None:  # rule T5
    made = runner([pay], call("pay", amount=7), "one", call("pay", **arguments))
    asked = await made.run("go", session_id="s")
    await made.resume("s", {lone(asked): Approve(remember="session", pattern=pattern)})
    assert ((await made.run("go", session_id="s")).status == "done") is covered


async def test_a_pattern_for_an_argument_that_the_tool_does_not_have_is_refused(store: Store) -> None:  # rule T9
    made = runner([pay, sell], call("pay", amount=5), store=store)
    asked = lone(await made.run("go", session_id="s"))
    with pytest.raises(InvalidAnswer, match="eurros"):
        await made.resume("s", {asked: Approve(remember="session", pattern={"eurros": 5})})
    assert ([each.id for each in await made.pending("s")], ran) == ([asked], [])


async def test_decisions_side_by_side_are_all_remembered(store: Store) -> None:  # rules T5, R15
    made = runner([pay, sell], [call("pay", "c1", amount=1), call("sell", "c2", what="car")], store=store)
    asked = await made.run("go", session_id="s")
    keep = Approve(remember="session")
    await made.resume("s", {each.id: keep for each in asked.interrupts})
    calls = [call("pay", "c1", amount=1), call("sell", "c2", what="car")]
    assert (await runner([pay, sell], calls, store=store).run("go", session_id="s")).status == "done"


async def test_what_is_remembered_counts_for_the_next_step_of_the_same_turn(store: Store) -> None:  # rule T5
    made = runner([pay], call("pay", "c1", amount=1), call("pay", "c2", amount=2), store=store)
    asked = await made.run("go", session_id="s")
    result = await made.resume("s", {lone(asked): Approve(remember="session")})
    assert (result.status, len(ran)) == ("done", 2)


async def test_one_after_the_other_it_counts_for_the_next_call(store: Store) -> None:  # rules T3, T5
    calls = [call("pay", "c1", amount=1), call("pay", "c2", amount=2)]
    made = runner([pay], calls, store=store, tool_calls="sequential")
    asked = await made.run("go", session_id="s")
    assert (await made.resume("s", {lone(asked): Approve(remember="session")})).status == "done"


async def test_what_is_open_already_stays_open(store: Store) -> None:  # rules R7, T5
    made = runner([pay], [call("pay", "c1", amount=1), call("pay", "c2", amount=2)], store=store)
    first, second = (await made.run("go", session_id="s")).interrupts
    paused = await made.resume("s", {first.id: Approve(remember="session")})
    assert (lone(paused), ran) == (second.id, [(1, "bob")])
    result = await made.resume("s", {second.id: False})
    assert (result.status, ran) == ("done", [(1, "bob")])


async def test_it_is_no_session_value_that_anybody_sees(store: Store) -> None:  # rule T5
    @tool
    async def look() -> str:
        """Look at the values."""
        return f"{dict(session_values())}"

    made = runner([pay, look], call("pay", amount=1), call("look", "c2"), store=store)
    asked = await made.run("go", session_id="s")
    assert results(await made.resume("s", {lone(asked): Approve(remember="session")}))[-1] == "{}"


async def test_it_does_not_count_for_other_agents(store: Store) -> None:  # rule T5
    def team(*script: Any) -> Runner:
        below = ChatModelAgent("B", model=ScriptedModel([call("pay", "c3", amount=2), "done"]), tools=[pay])
        above = ChatModelAgent("A", model=ScriptedModel(script), tools=[pay], sub_agents=[below])
        return Runner(above, store=store)

    asked = await team(call("pay", amount=1)).run("go", session_id="s")
    handing = team(call("transfer_to_agent", "c2", agent_name="B"))
    result = await handing.resume("s", {lone(asked): Approve(remember="session")})
    assert (result.status, len(ran)) == ("interrupted", 1)


def paying(description: str, *, to: Any = str, name: str = "pay") -> Any:
    """A tool like `pay`, with another description or type."""

    async def fn(amount: int, to: Any = "bob") -> str:
        ran.append((amount, to))
        return "paid"

    fn.__annotations__["to"] = to
    return tool(fn, name=name, description=description, approval=True)


CHANGED = {
    "nothing": ("Pay.", str, True),
    "its description": ("Pay anyone.", str, False),
    "its schema": ("Pay.", Any, False),
}


@pytest.mark.parametrize("remember", ["session", "always"])
@pytest.mark.parametrize("what", CHANGED)
async def test_a_tool_that_has_changed_is_asked_about_again(store: Store, what: str, remember: Any) -> None:  # rule T5
    description, type_, covered = CHANGED[what]
    made = runner([paying("Pay.")], call("pay", amount=1), store=store)
    asked = await made.run("go", session_id="s", user_id="ann")
    await made.resume("s", {lone(asked): Approve(remember=remember)})
    again = runner([paying(description, to=type_)], call("pay", amount=1), store=store)
    result = await again.run("go", session_id="s", user_id="ann")
    assert (result.status == "done") is covered


async def test_another_agent_of_the_same_user_asks(store: Store) -> None:  # rule T5
    made = runner([pay], call("pay", amount=1), store=store)
    asked = await made.run("go", session_id="s", user_id="ann")
    await made.resume("s", {lone(asked): Approve(remember="always")}, by="ann")
    (kept,) = await Approvals(store).list("ann")
    assert (kept.agent, kept.tool, kept.by) == ("A", "pay", "ann")
    other = ChatModelAgent("Other", model=ScriptedModel([call("pay", amount=1), "done"]), tools=[pay])
    assert (await Runner(other, store=store).run("go", session_id="o", user_id="ann")).status == "interrupted"
    assert await Approvals(store).revoke("ann", agent="Other") == 0
    assert await Approvals(store).revoke("ann", "pay", agent="A") == 1


async def test_what_is_added_by_hand_covers_the_tool_as_it_is(store: Store) -> None:  # rule T5
    await Approvals(store).add("ann", RememberedApproval.of("A", pay, pattern={"to": "b*"}))
    made = runner([pay], call("pay", amount=1), "one", call("pay", amount=1, to="eve"), store=store)
    assert (await made.run("go", session_id="s", user_id="ann")).status == "done"
    assert (await made.run("go", session_id="s", user_id="ann")).status == "interrupted"


@pytest.mark.parametrize(
    ("user", "words"),
    [
        ("ann", "remembered always, those in every session of ann in adjourn, too"),
        (None, "remembered always, nothing more, since the session has no user"),
    ],
)
async def test_the_question_says_what_remembering_covers(user: str | None, words: str) -> None:  # rule T5
    asked = (await runner([pay], call("pay", amount=1)).run("go", session_id="s", user_id=user)).interrupts[0]
    assert "it covers all calls of pay by A in this session" in asked.info.reach
    assert words in asked.info.reach
    assert "It ends when the tool's description or arguments change." in asked.info.reach


PATHS = [("/tmp/a", True), ("/tmp/a/b", True), ("/tmp/../etc/passwd", False), ("/tmp", False), ("tmp/a", False)]


@pytest.mark.parametrize("pattern", [PathPattern("/tmp/**"), {"$path": "/tmp/**"}], ids=["object", "json"])
@pytest.mark.parametrize(("path", "covered"), PATHS)
async def test_a_remembered_path_cannot_be_walked_out_of(store: Store, pattern: Any, path: str, covered: bool) -> None:
    made = runner([sell], call("sell", what="/tmp/x"), store=store)
    asked = await made.run("go", session_id="s")
    await made.resume("s", {lone(asked): Approve(remember="session", pattern={"what": pattern})})
    result = await runner([sell], call("sell", what=path), store=store).run("go", session_id="s")
    assert (result.status == "done") is covered  # rule T5


@pytest.mark.parametrize("remember", ["session", "always"])
async def test_another_default_is_another_tool(store: Store, remember: Any) -> None:  # rule T5
    def made(to: Any) -> Any:
        async def pay(amount: int, to: str = to) -> str:
            """Pay somebody."""
            ran.append((amount, to))
            return "paid"

        return tool(pay, approval=True)

    async def turn(session: str, to: Any) -> Any:
        return await runner([made(to)], call("pay", amount=5), store=store).run("go", session_id=session, user_id="ann")

    asked = lone(await turn("s", "bob"))
    await runner([made("bob")], store=store).resume("s", {asked: Approve(remember=remember)})
    assert (await turn("s", "bob")).status == "done"
    assert (await turn("s", "eve")).status == (await turn("t", "eve")).status == "interrupted"
    assert ran == [(5, "bob")] * 2
