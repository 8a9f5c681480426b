"""Feedback loop: a writer and a reviewer take turns until a person is content.

    python examples/feedback_loop.py

The writer leaves its draft in the session values. The reviewer shows it to a person and passes on what they say; "no
need to edit" leaves the loop. Each round asks anew, and a pause may last for days.
"""

from collections.abc import AsyncIterator

from _console import main, model

from adjourn import Agent, ChatModelAgent, LoopAgent, Message, MessageEvent, RunContext, interrupt
from adjourn.agents import AgentInput
from adjourn.models import ModelRequest
from adjourn.testing import FunctionModel


def write(request: ModelRequest) -> str:
    """Stands in for a model: takes up every piece of feedback that it finds in the conversation."""
    wishes = [message.text.partition("Feedback: ")[2] for message in request.messages if "Feedback: " in message.text]
    return "\n".join(["The station at dawn: one lamp, two crows.", *(f"(With {wish}.)" for wish in wishes)])


writer = ChatModelAgent(
    name="Writer",
    description="Writes a poem",
    instruction="Write a short poem on what the user asks for. When there is feedback on a draft, write a better one.",
    model=model(FunctionModel(write)),
    output_key="draft",
)


class Reviewer(Agent):
    """Shows the draft to a person. An agent of one's own is an async generator that may ask wherever it likes."""

    name = "Reviewer"
    description = "Has a person read the draft"

    async def run(self, input: AgentInput, ctx: RunContext) -> AsyncIterator[MessageEvent]:
        draft: str = ctx.values["draft"]
        feedback = interrupt({"draft": draft}, reason="need_feedback", prompt="What should be better?", schema=str)
        if "no need to edit" in feedback.lower():
            ctx.break_loop()
            yield MessageEvent(message=Message.assistant(f"Accepted:\n{draft}"))
        else:
            yield MessageEvent(message=Message.assistant(f"Feedback: {feedback}"))


agent = LoopAgent(
    name="WriteAndReview",
    description="Writes until nobody objects",
    agents=[writer, Reviewer()],
    max_iterations=10,
)

if __name__ == "__main__":
    main(agent, "Write a poem about a railway station")
