"""Building: the real graph of a plan, and the world that its nodes touch."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Unpack

from adjourn import Message, Retry, current, interrupt, once
from adjourn.graph import END, START, Command, CompiledGraph, StateGraph, StateSchema, add_messages, append, last, merge
from adjourn.runner import Options

from . import plans
from .plans import (
    Act,
    Ask,
    AskAll,
    Call,
    Choice,
    DropValue,
    Fan,
    Goto,
    Graph,
    Keep,
    Node,
    Plain,
    Rest,
    SetValue,
    Stumble,
    Way,
)


class Trouble(Exception):
    """What a stumbling node raises."""


class World:
    """What nodes do to the outside, kept over all runs of one session; it comes to them as `deps`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.entered: list[tuple[str, str]] = []
        self.left: dict[str, tuple[str, str]] = {}
        self.leavings: Counter[str] = Counter()
        self.made: Counter[str] = Counter()
        self.kept: dict[str, tuple[str, str]] = {}
        self.sealed: set[str] = set()
        self.broken: set[str] = set()
        self._calls: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        self.stumbles: Counter[str] = Counter()
        self.inside: set[str] = set()
        self.in_threads: set[str] = set()
        self.ticks = 0
        self.on_tick: Callable[[int], None] = lambda _: None

    def tick(self) -> None:
        with self._lock:
            self.ticks += 1
            ticks = self.ticks
        self.on_tick(ticks)

    def enter(self, address: str, key: str) -> None:
        with self._lock:
            self.entered.append((address, key))
            self.inside.add(key)
        self.tick()

    def leave(self, address: str, key: str, essence: str) -> None:
        with self._lock:
            self.left[key] = (address, essence)
            self.leavings[key] += 1
            self.inside.discard(key)

    def make(self, address: str, name: str, essence: str, key: str) -> None:
        """A kept call is made; one that has been sealed is broken by that."""
        with self._lock:
            self.made[key] += 1
            self.kept[key] = (address, name)
            if key not in self._calls[essence, name]:
                self._calls[essence, name].append(key)
            if key in self.sealed:
                self.broken.add(key)

    def seal(self, name: str, essence: str, number: int) -> None:
        """A kept call has returned, so it is stored and must not be made again, whatever happens."""
        with self._lock:
            self.sealed.add(self._calls[essence, name][number])

    def stumble(self, key: str, times: int) -> None:
        with self._lock:
            self.stumbles[key] += 1
            count = self.stumbles[key]
        if count <= times:
            raise Trouble(f"attempt {count} of {times}")


_SCHEMA: dict[str, tuple[Any, Any]] = {
    "log": (list[str], append),
    "spent": (int, plans.add),
    "latest": (str, last),
    "mix": (int, plans.weave),
    "notes": (dict[str, Any], merge),
    "slot": (str, None),
    "messages": (list[Message], add_messages),
}


def build(plan: Graph, **options: Unpack[Options]) -> CompiledGraph:
    """The real graph of a plan."""
    schema = StateSchema()
    for field in plan.fields:
        type_, reducer = _SCHEMA[field]
        schema.add_field(field, type_, reducer=reducer)
    graph = StateGraph(schema, name=plan.name)
    for node in plan.nodes:
        _add(graph, node, _elsewhere(node.way))
    for name in plan.entries:
        graph.add_edge(START, name)
    for source, target in plan.edges:
        graph.add_edge(source, target)
    for sources, target in plan.joins:
        graph.add_edge(list(sources), target)
    for source in dict.fromkeys(choice.source for choice in plan.choices):
        for number, choice in enumerate(plan.choices_of(source)):
            _add_choice(graph, choice, str(number))
    before = [node.name for node in plan.nodes if node.before]
    after = [node.name for node in plan.nodes if node.after]
    return graph.compile(interrupt_before=before, interrupt_after=after, **options)


def _elsewhere(way: Way) -> list[str]:
    """Where the commands of a node may lead, which a source of a join has to declare."""
    match way:
        case Goto(targets=targets):
            return list(targets)
        case Fan(sends=sends):
            return [send.target for send in sends]
        case Plain():
            return []


def _add(graph: StateGraph, node: Node, destinations: list[str]) -> None:
    if node.graph is not None and node.mapped:
        graph.add_subgraph(
            node.name,
            build(node.graph),
            input=lambda state: plans.child_input(node.name, state, plans.digest(dict(state))),
            output=lambda final: plans.child_output(node.name, final),
        )
    elif node.graph is not None:
        graph.add_node(node.name, build(node.graph), defer=node.defer, retry=_retry(node))
    else:
        function = _async_node(node) if node.kind == "async" else _sync_node(node)
        graph.add_node(
            node.name,
            function,
            thread=node.kind == "sync",
            defer=node.defer,
            retry=_retry(node),
            destinations=destinations,
        )


def _retry(node: Node) -> Retry | None:
    return Retry(attempts=node.attempts, on=Trouble, backoff=0.0) if node.attempts > 1 else None


