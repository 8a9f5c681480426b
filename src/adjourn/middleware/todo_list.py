"""A to-do list: an agent plans its work, and people can follow its progress."""

# An override is documented where it is declared.
# ruff: noqa: D102

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from adjourn._habits import checks_options
from adjourn.context import current, own_values
from adjourn.tools import tool

from .hooks import Middleware, Setup

INSTRUCTION = (
    "For work with several steps, keep a list of to-dos with `write_todos`: write it before you begin, and again "
    "whenever you begin or finish one. `read_todos` shows it. Do not use it for a single step."
)
_MARKS = {"pending": "[ ]", "in_progress": "[>]", "done": "[x]"}


class Todo(Struct, frozen=True, kw_only=True):
    """One item of a to-do list."""

    text: Annotated[str, Meta(min_length=1, max_length=1000, description="What to do.")]
    status: Annotated[Literal["pending", "in_progress", "done"], Meta(description="Its progress.")] = "pending"


class TodoList(Middleware):
    """Provides an agent with a to-do list and the tools `write_todos` and `read_todos`.

    It is the session value `~own:todos` (or another `key`, if agents have separate lists in one session), which only
    these tools write: a list of `{"text": ..., "status": "pending" | "in_progress" | "done"}`. Each write replaces it
    and emits a `Custom` event, whatever the key: `{"todos": [...]}`.
    """

    @checks_options
    def __init__(self, *, key: str = "todos", instruction: str = INSTRUCTION) -> None:
        self._key = key
        self._instruction = instruction
        self._tools = (tool(self.write_todos), tool(self.read_todos))

    def before_agent(self, setup: Setup) -> Setup:
        instruction = "\n\n".join(text for text in (setup.instruction, self._instruction) if text)
        return replace(setup, instruction=instruction, tools=(*setup.tools, *self._tools))

    async def write_todos(self, todos: Annotated[list[Todo], Meta(max_length=100)]) -> str:
        """Replace the list of to-dos.

        Args:
            todos: All of them, in order.
        """
        ctx, listed = current(), msgspec.to_builtins(todos)
        own_values()[self._key] = listed
        ctx.emit({"todos": listed})  # The event itself says which agent they belong to.
        return _shown(todos)

    async def read_todos(self) -> str:
        """Show the list of to-dos."""
        return _shown(msgspec.convert(own_values().get(self._key, []), list[Todo]))


def _shown(todos: list[Todo]) -> str:
    return "\n".join(f"{_MARKS[todo.status]} {todo.text}" for todo in todos) or "There are no to-dos."
