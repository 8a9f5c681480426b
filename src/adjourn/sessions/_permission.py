"""Who may answer: approvals that need a name or another person, and a program's own rule for that."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeAlias, cast

from adjourn._engine.record import APPROVALS, Question
from adjourn._schemas import answers as schemas
from adjourn.errors import AnswerRefused, InvalidAnswer, UsageError
from adjourn.events import Interrupt

MayAnswer: TypeAlias = Callable[[Interrupt, str | None, str | None], bool | str | Awaitable[bool | str]]
"""Decides from the question, who answers it, and whose turn asks it: True, or False or the reason why not."""

TurnUser = Callable[[], Awaitable[str | None]]


class Permission:
    """Whether answers may be recorded; asked before anything is written."""

    def __init__(self, require_by: bool, may_answer: MayAnswer | None, *, self_approval: bool) -> None:
        self.require_by = require_by
        self.may_answer = may_answer
        self.self_approval = self_approval

    def __bool__(self) -> bool:
        return self.require_by or self.may_answer is not None or not self.self_approval

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
            # Asked by a process, or at a time, without this option, so that nothing is stored with it.
            is_unmarked = not self.self_approval and each.requesters is None and each.reason in APPROVALS
            if is_unmarked and (by or "").strip() in ("", (await turn_user() or "").strip()):
                raise AnswerRefused(each.session_id, each.id, by, _ANOTHER)
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


_ANOTHER = "somebody else than those who ask for it must approve it"


def barred(asked: Question) -> tuple[str, ...]:
    """Return whose approval of a question the store refuses: the empty name is that of answers without any."""
    if asked.requesters is None:
        return ()
    return ("", *asked.requesters) if asked.reason in APPROVALS else ("",)


def approves(session_id: str, asked: Question, value: object) -> bool:
    """Return whether an answer approves what its question asks for; no if it refuses it, or proposes something else.

    Raises:
        InvalidAnswer: it also permits calls that others than its author may make later, without saying which.
    """
    if asked.requesters is None or asked.reason not in APPROVALS:
        return True
    data = _as_data(value)
    if data.get("remember") and asked.requesters and _limits_nothing(data.get("pattern")):
        raise InvalidAnswer(
            session_id,
            asked.id,
            ["an approval that is remembered for somebody else needs a pattern, such as {'to': 'bob'}"],
        )
    is_refusal = value is False or value == "no" or data.get("decision") == "reject"
    return not (is_refusal or (data.get("decision") == "edit" and asked.is_superseded_by_edits))


def _as_data(decision: object) -> Mapping[str, Any]:
    """Return a decision as JSON; nothing if it is a plain yes or no, or not a decision."""
    try:
        found: Any = schemas.to_json_data(decision)
    except (TypeError, ValueError):
        found = None  # What a question without a schema was answered with need not have a JSON form.
    return cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else {}


def _limits_nothing(pattern: Any) -> bool:  # Any: whatever the answer has
    values = cast("Mapping[str, Any]", pattern).values() if isinstance(pattern, Mapping) else ()
    for each in values:
        text: object = cast("Mapping[str, Any]", each).get("$path") if isinstance(each, Mapping) else each
        if not isinstance(text, str) or text.strip("*/"):
            return False
    return True
