"""Middleware around nodes: `wrap_node`.

The hooks have frames of their own, below the task, and the code of the node stays in the frame of the task. So a
session that waits in a node can be resumed with other middleware than it was begun with.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Generator, Iterable
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from adjourn._engine.address import AROUND, CALL, WRAPPERS, parse_segment, segment_text
from adjourn._engine.child import inner, layer, open_layer
from adjourn._engine.entry import current_place, here
from adjourn._engine.execution import PAUSED
from adjourn._engine.frame import UserFrame
from adjourn._engine.record import UserImage
from adjourn._values import codec
from adjourn._values.same import same
from adjourn.errors import Pause, ProgramChanged, UsageError
from adjourn.middleware.hooks import Middleware, NodeRequest

from ._channels import FoldChannel, MessagesChannel
from ._frame import HANDLED, Task
from ._node import Overlay
from .commands import Command
from .state import State, attributes, read
from .state import given as given_value


class Updates(Struct, frozen=True):
    """Several updates of one field, which its reducer takes one by one."""

    values: tuple[Any, ...]


_Result = tuple[list[tuple[str, Any]], list[str] | None, list[tuple[str, dict[str, Any]]] | None]
"""A node's result as it is kept: its writes, and where it leads, with or without updates for single tasks."""


async def run_wrapped(task: Task, hooks: tuple[Middleware, ...]) -> Any:
    """Make one attempt at a task, inside the hooks; return `HANDLED` with the result set, or `PAUSED`."""
    # One object for all attempts: frames of the last attempt that are still live run the code that they were made for.
    around = task.around = task.around or _Around(task)
    around.hooks = hooks
    if task.scope.dormant:
        _drop_moved(task, hooks)
    frame = open_layer(task, AROUND, around.run)
    _let_run(frame)
    if not await frame.advance():
        return PAUSED
    for key, value in (frame.values or {}).items():
        task.write_value(key, value)
    result = frame.product()
    frame.drop()
    del (task.children or {})[AROUND]
    _set_result(task, _command(task, result))
    return HANDLED


def _drop_moved(task: Task, hooks: tuple[Middleware, ...]) -> None:
    """Drop the stored frames of hooks that are gone or are no longer at the same place around the node.

    Raises:
        ProgramChanged: one of them has asked or done something, which would be lost.
    """
    scope, path = task.scope, f"{task.path};{AROUND}"
    for expected in (*(segment_text("middleware", hook.name) for hook in hooks), None):
        for segment in [each for each in scope.dormant.below(path) if each != expected]:
            moved = f"{path};{segment}"
            _check_holds_nothing(task, moved)
            scope.dormant.bind(path, segment)
            scope.forget_below(moved)
            scope.changes.dropped[moved] = None
        path = f"{path};{expected};{CALL}"


def _check_holds_nothing(task: Task, moved: str) -> None:
    dormant = task.scope.dormant
    for path, image in ((moved, dormant.at(moved)), *dormant.all_below(moved)):
        if not _is_hook(path.rpartition(";")[2]) or not isinstance(image, UserImage) or _holds_something(image):
            segments = path.removeprefix(f"{task.path};").split(";")
            name = [parse_segment(each).id for each in segments if each.startswith("middleware:")][-1]
            raise ProgramChanged(
                task.address, f"middleware '{name}', which has asked or done something there, is gone or has moved"
            )


def _holds_something(image: UserImage) -> bool:
    return bool(image.questions) or any(memo.is_settled for memo in image.memos.values())


def _let_run(frame: UserFrame) -> None:
    """Let the hooks around a task that runs again do so, too: if the node has waited, no answer has woken them."""
    frame.wake()
    for child in frame.live_children():
        if _is_hook(child.segment):
            _let_run(cast("UserFrame", child))
    scope = frame.scope
    for path, image in scope.dormant.all_below(frame.path):
        is_hook = all(map(_is_hook, path.removeprefix(f"{frame.path};").split(";")))
        if is_hook and isinstance(image, UserImage) and image.status == "waiting":
            image.status = "pending"
            scope.changes.touched[path] = UserImage(status="pending")


def _is_hook(segment: str) -> bool:
    return segment == CALL or segment.startswith(WRAPPERS)


