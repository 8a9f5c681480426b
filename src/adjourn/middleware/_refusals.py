"""Refusals: tool calls that middleware refuses to run, so that nobody is asked to approve them first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from adjourn.context import current
from adjourn.tools import Tool


def asked_unless(refused: Callable[[str], bool], tool: Tool) -> Tool:
    """Return the tool with its approval unchanged, except that calls with a refused id never need it."""
    if tool.approval is False:
        return tool

    async def asks(**arguments: Any) -> bool:
        if refused(_call_id()):
            return False
        return await tool.needs_approval(arguments)

    return replace(tool, approval=asks)


def _call_id() -> str:
    calls = (segment.sub_id for segment in reversed(current().address) if segment.type == "tool")
    return next(calls, None) or ""
