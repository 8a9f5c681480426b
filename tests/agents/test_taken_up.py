"""An agent that another process takes up goes on as the first one would have."""

from typing import Any

from adjourn import (
    ChatModelAgent,
    Edit,
    Middleware,
    Runner,
    SequentialAgent,
    ToolCall,
    interrupt,
    set_session_value,
    tool,
)
from adjourn.middleware import Setup
from adjourn.models import ModelRequest
from adjourn.stores import MemoryStore
from adjourn.testing import FunctionModel


def says(*steps: str | list[ToolCall]) -> FunctionModel:
    """A model whose n-th message is the n-th of these."""

    def say(request: ModelRequest) -> str | list[ToolCall]:
        return steps[sum(message.role == "assistant" for message in request.messages) % len(steps)]

    return FunctionModel(say)


@tool
def ask(question: str) -> str:
    """Ask."""
    return interrupt(question, schema=str)


def asks(*ids: str) -> list[ToolCall]:
    return [ToolCall(id=each, name="ask", arguments={"question": f"{each}?"}) for each in ids]


async def test_messages_have_ids_of_their_own_however_their_tools_were_answered():  # rules S8, R7
    store = MemoryStore()

    def runner() -> Runner:
        return Runner(ChatModelAgent("A", model=says(asks("a", "b", "c"), "done"), tools=[ask]), store=store)

    result = await runner().run("go", session_id="s")
    for asked in (2, 0, 0):
        result = await runner().resume("s", {result.interrupts[asked].id: "yes"})
    assert [message.id for message in result.messages] == ["m1", "m2", "m3", "m4", "m5", "m6"]


async def test_what_other_agents_see_of_an_edited_call_is_what_ran():  # rules T4, A4
    @tool(approval=True)
    def pay(cents: int) -> str:
        """Pay."""
        return f"paid {cents}"

    heard = says("heard")
    payer = ChatModelAgent(
        "Payer", model=says([ToolCall(id="c", name="pay", arguments={"cents": 100})], "done"), tools=[pay]
    )
    runner = Runner(SequentialAgent("Row", agents=[payer, ChatModelAgent("Auditor", model=heard)]))
    result = await runner.run("go", session_id="s")
    await runner.resume("s", {result.interrupts[0].id: Edit({"cents": 5})})
    told = [message.text for message in heard.requests[-1].messages]
    assert "For context: Payer called tool 'pay' with {\"cents\":5}" in told


async def test_ids_before_an_edit_are_still_taken_after_it():  # rules T2, T4
    store = MemoryStore()

    @tool(approval=True)
    def pay(cents: int) -> str:
        """Pay."""
        return f"paid {cents}"

    def runner() -> Runner:
        steps = [asks("c"), [ToolCall(id="d", name="pay", arguments={"cents": 1})], asks("c"), "done"]
        return Runner(ChatModelAgent("A", model=says(*steps), tools=[ask, pay]), store=store)

    answers: list[Any] = ["yes", Edit({"cents": 2})]
    result = await runner().run("go", session_id="s")
    for answer in answers:
        result = await runner().resume("s", {result.interrupts[0].id: answer})
    assert result.interrupts[0].id == "agent:A;tool:ask:c~2"


class Greeting(Middleware):
    """Asks before the agent starts, and adds the answer to its instruction."""

    def before_agent(self, setup: Setup) -> Setup:
        said: str = interrupt("how?", schema=str)
        return Setup(agent=setup.agent, instruction=f"{setup.instruction}, {said}", tools=setup.tools)

    def after_agent(self, end: object) -> None:
        interrupt("and now?", schema=str)


async def test_what_hooks_ask_and_make_before_an_agent_stays_to_its_end():  # rules A9, R5, R8
    store, heard = MemoryStore(), says([ToolCall(id="v", name="note", arguments={})], asks("q"), "done")

    @tool
    def note() -> str:
        """Change a value that is in the instruction."""
        set_session_value("user", "Ben")
        return "noted"

    def runner() -> Runner:
        agent = ChatModelAgent("A", model=heard, instruction="For {user}", tools=[note, ask], middleware=[Greeting()])
        return Runner(agent, store=store)

    result = await runner().run("go", session_id="s", values={"user": "Ann"})
    asked: list[str] = []
    for _ in range(3):
        asked.append(result.interrupts[0].info)
        result = await runner().resume("s", {result.interrupts[0].id: "kindly"})
    assert result.status == "done"
    assert asked == ["how?", "q?", "and now?"]
    # What the hook has made stays; the agent's own text is made for each call.
    assert [request.messages[0].text for request in heard.requests] == ["For Ann, kindly", *["For Ben, kindly"] * 2]
