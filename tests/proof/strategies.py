"""Strategies: random plans, and the dice that decide what happens to their runs."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from msgspec import Struct

from adjourn.graph import END, START

from .plans import (
    ALWAYS,
    FIELDS,
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
    Send,
    SetValue,
    Stumble,
    Way,
    Write,
)

NAMES = ("a", "b", "c;d:1", "e", "f#2%")


class Mood(Struct, frozen=True):
    """What a plan may hold."""

    asks: bool = True
    stumbles: bool = True


class Dice:
    """Decisions made ahead, so that Hypothesis can shrink them; they start over when they run out."""

    def __init__(self, rolls: list[int]) -> None:
        self._rolls = rolls
        self._next = 0

    def roll(self, sides: int) -> int:
        """A number from 0 up to `sides`, excluded."""
        value = self._rolls[self._next % len(self._rolls)]
        self._next += 1
        return (value + self._next // len(self._rolls)) % sides

    def some(self, items: list[Any]) -> list[Any]:
        """At least one of the items, in any order."""
        left, taken = list(items), list[Any]()
        for _ in range(1 + self.roll(len(items))):
            taken.append(left.pop(self.roll(len(left))))
        return taken

    def __repr__(self) -> str:
        return f"Dice({self._rolls})"


dice = st.lists(st.integers(0, 59), min_size=1, max_size=24).map(Dice)


def _rarely(times: int) -> st.SearchStrategy[bool]:
    """True once in so many times; what is rare shrinks away."""
    return st.integers(1, times).map(lambda number: number == times)


CALM = Mood()


@st.composite
def graphs(draw: st.DrawFn, mood: Mood = CALM, depth: int = 0, name: str = "root") -> Graph:
    """A graph of a few nodes; static edges and fan-outs lead forward, gotos and conditions anywhere."""
    count = draw(st.integers(1, 4 if depth == 0 else 3))
    names = NAMES[:count]
    extra = draw(st.lists(st.sampled_from(FIELDS[3:]), unique=True, max_size=4))
    fields = (*ALWAYS, *(field for field in FIELDS if field in extra))
    nodes = [draw(_nodes(mood, depth, names, number, fields)) for number in range(count)]
    entries = draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))
    choices = draw(_choices(mood, names, nodes))
    starts = () if any(choice.source == START for choice in choices) and draw(st.booleans()) else tuple(entries)
    return Graph(
        name=f"{name}{depth}",
        fields=fields,
        nodes=tuple(nodes),
        entries=starts,
        edges=tuple(draw(_edges(names))),
        joins=tuple(draw(_joins(names))),
        choices=tuple(choices),
    )


@st.composite
def _edges(draw: st.DrawFn, names: tuple[str, ...]) -> list[tuple[str, str]]:
    forward = [(source, target) for i, source in enumerate(names) for target in (*names[i + 1 :], END)]
    return draw(st.lists(st.sampled_from(forward), unique=True, max_size=len(names) + 1))


@st.composite
def _joins(draw: st.DrawFn, names: tuple[str, ...]) -> list[tuple[tuple[str, ...], str]]:
    if len(names) < 3 or not draw(st.booleans()):
        return []
    sources = draw(st.lists(st.sampled_from(names[:-1]), min_size=2, max_size=3, unique=True))
    return [(tuple(sources), names[-1])]


@st.composite
def _choices(draw: st.DrawFn, mood: Mood, names: tuple[str, ...], nodes: list[Node]) -> list[Choice]:
    # Only what counts its tasks may lead back, else a loop would have no end.
    counting = [node.name for node in nodes if any(write.field == "spent" for write in node.writes)]
    sources = draw(st.lists(st.sampled_from([START, *counting]), max_size=2))
    options = st.lists(st.sampled_from([*names, END]), max_size=2, unique=True).map(tuple)
    return [
        Choice(
            source=source,
            options=tuple(draw(st.lists(options, min_size=1, max_size=3))),
            style=draw(st.sampled_from(("name", "list", "mapping"))),
            asks=mood.asks and draw(_rarely(4)),
            is_async=draw(st.booleans()),
        )
        for source in sources
    ]


@st.composite
def _nodes(
    draw: st.DrawFn, mood: Mood, depth: int, names: tuple[str, ...], number: int, fields: tuple[str, ...]
) -> Node:
    name = names[number]
    before, after = (draw(_rarely(8)) and mood.asks for _ in range(2))
    defer = draw(_rarely(6))
    attempts = draw(st.integers(1, 3)) if mood.stumbles else 3
    if depth < 2 and draw(_rarely(4)):
        inner = draw(graphs(mood, depth + 1, draw(st.sampled_from(("sub", "in:ner")))))
        mapped = draw(st.booleans())
        return Node(
            name=name,
            graph=inner,
            mapped=mapped,
            defer=defer and not mapped,
            before=before,
            after=after,
            attempts=1 if mapped else attempts,
        )
    kind = draw(st.sampled_from(("async", "async", "sync", "inline")))
    way = draw(_ways(names, number, fields))
    return Node(
        name=name,
        kind=kind,
        acts=tuple(draw(_acts(mood, depth, kind == "async", attempts))),
        writes=draw(_writes(way, fields)),
        way=way,
        defer=defer,
        before=before,
        after=after,
        attempts=attempts,
    )


@st.composite
def _ways(draw: st.DrawFn, names: tuple[str, ...], number: int, fields: tuple[str, ...]) -> Way:
    match draw(st.integers(0, 7)):
        case 7:
            return Goto(tuple(draw(st.lists(st.sampled_from([*names, END]), min_size=1, max_size=2, unique=True))))
        case 5 | 6 if number + 1 < len(names):
            over = st.lists(st.sampled_from([f for f in fields if f not in ("spent", "messages")]), unique=True)
            sends = st.builds(Send, st.sampled_from(names[number + 1 :]), over.map(tuple))
            return Fan(tuple(draw(st.lists(sends, max_size=3))))
        case 3:
            return Plain(draw(st.sampled_from(("state", "none"))))
        case _:
            return Plain(draw(st.sampled_from(("mapping", "command"))))


@st.composite
def _writes(draw: st.DrawFn, way: Way, fields: tuple[str, ...]) -> tuple[Write, ...]:
    match way:
        case Plain(style="none"):
            return ()
        case Fan() if not draw(st.booleans()):
            return ()
        case Plain(style="state"):
            able = [field for field in ("latest", "notes") if field in fields]
            return (Write("log"), *(Write(field) for field in draw(st.lists(st.sampled_from(able), unique=True))))
        case _:
            able = [field for field in fields if field not in ("log", "spent")]
            chosen = draw(st.lists(st.sampled_from(able), unique=True, max_size=3))
            return (Write("log"), Write("spent"), *(draw(_write(field)) for field in chosen))


@st.composite
def _write(draw: st.DrawFn, field: str) -> Write:
    if field == "messages":
        return Write(field, draw(st.sampled_from(("update", "say", "redo", "clear"))))
    return Write(field, "overwrite" if draw(_rarely(5)) else "update")


@st.composite
def _acts(draw: st.DrawFn, mood: Mood, depth: int, is_async: bool, attempts: int) -> list[Act]:
    able: list[st.SearchStrategy[Act]] = [
        st.builds(Keep, st.sampled_from(("pay", "mail"))),
        st.builds(SetValue, st.sampled_from(("u", "v"))),
        st.builds(DropValue, st.sampled_from(("u", "v"))),
    ]
    if mood.asks:
        able += [st.sampled_from((Ask(None), Ask(None), Ask("k")))] * 2
    if mood.stumbles or attempts > 1:
        able.append(st.builds(Stumble, st.integers(1, 2)))
    if is_async:
        able.append(st.builds(Rest, st.integers(1, 3)))
        if mood.asks:
            able.append(st.just(AskAll(("x", "y"))))
        if depth < 2:
            able.append(st.builds(Call, graphs(mood, 2, "call")))
    return draw(st.lists(st.one_of(able), max_size=3))
