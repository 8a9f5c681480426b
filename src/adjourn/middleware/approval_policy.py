"""Approval policies: which tool calls need approval, are allowed or are denied, by tool and by argument."""

# An override is documented where it is declared.
# ruff: noqa: D102

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from adjourn._habits import checks_options
from adjourn.errors import ToolError, UsageError
from adjourn.tools import Tool, fits_pattern

from .hooks import Middleware, ToolCallable, ToolRequest


class ApprovalRule(Struct, frozen=True, kw_only=True):
    """What to do with calls of tools whose names match `tool` (`*` is a wildcard) and whose arguments fit.

    `arguments` has the values that some arguments must have; in a text, `*` matches anything. For a path, give a
    `PathPattern`: as text, `/tmp/*` would also match `/tmp/../etc/passwd`.
    """

    tool: str = "*"
    arguments: Mapping[str, Any] | None = None
    action: Literal["ask", "allow", "deny"] = "ask"
    reason: str = ""

    def __post_init__(self) -> None:
        if self.action not in ("ask", "allow", "deny"):
            raise UsageError(f"ApprovalRule(action={self.action!r}): use 'ask', 'allow' or 'deny'.")

    def covers(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Return whether the rule applies to this call; `arguments` are JSON.

        A path that a `PathPattern` may match or not counts as matched, unless the rule would allow the call.
        """
        return fnmatchcase(tool, self.tool) and fits_pattern(arguments, self.arguments, surely=self.action == "allow")

    def is_possible(self, tool: Tool) -> bool:
        """Return whether calls of a tool can have all the arguments that the rule names."""
        schema = tool.schema
        if schema.get("additionalProperties", True) is not False:
            return True
        return all(name in schema.get("properties", ()) for name in self.arguments or ())


class ApprovalPolicy(Middleware):
    """Decides by rules whether a call needs approval; the first matching rule wins, else the tool's `approval` decides.

    When a call is denied, the model gets the rule's reason. The tool call itself asks, so answers, and what they
    remember, work as for any approval. A rule that can never apply, because it names an argument that none of its tools
    has, is a `UsageError` when the agent or node is set up; a policy of the runner is checked where a rule names its
    tool without `*`.
    """

    @checks_options
    def __init__(self, rules: Sequence[ApprovalRule]) -> None:
        self.rules: tuple[ApprovalRule, ...] = tuple(rules)

    def check_tools(self, tools: Sequence[Tool]) -> None:
        for rule in self.rules:
            _check_possible(rule, [tool for tool in tools if fnmatchcase(tool.name, rule.tool)])

    def guard_tool(self, tool: Tool) -> Tool:
        for rule in self.rules:
            if rule.tool == tool.name:
                _check_possible(rule, [tool])

        async def asks(arguments: Mapping[str, Any]) -> bool:
            rule = self._rule(tool.name, tool.lower(arguments))
            if rule is not None:
                return rule.action == "ask"
            return await tool.needs_approval(arguments)

        return replace(tool, approval=asks)

    async def wrap_tool(self, call: ToolCallable, request: ToolRequest) -> Any:
        rule = self._rule(request.tool, request.arguments)
        if rule is not None and rule.action == "deny":
            raise ToolError(rule.reason or f"calls of '{request.tool}' like this one are not allowed")
        return await call(request)

    def _rule(self, tool: str, arguments: Mapping[str, Any]) -> ApprovalRule | None:
        return next((rule for rule in self.rules if rule.covers(tool, arguments)), None)


def _check_possible(rule: ApprovalRule, tools: Sequence[Tool]) -> None:
    if tools and not any(rule.is_possible(tool) for tool in tools):
        known = "; ".join(f"{tool.name}: {', '.join(tool.schema.get('properties', ())) or 'none'}" for tool in tools)
        raise UsageError(
            f"ApprovalRule(tool={rule.tool!r}) names the arguments {', '.join(rule.arguments or ())}, and no such tool "
            f"has them, so it would never apply. There are: {known}."
        )
