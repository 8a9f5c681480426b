"""Deep agent: long work with a to-do list, and sub-agents that each do a part of it.

    python examples/deep_agent.py

Before it begins, the agent asks what it has to know (an answer is a text for each question, with `;` in between). Then
it writes down what there is to do, and has one sub-agent research and another one analyse. These know only what they
are told in their task, and only what they answer comes back.
"""

from _console import main, model, script
from follow_up import split

from adjourn import ChatModelAgent, DeepAgent, ToolCall, tool
from adjourn.tools import follow_up


@tool
async def search(topic: str) -> list[str]:
    """Search for facts.

    Args:
        topic: What about.
    """
    return [f"{topic}: 120 in 2024", f"{topic}: 180 in 2025"]


@tool
async def growth(before: int, after: int) -> str:
    """Work out by how much something has grown."""
    return f"{(after - before) / before:+.0%}"


research_agent = ChatModelAgent(
    name="research_agent",
    description="Finds facts on a topic",
    instruction="You find facts with `search`. Answer with what you have found.",
    model=model(
        script(
            ToolCall(id="search", name="search", arguments={"topic": "night trains"}),
            lambda found: f"Found: {found}",
        )
    ),
    tools=[search],
)

analysis_agent = ChatModelAgent(
    name="analysis_agent",
    description="Works out what figures say",
    instruction="You analyse figures with `growth`. Answer with what they say.",
    model=model(
        script(
            ToolCall(id="growth", name="growth", arguments={"before": 120, "after": 180}),
            lambda grown: f"They have grown by {grown} in a year.",
        )
    ),
    tools=[growth],
)


def ask(*questions: str) -> ToolCall:
    return ToolCall(id="ask", name="follow_up", arguments={"questions": list(questions)})


def todos(done: int) -> ToolCall:
    """Write down the to-dos, of which so many are done and the next one is begun."""
    texts = ["Research", "Analyse", "Write the report"]
    states = [*["done"] * done, "in_progress", *["pending"] * len(texts)]
    listed = [{"text": text, "status": state} for text, state in zip(texts, states, strict=False)]
    return ToolCall(id=f"todos_{done}", name="write_todos", arguments={"todos": listed})


def task(agent: str, description: str) -> ToolCall:
    arguments = {"agent_name": agent, "description": description}
    return ToolCall(id=f"task_{agent}", name="task", arguments=arguments)


agent = DeepAgent(
    name="ReportWriter",
    description="Writes reports",
    instruction="You write reports. Ask with `follow_up` first: for whom the report is, and how long it may be.",
    model=model(
        script(
            ask("For whom is the report?", "How long may it be?"),
            lambda told: [todos(done=0), task("research_agent", f"Find figures on night trains. {told}")],
            lambda found: [todos(done=1), task("analysis_agent", f"What do these figures say? {found}")],
            todos(done=2),
            "The report: night trains are back. There were 180 in 2025, half as many again as the year before.",
        )
    ),
    tools=[follow_up(max_questions=3)],
    agents=[research_agent, analysis_agent],
    general_purpose=False,
    emit_internal_events=True,  # So that you see the sub-agents work.
)

if __name__ == "__main__":
    main(agent, "Write a report on night trains", split)
