"""Document workflow: a graph with models, tools, branches and a two-stage approval; and then time travel.

    python examples/document_workflow.py

A document is analysed, and enhanced or summarised, as the analysis has it; then a manager and a director approve it.
When that is done, the example goes back to the analysis, changes its outcome, and goes on from there: the other branch
runs, and is approved, too. What was before stays as it was. The tree at the end shows both.
"""

from typing import Any, Literal

from _console import main, model, script

from adjourn import Interrupt, Run, Runner, ToolCall, interrupt, tool
from adjourn.graph import END, START, MessagesState, StateGraph

OTHER = {"complex": "simple", "simple": "complex"}


class Document(MessagesState):
    text: str
    complexity: Literal["simple", "complex"]
    page: str


@tool
async def measure(text: str) -> dict[str, int]:
    """Measure a text: how many words it has, and how many sentences."""
    return {"words": len(text.split()), "sentences": text.count(".")}


async def preprocess(state: Document) -> dict[str, Any]:
    """Tidy up what the user gave us. What is in `user_input`, the next model reads."""
    text = " ".join(state["user_input"].split())
    return {"text": text, "user_input": f"How complex is this document? {text}"}


async def judge(state: Document) -> dict[str, Any]:
    """Make a decision of what the model has said, and tell the next one what to do."""
    complexity = "complex" if "complex" in state["last_response"] else "simple"
    return {"complexity": complexity, "user_input": "Now write it anew."}


def by_complexity(state: Document) -> str:
    return state["complexity"]


async def layout(state: Document) -> dict[str, Any]:
    return {"page": f"--- {state['complexity']} document ---\n{state['last_response']}"}


async def approve(state: Document) -> dict[str, Any]:
    """Ask two people, one after the other. Whom to ask is in the keys, by which they can be answered, too."""
    for person in ("manager", "director"):
        shown = {"page": state["page"]}
        if not interrupt(shown, key=person, reason="need_approval", prompt=f"{person}: may it go out?", schema=bool):
            return {"last_response": f"Held back by the {person}."}
    return {"last_response": f"Approved:\n{state['page']}"}


def count(text: str) -> ToolCall:
    return ToolCall(id="measure", name="measure", arguments={"text": text.partition("? ")[2]})


graph = (
    StateGraph(Document, name="documents")
    .add_node("preprocess", preprocess)
    .add_llm_node(
        "analyse",
        model(script(count, lambda measured: f"It is complex: {measured}")),
        "Measure the document with `measure`, then say whether it is simple or complex, in one sentence.",
        tools=[measure],
    )
    .add_tools_node("tools", [measure])
    .add_node("judge", judge)
    .add_llm_node("enhance", model(script("Trains that run at night, explained.")), "Make the document clearer.")
    .add_llm_node("summarise", model(script("Night trains run.")), "Sum the document up in one sentence.")
    .add_node("layout", layout)
    .add_node("approve", approve)
    .add_edge(START, "preprocess")
    .add_edge("preprocess", "analyse")
    .add_tools_conditional_edges("analyse", "tools", fallback="judge")
    .add_edge("tools", "analyse")
    .add_conditional_edges("judge", by_complexity, {"complex": "enhance", "simple": "summarise"})
    .add_edge("enhance", "layout")
    .add_edge("summarise", "layout")
    .add_edge("layout", "approve")
    .add_edge("approve", END)
    .compile()
)


def decide(typed: str, _: Interrupt) -> bool:
    return typed.lower() in ("y", "yes")


async def travel(runner: Runner, session: str) -> Run | None:
    """Go back to the analysis, change it, and go on from there; or, when that is done, show where we have been."""
    past = await runner.history(session)
    if any(point.source == "edit" for point in past):
        print(await runner.tree(session))
        return None
    analysed = next(point for point in past if point.next in (("enhance",), ("summarise",)))
    changed = {"complexity": OTHER[analysed.state["complexity"]]}
    print(f"Back to checkpoint {analysed.id}, with {changed}")
    point = await runner.edit(session, changed, checkpoint_id=analysed.id, as_node="judge")
    return runner.run(None, session_id=session, checkpoint_id=point.id)


if __name__ == "__main__":
    main(graph, "Night  trains run at night. They carry people. They arrive in the morning.", decide, travel)
