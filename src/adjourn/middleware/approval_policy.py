"""Approval policies: which tool calls need approval, are allowed or are denied, by tool and by argument."""

# An override is documented where it is declared.
# ruff: noqa: D102

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Literal, cast

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from adjourn._habits import checks_options
from adjourn._text import a_type
from adjourn.errors import ToolError, UsageError
from adjourn.tools import Tool, fits_pattern
from adjourn.tools.decisions import as_data, check_pattern, misfit

from .hooks import Middleware, ToolCallable, ToolRequest


class ApprovalRule(Struct, frozen=True, kw_only=True):
    """What to do with calls of tools whose names match `tool` (`*` is a wildcard) and whose arguments fit.

    `arguments` has the values that some arguments must have; in a text, `*` matches anything. Numbers are compared by
    value. For a path, give a `PathPattern`: as text, `/tmp/*` would also match `/tmp/../etc/passwd`.
    """

    tool: str = "*"
    arguments: Mapping[str, Any] | None = None
    action: Literal["ask", "allow", "deny"] = "ask"
    reason: str = ""

    def __post_init__(self) -> None:
        if not isinstance(cast("object", self.tool), str):
            raise UsageError(f"ApprovalRule(tool={self.tool!r}): give the name of a tool; `*` is a wildcard.")
        if self.action not in ("ask", "allow", "deny"):
            raise UsageError(f"ApprovalRule(action={self.action!r}): use 'ask', 'allow' or 'deny'.")
        try:
            if self.arguments is not None:
                force_setattr(self, "arguments", _pattern(self.arguments))
        except (TypeError, ValueError) as error:
            raise UsageError(f"ApprovalRule(tool={self.tool!r}): {error}") from None

    def covers(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Return whether the rule applies to this call; `arguments` are JSON.

        Unless the rule would allow the call, what may be meant counts as well: a path that a `PathPattern` may match,
        an object that has more than the wanted one, a list in another order, a list that has the wanted text, and a
        text that is the wanted number, or writes the wanted time or UUID in another way.
        """
        return fnmatchcase(tool, self.tool) and fits_pattern(arguments, self.arguments, surely=self._is_sure)

    @property
    def _is_sure(self) -> bool:
        return self.action == "allow"

    def meant(self, tools: Sequence[Tool]) -> list[Tool]:
        """Return the tools that the rule names."""
        return [tool for tool in tools if fnmatchcase(tool.name, self.tool)]

    def is_possible(self, tool: Tool) -> bool:
        """Return whether calls of a tool can have all the arguments that the rule names."""
        schema = tool.schema
        if schema.get("additionalProperties", True) is not False:
            return True
        names = {*schema.get("properties", ()), *tool.arguments.unnamed}
        return names.issuperset(self.arguments or ())

    def misfit(self, tool: Tool) -> str:
        """Return why no call of a tool that has the arguments can have these values; empty if one can."""
        return misfit(self.arguments or {}, tool.schema, surely=self._is_sure) if self.is_possible(tool) else ""


class ApprovalPolicy(Middleware):
    """Decides by rules whether a call needs approval; the first matching rule wins, else the tool's `approval` decides.

    When a call is denied, the model gets the rule's reason. The tool call itself asks, so answers, and what they
    remember, work as for any approval. A rule that can never apply, because it names an argument that none of its tools
    has, is a `UsageError` when the agent or node is set up; a policy of the runner is checked where a rule names its
    tool without `*`. A value that the argument cannot have is a `UsageError` when the agent or node is built; calls of
    tools that come later ask instead. So is a rule that asks about a tool, or looks at its arguments, if these
    could not all be shown.
    """

    @checks_options
    def __init__(self, rules: Sequence[ApprovalRule]) -> None:
        self._rules: tuple[ApprovalRule, ...] = tuple(rules)

    @property
    def rules(self) -> tuple[ApprovalRule, ...]:
        """The rules. They cannot be replaced: tools that runs share are guarded by them already."""
        return self._rules

    def check_tools(self, tools: Sequence[Tool]) -> None:
        for rule in self.rules:
            _check_possible(rule, rule.meant(tools))

    def check_own_tools(self, tools: Sequence[Tool]) -> None:
        for rule in self.rules:
            _check_types(rule, rule.meant(tools))

    def guard_tool(self, tool: Tool) -> Tool:
        rules = [rule for rule in self.rules if fnmatchcase(tool.name, rule.tool)]
        for rule in rules:
            if rule.tool == tool.name:
                _check_possible(rule, [tool])
        decides = any(rule.action == "ask" or rule.arguments for rule in rules if rule.is_possible(tool))
        if tool.approval is False and not decides:
            return tool

        # It was meant for this tool and can never match: what it is to decide, a person decides.
        misfits = any(rule.meant([tool]) and rule.misfit(tool) for rule in self.rules)

        async def asks(arguments: Mapping[str, Any]) -> bool:
            if misfits:
                return True
            rule = self._rule(tool.name, tool.show(arguments))
            if rule is not None:
                return rule.action == "ask"
            return await tool.needs_approval(arguments)

        return replace(tool, approval=asks, denies=(*tool.denies, partial(self._deny, tool.name)))

    async def wrap_tool(self, call: ToolCallable, request: ToolRequest) -> Any:
        self._deny(request.tool, request.arguments)
        return await call(request)

    def _deny(self, tool: str, arguments: Mapping[str, Any]) -> None:
        rule = self._rule(tool, arguments)
        if rule is not None and rule.action == "deny":
            raise ToolError(rule.reason or f"calls of '{tool}' like this one are not allowed")

    def _rule(self, tool: str, arguments: Mapping[str, Any]) -> ApprovalRule | None:
        return next((rule for rule in self.rules if rule.covers(tool, arguments)), None)


def _pattern(arguments: Any) -> Mapping[str, Any]:
    if not isinstance(arguments, Mapping):
        raise TypeError(f"arguments is {a_type(arguments)}. Give a mapping of names to values.")
    pattern = {name: as_data(wanted) for name, wanted in cast("Mapping[str, Any]", arguments).items()}
    check_pattern(pattern)
    return pattern


def _check_possible(rule: ApprovalRule, tools: Sequence[Tool]) -> None:
    if tools and not any(rule.is_possible(tool) for tool in tools):
        known = "; ".join(f"{tool.name}: {', '.join(tool.schema.get('properties', ())) or 'none'}" for tool in tools)
        raise UsageError(
            f"ApprovalRule(tool={rule.tool!r}) names the arguments {', '.join(rule.arguments or ())}, and no such tool "
            f"has them, so it would never apply. There are: {known}."
        )


def _check_types(rule: ApprovalRule, tools: Sequence[Tool]) -> None:
    found = [rule.misfit(tool) for tool in tools if rule.is_possible(tool)]
    if found and all(found):
        raise UsageError(
            f"ApprovalRule(tool={rule.tool!r}) can never apply, because of its pattern for {found[0].rstrip('.')}. "
            "Give a value that the argument can have."
        )
