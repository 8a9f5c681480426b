"""Middleware: hooks around agents, and the built-in middleware, loaded on first use."""

from importlib import import_module
from typing import TYPE_CHECKING

from .hooks import AgentEnd as AgentEnd
from .hooks import Middleware as Middleware
from .hooks import ModelState as ModelState
from .hooks import NodeCall as NodeCall
from .hooks import NodeRequest as NodeRequest
from .hooks import Setup as Setup
from .hooks import ToolRequest as ToolRequest

if TYPE_CHECKING:
    from ._pii import Found as Found
    from ._sizes import about_tokens as about_tokens
    from .approval_policy import ApprovalPolicy as ApprovalPolicy
    from .approval_policy import ApprovalRule as ApprovalRule
    from .call_limits import CallLimits as CallLimits
    from .files.backends import Backend as Backend
    from .files.backends import FileError as FileError
    from .files.backends import FolderBackend as FolderBackend
    from .files.backends import MemoryBackend as MemoryBackend
    from .files.backends import checked_folder as checked_folder
    from .files.backends import checked_path as checked_path
    from .files.tools import FileTools as FileTools
    from .log_calls import LogCalls as LogCalls
    from .patch_tool_calls import PatchToolCalls as PatchToolCalls
    from .project_instructions import ProjectInstructions as ProjectInstructions
    from .redact_pii import RedactPII as RedactPII
    from .reduce_tool_results import ReduceToolResults as ReduceToolResults
    from .skills import Skill as Skill
    from .skills import Skills as Skills
    from .summarize import Summarize as Summarize
    from .todos import BoardTask as BoardTask
    from .todos import TaskBoard as TaskBoard
    from .todos import Todo as Todo
    from .todos import TodoList as TodoList
    from .tool_search import ToolSearch as ToolSearch

_HOMES = {
    "approval_policy": "ApprovalPolicy ApprovalRule",
    "files.backends": "Backend FileError FolderBackend MemoryBackend checked_folder checked_path",
    "call_limits": "CallLimits",
    "files.tools": "FileTools",
    "log_calls": "LogCalls",
    "patch_tool_calls": "PatchToolCalls",
    "_pii": "Found",
    "project_instructions": "ProjectInstructions",
    "redact_pii": "RedactPII",
    "reduce_tool_results": "ReduceToolResults",
    "_sizes": "about_tokens",
    "skills": "Skill Skills",
    "summarize": "Summarize",
    "todos": "BoardTask TaskBoard Todo TodoList",
    "tool_search": "ToolSearch",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = ["AgentEnd", "Middleware", "ModelState", "NodeCall", "NodeRequest", "Setup", "ToolRequest", *_HOME]  # noqa: PLE0604  # pyright: ignore[reportUnsupportedDunderAll]  # what __getattr__ binds


if not TYPE_CHECKING:  # For a type checker every name would exist.

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*_HOME, *globals()])
