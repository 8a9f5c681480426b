"""Parallel questions: three tool calls of one message ask at once, and are answered by whom and when you like.

    python examples/parallel_questions.py

Answer one question and leave the others open (Enter): the session goes on as far as it can, which is not to the model,
since that waits for all three. The others can be answered from another process, with `--resume`.
"""

from _console import main, model

from adjourn import ChatModelAgent, ToolCall, interrupt, tool
from adjourn.models import ModelRequest
from adjourn.testing import FunctionModel


@tool
async def ask(person: str, question: str) -> str:
    """Ask somebody of the team a question.

    Args:
        person: Whom to ask.
        question: What to ask them.
    """
    answer = interrupt({"person": person}, prompt=f"{person}: {question}", schema=str)
    return f"{person} says: {answer}"


def plan(request: ModelRequest) -> str | list[ToolCall]:
    """Stands in for a model: asks three people in one message, and sums up what they said."""
    results = [message.text for message in request.messages if message.role == "tool"]
    if results:
        return "It is settled. " + "; ".join(results)
    questions = {"Ann": "Which day suits you?", "Ben": "Which room shall we take?", "Cleo": "What shall we eat?"}
    return [
        ToolCall(id=f"call_{number}", name="ask", arguments={"person": person, "question": question})
        for number, (person, question) in enumerate(questions.items(), 1)
    ]


agent = ChatModelAgent(
    name="MeetingPlanner",
    description="Plans meetings",
    instruction="You plan meetings. Ask Ann for the day, Ben for the room and Cleo for the food, all at once.",
    model=model(FunctionModel(plan)),
    tools=[ask],
)

if __name__ == "__main__":
    main(agent, "Plan our next meeting")
