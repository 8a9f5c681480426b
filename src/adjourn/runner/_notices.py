"""What others outside are told of a run: that it waits, that it has ended, and that a question is about to expire."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from adjourn.events import Failed, Final
from adjourn.stores.types import Notice, Question, Status

NoticeKind = Literal["interrupt", "done", "error", "expiring"]

_KINDS: dict[Status, NoticeKind] = {"waiting": "interrupt", "done": "done", "failed": "error"}


class Occasion(msgspec.Struct, frozen=True, kw_only=True):
    """Something that others may want to know of, as soon as the record `checkpoint` is stored.

    `agent` is whose run it is, `questions` are the ids of what it asks, `expires` is when the question does that an
    occasion of the kind "expiring" is about, and `asked` when it was asked.
    """

    kind: NoticeKind
    agent: str
    checkpoint: str
    questions: tuple[str, ...] = ()
    asked: float = 0.0
    expires: float | None = None
    error: str = ""
    message: str = ""


class Notify(Protocol):
    """Decides who is told of what; `Webhooks` is one."""

    def notices(self, occasion: Occasion, /) -> Sequence[Notice]:
        """Return what to send outside, which is stored in one step with the record that it is about."""
        ...


def occasions_of(
    agent: str, checkpoint: str, status: Status, last: Final | None, asks: Sequence[Question], waiting: Sequence[str]
) -> list[Occasion]:
    """Return what a record is an occasion for: `last` is given if a run ends with it, `waiting` are open questions."""
    found = [
        Occasion(
            kind="expiring",
            agent=agent,
            checkpoint=checkpoint,
            questions=(each.id,),
            asked=each.asked,
            expires=each.expires,
        )
        for each in asks
        if each.expires is not None and each.ended is None
    ]
    if last is not None and status in _KINDS:
        error, message = (last.error, last.message) if isinstance(last, Failed) else ("", "")
        asked = tuple(waiting) if status == "waiting" else ()
        ended = Occasion(
            kind=_KINDS[status], agent=agent, checkpoint=checkpoint, questions=asked, error=error, message=message
        )
        found.append(ended)
    return found
