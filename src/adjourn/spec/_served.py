"""How an agent is served, whoever made it: files or Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from adjourn._engine.program import Program
from adjourn._engine.values import check_value_name
from adjourn.errors import UsageError
from adjourn.runner import Runner


class Served(Struct, frozen=True, kw_only=True):
    """An agent, a graph, a workflow or a runner, and how it is served.

    interrupts: False if it must not ask anything.
    require_token: whether an approval must be answered by its token, so that it counts only for what was shown.
    self_approval: False if an approval counts only by somebody who is none of its requesters.
    on_busy, on_pending: what a message does while a turn runs, or while one is unfinished, unless the request says.
    answer_pending: whether a message that comes while one question is open is the answer to it.
    values: the session values that a new session begins with; without any, those of a runner.
    caller_values: the session values that callers who are no admins may set with a message; by default none.
    file: the file that describes it, if one does.
    """

    program: Program | Runner
    description: str = ""
    interrupts: bool = True
    require_token: bool = False
    self_approval: bool = True
    on_busy: Literal["error", "queue", "cancel"] = "error"
    on_pending: Literal["error", "abandon", "finish"] = "error"
    answer_pending: bool = False
    values: Mapping[str, Any] = {}
    caller_values: Sequence[str] = ()
    file: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.caller_values, str):
            raise UsageError(f"Served(caller_values={self.caller_values!r}): give a list, [{self.caller_values!r}].")
        for name in self.caller_values:
            check_value_name(name)
