"""What calls need: tools by name, hooks, the caller, and instruction templates."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, Literal, Protocol, cast, get_args

import msgspec
from msgspec.structs import replace

from adjourn._checks import takes
from adjourn._engine.scope import Audience, Frame, Scope
from adjourn._engine.values import GONE
from adjourn._values.frozen import shorten
from adjourn.context import RunContext, current
from adjourn.errors import RunError, UsageError
from adjourn.events import Event
from adjourn.messages import Message, ToolCall
from adjourn.middleware.hooks import Hooks, having
from adjourn.models import ToolSpec
from adjourn.runner import CALLS_PER_ANSWER as CALLS_PER_ANSWER
from adjourn.runner import ProgramOptions
from adjourn.tools import Tool, tool

OnError = Literal["tell", "tell_type", "raise"]
"""What a tool's error does: the model reads it, or only its type if the tool did not expect it; or the run fails."""
ON_ERROR: tuple[str, ...] = get_args(OnError)

OnUnknown = Literal["tell", "raise"] | Callable[[ToolCall], Any]
"""What a call of a tool that does not exist does: the model is told, the run fails, or a function gives its result."""


def check_on_unknown(given: object, where: str) -> None:
    """Raise if `given` is not an `OnUnknown`.

    Raises:
        UsageError: naming `where`.
    """
    if given not in ("tell", "raise") and not callable(given):
        raise UsageError(f"{where}: on_unknown_tool={given!r}. Use 'tell', 'raise', or a function of the call.")
    if callable(given) and not takes(given, 1):
        raise UsageError(f"{where}: on_unknown_tool is a function that cannot be called with the call: lambda call: ….")


class Kit:
    """What an agent or a node works with in one process; every process builds its own.

    Runs share one, also on several event loops and threads, unless hooks or options of a turn have gone into it: it
    holds nothing of a run.
    """

    __slots__ = (
        "counts_tokens",
        "hooks",
        "max_calls",
        "on_error",
        "on_unknown",
        "return_directly",
        "specs",
        "tools",
    )

    def __init__(
        self,
        name: str,
        tools: Sequence[Tool],
        hooks: Hooks,
        *,
        outer: int = 0,
        return_directly: Sequence[str] = (),
        on_error: OnError = "tell",
        on_unknown: OnUnknown = "tell",
        max_calls: int | None = None,
        counts_tokens: bool = False,
    ) -> None:
        """Get everything ready; the first `outer` of the middleware belong to the runner, or to agents above."""
        self.hooks: Hooks = hooks
        for each in having(hooks.all[outer:], "check_tools"):
            each.check_tools(tools)
        self.tools: dict[str, Tool] = by_name(guarded(tools, hooks), name)
        self.specs: tuple[ToolSpec, ...] = tuple(tool.spec for tool in tools)
        self.on_error: OnError = on_error
        self.on_unknown: OnUnknown = on_unknown
        self.max_calls: int | None = max_calls
        self.counts_tokens: bool = counts_tokens or any(getattr(each, "counts_tokens", False) for each in hooks.all)
        self.return_directly: frozenset[str] = frozenset(return_directly) | {
            tool.name for tool in tools if tool.return_directly
        }

    @property
    def keeps_answers(self) -> bool:
        """Whether hooks run after the model has answered, so that its answer must be kept first."""
        return bool(self.hooks.wrap_model or self.hooks.after_model)


def guarded(tools: Sequence[Tool], hooks: Hooks) -> Sequence[Tool]:
    """Return tools as the middleware lets them be called; the first of it has the last word."""
    for each in reversed(hooks.guard_tool):
        tools = [each.guard_tool(tool) for tool in tools]
    return tools


def as_tools(given: object, owner: str) -> tuple[Tool, ...]:
    """Return `given` as tools; plain functions are converted.

    Raises:
        UsageError: an item is neither a tool nor a function.
    """
    if not isinstance(given, Iterable) or isinstance(given, str):
        raise UsageError(f"The tools of '{owner}' are {given!r}. Give a list of tools.")
    return tuple(_as_tool(each, owner) for each in cast("Iterable[object]", given))


def _as_tool(given: object, owner: str) -> Tool:
    if isinstance(given, Tool):
        return cast("Tool", given)
    if callable(given):
        return tool(given)
    raise UsageError(
        f"{given!r}, of '{owner}', is not a tool. Give a function, something made by @tool, or agent.as_tool()."
    )


def by_name(tools: Sequence[Tool], owner: str) -> dict[str, Tool]:
    """Return tools by name.

    Raises:
        UsageError: two have the same name.
    """
    found: dict[str, Tool] = {}
    for each in tools:
        if each.name in found:
            raise UsageError(f"'{owner}' has two tools called '{each.name}'. Give each its own name.")
        found[each.name] = each
    return found


def with_own_ids(message: Message, used: set[str]) -> Message:
    """Return the message with an id for each call that is unique in the message and not in `used`."""
    if not message.tool_calls:
        return message
    calls: dict[str, ToolCall] = {}
    for call in message.tool_calls:
        name, number = call.id or "call", 2
        while name in used or name in calls:
            name, number = f"{call.id or 'call'}~{number}", number + 1
        calls[name] = call if name == call.id else replace(call, id=name)
    if list(calls) == [call.id for call in message.tool_calls]:
        return message
    return message.with_calls(list(calls.values()))


