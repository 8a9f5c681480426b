"""Supervisor over plan and execute: a question from deep inside, answered by whoever looks after budgets.

    python examples/supervisor_plan_execute.py

A project manager has a researcher find out what a project needs, and a team carry it out. The team is a plan-execute
agent; its executor wants money, and asks. The question's id says the way down to it, and no agent on that way has to
pass anything on: leave it open (Enter), and answer it from another process with `--resume`.
"""

import json

from _console import main, model, script
from approval import decide

from adjourn import ChatModelAgent, PlanExecute, Supervisor, ToolCall, tool
from adjourn.models import ModelRequest
from adjourn.testing import FunctionModel


@tool
async def search(topic: str) -> str:
    """Search for what is known about a topic."""
    return f"{topic}: 12 stops, one sign each, 400 euros a sign."


def is_much(euros: int) -> bool:
    return euros > 1000


@tool(approval=is_much)
async def allocate_budget(purpose: str, euros: int) -> str:
    """Set money aside. More than 1000 euros need an approval."""
    return f"Set aside: {euros} euros for {purpose}."


@tool
async def order(what: str) -> str:
    """Order what is needed."""
    return f"Ordered: {what}."


researcher = ChatModelAgent(
    name="researcher",
    description="Finds out what a project needs",
    instruction="You find out with `search` what a project needs. Say what you have found.",
    model=model(
        script(ToolCall(id="search", name="search", arguments={"topic": "New signs"}), lambda found: found),
    ),
    tools=[search],
)

# What stands in for the team's models: the steps of its plan, and the tool call that does each.
STEPS = {
    "Set the money aside": ToolCall(
        id="budget", name="allocate_budget", arguments={"purpose": "12 signs", "euros": 4800}
    ),
    "Order the signs": ToolCall(id="order", name="order", arguments={"what": "12 signs"}),
}


def execute(request: ModelRequest) -> str | ToolCall:
    """Stands in for a model: calls the tool for the step that it is told to do, and passes on the result."""
    last = request.messages[-1]
    return last.text if last.role == "tool" else STEPS[last.text.rpartition("Now do this step: ")[2]]


def plan_again(request: ModelRequest) -> str:
    """Stands in for a model: gives up when a person said no, else goes on to the end."""
    done = request.messages[-1].text.partition("Done so far:\n")[2].rpartition("\n")[0]
    left = [] if "refused" in done else [step for step in STEPS if f"- {step}: " not in done]
    return json.dumps({"steps": left} if left else {"response": f"This is what was done:\n{done}"})


team = PlanExecute(
    name="team",
    description="Plans a project's work and does it",
    planner=model(script(json.dumps({"steps": list(STEPS)}))),
    executor=ChatModelAgent(
        name="executor",
        description="Does one step of the plan",
        instruction="Do the step that you are told to do with your tools, and nothing else. Say what came of it.",
        model=model(FunctionModel(execute)),
        tools=[allocate_budget, order],
    ),
    replanner=model(FunctionModel(plan_again)),
)


def hand_to(agent: str) -> ToolCall:
    return ToolCall(id=f"to_{agent}", name="transfer_to_agent", arguments={"agent_name": agent})


agent = Supervisor(
    name="project_manager",
    description="Sees projects through",
    model=model(
        script(
            hand_to("researcher"),
            hand_to("team"),
            "The project is through. The team has told you what it did.",
        )
    ),
    agents=[researcher, team],
)

if __name__ == "__main__":
    main(agent, "Put up new signs at our bus stops", decide)
