"""Agents over HTTP: chats as streams that a client can come back to, questions, answers and history.

It needs the extra `server`: pip install "adjourn[server]".
"""

try:
    import prometheus_client as _prometheus_client
    import starlette as _starlette
except ImportError as _missing:
    raise ImportError('adjourn.server needs an extra: pip install "adjourn[server]"') from _missing

from adjourn.spec import Served

from ._app import App
from ._callers import Caller
from ._limits import Limits
from ._tokens import Token, Tokens

__all__ = ["App", "Caller", "Limits", "Served", "Token", "Tokens"]

del _prometheus_client, _starlette
