"""The reference: what a plan means, in plain Python, with nothing durable and nothing concurrent.

Questions are answered on the spot, failures that go away do not happen, and a superstep is a loop over its tasks.
"""

from __future__ import annotations

import copy
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, cast

from msgspec import Struct

from adjourn import Message
from adjourn.graph import END, START, AppendMessages, Overwrite, RemoveAllMessages, ReplaceLastUser

from . import plans
from .plans import Ask, AskAll, Call, Choice, DropValue, Fan, Goto, Graph, Keep, Node, Plain, SetValue

State = dict[str, Any]
Target = tuple[str, State | None]
Values = list[dict[str, Any]]
GONE = object()


class Conflicted(Exception):
    """Two tasks of one superstep wrote a field that holds one value."""

    def __init__(self, field: str) -> None:
        self.field = field
        super().__init__(field)


class Result(Struct, kw_only=True):
    """What one task came to."""

    task: int
    node: Node
    writes: list[tuple[str, Any]] = []
    goto: list[str] | None = None
    sends: list[Target] | None = None
    values: dict[str, Any] = {}


class Frame(Struct, kw_only=True):
    """Where a graph stands: its state, the updates it made (for a parent), and the session values it wrote."""

    state: State
    made: dict[str, list[Any]]
    values: dict[str, Any]
    step: int = 0


def started(plan: Graph) -> Frame:
    """A graph before its first input: a field with a reducer has its type's empty value."""
    state: State = {"log": [], "spent": 0, "latest": "", "mix": 0, "notes": {}, "messages": []}
    return Frame(state={field: value for field, value in state.items() if field in plan.fields}, made={}, values={})


def place(above: str, kind: str, name: str, number: int | None = None) -> str:
    """An address one segment below another."""
    escaped = name.replace("%", "%25").replace(";", "%3B").replace(":", "%3A").replace("#", "%23")
    text = f"{kind}:{escaped}" if number is None else f"{kind}:{escaped}:{number}"
    return f"{above};{text}" if above else text


