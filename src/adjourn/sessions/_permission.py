"""Who may answer: approvals that need a name, and a program's own rule for that."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias

from adjourn._engine.record import APPROVALS
from adjourn.errors import AnswerRefused, UsageError
from adjourn.events import Interrupt

MayAnswer: TypeAlias = Callable[[Interrupt, str | None, str | None], bool | str | Awaitable[bool | str]]
"""Decides from the question, who answers it, and whose turn asks it: True, or False or the reason why not."""

TurnUser = Callable[[], Awaitable[str | None]]


class Permission:
    """Whether answers may be recorded; asked before anything is written."""

    def __init__(self, require_by: bool, may_answer: MayAnswer | None) -> None:
        self.require_by = require_by
        self.may_answer = may_answer

    def __bool__(self) -> bool:
        return self.require_by or self.may_answer is not None

    async def check(self, asked: Iterable[Interrupt], by: str | None, turn_user: TurnUser) -> None:
        """Refuse answers to these questions by anybody who may not give them.

        Raises:
            UsageError: an approval does not say who gave it; or the rule returned neither a bool nor a text.
            AnswerRefused: the rule says that it may not.
        """
        for each in asked:
            if self.require_by and each.reason in APPROVALS and not (by or "").strip():
                raise UsageError(
                    f"Question '{each.id}' of session '{each.session_id}' is an approval, which must say who gave "
                    "it (require_by). Answer with by=..., on the command line with --by NAME."
                )
            if self.may_answer is not None:
                await self._ask_rule(self.may_answer, each, by, await turn_user())

    async def _ask_rule(self, rule: MayAnswer, asked: Interrupt, by: str | None, user_id: str | None) -> None:
        said = rule(asked, by, user_id)
        allowed: Any = await said if inspect.isawaitable(said) else said  # Any: whatever their rule returns
        if allowed is True:
            return
        if allowed is not False and not isinstance(allowed, str):
            raise UsageError(f"may_answer returned {allowed!r}. Return True, or False or a text that says why not.")
        raise AnswerRefused(asked.session_id, asked.id, by, allowed or None)
