"""Clarification: a tool with which the model asks the user, in the middle of its work.

    python examples/ask_for_clarification.py

The tool calls `interrupt` and returns what it gives: that is all. The run pauses there, and when somebody has answered,
the tool's result is the answer.
"""

from _console import main, model

from adjourn import ChatModelAgent, ToolCall, interrupt, tool
from adjourn.models import ModelRequest
from adjourn.testing import FunctionModel


@tool
def ask_for_clarification(question: str) -> str:
    """Ask the user for details that are missing. Use it when the request is too vague to search with.

    Args:
        question: What to ask the user.
    """
    return interrupt(question, prompt=question, schema=str)


@tool
def search_book(genre: str, max_pages: int = 1000) -> list[str]:
    """Search for books.

    Args:
        genre: What kind of book.
        max_pages: How long it may be.
    """
    books = {"The Dispossessed": 387, "Solaris": 204, "Dune": 612}
    return [f"{title} ({genre}, {pages} pages)" for title, pages in books.items() if pages <= max_pages]


def recommend(request: ModelRequest) -> str | ToolCall:
    """Stands in for a model: asks for the genre, searches for it, and recommends what was found."""
    last = request.messages[-1]
    if last.role == "user":
        question = "Which genre do you like?"
        return ToolCall(id="call_1", name="ask_for_clarification", arguments={"question": question})
    if last.name == "ask_for_clarification":
        return ToolCall(id="call_2", name="search_book", arguments={"genre": last.text, "max_pages": 400})
    return f"I found these for you: {last.text}"


agent = ChatModelAgent(
    name="BookRecommender",
    description="Recommends books",
    instruction="You recommend books. Ask with `ask_for_clarification` when something is missing, then search.",
    model=model(FunctionModel(recommend)),
    tools=[ask_for_clarification, search_book],
)

if __name__ == "__main__":
    main(agent, "Recommend a book to me")
