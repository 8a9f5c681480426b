"""Plan and execute: one model makes a plan, one does its steps, and one looks again at what is left of it.

    python examples/plan_execute.py

A trip is planned. The flight and the hotel are each shown to a person before they are booked: `yes` books,
`name=Heron` changes an argument, anything else is the reason for a no. The run pauses twice, in two steps of the plan.
"""

import json

from _console import main, model
from review_and_edit import review

from adjourn import ChatModelAgent, PlanExecute, ToolCall, tool
from adjourn.models import ModelRequest
from adjourn.testing import FunctionModel
from adjourn.tools import reviewed


@tool
async def get_weather(city: str) -> str:
    """Look up what the weather will be."""
    return f"{city}: sunny, 24 degrees."


async def book_flight(origin: str, target: str, day: str) -> str:
    """Book a flight."""
    return f"Booked: a flight from {origin} to {target} on {day}."


async def book_hotel(city: str, name: str, nights: int) -> str:
    """Book a room in a hotel."""
    return f"Booked: {nights} nights at the {name} in {city}."


@tool
async def find_attractions(city: str) -> list[str]:
    """Find what is worth seeing."""
    return [f"the temples of {city}", f"the gardens of {city}"]


# What stands in for the three models: the steps of the plan, and the tool call that does each.
STEPS = {
    "Look up the weather": ToolCall(id="weather", name="get_weather", arguments={"city": "Kyoto"}),
    "Book a flight": ToolCall(
        id="flight", name="book_flight", arguments={"origin": "Berlin", "target": "Kyoto", "day": "Friday"}
    ),
    "Book a hotel": ToolCall(id="hotel", name="book_hotel", arguments={"city": "Kyoto", "name": "Crane", "nights": 2}),
    "Find attractions": ToolCall(id="sights", name="find_attractions", arguments={"city": "Kyoto"}),
}


def plan(_: ModelRequest) -> str:
    """Stands in for a model: plans all of the steps. The form of a plan is `adjourn.agents.Plan`."""
    return json.dumps({"steps": list(STEPS)})


def execute(request: ModelRequest) -> str | ToolCall:
    """Stands in for a model: calls the tool for the step that it is told to do, and passes on the result."""
    last = request.messages[-1]
    return last.text if last.role == "tool" else STEPS[last.text.rpartition("Now do this step: ")[2]]


def plan_again(request: ModelRequest) -> str:
    """Stands in for a model: keeps the steps that are not done, and responds when all are."""
    done = request.messages[-1].text.partition("Done so far:\n")[2].rpartition("\n")[0]
    left = [step for step in STEPS if f"- {step}: " not in done]
    return json.dumps({"steps": left} if left else {"response": f"Your trip is ready:\n{done}"})


executor = ChatModelAgent(
    name="executor",
    description="Does one step of the plan",
    instruction="Do the step that you are told to do with your tools, and nothing else. Say what came of it.",
    model=model(FunctionModel(execute)),
    tools=[get_weather, reviewed(book_flight), reviewed(book_hotel), find_attractions],
)

agent = PlanExecute(
    name="TripPlanner",
    description="Plans and books trips",
    planner=model(FunctionModel(plan)),
    executor=executor,
    replanner=model(FunctionModel(plan_again)),
)

if __name__ == "__main__":
    main(agent, "Plan a weekend in Kyoto, from Berlin: weather, flight, hotel, and what to see", review)
