"""The context of running code: where it stands, what the session knows, and what it can do."""

from __future__ import annotations

import sys
from collections.abc import Coroutine, Generator, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar, overload

from ._checks import is_number
from ._engine.address import Address, segment_text
from ._engine.child import Outcome, run_child, run_children, try_child
from ._engine.entry import Place, current_place, here, question_key
from ._engine.memos import NONE
from ._engine.once import idempotency_key
from ._engine.program import Program
from ._engine.scope import OWN, Action, Frame
from ._engine.values import GONE, adopt_value, check_value_name, decoded
from ._generics import Defaulted, Deps_co
from ._schemas.answers import convert, to_json_data
from ._values import codec
from ._values.frozen import check_text
from .errors import UsageError
from .events import Custom, Progress

__all__ = [
    "Outcome",
    "RunContext",
    "SessionValues",
    "address_segment",
    "current",
    "has_resume_value",
    "resume_value",
    "session_value",
    "session_values",
    "set_session_value",
]

T = TypeVar("T")

_MISSING = object()


class SessionValues(MutableMapping[str, Any]):
    """The session's values as a frame sees them; what is written takes effect with the frame's result."""

    def __init__(self, at: Place) -> None:
        self._at = at
        self._frame = at.frame

    def _write(self, key: str, value: object) -> None:
        # On the loop, where entries end: a thread past its time cannot slip its write into the next attempt's.
        self._frame.scope.on_loop(lambda: self._at.check() or self._at.entry.write_value(key, value, self._at.once))()

    def __getitem__(self, key: str) -> Any:
        self._at.check()
        value = self._frame.read_value(key)
        if value is GONE:
            raise KeyError(key)
        # A stored container is the session's own; what was handed out is written back only by assignment.
        return codec.copy(value)

    def __setitem__(self, key: str, value: Any) -> None:
        self._write(key, adopt_value(key, value))

    def __delitem__(self, key: str) -> None:
        check_value_name(key)
        self[key]
        self._write(key, GONE)

    def __iter__(self) -> Iterator[str]:
        return (key for key in self._frame.all_values() if not key.startswith("~"))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return repr(dict(self))


class OwnValues(SessionValues):
    """What the library's middleware keeps in the session: values whose names callers and programs cannot write."""

    def __getitem__(self, key: str) -> Any:
        return super().__getitem__(OWN + key)

    def __setitem__(self, key: str, value: Any) -> None:
        self._write(OWN + key, codec.adopt(value, f"values[{key!r}]")[0])

    def __delitem__(self, key: str) -> None:
        self[key]
        self._write(OWN + key, GONE)

    def __iter__(self) -> Iterator[str]:
        return (key.removeprefix(OWN) for key in self._frame.all_values() if key.startswith(OWN))


