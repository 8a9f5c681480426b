"""Adjourn: agents, graphs and workflows that stop for people.

Start with `ChatModelAgent`, `tool` and `Runner`; `StateGraph` makes graphs, and `adjourn.testing` models for tests.
`interrupt` asks a person, and `Runner.resume` goes on with the answer.
"""

# Names are bound when they are first used, so that importing costs little. The block for type checkers and the table
# below it say the same; a test compares them.

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ._values.registry import stored as stored
    from ._values.secret import Secret as Secret
    from .agents import Agent as Agent
    from .agents import AgentTool as AgentTool
    from .agents import ChatModelAgent as ChatModelAgent
    from .agents import DeepAgent as DeepAgent
    from .agents import GraphAgent as GraphAgent
    from .agents import Limits as Limits
    from .agents import LoopAgent as LoopAgent
    from .agents import ParallelAgent as ParallelAgent
    from .agents import PlanExecute as PlanExecute
    from .agents import SequentialAgent as SequentialAgent
    from .agents import Supervisor as Supervisor
    from .context import RunContext as RunContext
    from .context import address_segment as address_segment
    from .context import current as current
    from .context import has_resume_value as has_resume_value
    from .context import resume_value as resume_value
    from .context import session_value as session_value
    from .context import session_values as session_values
    from .context import set_session_value as set_session_value
    from .errors import AdjournError as AdjournError
    from .errors import AlreadyResumed as AlreadyResumed
    from .errors import ApprovalSpent as ApprovalSpent
    from .errors import CheckpointNotFound as CheckpointNotFound
    from .errors import InterruptExpired as InterruptExpired
    from .errors import InvalidAnswer as InvalidAnswer
    from .errors import PendingInterrupts as PendingInterrupts
    from .errors import RunError as RunError
    from .errors import SessionBusy as SessionBusy
    from .errors import SessionError as SessionError
    from .errors import StaleCheckpoint as StaleCheckpoint
    from .errors import StoreError as StoreError
    from .errors import ToolError as ToolError
    from .errors import UnfinishedRun as UnfinishedRun
    from .errors import UnknownInterrupt as UnknownInterrupt
    from .errors import UsageError as UsageError
    from .events import Cancelled as Cancelled
    from .events import Custom as Custom
    from .events import Delta as Delta
    from .events import Done as Done
    from .events import Event as Event
    from .events import Failed as Failed
    from .events import Interrupted as Interrupted
    from .events import MessageEvent as MessageEvent
    from .events import NodeEnd as NodeEnd
    from .events import NodeStart as NodeStart
    from .events import Retrying as Retrying
    from .events import ToolCalled as ToolCalled
    from .events import ToolResult as ToolResult
    from .events import Transfer as Transfer
    from .graph import END as END
    from .graph import START as START
    from .graph import Command as Command
    from .graph import CompiledGraph as CompiledGraph
    from .graph import MessagesState as MessagesState
    from .graph import StateGraph as StateGraph
    from .interrupts import Address as Address
    from .interrupts import AnswerWith as AnswerWith
    from .interrupts import Interrupt as Interrupt
    from .interrupts import interrupt as interrupt
    from .interrupts import raise_interrupt as raise_interrupt
    from .messages import Message as Message
    from .messages import ToolCall as ToolCall
    from .messages import Usage as Usage
    from .middleware import Middleware as Middleware
    from .models import ChatModel as ChatModel
    from .models import OpenAIChatModel as OpenAIChatModel
    from .printing import print_event as print_event
    from .runner import Run as Run
    from .runner import Runner as Runner
    from .runner import RunResult as RunResult
    from .runner import Worker as Worker
    from .sessions import Checkpoint as Checkpoint
    from .sessions import Sessions as Sessions
    from .sessions import SessionStatus as SessionStatus
    from .tools import Approval as Approval
    from .tools import Approve as Approve
    from .tools import Edit as Edit
    from .tools import ExitTool as ExitTool
    from .tools import Reject as Reject
    from .tools import Respond as Respond
    from .tools import Tool as Tool
    from .tools import ToolCallInfo as ToolCallInfo
    from .tools import tool as tool
    from .workflows import Retry as Retry
    from .workflows import once as once
    from .workflows import workflow as workflow

_HOMES = {
    "_values.registry": "stored",
    "_values.secret": "Secret",
    "agents": "Agent AgentTool ChatModelAgent DeepAgent GraphAgent Limits LoopAgent ParallelAgent PlanExecute "
    "SequentialAgent Supervisor",
    "context": "RunContext address_segment current has_resume_value resume_value session_value session_values "
    "set_session_value",
    "errors": "AdjournError AlreadyResumed ApprovalSpent CheckpointNotFound InterruptExpired InvalidAnswer "
    "PendingInterrupts RunError SessionBusy SessionError StaleCheckpoint StoreError ToolError "
    "UnfinishedRun UnknownInterrupt UsageError",
    "events": "Cancelled Custom Delta Done Event Failed Interrupted MessageEvent NodeEnd NodeStart Retrying "
    "ToolCalled ToolResult Transfer",
    "graph": "END START Command CompiledGraph MessagesState StateGraph",
    "interrupts": "Address AnswerWith Interrupt interrupt raise_interrupt",
    "messages": "Message ToolCall Usage",
    "middleware": "Middleware",
    "models": "ChatModel OpenAIChatModel",
    "printing": "print_event",
    "runner": "Run RunResult Runner Worker",
    "sessions": "Checkpoint SessionStatus Sessions",
    "tools": "Approval Approve Edit ExitTool Reject Respond Tool ToolCallInfo tool",
    "workflows": "Retry once workflow",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_HOME)  # noqa: PLE0605  # pyright: ignore[reportUnsupportedDunderAll]  # what __getattr__ binds


if not TYPE_CHECKING:  # For a type checker every name would exist.

    def __getattr__(name: str) -> Any:
        home = _HOME.get(name)
        if home is None:
            raise AttributeError(f"module 'adjourn' has no attribute {name!r}")
        value = getattr(import_module(f"adjourn.{home}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted([*_HOME, "__version__"])
