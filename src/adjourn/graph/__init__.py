"""State graphs: nodes, edges, reducers, commands."""

from adjourn.messages import AppendMessages, Message, RemoveAllMessages, ReplaceLastUser, ToolCall

from ._options import NodeOptions
from .builder import StateGraph
from .commands import END, START, Cache, Command, Overwrite
from .compiled import CompiledGraph
from .reducers import Shared, add_messages, append, last, merge, replace
from .schema import MessagesState, StateSchema
from .state import State

__all__ = [
    "END",
    "START",
    "AppendMessages",
    "Cache",
    "Command",
    "CompiledGraph",
    "Message",
    "MessagesState",
    "NodeOptions",
    "Overwrite",
    "RemoveAllMessages",
    "ReplaceLastUser",
    "Shared",
    "State",
    "StateGraph",
    "StateSchema",
    "ToolCall",
    "add_messages",
    "append",
    "last",
    "merge",
    "replace",
]
