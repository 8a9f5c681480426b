"""Function nodes: a function of the state, sync or async."""

# Overrides are documented on the base class.
# ruff: noqa: D102

from __future__ import annotations

import inspect
import threading
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from types import SimpleNamespace
from typing import Any, Literal, Self, cast, get_origin, get_type_hints

from msgspec.structs import replace

from adjourn._engine.entry import entry_of
from adjourn._engine.execution import execute
from adjourn._engine.program import Program
from adjourn.context import RunContext, current
from adjourn.errors import ProgramChanged
from adjourn.graph._frame import Task
from adjourn.graph._node import Node
from adjourn.graph._options import NodeSettings
from adjourn.graph.commands import named_in
from adjourn.graph.schema import Schema
from adjourn.graph.state import read


class FunctionNode(Node):
    """A node that calls a function; a sync function runs in a thread unless `thread` is False."""

    __slots__ = ("call", "fn", "how", "thread")

    def __init__(self, name: str, fn: Any, options: NodeSettings, *, thread: bool = True) -> None:
        if options.destinations is options.ends is None and (named := named_in(_returned(fn))):
            options = replace(options, destinations=named)
        super().__init__(name, options)
        self.fn: Any = fn
        self.thread: bool = thread
        self.call: Callable[[Any], Any] = fn
        self.how: Literal["async", "in_thread", "inline"] = "inline"

    def problems(self, schema: Schema) -> Iterable[str]:
        if not isinstance(self.thread, bool):  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
            yield f"the option thread of node '{self.name}' is {self.thread!r}: give True or False"
        if not callable(self.fn):
            yield f"node '{self.name}' is not a function: {self.fn!r}{_instead(self.fn)}"
            return
        try:
            adapt(self.fn)
        except TypeError as error:
            yield f"node '{self.name}' cannot be called: {error}"

    def placed(self, order: int, options: NodeSettings) -> Self:
        node = super().placed(order, options)
        node.call = adapt(self.fn)
        node.how = "async" if is_async(self.fn) else "in_thread" if self.thread else "inline"
        return node

    def run(self, task: Task) -> Awaitable[Any]:
        graph = task.graph
        state = read(graph.plan.schema, graph.fields, task.seen)
        if self.how == "async":
            return execute(task, self.call, state)
        if self.how == "in_thread":
            return execute(task, task.scope.in_thread, partial(_in_its_thread, task, self.call, state))
        return execute(task, self.call, state, inline=True)

    def check_restored(self, task: Task, below: Iterable[str]) -> None:
        check_no_graph(task, below)


def check_no_graph(task: Task, below: Iterable[str]) -> None:
    """Raise if a graph was stored where there is a function now."""
    if "~" in below:
        raise ProgramChanged(task.address, f"node '{task.node.name}' is no longer a graph")


def _in_its_thread(task: Task, call: Callable[[Any], Any], state: Any) -> Any:
    entry_of(task).thread = threading.get_ident()
    return call(state)


# The parameters of a function


def _instead(given: object) -> str:
    """Return how to add what is not a function, where that is known."""
    if hasattr(given, "compile"):
        return ". Call its .compile() first"
    is_agent = isinstance(given, Program) and given.kind == "agent"
    return ". Add an agent with add_agent_node" if is_agent else ""


def _returned(fn: Any) -> Any:
    """Return the type that a function is annotated to return, if it is known here."""
    inner = inspect.unwrap(fn)
    hints = getattr(inner, "__annotations__", {})
    # By itself: the type of the state may be a name that only the function's own function knows.
    one = SimpleNamespace(__annotations__={"return": hints["return"]} if "return" in hints else {})
    try:
        return get_type_hints(one, getattr(inner, "__globals__", {})).get("return")
    except Exception:  # noqa: BLE001  # protects the user: as in `_hinted`
        return None


def is_async(fn: Any) -> bool:
    """Return whether calling `fn` returns an awaitable."""
    call = getattr(cast("type[Any]", type(fn)), "__call__", None)  # noqa: B004  # an object with an async __call__, not whether it is callable
    inner = inspect.unwrap(fn)
    return any(inspect.iscoroutinefunction(each) for each in (fn, inner, call) if each is not None)


def adapt(fn: Callable[..., Any]) -> Callable[[Any], Any]:
    """Return a function of the state alone that calls `fn` with the arguments it takes.

    Raises:
        TypeError: `fn` takes other arguments.
    """
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except ValueError:
        return fn  # A builtin without a signature.
    takes = [_kind(parameter, hint) for parameter, hint in _hinted(fn, parameters)]
    needed = [kind for kind in takes if kind != "optional"]
    match needed:
        case ["state"]:
            return fn
        case ["state", "context"]:
            return lambda state: fn(state, current())
        case ["context", "state"]:
            return lambda state: fn(current(), state)
        case ["context"]:
            return lambda state: fn(current())
        case []:
            return fn if takes else lambda state: fn()
        case _:
            raise TypeError("it takes more than the state and a RunContext")


def _hinted(fn: Any, parameters: list[inspect.Parameter]) -> list[tuple[inspect.Parameter, Any]]:
    try:
        hints = get_type_hints(fn)
    except Exception:  # noqa: BLE001  # protects the user: a hint that cannot be resolved here is ignored
        hints = {}
    return [(parameter, hints.get(parameter.name, parameter.annotation)) for parameter in parameters]


def _kind(parameter: inspect.Parameter, hint: Any) -> str:
    origin = get_origin(hint) or hint
    if origin is RunContext or (isinstance(hint, str) and hint.split("[")[0].endswith("RunContext")):
        return "context"
    optional = parameter.default is not inspect.Parameter.empty or parameter.kind in (
        inspect.Parameter.VAR_POSITIONAL,
        inspect.Parameter.VAR_KEYWORD,
        inspect.Parameter.KEYWORD_ONLY,
    )
    return "optional" if optional else "state"
