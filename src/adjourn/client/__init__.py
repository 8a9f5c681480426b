"""A server of agents from Python: chats as runs that survive lost connections, questions, answers and history.

It needs the extra `client`: pip install "adjourn[client]".
"""

try:
    import httpx2 as _httpx2
except ImportError as _missing:
    raise ImportError('adjourn.client needs httpx2: pip install "adjourn[client]"') from _missing

from adjourn.sessions import QuestionAsked, SessionEnded

from ._client import Client
from ._errors import RequestRefused, ServerUnavailable, UnexpectedAnswer
from ._http import Reconnecting
from ._run import RemoteResult, RemoteRun
from ._sync import SyncClient, SyncRemoteRun
from ._wire import AgentInfo, QuestionClosed, RemoteInput, RemoteNotice, SessionInfo, Submitted

__all__ = [
    "AgentInfo",
    "Client",
    "QuestionAsked",
    "QuestionClosed",
    "Reconnecting",
    "RemoteInput",
    "RemoteNotice",
    "RemoteResult",
    "RemoteRun",
    "RequestRefused",
    "ServerUnavailable",
    "SessionEnded",
    "SessionInfo",
    "Submitted",
    "SyncClient",
    "SyncRemoteRun",
    "UnexpectedAnswer",
]

del _httpx2
