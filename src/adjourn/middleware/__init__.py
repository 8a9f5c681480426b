"""Middleware: hooks around agents, and those that are shipped; each of these is loaded when it is first used."""

from importlib import import_module
from typing import TYPE_CHECKING

from .hooks import AgentEnd as AgentEnd
from .hooks import Middleware as Middleware
from .hooks import ModelState as ModelState
from .hooks import Setup as Setup
from .hooks import ToolRequest as ToolRequest

if TYPE_CHECKING:
    from .approval_policy import ApprovalPolicy as ApprovalPolicy
    from .approval_policy import ApprovalRule as ApprovalRule
    from .backend import Backend as Backend
    from .backend import FileError as FileError
    from .backend import checked_folder as checked_folder
    from .backend import checked_path as checked_path
    from .call_limits import CallLimits as CallLimits
    from .file_tools import FileTools as FileTools
    from .folder_backend import FolderBackend as FolderBackend
    from .log_calls import LogCalls as LogCalls
    from .memory_backend import MemoryBackend as MemoryBackend
    from .patch_tool_calls import PatchToolCalls as PatchToolCalls
    from .redact_pii import RedactPII as RedactPII
    from .reduce_tool_results import ReduceToolResults as ReduceToolResults
    from .sizes import about_tokens as about_tokens
    from .skills import Skill as Skill
    from .skills import Skills as Skills
    from .summarize import Summarize as Summarize
    from .todo_list import Todo as Todo
    from .todo_list import TodoList as TodoList
    from .tool_search import ToolSearch as ToolSearch

_HOMES = {
    "approval_policy": "ApprovalPolicy ApprovalRule",
    "backend": "Backend FileError checked_folder checked_path",
    "call_limits": "CallLimits",
    "file_tools": "FileTools",
    "folder_backend": "FolderBackend",
    "log_calls": "LogCalls",
    "memory_backend": "MemoryBackend",
    "patch_tool_calls": "PatchToolCalls",
    "redact_pii": "RedactPII",
    "reduce_tool_results": "ReduceToolResults",
    "sizes": "about_tokens",
    "skills": "Skill Skills",
    "summarize": "Summarize",
    "todo_list": "Todo TodoList",
    "tool_search": "ToolSearch",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = ["AgentEnd", "Middleware", "ModelState", "Setup", "ToolRequest", *_HOME]  # noqa: PLE0604  # pyright: ignore[reportUnsupportedDunderAll]  # what __getattr__ binds


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*_HOME, *globals()])
