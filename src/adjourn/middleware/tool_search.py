"""Tool search: a model finds the tools it needs among many, instead of seeing all of them."""

# An override is documented where it is declared.
# ruff: noqa: D102

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, cast

from msgspec.structs import replace

from adjourn._habits import checks_options
from adjourn.context import own_values
from adjourn.errors import UsageError
from adjourn.messages import Message
from adjourn.models import ModelRequest
from adjourn.tools import Tool, tool

from .hooks import Middleware, ModelCall, Setup, noted

FOUND = "found_tool:"
"""Prefix of the names under which the tools that were found are kept, one each."""
_WORD = re.compile(r"[a-z0-9]+")


class ToolSearch(Middleware):
    """Provides an agent with `tools` that its model sees only after finding them with the tool `search_tools`.

    Once found, a tool stays available in the session. It is a tool like any other: it may ask questions and need
    approval. A search has `limit` results unless the model asks for another number, up to `most`. To search by meaning,
    pass a custom `score`, which returns a number above 0 for each tool that fits the query.
    """

    brings_tools = True

    @checks_options
    def __init__(
        self,
        tools: Sequence[Tool | Callable[..., Any]],
        *,
        limit: int = 5,
        most: int = 20,
        score: Callable[[str, Tool], float] | None = None,
    ) -> None:
        if not 1 <= limit <= most:
            raise UsageError(f"ToolSearch(limit={limit}, most={most}): give a limit of 1 or more, and at most `most`.")
        made = [cast("Tool", each) if isinstance(each, Tool) else tool(each) for each in tools]
        self._tools = {each.name: each for each in made}
        if len(self._tools) < len(made):
            raise UsageError("ToolSearch was given two tools with the same name. Give each a unique name.")
        self._limit = limit
        self._most = most
        self._score = score or word_score
        self._search = tool(self.search_tools)

    def before_agent(self, setup: Setup) -> Setup:
        note = f"You have {len(self._tools)} more tools than you see. Find what you need with `search_tools`."
        return noted(setup, note, (self._search, *self._tools.values()))

    async def wrap_model(self, call: ModelCall, request: ModelRequest) -> Message:
        values = own_values()
        shown = [spec for spec in request.tools if spec.name not in self._tools or FOUND + spec.name in values]
        return await call(replace(request, tools=tuple(shown)))

    async def search_tools(self, query: str, limit: int | None = None) -> str:
        """Find tools. The tools that are found can be called from then on.

        Args:
            query: What the tool should do, in a few words.
            limit: How many tools to find at most.
        """
        count = self._limit if limit is None else max(1, min(limit, self._most))
        scores = {name: self._score(query, each) for name, each in self._tools.items()}
        best = sorted((name for name in scores if scores[name] > 0), key=lambda name: -scores[name])[:count]
        values = own_values()
        for name in best:
            values[FOUND + name] = True
        listed = "\n".join(f"- {name}: {self._tools[name].description}" for name in best)
        return f"You can call these now:\n{listed}" if best else "No tool was found. Try other words."


def word_score(query: str, candidate: Tool) -> float:
    """Score a tool by the words it shares with a query: in its name (most weight), description and parameters."""
    wanted = _words(query)
    fields = " ".join(candidate.schema.get("properties", ()))
    return (
        3 * len(wanted & _words(candidate.name))
        + len(wanted & _words(candidate.description))
        + 0.5 * len(wanted & _words(fields))
    )


def _words(text: str) -> set[str]:
    # Ignore plurals, so that more words match.
    return {word.removesuffix("s") for word in _WORD.findall(text.lower())}