class Reference:
    """Interprets one plan, turn after turn, and keeps what happened."""

    def __init__(self, plan: Graph) -> None:
        self.plan = plan
        self.address = place("", "runnable", plan.name)
        self.asked: Counter[str] = Counter()
        self.questions: list[str] = []
        self.executions: list[tuple[str, str]] = []
        self.finished: list[str] = []
        self.kept: list[tuple[str, str]] = []
        self.states: defaultdict[tuple[str, int], list[Any]] = defaultdict(list)
        self.final: State | None = None
        self.conflict: str | None = None
        self._root = started(plan)

    def run(self, *turns: Mapping[str, Any]) -> Reference:
        """Run the whole plan with these inputs, one turn each."""
        for given in turns:
            try:
                self._root = self.graph(self.plan, self.address, given, [], self._root)
            except Conflicted as conflict:
                self.conflict, self.final = conflict.field, None
                break
            self.final = self._root.state
        return self

    # Graphs

    def graph(self, plan: Graph, address: str, given: Mapping[str, Any], outer: Values, frame: Frame) -> Frame:
        """Run a graph at an address, below frames that hold session values."""
        for field, value in given.items():
            frame.state[field] = reduced(field, frame.state, value)
        joins, deferred, after = _Joins(plan), list[Target](), list[str]()
        targets = self.edges(plan, address, [START], frame, joins)
        while True:
            deferred += [target for target in targets if plan.node(target[0]).defer]
            targets = [target for target in targets if not plan.node(target[0]).defer]
            if not targets:
                targets, deferred = deferred, []
            tasks = ordered(plan, targets)
            self.note(address, frame)
            self.halt(address, [node for node, _, _ in tasks if node.before], after, frame)
            self.note(address, frame)
            if not tasks:
                return frame
            results = self.superstep(plan, address, tasks, frame, outer)
            apply(results, frame)
            frame.step += 1
            after = [result.node.name for result in results if result.node.after]
            targets = [target for result in results for target in _named(result)]
            left = [result.node.name for result in results if result.goto is None and result.sends is None]
            targets += self.edges(plan, address, list(dict.fromkeys(left)), frame, joins)

    def note(self, address: str, frame: Frame) -> None:
        """Keep the state at the boundary of a superstep."""
        self.states[address, frame.step].append(plans.shown(frame.state))

    def halt(self, address: str, before: list[Node], after: list[str], frame: Frame) -> None:
        """Pause the graph itself, once for all nodes hit, and take the edit that is the answer."""
        if before or after:
            edits: dict[str, Any] = self.ask(address, "static") or {}
            for field, value in edits.items():
                frame.state[field] = value
                frame.made[field] = [Overwrite(value)]

    def edges(self, plan: Graph, address: str, left: list[str], frame: Frame, joins: _Joins) -> list[Target]:
        """Where the edges of finished nodes lead: plain ones and joins first, then conditions."""
        targets: list[str] = []
        for name in left:
            targets += [plan_target for source, plan_target in _static(plan) if source == name]
        targets += joins.arrive(left)
        for name in left:
            for number, choice in enumerate(plan.choices_of(name)):
                at = place(place(address, "node", name), "branch", str(number))
                targets += self.choose(choice, at, frame.state)
        return [(name, None) for name in targets if name != END]

    def choose(self, choice: Choice, at: str, state: State) -> tuple[str, ...]:
        """Decide a condition."""
        heard = [self.ask(at)] if choice.asks else []
        self.executions.append((at, plans.digest(state, heard)))
        return plans.picked(choice, state, heard)

    def superstep(
        self, plan: Graph, address: str, tasks: list[tuple[Node, int | None, State | None]], frame: Frame, outer: Values
    ) -> list[Result]:
        """Run every task on the state from before; one that fails lets the others finish."""
        results: list[Result] = []
        failures: list[Conflicted] = []
        for number, (node, index, overlay) in enumerate(tasks):
            at = place(address, "node", node.name, index)
            seen = copy.deepcopy({**frame.state, **(overlay or {})})
            try:
                if node.graph is None:
                    result = self.node(node, at, seen, [frame.values, *outer])
                else:
                    result = self.subgraph(plan, node, node.graph, at, seen, [frame.values, *outer])
                result.task = number
                results.append(result)
                self.finished.append(at)
            except Conflicted as failure:
                failures.append(failure)
        if failures:
            raise failures[0]
        return results

    # Nodes

    def subgraph(self, plan: Graph, node: Node, inner: Graph, at: str, seen: State, outer: Values) -> Result:
        """Run a subgraph: it shares fields, or is mapped."""
        if node.mapped:
            given = plans.child_input(node.name, seen, plans.digest(seen))
        else:
            given = {field: seen[field] for field in inner.fields if field in plan.fields and field in seen}
        ended = self.graph(inner, at, given, [{}, *outer], started(inner))
        if node.mapped:
            writes = list(plans.child_output(node.name, ended.state).items())
        else:
            made = {field: values for field, values in ended.made.items() if field in plan.fields}
            # A field that is replaced takes what the subgraph's updates amount to; others take them one by one.
            made |= {field: [ended.state[field]] for field in ("latest", "slot") if field in made}
            writes = [(field, value) for field, values in made.items() for value in values]
        return Result(task=0, node=node, writes=writes, values=ended.values)

    def node(self, node: Node, at: str, seen: State, outer: Values) -> Result:
        """Do what a node does."""
        own: dict[str, Any] = {}
        values = [own, *outer]
        essence = plans.digest(at, seen, visible(values))
        heard: list[Any] = []
        calls: Counter[str] = Counter()
        for act in node.acts:
            match act:
                case Ask():
                    heard.append(self.ask(at))
                case AskAll(keys=keys):
                    heard += [self.ask(at) for _ in keys]
                case Keep(name=name):
                    self.kept.append((at, name))
                    heard.append(f"kept {name} at {at}")
                case SetValue(key=key):
                    own[key] = plans.digest(essence, heard)
                    heard.append(own[key])
                case DropValue(key=key):
                    heard.append(visible(values).get(key))
                    if key in visible(values):
                        own[key] = GONE
                case Call(graph=inner):
                    calls[inner.name] += 1
                    below = place(at, "runnable", inner.name, calls[inner.name] if calls[inner.name] > 1 else None)
                    given = plans.child_input(node.name, seen, plans.digest(essence, heard))
                    child = self.graph(inner, below, given, values, started(inner))
                    own.update(child.values)
                    heard.append(plans.digest(child.state))
                case _:
                    pass
        final = plans.digest(essence, heard)
        self.executions.append((at, final))
        return self.returned(node, seen, final, own)

    def returned(self, node: Node, seen: State, essence: str, own: dict[str, Any]) -> Result:
        """What a node's result means."""
        result = Result(task=0, node=node, writes=list(plans.update_for(node, essence).items()), values=own)
        match node.way:
            case Plain(style="none"):
                result.writes = []
            case Plain():
                pass
            case Goto() as way:
                result.goto = [name for name in plans.goto_for(way, seen) if name != END]
            case Fan(sends=sends):
                result.sends = [
                    (send.target, plans.overlay_for(send, number, essence)) for number, send in enumerate(sends)
                ]
        return result

    def ask(self, at: str, reason: str = "need_input") -> Any:
        """Ask a question and get its answer."""
        self.asked[at] += 1
        question = at if self.asked[at] == 1 else f"{at}#{self.asked[at]}"
        self.questions.append(question)
        return plans.answer_for(question, reason)