class RunContext(Defaulted, Generic[Deps_co]):
    """The context of the calling code; get it with `current()`, or by a parameter annotated `RunContext`."""

    __slots__ = ("_at",)

    def __init__(self, at: Place) -> None:
        self._at = at

    @property
    def address(self) -> Address:
        """Where this code stands."""
        return Address.parse(self._at.address)

    @property
    def session_id(self) -> str:
        return self._at.frame.scope.session_id

    @property
    def user_id(self) -> str | None:
        return self._at.frame.scope.user_id

    @property
    def deps(self) -> Deps_co:
        """What the caller of the run brought along; never stored."""
        return self._at.frame.scope.deps

    @property
    def values(self) -> SessionValues:
        """The session's values."""
        return SessionValues(self._at)

    @property
    def attempt(self) -> int:
        """1 for the first attempt; retries count, and so do runs that failed, or that a crash has cut off."""
        return self._at.frame.attempt

    @property
    def idempotency_key(self) -> str:
        """A key for side effects in other systems, the same whenever this very step is tried again."""
        return idempotency_key(self._at)

    # Steering a resume by hand

    @property
    def was_interrupted(self) -> bool:
        """Whether this code has asked, or waited for a child, before.

        Inside an `address_segment` that is the code at this address, and so are the four below.
        """
        frame = self._at.frame
        if not self._at.extra:
            return frame.paused is not None or bool(frame.questions or frame.composites)
        return frame.has_asked_below(self._at.address)

    @property
    def interrupt_state(self) -> Any:
        """The `state` that this code gave with its latest interrupt, None if there is none."""
        asked = self._at.frame.asked_at(self._at.address)
        states = [question.state for question in asked if question.state is not NONE]
        return decoded(states[-1]) if states else None

    @property
    def is_resume_target(self) -> bool:
        """Whether an answer has come for a question that this code raised."""
        return self._raised() is not None

    @property
    def has_resume_data(self) -> bool:
        """Whether that answer carries data."""
        question = self._raised()
        return question is not None and decoded(question.value) is not None

    @property
    def resume_data(self) -> Any:
        """The data of that answer, None if there is none."""
        question = self._raised()
        return None if question is None else decoded(question.value)

    def _raised(self) -> Any:
        address, questions = self._at.address, self._at.frame.questions or ()
        raised = [question for question in questions if question.raised and question.address == address]
        return raised[-1] if raised and not raised[-1].is_open else None

    # Doing things

    def emit(self, data: Any) -> None:
        """Send `data` to whoever follows the run; it is stored, and not sent again when this code runs again."""
        owned, _ = codec.adopt(data, "emit")
        straight = self._at.entry.is_straight()
        self._at.frame.scope.on_loop(self._emit)(owned, straight)

    def _emit(self, data: Any, straight: bool) -> None:
        entry, writer = self._at.entry, self._at.frame.scope.log
        self._at.check()
        # A kept call is not made again, so what it emits is not counted.
        if self._at.once is None and not (entry.emits_next() if straight else entry.emits_beside(data)):
            return
        name, path, _ = self._at.frame.audience
        writer.emit(Custom(agent=name, path=path, address=self._at.address, data=data))
        writer.soon()

    def progress(self, done: float, total: float | None = None, text: str = "") -> None:
        """Report how far this code has come, to those who read the run's events now.

        It is not stored, so report as often as you like. Code that runs again reports again.
        """
        for name, value in (("done", done), ("total", done if total is None else total)):
            if not is_number(value) or not 0 <= value <= sys.float_info.max:
                raise UsageError(f"progress({name}={value!r}): give a number, 0 or more.")
        check_text(text, "progress(text=...)")
        if self._at.frame.scope.has_reader:
            self._at.frame.scope.on_loop(self._progress)(float(done), None if total is None else float(total), text)

    def _progress(self, done: float, total: float | None, text: str) -> None:
        self._at.check()
        name, path, hears = self._at.frame.audience
        if hears:
            fraction = min(done / total, 1.0) if total else None
            self._at.frame.scope.log.emit_live(
                Progress(
                    agent=name,
                    path=path,
                    address=self._at.address,
                    message=text,
                    fraction=fraction,
                    done=done,
                    total=total,
                )
            )

    # What an agent's tool can make of the run

    def exit(self, result: str = "") -> None:
        """End the run with this text, once this code has returned; an agent that is used as a tool ends alone."""
        self._want("exit", result=result)

    def transfer_to(self, agent: str) -> None:
        """Hand over to another agent, once this code has returned."""
        self._want("transfer", target=agent)

    def break_loop(self) -> None:
        """Leave the loop of agents around, once this code has returned."""
        self._want("break_loop")

    def _want(self, name: str, **arguments: str) -> None:
        """Have the nearest frame above that accepts an action do it."""
        for argument, text in arguments.items():
            check_text(text, argument)
        above: Frame | None = self._at.frame
        while above is not None:
            if (kept_as := above.accept(Action(name, arguments))) is not None:
                self._leave(kept_as, {"name": name, "arguments": arguments})
                return
            above = above.parent
        raise UsageError(
            f"'{self._at.address}' wants to {name.replace('_', ' a ')}, and no agent runs it. "
            "Do this in a tool of an agent, or in an agent."
        )

    def _leave(self, key: str, value: object) -> None:
        """Keep it as a session value is: with this code's result, dropped with its failure, repeated with the code."""
        at = self._at
        at.frame.scope.on_loop(lambda: at.check() or at.entry.write_value(key, value, at.once))()

    def run(
        self,
        program: Program[Any, Any, Any, T],
        input: Any = None,
        *,
        key: str | None = None,
        raises: Sequence[type[Exception]] = (),
    ) -> Coroutine[Any, Any, T]:
        """Run a graph, workflow or agent as a child frame; its result is kept, and its pause is this code's pause.

        `raises` names the exceptions of the child after which this code may ask a person, as in `@once`.
        """
        return run_child(self._at, program, input, key, raises)

    def run_all(
        self, children: Sequence[tuple[Program, Any]], *, raises: Sequence[type[Exception]] = ()
    ) -> Coroutine[Any, Any, list[Any]]:
        """Run several children at once, given as pairs of program and input; results in order."""
        return run_children(self._at, children, raises)

    def try_run(
        self, program: Program, input: Any = None, *, key: str | None = None, raises: Sequence[type[Exception]] = ()
    ) -> Coroutine[Any, Any, Outcome]:
        """Run a child and tell how it went, for parents that add to its pause with `raise_interrupt`."""
        return try_child(self._at, program, input, key, raises)


