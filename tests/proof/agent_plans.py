"""Plans of agents: random trees of them as data, and what their models and people say, as functions of what they see.

A model says what follows from the conversation alone, and every text that it says has a digest of all that it saw. So
whatever differs between two runs, be it a message, its place or a session value, shows in everything after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from adjourn import Approve, Edit, Interrupt, Message, Reject, Respond, ToolCall, ToolCallInfo

KEYS = ("u", "v")


class Ask(Struct, frozen=True, tag=True):
    """Asks a person; what they say is heard."""

    keyed: bool = False


class Keep(Struct, frozen=True, tag=True):
    """Makes a call that is kept."""


class SetValue(Struct, frozen=True, tag=True):
    """Hears a session value and sets it."""

    key: str


class Rest(Struct, frozen=True, tag=True):
    """Lets others have their turn."""


class Stumble(Struct, frozen=True, tag=True):
    """Fails for the first few times; the reference never does."""

    times: int


class Run(Struct, frozen=True, tag=True):
    """Runs another agent, and hears what it says; for agents of one's own."""

    agent: Plan


Act: TypeAlias = Ask | Keep | SetValue | Rest | Stumble | Run
Gate = Literal["none", "approval", "review"]
HookKind = Literal["before_agent", "after_agent", "before_model", "after_model", "wrap_model", "wrap_tool"]
Ending = Literal["text", "exit", "break_loop", "raise", "direct"]


class ToolPlan(Struct, frozen=True, tag=True):
    """A tool: what it does, who is asked before, and how it ends. One with an agent runs that."""

    name: str
    acts: tuple[Act, ...] = ()
    gate: Gate = "none"
    ending: Ending = "text"
    kind: Literal["async", "sync", "inline"] = "async"
    agent: Plan | None = None
    full_history: bool = False


class Chat(Struct, frozen=True, tag=True):
    """An agent with a model; in its n-th message it makes the n-th batch of calls, in a circle with a text in it."""

    name: str
    tools: tuple[ToolPlan, ...] = ()
    batches: tuple[tuple[int | str, ...], ...] = ()
    """Numbers of tools, and names of agents to hand over to."""
    agents: tuple[Plan, ...] = ()
    is_sequential: bool = False
    output_key: str | None = None
    raises: bool = False
    hooks: tuple[HookKind, ...] = ()
    supervises: bool = False


class Row(Struct, frozen=True, tag=True):
    """Agents in a row, side by side, in a loop, or as the three parts of a plan-execute agent."""

    name: str
    kind: Literal["sequential", "parallel", "loop", "plan"]
    agents: tuple[Plan, ...]
    rounds: int = 2


class Own(Struct, frozen=True, tag=True):
    """An agent of one's own, which says something after each thing that it does.

    It says that as a whole, in pieces before the whole, or as a stream; some run another one in place of saying
    anything. Every other time that it has the turn, it hands over to the agent that it names, if it names one.
    """

    name: str
    acts: tuple[Act, ...] = ()
    ending: Literal["text", "exit", "break_loop"] = "text"
    says: Literal["whole", "pieces", "stream", "nothing"] = "whole"
    agents: tuple[Plan, ...] = ()
    target: str = ""


class Shell(Struct, frozen=True, tag=True):
    """An agent under another name."""

    name: str
    agent: Plan


Plan: TypeAlias = Chat | Row | Own | Shell


def digest(*things: Any) -> str:
    """A few characters that differ when anything in these things does."""
    return blake2b(msgspec.json.encode(things, enc_hook=repr), digest_size=4).hexdigest()


def seen(messages: Sequence[Message]) -> str:
    """A digest of a conversation; ids of messages are no part of what a model sees."""
    return digest([(m.role, m.text, m.name, m.tool_call_id, [_call(call) for call in m.tool_calls]) for m in messages])


def _call(call: ToolCall) -> tuple[str, str, Mapping[str, Any]]:
    return call.id, call.name, call.arguments


# What people say


def answer_to(asked: Interrupt) -> Any:
    """What a person answers."""
    if isinstance(asked.info, ToolCallInfo):
        return decision_on(asked.info, "review" if asked.reason == "need_review" else "approval")
    return said_to(asked.info)


def said_to(info: Mapping[str, Any]) -> str:
    """What a person says to a question."""
    return f"said {digest(info)}"


def decision_on(info: ToolCallInfo, gate: Gate) -> Approve | Edit | Reject | Respond:
    """What a person decides about a call; agents that are tools are always let through."""
    chosen = int(digest(info.agent, info.call_id), 16) % (4 if gate == "approval" else 3)
    if chosen == 0 or info.tool.startswith("use"):
        return Approve()
    if chosen == 1 or info.call_id.startswith("whole"):
        return Reject(f"no {info.call_id}")
    return Edit(edited(info.arguments)) if chosen == 2 else Respond(f"instead of {info.call_id}")


def edited(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that a person has a call run with."""
    return {"x": f"edited {arguments['x']}"}
