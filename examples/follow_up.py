"""Follow-up questions: an agent that is a tool of another one asks the user, in several rounds.

    python examples/follow_up.py

The question comes from two levels down; its id says from where. Neither agent has to pass it on: the whole tree waits,
and goes on at that very place. An answer is a text for each question, with `;` in between.
"""

from _console import main, model

from adjourn import AgentTool, ChatModelAgent, Interrupt, ToolCall
from adjourn.models import ModelRequest
from adjourn.testing import FunctionModel
from adjourn.tools import FollowUpInfo, follow_up

ROUNDS = (["Where would you like to go?", "For how many days?"], ["What do you like to see?"])


def find_out(request: ModelRequest) -> str | ToolCall:
    """Stands in for a model: asks in two rounds, then sums up what it has learned."""
    learned = [message.text for message in request.messages if message.role == "tool"]
    if len(learned) == len(ROUNDS):
        return "\n".join(learned)
    return ToolCall(id=f"ask_{len(learned) + 1}", name="follow_up", arguments={"questions": ROUNDS[len(learned)]})


def plan(request: ModelRequest) -> str | ToolCall:
    """Stands in for a model: has the details found out, then plans."""
    last = request.messages[-1]
    if last.role == "tool":
        return f"Here is your itinerary, made from this:\n{last.text}"
    return ToolCall(id="call_1", name="FollowUpAgent", arguments={"request": f"Find out the details of: {last.text}"})


follow_up_agent = ChatModelAgent(
    name="FollowUpAgent",
    description="Finds out from the user what is missing for a plan",
    instruction="Ask the user with `follow_up` for whatever is missing: up to three questions at a time. Sum up.",
    model=model(FunctionModel(find_out)),
    tools=[follow_up(max_questions=3)],
)

agent = ChatModelAgent(
    name="ItineraryAgent",
    description="Plans trips",
    instruction="You plan trips. Have `FollowUpAgent` find out what you do not know, then write the itinerary.",
    model=model(FunctionModel(plan)),
    tools=[AgentTool(follow_up_agent, emit_internal_events=True)],  # So that you see it work.
)


def split(typed: str, asked: Interrupt) -> list[str]:
    """One text for each question."""
    assert isinstance(asked.info, FollowUpInfo)
    return [text.strip() for text in typed.split(";", len(asked.info.questions) - 1)]


if __name__ == "__main__":
    main(agent, "Plan a trip for me", split)
