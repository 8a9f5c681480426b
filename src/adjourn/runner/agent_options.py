"""Options for single agents of a turn, which are stored with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec
from msgspec import Struct

from adjourn._checks import is_count, is_positive
from adjourn._engine.program import Program
from adjourn._text import a_type
from adjourn.errors import UsageError

CALLS_PER_ANSWER = 100
"""How many tools a model may call in one answer, unless its agent or node says otherwise."""


class Limits(Struct, frozen=True, kw_only=True):
    """Limits on one turn of an agent, across its pauses; None is no limit. `seconds` counts running, not waiting.

    model_calls: how often the model may be called.
    tool_calls: how often tools may be called.
    tokens: how many tokens may be used.
    seconds: how long the turn may run, without waiting for people.
    calls_per_answer: how many tools may be called in one answer. With more, it is `TooManyCalls`, and none of them
        runs.
    """

    model_calls: int | None = None
    tool_calls: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    calls_per_answer: int | None = CALLS_PER_ANSWER

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value, is_valid = getattr(self, name), is_positive if name == "seconds" else is_count
            if value is not None and not is_valid(value):
                whole = "" if name == "seconds" else "whole "
                raise UsageError(f"Limits({name}={value!r}): give a {whole}number above zero, or None for no limit.")


class AgentOptions(Struct, frozen=True, kw_only=True):
    """Options for one agent in one turn: `run(..., for_agents={"Writer": AgentOptions(...)})`.

    `model_options` are added to those of the turn, and `limits` take the place of the agent's own.
    """

    model_options: Mapping[str, Any] = {}
    limits: Limits | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.limits, Limits | None):  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
            raise UsageError(f"AgentOptions(limits={self.limits!r}): give Limits(...), or None for the agent's own.")
        stored_options(self.model_options)


def stored_agents(given: Mapping[str, AgentOptions] | None, program: Program) -> dict[str, Any]:
    """Return the options of single agents of a program, which are kept with the turn, as JSON.

    Raises:
        UsageError: they are not options, or not for a chat-model agent of the program.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
        raise UsageError(f'for_agents={given!r}: give a mapping: {{"Name": AgentOptions(...)}}.')
    names, stored = program.option_names(), dict[str, Any]()
    for name, options in cast("Mapping[Any, object]", given).items():
        if not isinstance(options, AgentOptions):
            raise UsageError(f"for_agents: '{name}' has {options!r}. Give AgentOptions(model_options=..., limits=...).")
        if name not in names:
            raise UsageError(
                f"for_agents has '{name}', which is not a chat-model agent of this program. There are: "
                f"{', '.join(sorted(names)) or 'none'}. Agents that code starts are configured where they are made."
            )
        own = names[name]
        if own in stored:
            raise UsageError(f"for_agents has agent '{own}' under two names. Give its options once.")
        limits: Any = msgspec.to_builtins(options.limits)
        stored[own] = {"model_options": stored_options(options.model_options), "limits": limits}
    return stored


def stored_options(options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the options of a turn's model calls, which are kept with it, as JSON.

    Raises:
        UsageError: they are not JSON, or would store a secret.
    """
    if options is None:
        return {}
    try:
        stored = msgspec.json.decode(msgspec.json.encode(options, enc_hook=_as_dict), type=dict[str, Any])
    except (TypeError, ValueError) as error:
        # Without the options themselves: one of them may be a key.
        raise UsageError(f"model_options: give a mapping of names to JSON values ({error}).") from error
    for name in stored:
        if name.lower().replace("-", "_") in _SECRET:
            raise UsageError(
                f"model_options has '{name}', and options are stored with the turn. Give keys and headers to the model "
                "itself: OpenAIChatModel(api_key=..., headers=...)."
            )
    return stored


def _as_dict(value: object) -> dict[Any, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{a_type(value)} is not JSON")
    return dict(cast("Mapping[Any, Any]", value))


# The names that SDKs use for what must never be stored.
_SECRET = frozenset({"api_key", "authorization", "default_headers", "extra_headers", "headers"})
