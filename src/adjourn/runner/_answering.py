"""Answering: which questions a resume means, whether its answers fit, and what has expired."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from msgspec import Raw

from adjourn._engine.record import NONE
from adjourn.errors import AlreadyResumed, InterruptExpired, UnknownInterrupt
from adjourn.sessions._questions import Answers, OpenQuestions, why_not_open
from adjourn.stores._logging import note
from adjourn.stores.protocol import Answer, Answered, Store

from ._live import LiveSession


async def resolve(store: Store, live: LiveSession, given: Answers, by: str | None) -> tuple[Answer, ...]:
    """Return the answers as the store takes them, every one checked before any is written.

    Raises:
        UnknownInterrupt, AlreadyResumed, InterruptExpired, InvalidAnswer: naming the first that is wrong.
    """
    scope = live.scope
    try:
        return OpenQuestions(scope.session_id, [question for _, question in scope.questions.open.values()]).resolve(
            given, by
        )
    except UnknownInterrupt as unknown:
        error = await why_not_open(store, live.ref, unknown, live=live.is_running)
        if error is unknown and scope.questions.has_ended(unknown.interrupt_id):
            # It has ended on the branch that this one came from.
            error = AlreadyResumed(scope.session_id, unknown.interrupt_id, live=live.is_running)
        raise error from None


def apply_answers(live: LiveSession, taken: Sequence[Answer | Answered], now: float) -> None:
    """Write answers into the frames that asked, and let these run again."""
    for answer in taken:
        at = answer.at if isinstance(answer, Answered) else now
        value = Raw(answer.value) if answer.value else NONE
        live.scope.answer(answer.id, how=answer.how, value=value, by=answer.by, at=at)


async def expire(store: Store, live: LiveSession, now: float) -> tuple[Answered, ...]:
    """End, beside the log and once, the open questions whose time is over, as their askers chose."""
    due = [q for _, q in live.scope.questions.open.values() if q.expires is not None and q.expires <= now]
    expired: list[Answered] = []
    for question in due:
        value = bytes(question.default)
        answer = Answer(id=question.id, value=value, how="expired")
        try:
            await store.answer(live.ref, [answer])
        except (AlreadyResumed, InterruptExpired):
            continue  # Somebody was first; the loaded answers, or the next load, tell how it ended.
        note(logging.INFO, "expired", live.scope.session_id, live.journal.head, question=question.id)
        expired.append(Answered(id=question.id, value=value, how="expired", by=None, at=now))
    return tuple(expired)