class _Visit:
    """One entry into a node's code."""

    def __init__(self, node: Node, state: Any) -> None:
        context = current()
        self.node = node
        self.state = state
        self.at = str(context.address)
        self.key = context.idempotency_key
        self.world: World = context.deps
        self.values = context.values
        self.essence = plans.digest(self.at, dict(state), dict(self.values))
        self.heard: list[Any] = []
        self.calls: Counter[str] = Counter()
        self.world.enter(self.at, self.key)
        if node.kind == "sync":
            self.world.in_threads.add(self.key)

    def kept(self, name: str, result: str) -> None:
        """A kept call has given its result, for the first time or again."""
        self.heard.append(result)
        # Made on the event loop itself it is stored with the next record, and else before it returns.
        if self.node.kind != "inline":
            self.world.seal(name, self.essence, self.calls[name])
        self.calls[name] += 1

    def so_far(self) -> str:
        return plans.digest(self.essence, self.heard)

    def do(self, act: Act) -> None:
        """An act that needs no waiting."""
        match act:
            case Ask(key=None):
                self.heard.append(interrupt({"asks": self.node.name, "after": len(self.heard)}))
            case Ask(key=key):
                self.heard.append(interrupt(f"{self.node.name}?", key=key, schema=str))
            case SetValue(key=key):
                self.values[key] = self.so_far()
                self.heard.append(self.values[key])
            case DropValue(key=key):
                self.heard.append(self.values.get(key))
                if key in self.values:
                    del self.values[key]
            case Stumble(times=times):
                self.world.stumble(self.key, times)
            case _:
                raise TypeError(f"{self.node.kind} node '{self.node.name}' cannot do {act}")

    def result(self) -> Any:
        node, essence = self.node, self.so_far()
        self.world.leave(self.at, self.key, essence)
        update = plans.update_for(node, essence)
        match node.way:
            case Plain(style="none"):
                return None
            case Plain(style="mapping"):
                return update
            case Plain(style="command"):
                return Command(update=update)
            case Plain():
                return self.changed(update)
            case Goto() as way:
                targets = plans.goto_for(way, self.state)
                return Command(update=update, goto=targets[0] if len(targets) == 1 else targets)
            case Fan(sends=sends):
                commands = [
                    Command(update=plans.overlay_for(send, number, essence), goto=send.target)
                    for number, send in enumerate(sends)
                ]
                return Command(update=update, goto=commands) if update else commands

    def changed(self, update: Mapping[str, Any]) -> Any:
        """The state itself, with the update made in place."""
        for field, value in update.items():
            if field == "log":
                self.state["log"].extend(value)
            elif field == "notes":
                self.state["notes"].update(value)
            else:
                self.state[field] = value
        return self.state


def _sync_node(node: Node) -> Callable[[Any], Any]:
    def run(state: Any) -> Any:
        visit = _Visit(node, state)
        for act in node.acts:
            if isinstance(act, Keep):
                visit.kept(act.name, _keep(act.name, visit.essence))
            else:
                visit.do(act)
        return visit.result()

    return run


def _async_node(node: Node) -> Callable[[Any], Any]:
    async def run(state: Any) -> Any:
        visit = _Visit(node, state)
        for act in node.acts:
            match act:
                case Keep(name=name):
                    visit.kept(name, await _keep_async(name, visit.essence))
                case AskAll(keys=keys):
                    visit.heard += await asyncio.gather(*(_ask(key) for key in keys))
                case Rest(turns=turns):
                    for _ in range(turns):
                        await asyncio.sleep(0)
                    visit.world.tick()
                case Call(graph=inner):
                    given = plans.child_input(node.name, state, visit.so_far())
                    visit.heard.append(plans.digest(await current().run(_built(inner), given)))
                case _:
                    visit.do(act)
        return visit.result()

    return run


async def _ask(key: str) -> str:
    return interrupt(f"{key}?", key=key, schema=str)


def _made(name: str, essence: str) -> str:
    context = current()
    context.deps.make(str(context.address), name, essence, context.idempotency_key)
    return f"kept {name} at {context.address}"


@once(name="keep")
def _keep(name: str, essence: str) -> str:
    return _made(name, essence)


@once(name="keep")
async def _keep_async(name: str, essence: str) -> str:
    await asyncio.sleep(0)
    return _made(name, essence)


def _built(plan: Graph) -> CompiledGraph:
    return build(plan)


def _add_choice(graph: StateGraph, choice: Choice, name: str) -> None:
    def decide(state: Any) -> Any:
        context = current()
        context.deps.enter(str(context.address), context.idempotency_key)
        heard = [interrupt("which?")] if choice.asks else []
        targets = plans.picked(choice, dict(state), heard)
        context.deps.leave(str(context.address), context.idempotency_key, plans.digest(dict(state), heard))
        return _chosen(choice, targets)

    async def decide_async(state: Any) -> Any:
        await asyncio.sleep(0)
        return decide(state)

    fn = decide_async if choice.is_async else decide
    graph.add_conditional_edges(choice.source, fn, _mapping(choice), name=name)


def _mapping(choice: Choice) -> dict[str, str] | None:
    if choice.style != "mapping":
        return None
    return {f"to {name}": name for option in choice.options for name in (*option, END)}


def _chosen(choice: Choice, targets: tuple[str, ...]) -> Any:
    if choice.style == "mapping":
        return [f"to {name}" for name in targets]
    if choice.style == "name" and len(targets) == 1:
        return targets[0]
    return list(targets) or None
