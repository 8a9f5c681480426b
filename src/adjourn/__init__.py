"""Adjourn: agents that stop for people.

The names that are typed every day, bound when they are first used, so that importing costs little. The block for type
checkers and the table below it say the same; a test compares them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .agents import Agent as Agent
    from .agents import AgentInput as AgentInput
    from .agents import AgentTool as AgentTool
    from .agents import Approvals as Approvals
    from .agents import ChatModelAgent as ChatModelAgent
    from .agents import DeepAgent as DeepAgent
    from .agents import GraphAgent as GraphAgent
    from .agents import Limits as Limits
    from .agents import LoopAgent as LoopAgent
    from .agents import ParallelAgent as ParallelAgent
    from .agents import PlanExecute as PlanExecute
    from .agents import ResumeInfo as ResumeInfo
    from .agents import SequentialAgent as SequentialAgent
    from .agents import Supervisor as Supervisor
    from .core.address import Address as Address
    from .core.address import Segment as Segment
    from .core.child import Outcome as Outcome
    from .core.context import RunContext as RunContext
    from .core.context import address_segment as address_segment
    from .core.context import current as current
    from .core.context import has_resume_value as has_resume_value
    from .core.context import resume_value as resume_value
    from .core.context import session_value as session_value
    from .core.context import session_values as session_values
    from .core.context import set_session_value as set_session_value
    from .core.errors import AdjournError as AdjournError
    from .core.errors import AlreadyResumed as AlreadyResumed
    from .core.errors import AmbiguousInterrupt as AmbiguousInterrupt
    from .core.errors import CheckpointCorrupt as CheckpointCorrupt
    from .core.errors import CheckpointNotFound as CheckpointNotFound
    from .core.errors import CheckpointTooNew as CheckpointTooNew
    from .core.errors import Conflict as Conflict
    from .core.errors import CrashLoop as CrashLoop
    from .core.errors import GraphError as GraphError
    from .core.errors import GraphInterrupted as GraphInterrupted
    from .core.errors import InterruptExpired as InterruptExpired
    from .core.errors import InterruptsDisabled as InterruptsDisabled
    from .core.errors import InvalidAnswer as InvalidAnswer
    from .core.errors import InvalidArguments as InvalidArguments
    from .core.errors import LimitExceeded as LimitExceeded
    from .core.errors import MaxIterationsExceeded as MaxIterationsExceeded
    from .core.errors import MaxStepsExceeded as MaxStepsExceeded
    from .core.errors import ModelError as ModelError
    from .core.errors import NodeNotFound as NodeNotFound
    from .core.errors import NodeTimeout as NodeTimeout
    from .core.errors import NotInRun as NotInRun
    from .core.errors import NotStorable as NotStorable
    from .core.errors import PendingInterrupts as PendingInterrupts
    from .core.errors import ReplayMismatch as ReplayMismatch
    from .core.errors import RetryExhausted as RetryExhausted
    from .core.errors import RunError as RunError
    from .core.errors import SessionBusy as SessionBusy
    from .core.errors import SessionError as SessionError
    from .core.errors import ShapeChanged as ShapeChanged
    from .core.errors import StaleCheckpoint as StaleCheckpoint
    from .core.errors import StateInvalid as StateInvalid
    from .core.errors import StoreError as StoreError
    from .core.errors import StoreUnavailable as StoreUnavailable
    from .core.errors import ToolError as ToolError
    from .core.errors import ToolRefused as ToolRefused
    from .core.errors import UnfinishedRun as UnfinishedRun
    from .core.errors import UnknownInterrupt as UnknownInterrupt
    from .core.errors import UsageError as UsageError
    from .core.errors import WriteConflict as WriteConflict
    from .core.events import BreakLoop as BreakLoop
    from .core.events import Cancelled as Cancelled
    from .core.events import CheckpointSaved as CheckpointSaved
    from .core.events import Custom as Custom
    from .core.events import Delta as Delta
    from .core.events import Done as Done
    from .core.events import Event as Event
    from .core.events import Exit as Exit
    from .core.events import Failed as Failed
    from .core.events import Interrupt as Interrupt
    from .core.events import Interrupted as Interrupted
    from .core.events import MessageEvent as MessageEvent
    from .core.events import ModelRetrying as ModelRetrying
    from .core.events import NodeEnd as NodeEnd
    from .core.events import NodeStart as NodeStart
    from .core.events import Progress as Progress
    from .core.events import ToolCalled as ToolCalled
    from .core.events import ToolResult as ToolResult
    from .core.events import Transfer as Transfer
    from .core.interrupt import Default as Default
    from .core.interrupt import interrupt as interrupt
    from .core.interrupt import raise_interrupt as raise_interrupt
    from .core.once import once as once
    from .core.registry import stored as stored
    from .core.retry import Retry as Retry
    from .core.retry import backoff as backoff
    from .core.workflow import workflow as workflow
    from .messages import Message as Message
    from .messages import ToolCall as ToolCall
    from .messages import Usage as Usage
    from .middleware import Middleware as Middleware
    from .middleware import ModelState as ModelState
    from .middleware import Setup as Setup
    from .middleware import ToolRequest as ToolRequest
    from .models import ChatModel as ChatModel
    from .models import OpenAIChatModel as OpenAIChatModel
    from .printing import print_event as print_event
    from .runner import Checkpoint as Checkpoint
    from .runner import Run as Run
    from .runner import Runner as Runner
    from .runner import RunResult as RunResult
    from .tools import Approve as Approve
    from .tools import Edit as Edit
    from .tools import ExitTool as ExitTool
    from .tools import Reject as Reject
    from .tools import Respond as Respond
    from .tools import Tool as Tool
    from .tools import ToolCallInfo as ToolCallInfo
    from .tools import tool as tool

_HOMES = {
    "agents": "Agent AgentInput AgentTool Approvals ChatModelAgent DeepAgent GraphAgent Limits LoopAgent ParallelAgent "
    "PlanExecute ResumeInfo SequentialAgent Supervisor",
    "core.address": "Address Segment",
    "core.child": "Outcome",
    "core.context": "RunContext address_segment current has_resume_value resume_value session_value session_values "
    "set_session_value",
    "core.errors": "AdjournError AlreadyResumed AmbiguousInterrupt CheckpointCorrupt CheckpointNotFound "
    "CheckpointTooNew Conflict CrashLoop GraphError GraphInterrupted InterruptExpired InterruptsDisabled "
    "InvalidAnswer InvalidArguments LimitExceeded MaxIterationsExceeded MaxStepsExceeded ModelError NodeNotFound "
    "NodeTimeout NotInRun NotStorable PendingInterrupts ReplayMismatch RetryExhausted RunError SessionBusy "
    "SessionError ShapeChanged StaleCheckpoint StateInvalid StoreError StoreUnavailable ToolError ToolRefused "
    "UnfinishedRun UnknownInterrupt UsageError WriteConflict",
    "core.events": "BreakLoop Cancelled CheckpointSaved Custom Delta Done Event Exit Failed Interrupt Interrupted "
    "MessageEvent ModelRetrying NodeEnd NodeStart Progress ToolCalled ToolResult Transfer",
    "core.interrupt": "Default interrupt raise_interrupt",
    "core.once": "once",
    "core.registry": "stored",
    "core.retry": "Retry backoff",
    "core.workflow": "workflow",
    "messages": "Message ToolCall Usage",
    "middleware": "Middleware ModelState Setup ToolRequest",
    "models": "ChatModel OpenAIChatModel",
    "printing": "print_event",
    "runner": "Checkpoint Run RunResult Runner",
    "tools": "Approve Edit ExitTool Reject Respond Tool ToolCallInfo tool",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_HOME)  # noqa: PLE0605  # pyright: ignore[reportUnsupportedDunderAll]  # what __getattr__ binds


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'adjourn' has no attribute {name!r}")
    value = getattr(import_module(f"adjourn.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*_HOME, "__version__"])
