"""Options and attributes that cannot be what was meant: names from other libraries, and values of a wrong type.

Each is answered with what to write instead.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, Unpack, cast, get_origin

import msgspec

from ._options import hints_of
from ._schemas.fits import misfit
from ._values.frozen import shorten
from .errors import AdjournError, UsageError

F = TypeVar("F", bound=Callable[..., Any])

_MODEL = "instruction='...'"
_STORE = "store='sqlite:///sessions.db'"
_SESSION = "run(..., session_id='s1')"
_RETRY = "retry=Retry(attempts=...)"

OPTIONS: Mapping[str, str] = {
    # Of agents
    "system_prompt": _MODEL,
    "system_message": _MODEL,
    "instructions": _MODEL,
    "prompt": _MODEL,
    "handoffs": "sub_agents=[...]",
    "result_type": "output_type=...",
    "response_format": "output_type=...",
    "response_model": "output_type=...",
    "deps_type": "run(..., deps=...)",
    "context_schema": "run(..., deps=...)",
    "max_turns": "max_iterations=...",
    "retries": _RETRY,
    "max_retries": _RETRY,
    "max_attempts": _RETRY,
    # Of runners and graphs
    "checkpointer": _STORE,
    "checkpoint_saver": _STORE,
    "session_service": _STORE,
    "memory": _STORE,
    "recursion_limit": "max_steps=...",
    "retry_policy": _RETRY,
    "cache_policy": "cache=Cache(...)",
    # Of runs
    "thread_id": _SESSION,
    "conversation_id": _SESSION,
    "lineage_id": _SESSION,
    "config": "run(..., session_id='s1', deps=...)",
    "configurable": "run(..., session_id='s1', deps=...)",
    "context": "run(..., deps=...)",
    "message_history": _SESSION,
    "stream_mode": "async for event in runner.run(...)",
    "model_settings": "model_options={...}",
}
"""Options of other libraries, and what they are called here."""


_WITHOUT_STORE = {name: f"Runner(..., {_STORE})" for name, instead in OPTIONS.items() if instead == _STORE}
"""What to write where there is no option `store`: only runners and `compile` have it."""

WITHOUT_RETRY = {name: f"ChatModelAgent(..., {_RETRY})" for name, instead in OPTIONS.items() if instead == _RETRY}
"""What to write where there is no option `retry`: agents with a model, tools, nodes and `compile` have it."""


def instead_of(options: Iterable[str], here: Mapping[str, str] | None = None) -> str:
    """Return a sentence that says what to write instead of options, where that is known; `here` goes first."""
    words = {**OPTIONS, **(here or {})}
    known = [f"Write `{words[name]}` instead of {name}." for name in options if name in words]
    return "".join(f" {sentence}" for sentence in known)


def called_here(option: str) -> str:
    """Return the name that an option of another library has here; an empty text if none is known."""
    return OPTIONS.get(option, "").partition("=")[0]


def check_known(
    whose: str, options: Iterable[str], known: Iterable[str], here: Mapping[str, str] | None = None
) -> None:
    """Refuse options that are not among those known.

    Raises:
        UsageError: naming them, with what to write instead where that is known.
    """
    names = list(known)
    if unknown := sorted(set(options) - set(names)):
        hint = instead_of(unknown, here)
        raise UsageError(f"{whose}: unknown option {', '.join(unknown)}.{hint} There are: {', '.join(names)}.")


def explains_run(run: F) -> F:
    """Let the `run` of an agent, which a runner calls, say how to run the agent."""

    @wraps(run)
    def call(self: Any, *args: Any, **options: Any) -> Any:
        if len(args) + len(options) != 2:
            raise UsageError(f"{self!r} does not run by itself. {RUN_AGENT}")
        return run(self, *args, **options)

    return cast("F", call)


def explains_options(function: F) -> F:
    """Let a function say what an option from elsewhere is called here, when it is called with one."""

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        try:
            return function(*args, **options)
        except TypeError as error:
            # Without a further frame, the call itself was refused.
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                _explain(function, args, options)
            raise

    return cast("F", call)


def _explain(function: Callable[..., Any], args: tuple[Any, ...], options: Mapping[str, Any]) -> None:
    signature = inspect.signature(function)
    unknown = [name for name in options if name not in signature.parameters]
    if any(isinstance(each, dict) and "configurable" in each for each in args[2:]):
        unknown.append("config")
    whose = type(args[0]).__name__ if function.__name__ == "__init__" else function.__qualname__
    # Agents that pass options on to a ChatModelAgent have its `retry`.
    parameters = signature.parameters.values()
    has_retry = any(each.name == "retry" or each.kind is each.VAR_KEYWORD for each in parameters)
    if hint := instead_of(unknown, _WITHOUT_STORE if has_retry else _WITHOUT_STORE | WITHOUT_RETRY):
        raise UsageError(f"{whose} has no option {', '.join(unknown)}.{hint}")
    try:
        signature.bind(*args, **options)
    except TypeError as error:
        # With the name of the class that the caller knows.
        raise TypeError(f"{whose}: {error}.{_by_name(signature, error)}") from None


def _by_name(signature: inspect.Signature, error: TypeError) -> str:
    """Return a sentence that says how to give what was given by its place and has none."""
    named = [each.name for each in signature.parameters.values() if each.kind is each.KEYWORD_ONLY]
    is_place = named and str(error) == "too many positional arguments"
    return f" Give options by their names, such as {named[0]}=...." if is_place else ""


def checks_options(function: F) -> F:
    """Let a function or constructor name an option whose type is not what its annotation says.

    Its own checks come first, since they say more.
    """
    explained = explains_options(function)

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        try:
            made = explained(*args, **options)
        except AdjournError:
            raise
        except Exception:
            _check_types(function, args, options)
            raise
        _check_types(function, args, options)
        return made

    return cast("F", call)


def _check_types(function: Callable[..., Any], args: tuple[Any, ...], options: Mapping[str, Any]) -> None:
    hints = _annotations(function)
    try:
        given = inspect.signature(function).bind(*args, **options).arguments
    except TypeError:
        return  # It has said so.
    for name, value in given.items():
        problem = misfit(value, hints[name]) if name in hints else None
        if problem is not None:
            whose = type(args[0]).__name__ if function.__name__ == "__init__" else function.__name__
            raise UsageError(f"{whose}({name}={shorten(value)}): {problem}.")


@cache
def _annotations(function: Callable[..., Any]) -> dict[str, Any]:
    # A type may be given in forms that are not classes, such as `list[int]`.
    return {name: hint for name, hint in hints_of(function).items() if get_origin(hint) not in (type, Unpack)}


def no_such_name(module: str, name: str, hint: str) -> Exception:
    """Return what the `__getattr__` of a package raises; `hint` is a sentence that says what to write."""
    said = f"module {module!r} has no attribute {name!r}.{f' {hint}' if hint else ''}"
    # `from package import name` asks first whether the name is there, and forgets what an AttributeError says.
    is_import = sys._getframe(2).f_code.co_name == "_handle_fromlist"  # pyright: ignore[reportPrivateUsage]
    return ImportError(said, name=name) if is_import and hint else AttributeError(said, name=name)


class ExplainedStruct(msgspec.StructMeta):
    """The type of structs that say, for an option that other libraries have, what to write instead: `_instead`."""

    if not TYPE_CHECKING:  # For a type checker the fields are the options.

        def __call__(self, *args: Any, **options: Any) -> Any:
            try:
                return super().__call__(*args, **options)
            except TypeError:
                for name in options:
                    if hint := self._instead.get(name):
                        raise UsageError(f"{self.__name__} has no option {name}. {hint}") from None
                raise


class Explains:
    """A class that says, for an attribute that other libraries have, what to write instead."""

    _instead: ClassVar[Mapping[str, str]] = {}

    if not TYPE_CHECKING:  # For a type checker every attribute would exist.

        def __getattr__(self, name: str) -> Any:
            if hasattr(type(self), name):
                return object.__getattribute__(self, name)  # It exists, and raises this error itself.
            hint = type(self)._instead.get(name)
            said = f" {hint}" if hint else ""
            raise AttributeError(f"{type(self).__name__!r} has no {name!r}.{said}", name=name, obj=self)


RUN_AGENT = 'An agent is run by a runner: `await Runner(agent).run("hi")`, in sync code `Runner(agent).run_sync("hi")`.'
_STREAM_AGENT = 'An agent is run by a runner: `async for event in Runner(agent).run("hi")`.'

OF_AGENTS = {
    **dict.fromkeys(("run_sync", "invoke", "ainvoke", "chat", "query", "generate", "kickoff"), RUN_AGENT),
    **dict.fromkeys(("stream", "astream", "run_stream", "iter", "stream_events"), _STREAM_AGENT),
    "tool": "Give it its tools when it is made: ChatModelAgent(..., tools=[...]).",
    "override": "Give a test's model when the agent is made: ChatModelAgent(..., model=ScriptedModel([...])).",
}

OF_RUNNERS = {
    "stream": "Iterate over a run: `for event in runner.run(...)`, or `async for`.",
    "astream": "Iterate over a run: `async for event in runner.run(...)`.",
    "astream_events": "Iterate over a run: `async for event in runner.run(...)`.",
    **dict.fromkeys(
        ("run_streamed", "run_stream", "run_stream_events", "iter", "stream_events", "run_async"),
        "Iterate over a run: `async for event in runner.run(...)`, or await it.",
    ),
    "invoke": "Await a run: `await runner.run(...)`, in sync code `runner.run_sync(...)`.",
    "ainvoke": "Await a run: `await runner.run(...)`; a compiled graph also has `await graph.invoke(...)`.",
    "query": "Await a run: `await runner.run(...)`.",
    "batch": "Run as many as you like: `await asyncio.gather(*(runner.run(each) for each in inputs))`.",
    "abatch": "Run as many as you like: `await asyncio.gather(*(runner.run(each) for each in inputs))`.",
    **dict.fromkeys(
        ("get_state", "aget_state"),
        "`await runner.state(session_id)` has the state, `await runner.checkpoint(session_id)` also what runs next.",
    ),
    "get_state_history": "`await runner.history(session_id)` lists the checkpoints.",
    "aget_state_history": "`await runner.history(session_id)` lists the checkpoints.",
    "update_state": "`await runner.edit(session_id, values)` changes the state, on a new branch.",
    "aupdate_state": "`await runner.edit(session_id, values)` changes the state, on a new branch.",
    "get_graph": "`graph.draw()` draws it.",
    "with_config": "Options are arguments: `runner.run(..., session_id='s1')`.",
}

OF_COMMANDS = {
    "resume": "Answer with `graph.resume(session_id, {question: answer})`; `result.interrupts` has the questions.",
    "graph": "A command goes to nodes of its own graph. Where a subgraph leads, edges of the outer graph say.",
}

OF_RETRIES = dict.fromkeys(("retries", "max_retries", "max_attempts"), "Write `Retry(attempts=...)`; the first counts.")

OF_RESULTS = {
    **dict.fromkeys(
        ("data", "final_output", "content", "text"), "`result.output` is the text, `result.value` the typed value."
    ),
    **dict.fromkeys(("all_messages", "new_messages", "to_input_list"), "`result.messages` has the conversation."),
    "interruptions": "`result.interrupts` has the open questions.",
    "last_response_id": "Messages have ids: `result.messages[-1].id`.",
}
