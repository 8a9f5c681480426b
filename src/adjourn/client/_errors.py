"""What can go wrong between a client and its server, and errors of the library as the server reports them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from adjourn import errors
from adjourn._text import undotted
from adjourn.errors import AdjournError, RunError, SessionError
from adjourn.events import Failed


class ServerUnavailable(AdjournError):
    """The server cannot be reached, or does not answer; `session_id` and `after` are where a run was read to."""

    retryable = True

    def __init__(self, url: str, detail: str, *, session_id: str | None = None, after: int | None = None) -> None:
        self.url = url
        self.detail = detail
        self.session_id = session_id
        self.after = after
        if session_id is None:
            super().__init__(
                f"{url} cannot be reached: {undotted(detail)}. Check the address, and that the server runs."
            )
        else:
            super().__init__(
                f"The connection to {url} was lost and does not come back: {undotted(detail)}. A run that has begun "
                f"goes on there: read on with attach('{session_id}', after={after or 0})."
            )


class UnexpectedAnswer(AdjournError):
    """Something answered that is not a server of Adjourn, or that changes what one sends."""

    def __init__(self, url: str, detail: str, remedy: str) -> None:
        self.url = url
        self.detail = detail
        super().__init__(f"{url} {undotted(detail)}. {remedy}")


class RequestRefused(AdjournError):
    """The server refuses a request: `code` says why for programs, `hint` what to do, and `facts` has more.

    A refusal that the library has an error for, such as `AlreadyResumed`, is raised as that one.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        hint: str = "",
        *,
        facts: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        self.status = status
        self.code = code
        self.hint = hint
        self.facts: Mapping[str, Any] = facts or {}
        self.retry_after = retry_after
        super().__init__(f"{message} {hint}".strip())


class Facts:
    """What a refusal says besides its message; whatever is missing, or is something else, is empty."""

    def __init__(self, found: Mapping[str, Any], session_id: str | None) -> None:
        self._found = found
        self.session: str = self.text("session_id") or session_id or ""

    def text(self, name: str) -> str | None:
        """Return a text."""
        value = self._found.get(name)
        return value if isinstance(value, str) else None

    def number(self, name: str) -> float | None:
        """Return a number."""
        value = self._found.get(name)
        return value if isinstance(value, int | float) else None

    def flag(self, name: str) -> bool:
        """Return whether something is so."""
        return self._found.get(name) is True

    def texts(self, name: str) -> list[str]:
        """Return texts, or the ids of questions."""
        value = self._found.get(name)
        items = cast("list[Any]", value) if isinstance(value, list) else []
        named = [cast("dict[str, Any]", each).get("id") if isinstance(each, dict) else each for each in items]
        return [each for each in named if isinstance(each, str)]


_KNOWN: dict[str, Callable[[Facts], AdjournError]] = {
    "checkpoint_not_found": lambda it: errors.CheckpointNotFound(it.session, it.text("checkpoint_id")),
    "session_busy": lambda it: errors.SessionBusy(
        it.session, it.text("owner") or "", refused=it.texts("refused"), inputs=int(it.number("inputs") or 0)
    ),
    "pending_interrupts": lambda it: errors.PendingInterrupts(it.session, it.texts("interrupts")),
    "unfinished_run": lambda it: errors.UnfinishedRun(
        it.session, it.text("status") or "", inputs=int(it.number("inputs") or 0)
    ),
    "already_resumed": lambda it: errors.AlreadyResumed(
        it.session, it.text("interrupt_id"), live=it.flag("live"), by=it.text("by"), at=it.number("at")
    ),
    "unknown_interrupt": lambda it: errors.UnknownInterrupt(
        it.session, it.text("interrupt_id") or "", it.texts("open")
    ),
    "invalid_answer": lambda it: errors.InvalidAnswer(it.session, it.text("interrupt_id") or "", it.texts("problems")),
    "answer_refused": lambda it: errors.AnswerRefused(
        it.session, it.text("interrupt_id") or "", it.text("by"), it.text("reason")
    ),
    "interrupt_expired": lambda it: errors.InterruptExpired(it.session, it.text("interrupt_id") or ""),
    "stale_checkpoint": lambda it: errors.StaleCheckpoint(
        it.session,
        it.text("checkpoint_id") or "",
        it.text("head") or "",
        token=it.text("token"),
        open=it.texts("open"),
    ),
    "approval_spent": lambda it: errors.ApprovalSpent(
        it.session,
        it.text("checkpoint_id") or "",
        it.texts("approvals"),
        it.text("asked_at"),
        it.texts("pending"),
    ),
    "input_refused": lambda it: errors.InputRefused(it.session, it.text("input_id") or "", it.text("detail") or ""),
    "input_withdrawn": lambda it: errors.InputWithdrawn(it.session, it.text("input_id") or ""),
    "queue_full": lambda it: errors.QueueFull(
        it.session, int(it.number("inputs") or 0), int(it.number("size") or 0), int(it.number("more") or 0)
    ),
    "program_changed": lambda it: errors.ProgramChanged(it.text("address") or "", it.text("missing") or ""),
    "state_invalid": lambda it: errors.StateInvalid(it.text("field") or "", ""),
    "conflict": lambda it: errors.Conflict(it.session, ""),
    "invalid_request": lambda it: errors.UsageError(),
}
"""The errors of the library that a server refuses requests with, by their codes."""


def known_error(code: str, message: str, facts: Mapping[str, Any], session_id: str | None) -> AdjournError | None:
    """Return the library's error for a code, in the words of the server; None if there is none."""
    if code not in _KNOWN:
        return None
    error = _KNOWN[code](Facts(facts, session_id))
    error.args = (message,)
    return error


def failure(session_id: str, failed: Failed) -> AdjournError:
    """Return what reading a failed run raises: if it could not even begin, an error of its session."""
    kind = getattr(errors, failed.error, None)
    if failed.seq is None and isinstance(kind, type) and issubclass(kind, SessionError):
        code = "".join(f"_{each.lower()}" if each.isupper() else each for each in failed.error).lstrip("_")
        found = known_error(code, failed.message, {}, session_id)
        if found is not None:
            return found
    what = undotted(f"{failed.error}: {failed.message}")
    return RunError(f"Session '{session_id}' failed with {what}. Try again with `recover`.")
