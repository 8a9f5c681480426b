"""Nodes that are programs: they run in their own frame below the task."""

# Overrides are documented on the base class.
# ruff: noqa: D102

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, cast

from msgspec.structs import replace

from adjourn._calls.caller import middleware_around
from adjourn._checks import takes
from adjourn._engine.address import AROUND
from adjourn._engine.execution import PAUSED
from adjourn._engine.failures import LooseGate
from adjourn._engine.program import Program, ProgramFrame, start
from adjourn.errors import ProgramChanged, ReplayMismatch, StoreError
from adjourn.graph._channels import ABSENT, Channel, LastChannel, MessagesChannel
from adjourn.graph._frame import HANDLED, GraphFrame, Task
from adjourn.graph._node import Node, Plan
from adjourn.graph._options import NO_OPTIONS, NodeSettings
from adjourn.graph._results import check_update
from adjourn.graph.commands import Overwrite
from adjourn.graph.schema import Schema
from adjourn.graph.state import State, given, read
from adjourn.messages import AppendMessages, Message
from adjourn.middleware.hooks import having

from .function import is_async

OfState = Callable[[Any], Any]


class ProgramNode(Node):
    """A node that is a program; its frame is at the segment `inside` below its task."""

    __slots__ = ("inside", "program")

    takes_slot = False  # Its own tasks take slots.

    runs_program = True

    def __init__(
        self,
        name: str,
        program: Program,
        options: NodeSettings = NO_OPTIONS,
        *,
        inside: str = "~",
        order: int = -1,
        segment: str = "",
    ) -> None:
        super().__init__(name, options, order=order, segment=segment)
        self.program: Program = program
        self.inside: str = inside

    # Defined by each kind of program node

    def input_of(self, task: Task) -> Any:
        """Return the input of the program."""
        raise NotImplementedError

    def set_result(self, task: Task, child: Any) -> None:
        """Set the task's result from the program that has ended; `child` is its frame, of any kind."""
        raise NotImplementedError

    def forgive(self, task: Task, child: Any, error: Exception) -> bool:
        """Set the task's result from a program that has failed; return False if the task fails with it."""
        return False

    # Caching

    def may_cache(self, task: Task) -> bool:
        # What a runner guards may be called inside.
        return not having(middleware_around(task), "guard_tool")

    def recall(self, task: Task, added: Collection[str]) -> bool:
        """Give the messages that the program added ids of their own: with the old ones they would replace messages."""
        place = hashlib.blake2b(f"{task.path} {task.instance}".encode(), digest_size=5).hexdigest()
        ids = {old: f"m{place}.{number}" for number, old in enumerate(sorted(added), 1)}
        channels = task.graph.plan.schema.channels
        task.writes = [
            (name, _with_ids(value, ids) if isinstance(channels.get(name), MessagesChannel) else value, plain)
            for name, value, plain in task.writes
        ]
        return True

    # Running

    async def run(self, task: Task) -> Any:
        child = self._child(task)
        try:
            if not await child.advance():
                return PAUSED
            self.set_result(task, child)
        except (StoreError, ProgramChanged, ReplayMismatch, LooseGate):
            raise  # What is stored is in doubt, or the code has to be mended first: that cannot be forgiven.
        except Exception as error:
            if not self.forgive(task, child, error):
                raise
        if child.values:
            for key, value in child.values.items():
                task.write_value(key, value)
        child.drop()
        del (task.children or {})[self.inside]
        return HANDLED

    def _child(self, task: Task) -> ProgramFrame:
        if (live := (task.children or {}).get(self.inside)) is not None:
            return cast("ProgramFrame", live)
        child, is_new = self.open(task)
        if is_new:
            start(child, self.input_of(task))
        task.children = {**(task.children or {}), self.inside: child}
        return child

    def open(self, task: Task) -> tuple[ProgramFrame, bool]:
        """Return the frame of the program, and whether it is new rather than restored from its stored image."""
        dormant, inside = task.scope.dormant, self.inside
        is_new = inside not in dormant.below(task.path)
        return dormant.reopen(task.path, inside, partial(self.program.open, task.scope, task, inside)), is_new

    def bind_dormant(self, task: Task) -> None:
        if self.inside in task.scope.dormant.below(task.path):
            task.children = {**(task.children or {}), self.inside: self.open(task)[0]}

    def check_restored(self, task: Task, below: Iterable[str]) -> None:
        if task.questions or task.memos or any(each not in (self.inside, AROUND) for each in below):
            raise ProgramChanged(task.address, f"node '{self.name}' is a graph now, but was a function")