def current() -> RunContext[Any]:
    """The context of the calling code.

    Raises:
        NotInRun: there is no run around this call.
    """
    return RunContext(here("current"))


def own_values() -> OwnValues:
    """What the library's middleware keeps in the session of the calling code."""
    return OwnValues(here("own_values"))


@contextmanager
def address_segment(type: str, id: str, sub_id: str | None = None) -> Generator[None]:
    """Add a segment to the address of everything asked inside."""
    token = current_place.set(here("address_segment").within(f";{segment_text(type, id, sub_id)}"))
    try:
        yield
    finally:
        current_place.reset(token)


def session_value(key: str, default: Any = _MISSING) -> Any:
    """A session value.

    Raises:
        KeyError: there is none and no default was given.
    """
    values = current().values
    return values[key] if default is _MISSING else values.get(key, default)


def set_session_value(key: str, value: Any) -> None:
    """Write a session value; it takes effect with the frame's result."""
    current().values[key] = value


def session_values() -> Mapping[str, Any]:
    """A copy of all session values."""
    return dict(current().values)


def has_resume_value(key: str) -> bool:
    """Whether the question with this key in this frame has been answered."""
    return _answer(key) is not None


@overload
def resume_value(key: str, default: T = ..., *, schema: type[T]) -> T: ...
@overload
def resume_value(key: str, default: Any = ..., *, schema: Any = None) -> Any: ...
def resume_value(key: str, default: Any = _MISSING, *, schema: Any = None) -> Any:
    """The answer to the question with this key in this frame, as the type `schema` that the question was asked with.

    Code elsewhere, such as a later node, does not see it: write it to the state, or to a session value.

    Raises:
        KeyError: there is none and no default was given.
        ValueError: it does not fit `schema`.
    """
    question = _answer(key)
    if question is not None:
        value = decoded(question.value)
        return value if schema is None or value is None else convert(to_json_data(value), schema)
    if default is _MISSING:
        raise KeyError(key)
    return default


def _answer(key: str) -> Any:
    entry = here("resume_value").entry
    for question in reversed(entry.frame.questions or ()):
        is_answer = question.how == "answered" or (question.how == "expired" and question.value is not NONE)
        if question.key == key and is_answer and not question.void:
            entry.came(question_key(question))
            return question
    return None
