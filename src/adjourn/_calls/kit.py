"""The kit: tools by name, and the hooks around model calls and tool calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

from adjourn.errors import UsageError
from adjourn.middleware.hooks import Middleware, having
from adjourn.models import ToolSpec
from adjourn.tools import Tool, tool


class Kit:
    """What an agent, or a node, works with in one process; it is made anew there."""

    __slots__ = (
        "after_agent",
        "after_model",
        "before_model",
        "raises_errors",
        "raises_unknown",
        "return_directly",
        "specs",
        "tools",
        "wrap_model",
        "wrap_tool",
        "wrap_tool_stream",
    )

    def __init__(
        self,
        name: str,
        tools: Sequence[Tool],
        middleware: tuple[Any, ...],
        *,
        return_directly: Sequence[str] = (),
        raises_errors: bool = False,
        raises_unknown: bool = False,
    ) -> None:
        self.tools = by_name(tools, name)
        self.specs: tuple[ToolSpec, ...] = tuple(tool.spec for tool in tools)
        self.raises_errors = raises_errors
        self.raises_unknown = raises_unknown
        self.return_directly = frozenset(return_directly) | {tool.name for tool in tools if tool.return_directly}
        self.before_model: tuple[Middleware, ...] = having(middleware, "before_model")
        self.after_model: tuple[Middleware, ...] = having(middleware, "after_model")
        self.after_agent: tuple[Middleware, ...] = having(middleware, "after_agent")
        self.wrap_model: tuple[Middleware, ...] = having(middleware, "wrap_model")
        self.wrap_tool: tuple[Middleware, ...] = having(middleware, "wrap_tool")
        self.wrap_tool_stream: tuple[Middleware, ...] = having(middleware, "wrap_tool_stream")

    @property
    def keeps_answers(self) -> bool:
        """Whether hooks run after the model has answered, so that its answer must be kept before."""
        return bool(self.wrap_model or self.after_model)


def as_tools(given: object, owner: str) -> tuple[Tool, ...]:
    """What was given as tools: a plain function is made one.

    Raises:
        UsageError: something among it is neither.
    """
    if not isinstance(given, Iterable) or isinstance(given, str):
        raise UsageError(f"The tools of '{owner}' are {given!r}. Give a list of tools.")
    return tuple(_as_tool(each, owner) for each in cast("Iterable[object]", given))


def _as_tool(given: object, owner: str) -> Tool:
    if isinstance(given, Tool):
        return cast("Tool", given)
    if callable(given):
        return tool(given)
    raise UsageError(
        f"{given!r}, of '{owner}', is no tool. Give a function, something made by @tool, or agent.as_tool()."
    )


def by_name(tools: Sequence[Tool], owner: str) -> dict[str, Tool]:
    """Tools under their names.

    Raises:
        UsageError: two have one name.
    """
    found: dict[str, Tool] = {}
    for each in tools:
        if each.name in found:
            raise UsageError(f"'{owner}' has two tools called '{each.name}'. Give each a name of its own.")
        found[each.name] = each
    return found