class _Joins:
    """Edges from several nodes, which lead on when all have finished since they last did."""

    def __init__(self, plan: Graph) -> None:
        self.joins = [(frozenset(sources), target, set[str]()) for sources, target in plan.joins]

    def arrive(self, names: list[str]) -> list[str]:
        """Count all that finished in a superstep, and only then let joins fire."""
        targets: list[str] = []
        for sources, target, arrived in self.joins:
            arrived.update(sources.intersection(names))
            if arrived >= sources:
                arrived.clear()
                targets.append(target)
        return targets


def _static(plan: Graph) -> list[tuple[str, str]]:
    return [*((START, name) for name in plan.entries), *plan.edges]


def _named(result: Result) -> list[Target]:
    if result.sends is not None:
        return result.sends
    return [(name, None) for name in result.goto or ()]


def ordered(plan: Graph, targets: list[Target]) -> list[tuple[Node, int | None, State | None]]:
    """The tasks of a superstep: in node order, plain triggers once, numbered where there are several or overlays."""
    tasks: list[tuple[Node, int | None, State | None]] = []
    for node in plan.nodes:
        overlays: list[State | None] = []
        for name, overlay in targets:
            if name == node.name and (overlay is not None or None not in overlays):
                overlays.append(overlay)
        lone = overlays == [None]
        tasks += [(node, None if lone else number, overlay) for number, overlay in enumerate(overlays, 1)]
    return tasks


def apply(results: list[Result], frame: Frame) -> None:
    """Make the updates of all tasks, in their order, or none of them."""
    state = dict(frame.state)
    wrote: dict[str, int] = {}
    overwrote: dict[str, int] = {}
    for result in results:
        for field, value in result.writes:
            if field == "slot" and wrote.get(field, result.task) != result.task:
                raise Conflicted(field)
            if isinstance(value, Overwrite):
                if overwrote.get(field, result.task) != result.task:
                    raise Conflicted(field)
                overwrote[field] = result.task
            wrote[field] = result.task
            state[field] = reduced(field, state, value)
    frame.state = state
    for result in results:
        frame.values.update(result.values)
        for field, value in result.writes:
            handed = frame.made.setdefault(field, [])
            if isinstance(value, Overwrite) or field == "slot":
                handed.clear()
            handed.append(value)


def reduced(field: str, state: State, value: Any) -> Any:  # one for each reducer
    """A field's next value."""
    if isinstance(value, Overwrite):
        return value.value
    old: Any = state.get(field)
    match field:
        case "log":
            return [*(old or ()), *value]
        case "spent":
            return plans.add(old or 0, value)
        case "mix":
            return plans.weave(old or 0, value)
        case "notes":
            return cast("dict[str, Any]", {**(old or {}), **value})
        case "messages":
            return _talk(list(old or ()), value)
        case _:
            return value


def _talk(messages: list[Message], update: Any) -> list[Message]:
    steps = cast("list[Any]", update) if isinstance(update, list) else [update]
    for step in steps:
        match step:
            case Message():
                messages.append(step)
            case AppendMessages(messages=more):
                messages += more
            case RemoveAllMessages():
                messages = []
            case ReplaceLastUser(text=text):
                last = max((i for i, message in enumerate(messages) if message.role == "user"), default=None)
                if last is None:
                    messages.append(Message.user(text))
                else:
                    messages[last] = Message.user(text)
            case other:
                raise TypeError(other)
    return messages


def visible(values: Values) -> dict[str, Any]:
    """Session values as code sees them, nearest first."""
    merged: dict[str, Any] = {}
    for frame in reversed(values):
        merged.update(frame)
    return {key: value for key, value in merged.items() if value is not GONE}
