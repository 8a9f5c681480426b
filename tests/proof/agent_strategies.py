"""Strategies of agents: random trees of them."""

from __future__ import annotations

from typing import Any, get_args

from hypothesis import strategies as st
from msgspec import Struct

from .agent_plans import (
    KEYS,
    Act,
    Ask,
    Chat,
    HookKind,
    Keep,
    Own,
    Plan,
    Rest,
    Row,
    Run,
    SetValue,
    Shell,
    Stumble,
    ToolPlan,
)

HOOKS: tuple[HookKind, ...] = get_args(HookKind)


class Mood(Struct, frozen=True):
    """What a tree may hold."""

    depth: int = 2
    stumbles: bool = False
    hooks: bool = False


HOOKED = Mood(depth=1, hooks=True)
CALM = Mood()
STUMBLING = Mood(stumbles=True)


@st.composite
def agents(draw: st.DrawFn, mood: Mood = CALM, name: str = "r", depth: int = 0, above: str = "") -> Plan:
    """An agent and those below it; `above` is the one that hands over to it."""
    kinds = (
        ["chat"] if depth >= mood.depth else ["chat", "chat", "sequential", "parallel", "loop", "plan", "own", "shell"]
    )
    match draw(st.sampled_from(kinds)):
        case "chat":
            return draw(_chats(mood, name, depth, above))
        case "own":
            return draw(_owns(mood, name, depth, above))
        case "shell":
            return Shell(name=name, agent=draw(agents(mood, f"{name}s", depth + 1, above)))
        case kind:
            letters = "abc" if kind == "plan" else "ab"[: draw(st.integers(1, 2))]
            below = [draw(agents(mood, f"{name}{letter}", depth + 1)) for letter in letters]
            return Row(name=name, kind=kind, agents=tuple(below), rounds=draw(st.integers(1, 3)))  # pyright: ignore[reportArgumentType]  # one of the kinds


@st.composite
def _chats(draw: st.DrawFn, mood: Mood, name: str, depth: int, above: str) -> Chat:
    hooks: list[HookKind] = draw(st.lists(st.sampled_from(HOOKS), max_size=2)) if mood.hooks else []
    # The reference has decisions inside of its tools, where hooks around them would see what they never see.
    gates = ["none", "none", *([] if "wrap_tool" in hooks else ["review", "approval"])]
    tools = [draw(_tools(mood, name, number, depth, gates)) for number in range(draw(st.integers(0, 3)))]
    below = draw(st.integers(0, 2)) if depth < mood.depth else 0
    # A name may hold what addresses are made of.
    names = [f"{name};{number}:#" for number in range(below)]
    targets = [*names, *([above] if above else [])]
    calls = [*range(len(tools)), *targets]
    batch = st.lists(st.sampled_from(calls), min_size=1, max_size=3).map(tuple) if calls else st.nothing()
    return Chat(
        name=name,
        tools=tuple(tools),
        batches=tuple(draw(st.lists(batch, max_size=3))) if calls else (),
        agents=tuple(draw(agents(mood, each, depth + 1, name)) for each in names),
        is_sequential=draw(st.booleans()),
        output_key=draw(st.sampled_from([None, None, *KEYS])),
        hooks=tuple(hooks),
        raises=mood.stumbles,  # Or those above a tool that stumbles would be told so.
        supervises=below > 0 and not mood.stumbles and draw(st.booleans()),
    )


@st.composite
def _tools(draw: st.DrawFn, mood: Mood, name: str, number: int, depth: int, gates: list[Any]) -> ToolPlan:
    if depth < mood.depth and draw(st.integers(0, 3)) == 3:
        inner = draw(agents(mood, f"{name}{number}", depth + 1))
        gate = draw(st.sampled_from([each for each in gates if each != "review"]))
        return ToolPlan(name=f"use{number}", agent=inner, full_history=draw(st.booleans()), gate=gate)
    acts = tuple(draw(st.lists(_acts(mood), max_size=3)))
    stumbles = any(isinstance(act, Stumble) for act in acts)
    endings: list[Any] = ["text", "text", "text", "direct", "exit", "break_loop", *([] if mood.stumbles else ["raise"])]
    return ToolPlan(
        name=f"do{number}",
        acts=acts,
        gate=draw(st.sampled_from(gates)),
        ending="text" if stumbles else draw(st.sampled_from(endings)),
        kind=draw(st.sampled_from(["async", "sync", "inline"])),
    )


def _acts(mood: Mood) -> st.SearchStrategy[Act]:
    kinds: list[st.SearchStrategy[Act]] = [
        st.builds(Ask, keyed=st.booleans()),
        st.builds(Ask, keyed=st.booleans()),
        st.just(Keep()),
        st.builds(SetValue, key=st.sampled_from(KEYS)),
        st.just(Rest()),
    ]
    return st.one_of(*kinds, *([st.builds(Stumble, times=st.integers(1, 2))] if mood.stumbles else []))


@st.composite
def _owns(draw: st.DrawFn, mood: Mood, name: str, depth: int, above: str) -> Own:
    acts = draw(st.lists(_acts(mood), max_size=3))
    if draw(st.booleans()):
        acts.insert(draw(st.integers(0, len(acts))), Run(draw(agents(mood, f"{name}x", depth + 1))))
    names = [f"{name};{number}:#" for number in range(draw(st.integers(0, 2)))]
    return Own(
        name=name,
        acts=tuple(acts),
        ending=draw(st.sampled_from(["text", "text", "exit", "break_loop"])),
        says=draw(st.sampled_from(["whole", "pieces", "stream", "nothing"])),
        agents=tuple(draw(agents(mood, each, depth + 1, name)) for each in names),
        target=draw(st.sampled_from(["", *names, *([above] if above else [])])),
    )
