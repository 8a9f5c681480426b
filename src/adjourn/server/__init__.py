"""Agents over HTTP: chats as streams that a client can come back to, questions, answers and history.

It needs the extra `server`: pip install "adjourn[server]".
"""

from typing import TYPE_CHECKING

try:
    import prometheus_client as _prometheus_client
    import starlette as _starlette
except ImportError as _missing:
    raise ImportError('adjourn.server needs an extra: pip install "adjourn[server]"') from _missing

from adjourn._habits import no_such_name
from adjourn.spec import Served

from ._app import App
from ._callers import Caller
from ._limits import CallerLimits
from ._tokens import Token, Tokens

__all__ = ["App", "Caller", "CallerLimits", "Served", "Token", "Tokens"]

del _prometheus_client, _starlette

if not TYPE_CHECKING:  # For a type checker every name would exist.

    def __getattr__(name: str) -> object:
        hint = "CallerLimits limit callers, and adjourn.Limits an agent." if name == "Limits" else ""
        raise no_such_name(__name__, name, hint)
