"""The frame of an async function: a workflow, or a layer of other code."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any, Protocol, Self

from msgspec import Raw

from adjourn._values import codec
from adjourn._values.damage import Reading
from adjourn.errors import ProgramChanged, UsageError

from .execution import PAUSED, execute
from .frame import UserFrame
from .program import ProgramFrame, Report
from .record import NONE, Image, Question, UserImage
from .scope import Frame, RunCancelled, Scope
from .values import adopt_value, check_tags, decoded, lift_values, lower_values, value_or


class Routine(Protocol):
    """What a frame of this module runs: a workflow, or a layer of other code."""

    @property
    def name(self) -> str: ...
    def call(self, argument: Any) -> Awaitable[Any]:
        """Return the coroutine that does the work."""
        ...

    def check_input(self, argument: object) -> None:
        """Refuse input that does not fit."""
        ...


class FunctionFrame(UserFrame, ProgramFrame):
    """A running workflow. Its session values are those of its last finished turn, with its own writes on top."""

    written: dict[str, Any] | None
    status: str
    attempt: int
    exception: BaseException | None
    children: dict[str, Frame] | None
    questions: list[Question] | None

    # It has no steps, but everything before a kept call is kept, so it can stop where one begins.
    stops_between_calls = True

    def __init__(self, workflow: Routine, scope: Scope, parent: Frame | None, segment: str) -> None:
        super().__init__(scope, parent, segment)
        self.workflow = workflow
        self.input: Raw = NONE
        self.output: Raw = NONE
        self.kept_values: dict[str, Any] = {}

    @classmethod
    def of(cls, workflow: Routine, scope: Scope, parent: Frame | None, segment: str, image: Image | None) -> Self:
        """Return a frame for this workflow, from its stored image if there is one."""
        frame = cls(workflow, scope, parent, segment)
        if image is not None:
            if not isinstance(image, UserImage):
                raise ProgramChanged(frame.address, f"what is stored there is not a workflow, as '{workflow.name}' is")
            with Reading(scope.session_id):
                frame.restore(image)
        return frame

    @property
    def values(self) -> dict[str, Any] | None:
        return {**self.kept_values, **(super().values or {})}

    def begin(self, input: Any, state: Mapping[str, Any] | None = None) -> None:
        if state is not None:
            raise UsageError(f"'{self.workflow.name}' is a workflow: it has no state. Pass everything as its input.")
        self.workflow.check_input(input)
        self.input = codec.stored(input, "input")
        self._start_anew()

    def _start_anew(self) -> None:
        # A new turn enters this place anew: nothing that the last one kept counts.
        self.close_children()
        self.begin_turn()
        self.output = NONE
        self.recorded = False
        self.scope.mark(self)

    def close_children(self) -> None:
        """End everything below."""
        for child in (self.children or {}).values():
            child.close()
        self.children = None
        self.scope.forget_below(self.path)
        self.scope.changes.dropped[self.path + ";"] = None
        self.scope.questions.forget(self.path, [question.id for question in self.questions or ()])
        # A full record would name them as if they were open: what has become of them is forgotten with them.
        self.questions = None

    async def advance(self) -> bool:
        if self.status in ("done", "waiting"):
            return self.status == "done"
        if self.stops_between_calls and self.scope.cancellation.mode is not None:
            raise RunCancelled
        if self.status == "failed":
            self.begin_again()
        argument = decoded(self.input)
        try:
            result = await execute(self, self.workflow.call, argument)
        except Exception as error:
            self.status, self.exception = "failed", error
            self.scope.mark(self)
            raise
        self._end(result)
        return self.status == "done"

    def begin_again(self) -> None:
        """Prepare to run again after a failure."""
        self.status, self.exception = "pending", None
        self.attempt += 1
        self.scope.mark(self)

    def _end(self, result: Any) -> None:
        if result is PAUSED:
            self.status = "waiting"
        else:
            self.output = codec.stored(result, "the workflow's result")
            self.kept_values.update(self.written or {})
            self.status = "done"
            self.close_children()
        self.scope.mark(self)

    def check_answer(self, question: Question) -> None:
        check_tags(self.path, self.input, *(self.memos or {}).values())

    def check_types(self) -> None:
        super().check_types()
        if self.status != "done":
            check_tags(self.path, self.input)

    def report(self) -> Report:
        value = decoded(self.output)
        return Report(output=value if isinstance(value, str) else "", value=value)

    def product(self) -> Any:
        return decoded(self.output)

    def following(self) -> tuple[str, ...]:
        return () if self.status == "done" else (self.workflow.name,)

    def set_values(self, values: Mapping[str, Any]) -> None:
        for key, value in values.items():
            self.kept_values[key] = adopt_value(key, value)
        self.scope.mark(self)

    def abandon(self) -> None:
        self._start_anew()
        self.status = "done"

    def supply(self, state: Mapping[str, Any]) -> None:
        raise UsageError(f"'{self.workflow.name}' is a workflow: it has no state to add to.")

    def edit(self, values: Mapping[str, Any], as_node: str | None) -> None:
        raise UsageError(
            f"'{self.workflow.name}' is a workflow: it has no state to edit. Answer its questions, or fork it."
        )

    def snapshot(self) -> UserImage:
        image = super().snapshot()
        image.values = lower_values(self.kept_values)
        if image.fresh:
            image.input = self.input
        if self.output is not NONE:
            image.output = self.output
        return image

    def restore(self, image: UserImage) -> None:
        super().restore(image)
        self.written = None
        self.kept_values = lift_values(value_or(image.values, {}))
        self.input, self.output = image.input, image.output
