"""Tool search: a model finds those it needs among many tools, instead of being told of all."""

# An override is documented where it is declared.
# ruff: noqa: D102

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, cast

from msgspec.structs import replace

from adjourn.context import current
from adjourn.errors import UsageError
from adjourn.messages import Message
from adjourn.models import ModelRequest
from adjourn.tools import Tool, tool

from .hooks import Middleware, ModelCall, Setup

FOUND = "found_tool:"
"""Begins the names of the session values that say which tools were found, one for each."""
_WORD = re.compile(r"[a-z0-9]+")


class ToolSearch(Middleware):
    """Gives an agent `tools` that its model is told of only once it has found them with the tool `search_tools`.

    Found ones stay, for this session. They are tools like any other: they may ask, and need approval. `limit` is how
    many one search gives. To look for tools by meaning, give a `score` of your own: a number above 0 for each tool
    that fits the query.
    """

    brings_tools = True

    def __init__(
        self,
        tools: Sequence[Tool | Callable[..., Any]],
        *,
        limit: int = 5,
        score: Callable[[str, Tool], float] | None = None,
    ) -> None:
        if limit < 1:
            raise UsageError(f"ToolSearch(limit={limit}): give 1 or more.")
        made = [cast("Tool", each) if isinstance(each, Tool) else tool(each) for each in tools]
        self._tools = {each.name: each for each in made}
        if len(self._tools) < len(made):
            raise UsageError("ToolSearch was given two tools with one name. Give each a name of its own.")
        self._limit = limit
        self._score = score or word_score
        self._search = tool(self.search_tools)

    def before_agent(self, setup: Setup) -> Setup:
        told = f"You have {len(self._tools)} more tools than you see. Find what you need with `search_tools`."
        instruction = f"{setup.instruction}\n\n{told}" if setup.instruction else told
        return replace(setup, instruction=instruction, tools=(*setup.tools, self._search, *self._tools.values()))

    async def wrap_model(self, call: ModelCall, request: ModelRequest) -> Message:
        values = current().values
        shown = [spec for spec in request.tools if spec.name not in self._tools or FOUND + spec.name in values]
        return await call(replace(request, tools=tuple(shown)))

    async def search_tools(self, query: str) -> str:
        """Find tools. Those that are found can be called from then on.

        Args:
            query: What the tool is to do, in a few words.
        """
        scores = {name: self._score(query, each) for name, each in self._tools.items()}
        best = sorted((name for name in scores if scores[name] > 0), key=lambda name: -scores[name])[: self._limit]
        values = current().values
        for name in best:
            values[FOUND + name] = True
        listed = "\n".join(f"- {name}: {self._tools[name].description}" for name in best)
        return f"You can call these now:\n{listed}" if best else "No tool was found. Try other words."


def word_score(query: str, candidate: Tool) -> float:
    """How many words of a query a tool has: in its name, which count most, its description, and its parameters."""
    wanted = _words(query)
    fields = " ".join(candidate.schema.get("properties", ()))
    return (
        3 * len(wanted & _words(candidate.name))
        + len(wanted & _words(candidate.description))
        + 0.5 * len(wanted & _words(fields))
    )


def _words(text: str) -> set[str]:
    # Without its plural a word fits more.
    return {word.removesuffix("s") for word in _WORD.findall(text.lower())}
