"""Layers: parts of one piece of user code that stand in frames of their own.

A wrapper around a tool and what it wraps may both ask, keep and fail. In one frame their questions and kept calls would
mix when only one of the two runs again. So each is a layer: what it came to is kept in the frame above, like `@once`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from .address import CALL, segment_text
from .child import run_layer
from .frame import UserFrame, here
from .function import FunctionFrame
from .memos import Key, Kind
from .program import Program
from .record import Image
from .scope import Frame, Scope

T = TypeVar("T")


class _LayerFrame(FunctionFrame):
    """The frame of a layer. It is a part of a task, so it stops when the task does, and runs in the task's place."""

    stops_between_calls = False
    has_tasks = False

    async def advance(self) -> bool:
        if isinstance(self.parent, UserFrame):  # whose attempts are this one's, too
            self.attempt = max(self.attempt, self.parent.attempt)
        return await super().advance()


class _Layer:
    """A layer as a program: what runs is made anew by whoever calls it."""

    kind = "layer"

    def __init__(self, name: str, call: Callable[[], Awaitable[Any]]) -> None:
        self.name = name
        self._call = call

    def call(self, argument: object) -> Awaitable[Any]:
        """The coroutine that does it; a layer has no input."""
        return self._call()

    def open(self, scope: Scope, parent: Frame | None, segment: str, image: Image | None) -> _LayerFrame:
        return _LayerFrame.of(self, scope, parent, segment, image)


async def layer(kind: str, name: str, call: Callable[[], Awaitable[T]], *, part: str = "") -> T:
    """Run `call` at the segment `kind:name` below the calling code; its result, which must be storable, is kept.

    `part` tells calls at one place apart that follow on one another, such as the hooks of one middleware.
    """
    return await _run(name, segment_text(kind, name), part or f"{kind}:{name}", call)


async def inner(call: Callable[[], Awaitable[T]]) -> T:
    """Run what a wrapper wraps: in a frame of its own, at the address that it would have without the wrapper."""
    return await _run("call", CALL, "call", call)


async def beside(segment: str, call: Callable[[], Awaitable[T]]) -> T:
    """Run `call` at `segment` below the calling code, perhaps beside others: `segment` is its own."""
    return await run_layer(here("layer"), _Layer(segment, call), segment, Key(Kind.LAYER, segment, number=0))


async def _run(name: str, segment: str, part: str, call: Callable[[], Awaitable[Any]]) -> Any:
    place = here("layer")
    program: Program = _Layer(name, call)
    return await run_layer(place, program, segment, place.entry.next(Kind.LAYER, part))
