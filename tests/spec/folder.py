"""A folder of YAML agents, and what is wrong with it."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

from adjourn.spec import Loaded, Mistake, load

MARK = "‸"
"""Stands in a text right before what is wrong."""

PYTHON = '''
from adjourn import ChatModelAgent, ToolCall, interrupt, tool, workflow
from adjourn.graph import END, START, MessagesState, StateGraph
from adjourn.middleware import Middleware
from adjourn.testing import FunctionModel, ScriptedModel

def answers(request):
    return f"Answer to {request.messages[-1].text}"

model = FunctionModel(answers)
booking = ScriptedModel([ToolCall(id="c1", name="book", arguments={"to": "Rome"}), "Booked."])

def book(to: str) -> str:
    """Book a ticket."""
    return f"a ticket to {to}"

@tool(approval=True)
def pay(cents: int) -> str:
    """Pay."""
    return "paid"

def is_far(to: str) -> bool:
    return to == "Rome"

agent = ChatModelAgent("made", model=model)
x = ChatModelAgent("x", model=model)
number = 7

class Odd:
    @property
    def __signature__(self):
        raise RuntimeError("odd")

    def __call__(self): ...

odd = Odd()

class Quiet(Middleware):
    pass

quiet = Quiet()

@workflow
async def flow(input):
    return f"flow of {input}"

def shout(state):
    return {"last_response": state["user_input"].upper()}

graph = StateGraph(MessagesState, name="g").add_node("shout", shout).add_edge(START, "shout").compile()

def way(state):
    return "long" if len(state["user_input"]) > 3 else "short"
'''


def document(name: str, spec: str) -> str:
    """Return a document with this spec."""
    return f"apiVersion: adjourn/v1\nkind: Agent\nmetadata: {{name: {name}}}\nspec:\n{indent(dedent(spec), '  ')}\n"


class Folder:
    """A folder with agents and a module `parts`."""

    def __init__(self, path: Path) -> None:
        self.path = path / "agents"
        self.path.mkdir()
        self.write("parts.py", PYTHON)

    def write(self, name: str, text: str) -> None:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def add(self, name: str, spec: str) -> None:
        """Add an agent in a file of its own."""
        self.write(f"{name}.yaml", document(name, spec))

    def load(self, **options: Any) -> Loaded:
        return load(self.path, **options)

    def module(self, name: str) -> Any:
        """Return a module that files have named; Any: whatever it has."""
        module = sys.modules[name]
        assert str(module.__file__).startswith(str(self.path))
        return module

    def mistakes(self, text: str, **options: Any) -> tuple[list[Mistake], list[tuple[int, int]]]:
        """Return the mistakes in a file, and the marked places."""
        self.write("x.yaml", text.replace(MARK, ""))
        return self.load(**options).mistakes, marked(text)


def marked(text: str) -> list[tuple[int, int]]:
    """Return the lines and columns of the marks in a text, as if they were not there."""
    return [
        (number, column - before + 1)
        for number, line in enumerate(text.split("\n"), 1)
        for before, column in enumerate(place for place, char in enumerate(line) if char == MARK)
    ]
