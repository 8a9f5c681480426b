"""The tool with which a model ends the run."""

from __future__ import annotations

from adjourn.core.context import current

from .definition import Tool, tool


def _exit(final_result: str) -> str:
    """Finish the work, and give the user the final result.

    Args:
        final_result: The answer that the user gets.
    """
    current().exit(final_result)
    return final_result


def ExitTool(name: str = "exit", description: str | None = None) -> Tool:  # noqa: N802  # to users it is a kind of tool
    """A tool with which a model ends the run; its argument `final_result` is what the run comes to."""
    return tool(_exit, name=name, description=description, thread=False)