class Caller(Protocol):
    """What a call needs to know about its caller."""

    scope: Scope

    @property
    def address(self) -> str:
        """Its address."""
        ...

    @property
    def audience(self) -> Audience:
        """The name shown to people, the agents that the turn went through, and whether its events are emitted."""
        ...

    def emit_live(self, event: Event) -> None:
        """Emit a live event of the caller."""
        ...

    def answer_id(self) -> str:
        """Return the id that the model's answer will have as a message."""
        ...

    def all_values(self) -> dict[str, Any]:
        """Return the session values as the caller sees them."""
        ...


def middleware_around(frame: Frame, *, is_node: bool = True) -> tuple[Any, ...]:
    """Return the middleware around a node's calls, or before an agent's own: the run's, then that of frames above."""
    found = program_options(frame.scope).middleware
    for only_nodes, level in frame.surrounding:
        if is_node or not only_nodes:
            # A graph that is run by itself is its own runner; and one may be part of another with the same middleware.
            found += tuple(each for each in level if not any(each is outer for outer in found))
    return found


_DEFAULTS = ProgramOptions()


def program_options(scope: Scope) -> ProgramOptions:
    """Return the runner's options for its program."""
    found: object = scope.program_options
    return found if isinstance(found, ProgramOptions) else _DEFAULTS


InstructionFunction = Callable[[RunContext], str | Awaitable[str]]
"""A function of the context that returns an instruction, which is taken as it is."""


UNKNOWN = "{instruction}"
"""Stands for an instruction whose text is not known yet."""


class Instruction:
    """An instruction: a text with names of session values in braces, or a function; `where` is its name in errors.

    Raises:
        UsageError: it is neither, or a text that could never be filled.
    """

    __slots__ = ("_template", "_where", "function")

    def __init__(self, given: str | InstructionFunction, where: str) -> None:
        if not isinstance(given, str) and not callable(given):
            raise UsageError(f"{where} is {given!r}. Give a text, or a function of the context that returns one.")
        if not isinstance(given, str) and not takes(given, 1):
            raise UsageError(f"{where} is a function that cannot be called with the context: lambda ctx: text.")
        self.function: InstructionFunction | None = None if isinstance(given, str) else given
        self._template = Template(given if isinstance(given, str) else "", where)
        self._where = where

    def filled(self, lookup: Callable[[str], object]) -> str:
        """Return the text with session values filled in; a function has none, and gives an empty one."""
        return self._template.filled(lookup)

    def shown(self, lookup: Callable[[str], object]) -> str:
        """Return the text as far as it is known before the agent begins: `{name}` stands for a value not yet set.

        `{instruction}` stands for a text that is not known at all: that of a function, or of values that are missing.
        """
        text = self._template.filled(lookup, is_strict=False)
        return text or (UNKNOWN if self.function is not None or self._template else "")

    async def called(self) -> str:
        """Return the text of the function, called in the code of a run."""
        assert self.function is not None
        made: Any = self.function(current())
        text: Any = await made if inspect.isawaitable(made) else made
        if not isinstance(text, str):
            raise UsageError(f"{self._where} is a function that returned {shorten(text)}. Return a text.")
        return text


_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]*\??")


class Template:
    """A text with names of session values in braces; `where` is its name in error messages.

    Raises:
        UsageError: something else is in braces, so it could never be filled.
    """

    __slots__ = ("_text", "_where")

    def __init__(self, text: str, where: str) -> None:
        self._text = text
        self._where = where
        for piece in _PIECE.finditer(text):
            name = piece.group(1)
            if piece.group() not in ("{{", "}}") and (name is None or not _NAME.fullmatch(name)):
                raise UsageError(
                    f"{where} has {piece.group()!r}, which is not the name of a session value. Write {{name}}, or "
                    "{name?} for one that may be missing; write {{ and }} for braces. The text of a function is not "
                    "searched for names: instruction=lambda ctx: text."
                )

    def __bool__(self) -> bool:
        return bool(self._text)

    def filled(self, lookup: Callable[[str], object], *, is_strict: bool = True) -> str:
        """Return the text with `lookup(name)` for each `{name}`; values are text and never templates themselves.

        Raises:
            RunError: there is no such value (`lookup` returns `GONE`); `{name?}` is empty instead. If it is not
                strict, `{name}` stays as it is.
        """
        text = self._text
        return _PIECE.sub(partial(self._piece, lookup, is_strict), text) if "{" in text or "}" in text else text

    def _piece(self, lookup: Callable[[str], object], is_strict: bool, piece: re.Match[str]) -> str:
        name = piece.group(1)
        if name is None:
            return piece.group()[0]
        value = lookup(name.removesuffix("?"))
        if value is not GONE:
            return _text(value)
        if name.endswith("?"):
            return ""
        if not is_strict:
            return piece.group()
        raise RunError(
            f"{self._where} needs the session value '{name}', and there is none. Pass it with "
            f"run(values={{'{name}': ...}}), or write {{{name}?}} if it may be missing."
        )


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError):
        return str(value)
