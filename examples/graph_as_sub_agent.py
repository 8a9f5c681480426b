"""Graph as a sub-agent: a coordinator hands over to an agent that calculates, and to a graph.

    python examples/graph_as_sub_agent.py

The maths agent leaves its result in the session values, and hands back. The graph writes a letter with it and has a
person read it: `yes` sends it, anything else is what to add. To the coordinator, a graph is an agent like any other.
"""

from typing import Annotated, Any

from _console import main, model, script

from adjourn import ChatModelAgent, GraphAgent, ToolCall, interrupt, session_value, set_session_value, tool
from adjourn.graph import END, START, Command, MessagesState, StateGraph, append


@tool
async def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    set_session_value("result", a * b)
    return a * b


class Letter(MessagesState):
    wishes: Annotated[list[str], append]
    draft: str


async def write(state: Letter) -> dict[str, Any]:
    """Write a draft. Wherever you would want a model, `add_llm_node` adds one."""
    lines = [f"You asked: {state['user_input']}", f"The result is {session_value('result')}.", *state["wishes"]]
    return {"draft": "\n".join(lines)}


async def read_through(state: Letter) -> Command:
    """Have a person read the draft, as often as it takes."""
    wish = interrupt({"draft": state["draft"]}, prompt="Send it? If not: what is missing?", schema=str)
    if wish.lower() in ("y", "yes"):
        return Command(goto="send")
    return Command(update={"wishes": [wish]}, goto="write")


async def send(state: Letter) -> dict[str, Any]:
    return {"last_response": f"Sent:\n{state['draft']}"}


letter_graph = (
    StateGraph(Letter, name="letter")
    .add_node("write", write)
    .add_node("read_through", read_through, destinations=["write", "send"])
    .add_node("send", send)
    .add_edge(START, "write")
    .add_edge("write", "read_through")
    .add_edge("send", END)
    .compile()
)


def hand_to(agent: str) -> ToolCall:
    return ToolCall(id=f"to_{agent}", name="transfer_to_agent", arguments={"agent_name": agent})


maths_agent = ChatModelAgent(
    name="maths",
    description="Calculates",
    instruction="You calculate with your tools. Hand back with the result.",
    model=model(
        script(ToolCall(id="multiply", name="multiply", arguments={"a": 12, "b": 400}), hand_to("coordinator"))
    ),
    tools=[multiply],
)

agent = ChatModelAgent(
    name="coordinator",
    description="Has others do the work",
    instruction="Have the numbers worked out first. Then have the letter written.",
    model=model(script(hand_to("maths"), hand_to("letters"))),
    sub_agents=[maths_agent, GraphAgent("letters", letter_graph, description="Writes a letter about the result")],
)

if __name__ == "__main__":
    main(agent, "What do 12 signs at 400 euros cost? Write me a letter about it")