def _with_ids(update: Any, ids: Mapping[str, str]) -> Any:
    """Return an update of a conversation with other ids in place of these."""
    if isinstance(update, Overwrite):
        return Overwrite(_with_ids(update.value, ids))
    if isinstance(update, list | tuple):
        return [_with_ids(each, ids) for each in cast("Iterable[Any]", update)]
    if isinstance(update, AppendMessages):
        return replace(update, messages=_with_ids(update.messages, ids))
    if isinstance(update, Message) and update.id is not None and update.id in ids:
        return update.with_id(ids[update.id])
    return update


def mapping_problems(what: str, node: str, **functions: Any) -> Iterable[str]:
    """Yield the problems of functions that map a program's input and output."""
    for role, fn in functions.items():
        if fn is not None and not callable(fn):
            yield f"the {role} of {what} '{node}' is not a function: {fn!r}"
        elif fn is not None and is_async(fn):
            yield f"the {role} of {what} '{node}' is async: it only maps values, so make it a plain function"
        elif fn is not None and not takes(fn, 1):
            yield f"the {role} of {what} '{node}' cannot be called: it takes one value, the {_MAPPED[role]}"


# What the functions that map a program's input and output are called with.
_MAPPED = {"input": "state", "output": "result"}


class SubgraphNode(ProgramNode):
    """A node that is a graph: it shares the fields that both schemas have, unless `input` or `output` maps them."""

    __slots__ = ("input", "output", "plan")

    def __init__(
        self,
        name: str,
        graph: Any,  # Any: a compiled graph, which is a plan and a program, or anything else that a user passed
        options: NodeSettings = NO_OPTIONS,
        *,
        input: OfState | None = None,
        output: OfState | None = None,
    ) -> None:
        super().__init__(name, graph, options)
        self.plan: Plan = graph
        self.input: OfState | None = input
        self.output: OfState | None = output

    def problems(self, schema: Schema) -> Iterable[str]:
        if not isinstance(self.plan, Plan):  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
            yield f"subgraph '{self.name}' is not a compiled graph: {self.plan!r}"
            return
        yield from mapping_problems("subgraph", self.name, input=self.input, output=self.output)

    @property
    def inner(self) -> Plan:
        return self.plan

    def open(self, task: Task) -> tuple[ProgramFrame, bool]:
        child, is_new = super().open(task)
        if self.output is None:
            assert isinstance(child, GraphFrame)
            child.fields.exports = frozenset(task.graph.plan.schema.channels) & frozenset(self.plan.schema.channels)
        return child, is_new

    def input_of(self, task: Task) -> Any:
        graph = task.graph
        if self.input is not None:
            return self.input(read(graph.plan.schema, graph.fields, task.seen))
        shared = {name: given(graph.fields.values, task.seen, name) for name in self.plan.schema.channels}
        # The value itself is shared: it is not an update for a reducer to apply to the child's initial value.
        return {name: Overwrite(value) for name, value in shared.items() if value is not ABSENT}

    def set_result(self, task: Task, child: GraphFrame) -> None:
        if self.output is None:
            task.writes = [
                (name, value, False) for name in child.fields.updates for value in _updates(task, child, name)
            ]
            self._check_writes(task)
            return
        result = self.output(read(self.plan.schema, child.fields))
        # The child's state is not a state of this graph, for which only the differences would count.
        task.set_result(dict(result) if isinstance(result, State) else result)

    def _check_writes(self, task: Task) -> None:
        """Check what the subgraph did not check itself: fields that have another type here, if it checked any."""
        ours, theirs = task.graph.plan.schema, self.plan.schema
        for name, value, _ in task.writes:
            is_checked = theirs.channels[name].checks and ours.types[name] == theirs.types[name]
            if ours.channels[name].checks and not is_checked:
                check_update(task.node, ours.channels[name], value)


def _updates(task: Task, child: GraphFrame, name: str) -> list[Any]:
    # A field that the parent replaces gets the child's final value; one that it reduces gets every update.
    replaces = type(task.graph.plan.schema.channels[name]) in (Channel, LastChannel)
    return [child.fields.values[name]] if replaces else child.fields.updates[name]