class _Around:
    """The hooks around the attempts of one task."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.hooks: tuple[Middleware, ...] = ()

    def run(self) -> Awaitable[_Result]:
        """Return the result of the outermost hook."""
        return self._wrapped(0, self.task.overlay)

    def _request(self, sight: Overlay | None) -> NodeRequest:
        task = self.task
        plan = task.graph.plan
        state = read(plan.schema, task.graph.fields, sight)
        return NodeRequest(graph=plan.name, node=task.node.name, state=state, attempt=task.attempt)

    async def _wrapped(self, place: int, sight: Overlay | None) -> _Result:
        """Return the result, passed through the hooks from `place` on, which see this laid over the state."""
        if place == len(self.hooks):
            return await self._node(sight)
        middleware = self.hooks[place]

        async def call(request: NodeRequest) -> Command:
            wrapped = partial(self._wrapped, place + 1, self._sight(request, sight))
            return _command(self.task, await inner(wrapped, middleware.raises))

        async def run() -> _Result:
            found: Any = middleware.wrap_node(call, self._request(sight))
            result = await found if inspect.isawaitable(found) else found
            with self._seeing(sight):
                _set_result(self.task, result)
            return _result(self.task)

        return await layer("middleware", middleware.name, run, part=f"wrap_node:{middleware.name}")

    def _sight(self, given: NodeRequest, before: Overlay | None) -> Overlay | None:
        """Return what is laid over the state once a hook has called with this request.

        Nothing of it is kept: at the next attempt, or after a pause, the hook changes the same state again.
        """
        task = self.task
        if (given.graph, given.node, given.attempt) != (task.graph.plan.name, task.node.name, task.attempt):
            raise UsageError(f"wrap_node of node '{task.node.name}': only the state of a request can be changed.")
        schema = task.graph.plan.schema
        if isinstance(given.state, State):
            new = given.state.touched()
        else:
            new = dict(given.state) if schema.cls is None else attributes(schema, given.state)
        for name in new:
            schema.channel(name, "wrap_node")
        fields = task.graph.fields.values
        changed = {name: value for name, value in new.items() if not same(given_value(fields, before, name), value)}
        if not changed:
            return before
        return {**(before or {}), **{name: codec.adopt(value, name)[0] for name, value in changed.items()}}

    @contextmanager
    def _seeing(self, sight: Overlay | None) -> Generator[None]:
        """Let the task see this laid over the state, for as long as this lasts."""
        self.task.seen = sight
        try:
            yield
        finally:
            self.task.seen = self.task.overlay

    async def _node(self, sight: Overlay | None) -> _Result:
        task, entry = self.task, here("wrap_node").entry
        task.forget_result()
        with self._seeing(sight):
            token = current_place.set(None)
            try:
                result = await task.node.run(task)
            finally:
                current_place.reset(token)
            if result is PAUSED:
                entry.pause()
                raise Pause(task.path)
            if result is not HANDLED:
                task.set_result(result)
        for key, value in (task.written or {}).items():
            entry.write_value(key, value)
        return _result(task)


def _result(task: Task) -> _Result:
    writes = [(name, value) for name, value, _ in task.writes]
    goto = None if task.goto is None else [node.name for node in task.goto]
    sends = None if task.sends is None else [(node.name, dict(overlay or {})) for node, overlay in task.sends]
    return writes, goto, sends


def _command(task: Task, result: Any) -> Command:
    """Return a kept result as hooks see it."""
    writes, goto, sends = cast("_Result", result)
    update: dict[str, Any] = {}
    for name, value in writes:
        update[name] = _together(task, name, update[name], value) if name in update else value
    leads = goto if sends is None else [Command(overlay, goto=name) for name, overlay in sends]
    return Command(update, leads)


def _together(task: Task, name: str, first: Any, second: Any) -> Any:
    """Return two updates of a field as one, if there is one that does the same."""
    channel = task.graph.plan.schema.channels.get(name)
    if isinstance(channel, MessagesChannel):
        return [*_listed(first), *_listed(second)]
    if not isinstance(channel, FoldChannel) and type(first) is type(second) is list:
        return [*first, *second]
    if not isinstance(channel, FoldChannel) and type(first) is type(second) is dict:
        return {**first, **second}
    return Updates((*(first.values if isinstance(first, Updates) else (first,)), second))


def _listed(update: Any) -> Iterable[Any]:
    return cast("Iterable[Any]", update) if isinstance(update, list | tuple) else [update]


def _set_result(task: Task, result: Any) -> None:
    """Set the task's result to what a hook returned."""
    task.forget_result()
    update = (result.update if isinstance(result, Command) else None) or {}
    several = {name: value for name, value in update.items() if isinstance(value, Updates)}
    if not several:
        task.set_result(result)
        return
    plain = {name: value for name, value in update.items() if name not in several}
    task.set_result(replace(cast("Command", result), update=plain))
    task.writes += [(name, value, False) for name, each in several.items() for value in each.values]
