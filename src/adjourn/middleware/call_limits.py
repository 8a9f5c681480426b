"""Call limits: how often an agent may call its model and its tools in a session."""

# An override is documented where it is declared.
# ruff: noqa: D102

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal

from msgspec.structs import replace

from adjourn._habits import checks_options
from adjourn.context import RunContext, current, own_values
from adjourn.errors import LimitExceeded, ToolError, UsageError
from adjourn.messages import Message, ToolCall
from adjourn.models import ModelRequest

from ._refusals import asked_unless
from .hooks import Middleware, ModelCall, ModelState, Setup, ToolCallable, ToolRequest

COUNTS = "calls:"
"""Prefix of the names under which an agent's counts are kept."""
REACHED = "limit"
"""The `finish_reason` of the message that replaces a model call over the limit."""


class CallLimits(Middleware):
    """Limits what an agent does in a session, over all of its turns; an agent's `Limits` apply to one turn.

    `tools` limits individual tools: `{"search": 10}`. At its limit of model calls or tokens the agent ends with a
    message that says so, and a tool call over the limit returns an error to the model. With `on_limit="raise"`, both
    raise `LimitExceeded`, after which the session can be recovered with larger limits.
    """

    @checks_options
    def __init__(
        self,
        *,
        model_calls: int | None = None,
        tool_calls: int | None = None,
        tokens: int | None = None,
        tools: Mapping[str, int] | None = None,
        on_limit: Literal["tell", "raise"] = "tell",
    ) -> None:
        self._model = {"model_calls": model_calls, "tokens": tokens}
        self._tool_calls = tool_calls
        self._tools = dict(tools or {})
        self._raises = on_limit == "raise"
        if on_limit not in ("tell", "raise"):
            raise UsageError(f"CallLimits(on_limit={on_limit!r}): use 'tell' or 'raise'.")
        for name, limit in {**self._model, "tool_calls": tool_calls, **self._tools}.items():
            if limit is not None and (type(limit) is not int or limit < 0):
                raise UsageError(f"CallLimits({name}={limit!r}): give an int of 0 or more, or None for no limit.")

    @property
    def counts_tokens(self) -> bool:
        return self._model["tokens"] is not None

    def before_agent(self, setup: Setup) -> Setup:
        return replace(setup, tools=tuple(asked_unless(_is_refused, tool) for tool in setup.tools))

    async def wrap_model(self, call: ModelCall, request: ModelRequest) -> Message:
        ctx = current()
        counts = _counts(ctx)
        for name, limit in self._model.items():
            if limit is not None and counts.get(name, 0) >= limit:
                if self._raises:
                    raise LimitExceeded(_agent(ctx), name, limit, within="session")
                text = f"I have reached the limit of {limit} {name.replace('_', ' ')} in this session."
                return Message.assistant(text, finish_reason=REACHED)
        return await call(request)

    def after_model(self, state: ModelState, ctx: RunContext) -> ModelState:
        message = state.messages[-1]
        if message.finish_reason == REACHED:
            return state
        counts, refused = Counter(_counts(ctx)), list[str]()
        counts["model_calls"] += 1
        counts["tokens"] += 0 if message.usage is None else message.usage.total_tokens
        for call in message.tool_calls:
            self._count(call, counts, refused, ctx)
        own_values()[COUNTS + _agent(ctx)] = {**counts, "refused": refused}
        return state

    def _count(self, call: ToolCall, counts: Counter[str], refused: list[str], ctx: RunContext) -> None:
        for name, limit in (("tool_calls", self._tool_calls), (f"tool:{call.name}", self._tools.get(call.name))):
            if limit is not None and counts[name] >= limit:
                if self._raises:
                    raise LimitExceeded(_agent(ctx), name.replace("tool:", "calls of tool "), limit, within="session")
                refused.append(call.id)
                return
        counts["tool_calls"] += 1
        counts[f"tool:{call.name}"] += 1

    async def wrap_tool(self, call: ToolCallable, request: ToolRequest) -> Any:
        if _is_refused(request.call_id):
            raise ToolError(f"The calls of '{request.tool}' in this session are used up. Continue without it.")
        return await call(request)


def _is_refused(call_id: str) -> bool:
    return call_id in own_values().get(COUNTS + _agent(current()), {}).get("refused", ())


def _counts(ctx: RunContext) -> dict[str, int]:
    kept = dict(own_values().get(COUNTS + _agent(ctx), {}))
    kept.pop("refused", None)
    return kept


def _agent(ctx: RunContext) -> str:
    return next((segment.id for segment in reversed(ctx.address) if segment.type == "agent"), "")
