"""Interrupts: asking a person from anywhere, and what people see of a question."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any, NoReturn, TypedDict, TypeVar, Unpack, overload

from ._engine.address import Address, Segment
from ._engine.questions import AnswerWith, ask, ask_by_hand, asking_place, new_question
from ._generics import TypeForm
from .errors import Pause
from .events import Interrupt

__all__ = ["Address", "AnswerWith", "Asking", "Interrupt", "Pause", "Segment", "interrupt", "raise_interrupt"]

T = TypeVar("T")


class Asking(TypedDict, total=False):
    """How a question is asked, and what it says: the keywords of `interrupt`, besides its schema."""

    key: str | None
    """Names the question within its frame."""
    reason: str
    """The reason for asking; "need_input" by default."""
    tags: Collection[str]
    """Labels by which people list questions; they do not tell one question from another."""
    prompt: str | None
    title: str | None
    """What is to be decided, in a few words."""
    summary: str | None
    """The same in one line, with what matters of what is shown."""
    description: str | None
    """What a person needs to know to decide, at any length."""
    priority: int
    """How urgent it is: 0 by default, more is more urgent."""
    link: str | None
    """An https or http address where to read more."""
    state: Any
    expires_in: timedelta | float | None
    on_expire: str | AnswerWith
    """What happens when it expires: "fail" by default, or an answer, `AnswerWith(value)`."""


@overload
def interrupt(info: Any = None, *, schema: type[T], **asking: Unpack[Asking]) -> T: ...
@overload
def interrupt(info: Any = None, *, schema: TypeForm[T], **asking: Unpack[Asking]) -> T: ...
@overload
def interrupt(info: Any = None, *, schema: Mapping[str, Any] | None = None, **asking: Unpack[Asking]) -> Any: ...
def interrupt(info: Any = None, *, schema: Any = None, **asking: Unpack[Asking]) -> Any:
    """Ask a person and return the answer, once there is one; until then the run pauses here.

    The code around it runs again from its top when the answer has come, so what it did before must repeat itself:
    put side effects into functions marked `@once`. `key` names the question within its frame. `schema` is the type of
    the answer, such as `bool`, `Literal["yes", "no"]` or a dataclass, or a JSON Schema. A question that expires fails
    with `InterruptExpired`, or is answered with `AnswerWith(value)`. `Asking` has the other keywords: `tags`, and
    `title`, `summary`, `description`, `priority` and `link` for the people who decide.

    Raises:
        NotInRun: there is no run around this call.
        NotStorable: `info` or `state` cannot be kept.
        AmbiguousInterrupt: this frame asks several questions at once without keys.
        ReplayMismatch: the code asks something else than the first time.
    """
    at = asking_place("interrupt")
    question = new_question(at.entry.frame.scope, info, schema=schema, **asking)
    return ask(at, question, schema)[0]


def raise_interrupt(
    info: Any = None,
    *,
    children: Sequence[Pause] = (),
    schema: Any = None,
    **asking: Unpack[Asking],
) -> NoReturn:
    """Pause this frame and steer the resume by hand: `current().resume_data` and `.interrupt_state` give back.

    With `children` (signals of `try_run`) it is a composite: the children keep their questions, and this adds the
    parent's info and state to them.

    A tool or node runs again from its beginning, and events are told apart by their number: as many `emit` calls as
    before the pause count as repeats. `Agent.resume` begins anew instead.
    """
    at = asking_place("raise_interrupt")
    question = new_question(at.frame.scope, info, schema=schema, raised=True, **asking)
    ask_by_hand(at, question, is_composite=bool(children))
