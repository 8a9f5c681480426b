"""Interrupts: asking a person from anywhere, and what people see of a question."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any, NoReturn, TypeVar, overload

from ._engine.address import Address, Segment
from ._engine.questions import AnswerWith, ask, ask_by_hand, asking_place, new_question
from ._generics import TypeForm
from .errors import Pause
from .events import Interrupt

__all__ = ["Address", "AnswerWith", "Interrupt", "Pause", "Segment", "interrupt", "raise_interrupt"]

T = TypeVar("T")


@overload
def interrupt(
    info: Any,
    *,
    schema: type[T],
    key: str | None = None,
    reason: str = "need_input",
    tags: Collection[str] = (),
    prompt: str | None = None,
    state: Any = None,
    expires_in: timedelta | float | None = None,
    on_expire: str | AnswerWith = "fail",
) -> T: ...
@overload
def interrupt(
    info: Any,
    *,
    schema: TypeForm[T],
    key: str | None = None,
    reason: str = "need_input",
    tags: Collection[str] = (),
    prompt: str | None = None,
    state: Any = None,
    expires_in: timedelta | float | None = None,
    on_expire: str | AnswerWith = "fail",
) -> T: ...
@overload
def interrupt(
    info: Any,
    *,
    schema: Mapping[str, Any] | None = None,
    key: str | None = None,
    reason: str = "need_input",
    tags: Collection[str] = (),
    prompt: str | None = None,
    state: Any = None,
    expires_in: timedelta | float | None = None,
    on_expire: str | AnswerWith = "fail",
) -> Any: ...
def interrupt(
    info: Any,
    *,
    schema: Any = None,
    key: str | None = None,
    reason: str = "need_input",
    tags: Collection[str] = (),
    prompt: str | None = None,
    state: Any = None,
    expires_in: timedelta | float | None = None,
    on_expire: str | AnswerWith = "fail",
) -> Any:
    """Ask a person and return the answer, once there is one; until then the run pauses here.

    The code around it runs again from its top when the answer has come, so what it did before must repeat itself:
    put side effects into functions marked `@once`. `key` names the question within its frame. `schema` is the type of
    the answer, such as `bool`, `Literal["yes", "no"]` or a dataclass, or a JSON Schema. `tags` are labels for
    those who list many questions and want some of them; they do not tell one question from another. A question that
    expires fails with `InterruptExpired`, or is answered with `AnswerWith(value)`.

    Raises:
        NotInRun: there is no run around this call.
        NotStorable: `info` or `state` cannot be kept.
        AmbiguousInterrupt: this frame asks several questions at once without keys.
        ReplayMismatch: the code asks something else than the first time.
    """
    at = asking_place("interrupt")
    question = new_question(
        at.frame.scope,
        info,
        key=key,
        reason=reason,
        tags=tags,
        prompt=prompt,
        schema=schema,
        state=state,
        expires_in=expires_in,
        on_expire=on_expire,
    )
    return ask(at, question, schema)[0]


def raise_interrupt(
    info: Any = None,
    *,
    state: Any = None,
    children: Sequence[Pause] = (),
    reason: str = "need_input",
    tags: Collection[str] = (),
    prompt: str | None = None,
    schema: Any = None,
    key: str | None = None,
) -> NoReturn:
    """Pause this frame and steer the resume by hand: `current().resume_data` and `.interrupt_state` give back.

    With `children` (signals of `try_run`) it is a composite: the children keep their questions, and this adds the
    parent's info and state to them.

    A tool or node runs again from its beginning, and events are told apart by their number: as many `emit` calls as
    before the pause count as repeats. `Agent.resume` begins anew instead.
    """
    at = asking_place("raise_interrupt")
    question = new_question(
        at.frame.scope, info, key=key, reason=reason, tags=tags, prompt=prompt, schema=schema, state=state, raised=True
    )
    ask_by_hand(at, question, is_composite=bool(children))
