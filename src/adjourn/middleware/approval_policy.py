"""Approval policies: which tool calls need approval, are allowed or are denied, by tool and by argument."""

# An override is documented where it is declared.
# ruff: noqa: D102

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from adjourn._text import visible_line
from adjourn.errors import ToolError, ToolRefused, UsageError
from adjourn.interrupts import interrupt
from adjourn.tools import Decision, Edit, Reject, Tool, ToolCallInfo, decision, fits_pattern, review_schema

from .hooks import Middleware, Setup, ToolCallable, ToolRequest


class ApprovalRule(Struct, frozen=True, kw_only=True):
    """What to do with calls of tools whose names match `tool` (`*` is a wildcard) and whose arguments fit."""

    tool: str = "*"
    arguments: Mapping[str, Any] | None = None
    action: Literal["ask", "allow", "deny"] = "ask"
    reason: str = ""

    def __post_init__(self) -> None:
        if self.action not in ("ask", "allow", "deny"):
            raise UsageError(f"ApprovalRule(action={self.action!r}): use 'ask', 'allow' or 'deny'.")

    def covers(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Return whether the rule applies to this call; `arguments` are JSON."""
        return fnmatchcase(tool, self.tool) and fits_pattern(arguments, self.arguments)


class ApprovalPolicy(Middleware):
    """Decides by rules whether a call needs approval; the first matching rule wins, else the tool's `approval` decides.

    When a call is denied, the model gets the rule's reason. The tool call itself asks, so answers, and what they
    remember, work as for any approval.
    """

    def __init__(self, rules: Sequence[ApprovalRule]) -> None:
        self.rules = tuple(rules)
        self._asking: set[tuple[str, str]] = set()
        """The tools, by agent, that ask by themselves in this process. For others, `wrap_tool` asks."""

    def before_agent(self, setup: Setup) -> Setup:
        self._asking |= {(setup.agent, tool.name) for tool in setup.tools}
        return replace(setup, tools=tuple(self._ruled(tool) for tool in setup.tools))

    def _ruled(self, tool: Tool) -> Tool:
        async def asks(arguments: Mapping[str, Any]) -> bool:
            rule = self._rule(tool.name, tool.lower(arguments))
            if rule is not None:
                return rule.action == "ask"
            needs = tool.needs_approval(arguments)
            return bool(await needs if inspect.isawaitable(needs) else needs)

        return replace(tool, approval=asks)

    def _rule(self, tool: str, arguments: Mapping[str, Any]) -> ApprovalRule | None:
        return next((rule for rule in self.rules if rule.covers(tool, arguments)), None)

    async def wrap_tool(self, call: ToolCallable, request: ToolRequest) -> Any:
        rule = self._rule(request.tool, request.arguments)
        if rule is not None and rule.action == "deny":
            raise ToolError(rule.reason or f"calls of '{request.tool}' like this one are not allowed")
        if rule is None or rule.action == "allow" or (request.agent, request.tool) in self._asking:
            return await call(request)
        # Another middleware added this tool later, or it belongs to a graph node, which has no `before_agent`.
        match _asked(request):
            case Reject(reason=reason):
                raise ToolRefused(request.tool, reason)
            case Edit(arguments=arguments):
                return await call(replace(request, arguments=arguments))
            case _:
                return await call(request)


def _asked(request: ToolRequest) -> Decision:
    shown = visible_line(msgspec.json.encode(request.arguments).decode())
    answer = interrupt(
        ToolCallInfo(tool=request.tool, arguments=request.arguments, call_id=request.call_id, agent=request.agent),
        key="approval",
        reason="need_approval",
        prompt=f"May {request.agent} call {request.tool} with {shown}?",
        schema=review_schema({"type": "object"}),
    )
    return decision(answer)
