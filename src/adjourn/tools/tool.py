"""Tools: functions that a model may call, how they are described to it, and how they run."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, cast, overload

from msgspec import Struct
from msgspec.structs import force_setattr

from adjourn._engine.failures import LooseGate, check_classes
from adjourn._engine.questions import checked_tags
from adjourn._engine.retry import Retry
from adjourn._habits import checks_options
from adjourn._text import a_type
from adjourn._values import codec
from adjourn._values.frozen import is_same_json, left_out
from adjourn.context import current
from adjourn.errors import InvalidArguments, NotStorable, UsageError
from adjourn.models.protocol import ToolSpec

from ._arguments import Arguments, GivenArguments, TypedArguments
from ._signature import (
    check_takes,
    context_parameters,
    fixed_values,
    given_parameters,
    innermost,
    is_context,
    own_defaults,
    signature_of,
)
from ._signature import read as read_docstring
from .approval import Approval

Gate = bool | Callable[..., bool | Awaitable[bool]]
"""Whether calls need approval: for each of them, or as a function says."""
Predicate = Callable[[Mapping[str, Any]], bool | Awaitable[bool]]


def gate_of(approval: Gate | Approval) -> Gate:
    """Return which calls need approval."""
    return (approval.when or True) if isinstance(approval, Approval) else approval


def predicate(approval: Gate, tool: str, names: Collection[str]) -> Predicate:
    """Return a function that takes a call's converted arguments and returns whether it needs approval.

    Raises:
        UsageError: the given function takes a parameter that the tool does not have.
    """
    if isinstance(approval, bool):
        return lambda arguments: approval
    if not callable(approval):
        raise UsageError(f"Tool '{tool}': approval={approval!r}. Give True, False, or a function that returns a bool.")
    fn = approval
    takes = [(parameter, _source(fn, parameter, tool, names)) for parameter in signature_of(fn, tool)]
    if any(source == "all" for _, source in takes):
        return lambda arguments: fn(**arguments)
    by_name = [parameter.name for parameter, source in takes if source == "argument"]
    wholes = [parameter.name for parameter, source in takes if source == "arguments"]
    contexts = [parameter.name for parameter, source in takes if source == "context"]

    def ask(arguments: Mapping[str, Any]) -> bool | Awaitable[bool]:
        values: dict[str, Any] = {name: arguments.get(name) for name in by_name}
        values |= {name: dict(arguments) for name in wholes}
        return fn(**values, **(dict.fromkeys(contexts, current()) if contexts else {}))

    return ask


def _source(fn: Callable[..., Any], parameter: inspect.Parameter, tool: str, names: Collection[str]) -> str:
    """Return where the value of a predicate's parameter comes from."""
    if parameter.kind is parameter.VAR_KEYWORD:
        return "all"
    if is_context(fn, parameter):
        return "context"
    if parameter.name in names:
        return "argument"
    if parameter.name == "arguments":
        return "arguments"
    if parameter.default is not parameter.empty or parameter.kind is parameter.VAR_POSITIONAL:
        return "default"
    raise UsageError(
        f"The approval of tool '{tool}' takes '{parameter.name}', which is not one of the tool's parameters "
        f"({', '.join(names) or 'none'}). Use these names, or take all arguments as `arguments`."
    )


if TYPE_CHECKING:
    # Defaults make a bare `Tool` complete; type checkers support them, Python only from 3.13.
    from typing_extensions import ParamSpec, TypeVar

    P = ParamSpec("P", default=...)
    R = TypeVar("R", default=Any)
else:
    from typing import ParamSpec, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R")

Kind = Literal["async", "sync", "inline", "stream"]

MAX_RESULT = 50_000
"""How many characters of a result a model sees, unless its tool says otherwise."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Reviewed(Struct, frozen=True, kw_only=True):
    """What a reviewer made of a call: the converted arguments that run; if edited, also as JSON, and by whom."""

    arguments: Mapping[str, Any]
    edited: Mapping[str, Any] | None = None
    by: str | None = None


class Tool(Struct, Generic[P, R], frozen=True, kw_only=True, eq=False):
    """A function that a model may call, made by `tool`. Calling it calls the function."""

    name: str
    description: str
    fn: Callable[P, R]
    arguments: Arguments
    kind: Kind
    approval: Gate = False
    asks: Approval | None = None
    """How people are asked about its calls, if `approval` says more than whether they are."""
    return_directly: bool = False
    timeout: float | None = None
    retry: tuple[Retry, ...] = ()
    at_most_once: bool = False
    tags: tuple[str, ...] = ()
    """The tags of the questions that are asked about its calls."""
    raises: Sequence[type[Exception]] = ()
    max_result: int = MAX_RESULT
    contexts: tuple[str, ...] = ()
    """The parameters that receive the `RunContext`."""
    review: Callable[[Mapping[str, Any]], Awaitable[Reviewed]] | None = None
    """Asks a person about each call before it runs, with the converted arguments; `reviewed` sets it."""
    denies: tuple[Callable[[Mapping[str, Any]], None], ...] = ()
    """Raise a `ToolError` for arguments, as JSON, that a rule denies; policies add them."""
    runs: tuple[Any, ...] = ()
    """The agents that it runs, if it is made of them."""
    _needs_approval: Predicate = bool  # made from `approval`

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise UsageError(
                f"{self.name!r} cannot be the name of a tool: use up to 64 ASCII letters, digits, '_' and '-'. "
                "Choose another: tool(name=...)."
            )
        if self.timeout is not None and not self.timeout > 0:
            raise UsageError(f"Tool '{self.name}' has the timeout {self.timeout}. Give seconds above 0, or None.")
        if self.max_result < 1:
            raise UsageError(
                f"Tool '{self.name}' has max_result={self.max_result}. Give a number of characters above 0."
            )
        if self.at_most_once and self.retry:
            raise UsageError(
                f"Tool '{self.name}' has at_most_once=True and also retry=...: only a person may have it run again. "
                "Leave one of the two out."
            )
        if self.asks is not None:
            self.asks.check(self.name, self.schema)
        if self.approval is not False or self.review is not None:
            self.arguments.check_shown()
        asks = predicate(self.approval, self.name, self.schema.get("properties", ()))
        force_setattr(self, "_needs_approval", asks)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function directly, outside of any run."""
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"Tool({self.name!r})"

    @property
    def schema(self) -> Mapping[str, Any]:
        """The JSON Schema of the arguments."""
        return self.arguments.schema

    @property
    def spec(self) -> ToolSpec:
        """The description of the tool that is sent to a model."""
        return ToolSpec(name=self.name, description=self.description, schema=self.schema)

    @property
    def digest(self) -> str:
        """A digest of what people and models know of the tool, and of what a partial passes to its function.

        They know its name, description, schema and defaults. What a partial passes and cannot be stored, such as a
        client, is left out.
        """
        known = [self.name, self.description, dict(self.schema), dict(self.arguments.defaults)]
        fixed = {name: value for name, value in fixed_values(self.fn).items() if _is_storable(value)}
        return codec.fingerprint([*known, fixed] if fixed else known)

    @property
    def thread(self) -> bool:
        """Whether the function runs in a thread."""
        return self.kind == "sync"

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of the parameters from JSON data; missing parameters get their defaults.

        Raises:
            InvalidArguments: the data does not fit. Nothing is coerced: "1" is not an integer.
        """
        return self.arguments.validate(arguments)

    def lower(self, converted: Mapping[str, Any]) -> dict[str, Any]:
        """Return converted arguments as JSON data, for people and stores; hidden defaults are left out."""
        return self.arguments.lower(converted)

    def show(self, converted: Mapping[str, Any]) -> dict[str, Any]:
        """Return converted arguments as JSON data for a person who decides about the call.

        Raises:
            InvalidArguments: the data does not say everything: reading it again would give other arguments.
        """
        return self.arguments.show(converted)

    def edit(self, arguments: Mapping[str, Any], seen: Mapping[str, Any]) -> dict[str, Any]:
        """Return all arguments of an edit as JSON data: they are what runs. `seen` is what its author was shown.

        Raises:
            InvalidArguments: they do not fit, a validator would make something else of what is shown of them, or they
                leave out what is not as it was shown, so that their author has not seen it.
        """
        shown = self.show(self.validate(arguments))
        if found := list(left_out(arguments, shown, seen)):
            names = ", ".join(f"'{name}'" for name in found)
            raise InvalidArguments(self.name, [f"they leave out {names}, which would not be as it was shown: name it"])
        if not is_same_json(self.show(self.validate(shown)), shown):
            raise InvalidArguments(self.name, ["a validator makes something else of what it has returned"])
        return shown

    def check_allowed(self, arguments: Mapping[str, Any]) -> None:
        """Refuse what a rule denies: `arguments` were made after the rules have seen the call.

        Raises:
            ToolError: with the rule's reason.
        """
        for deny in self.denies:
            deny(arguments)

    def asking(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return how people are asked about a call with these arguments, as keywords of `interrupt`."""
        return {"tags": self.tags} if self.asks is None else {"tags": self.tags, **self.asks.asking(arguments)}

    def copy_of(self, converted: Mapping[str, Any]) -> dict[str, Any]:
        """Return converted arguments that may be changed without changing these."""
        return self.arguments.copy(converted)

    def call(self, converted: Mapping[str, Any]) -> Any:
        """Call the function with converted arguments, and with the `RunContext` where it takes one.

        The result is what the function returns: a value, an awaitable, or an async generator, depending on `kind`.
        """
        values: dict[str, Any] = dict(converted)
        if self.contexts:
            values |= dict.fromkeys(self.contexts, current())
        return cast("Callable[..., Any]", self.fn)(**values)

    async def needs_approval(self, converted: Mapping[str, Any]) -> bool:
        """Return whether a person must approve a call with these converted arguments.

        Raises:
            UsageError: the function that decides returned something else than a bool.
        """
        if isinstance(self.approval, bool):
            return self.approval
        # A predicate may change what it is given: it must not be what runs.
        said: Any = self._needs_approval(self.copy_of(converted))
        said = await said if inspect.isawaitable(said) else said
        if isinstance(said, bool) or _is_numpy_bool(said):
            return bool(said)
        # Neither way is safe: a forgotten `return` would let every call run, or ask about all of them.
        raise LooseGate(
            f"The approval of tool '{self.name}', {_shown_name(self.approval)}, returned {_shown_value(said)}. Return "
            "True if a person must approve the call, and False if it may run."
        )


@overload
def tool(
    fn: Callable[P, R],
    *,
    name: str | None = None,
    description: str | None = None,
    approval: Gate | Approval = False,
    return_directly: bool = False,
    timeout: float | None = None,
    retry: Retry | Sequence[Retry] | None = None,
    at_most_once: bool = False,
    tags: Collection[str] = (),
    raises: Sequence[type[Exception]] = (),
    thread: bool = True,
    max_result: int = MAX_RESULT,
    schema: Mapping[str, Any] | None = None,
) -> Tool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    approval: Gate | Approval = False,
    return_directly: bool = False,
    timeout: float | None = None,
    retry: Retry | Sequence[Retry] | None = None,
    at_most_once: bool = False,
    tags: Collection[str] = (),
    raises: Sequence[type[Exception]] = (),
    thread: bool = True,
    max_result: int = MAX_RESULT,
    schema: Mapping[str, Any] | None = None,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
@checks_options
def tool(
    fn: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    approval: Gate | Approval = False,
    return_directly: bool = False,
    timeout: float | None = None,
    retry: Retry | Sequence[Retry] | None = None,
    at_most_once: bool = False,
    tags: Collection[str] = (),
    raises: Sequence[type[Exception]] = (),
    thread: bool = True,
    max_result: int = MAX_RESULT,
    schema: Mapping[str, Any] | None = None,
) -> Any:
    """Make a function a tool: `@tool`, `@tool(approval=True)` or `tool(fn, ...)`.

    A model sees the function's name, its docstring, and its parameters with their types, descriptions and defaults.
    A parameter annotated `RunContext` is passed by the run. An async generator function is a streaming tool.

    name: the name that models see; the function's name by default.
    description: the description that models see; by default the docstring, without its list of parameters.
    approval: True if a person must approve each call, or a function that takes some of the tool's parameters by name
        (or all of them in a mapping called `arguments`) and returns whether one must. All arguments must have a JSON
        form then, defaults included.
    return_directly: True if the result is the agent's answer, without asking the model again.
    timeout: how many seconds one attempt may take; None for no limit.
    retry: one or more `Retry` policies for failed attempts; by default there are no retries.
    at_most_once: True to ask a person before a call that ended without a result (it failed, timed out, was cut off)
        runs again, whatever would run it. Not together with `retry`.
    tags: the tags of the questions that are asked about its calls; people list questions by them.
    raises: exceptions of the tool after which middleware may ask a person, besides built-in ones and Adjourn's own.
    thread: whether a sync function runs in a thread (the default) or on the event loop, which it then blocks.
    max_result: how many characters of a result the model sees; 50,000 by default. The full result is kept.
    schema: a JSON Schema for the arguments, used instead of annotations; arguments are then passed on unchanged.

    Raises:
        UsageError: the function cannot be described to a model; the message says what to change.
    """

    def make(function: Callable[..., Any]) -> Tool:
        _check_function(function)
        title = name or _name_of(function)
        docs = read_docstring(_docstring_of(function))
        return Tool(
            name=title,
            description=docs.description if description is None else description,
            fn=function,
            arguments=_arguments_of(function, title, docs.parameters, schema),
            kind=_kind_of(function, title, thread),
            approval=gate_of(approval),
            asks=approval if isinstance(approval, Approval) else None,
            return_directly=return_directly,
            timeout=timeout,
            retry=(retry,) if isinstance(retry, Retry) else tuple(retry or ()),
            at_most_once=at_most_once,
            tags=checked_tags(tags, f"Tool '{title}'"),
            raises=check_classes(raises, f"tool '{title}'"),
            max_result=max_result,
            contexts=context_parameters(function, title),
        )

    return make if fn is None else make(fn)


def _is_storable(value: object) -> bool:
    try:
        codec.fingerprint(value)
    except NotStorable:
        return False
    return True


def _is_numpy_bool(value: object) -> bool:
    # By name, since numpy is not imported here; it was called `bool_` before numpy 2.
    kind = type(value)
    return kind.__module__ == "numpy" and kind.__name__ in ("bool", "bool_")


def _shown_name(fn: Any) -> str:
    inner = innermost(fn)
    return f"'{inner.__qualname__}'" if hasattr(inner, "__qualname__") else f"an object of type {type(fn).__name__}"


def _shown_value(value: object) -> str:
    return "None" if value is None else a_type(value)  # Not the value itself, which may hold what nobody may see.


def _check_function(fn: Any) -> None:
    if not callable(fn) or isinstance(fn, type | Tool):
        raise UsageError(f"tool({fn!r}): it is not a function. Give a function, a bound method or a callable object.")


def _arguments_of(
    fn: Callable[..., Any], name: str, descriptions: Mapping[str, str], schema: Mapping[str, Any] | None
) -> Arguments:
    if schema is None:
        return TypedArguments(name, given_parameters(fn, name), descriptions)
    given = GivenArguments(name, schema, own_defaults(fn, name))
    check_takes(fn, name, given.schema)
    return given


def _name_of(fn: Any) -> str:
    inner = innermost(fn)
    if inspect.isroutine(inner) and inner.__name__ != "__call__":
        return inner.__name__
    return type(fn).__name__


def _docstring_of(fn: Any) -> str | None:
    inner = innermost(fn)
    if inner.__name__ != "__call__":
        return inspect.getdoc(inner)
    return inner.__doc__ or inspect.getdoc(cast("type[Any]", type(fn)))  # a callable object


def _kind_of(fn: Any, name: str, thread: bool) -> Kind:
    call = getattr(cast("type[Any]", type(fn)), "__call__", None)  # noqa: B004  # looks for an async __call__, not whether it is callable
    forms = [form for form in (fn, innermost(fn), call) if form is not None]
    if any(inspect.isasyncgenfunction(form) for form in forms):
        return "stream"
    if any(inspect.iscoroutinefunction(form) for form in forms):
        return "async"
    if any(inspect.isgeneratorfunction(form) for form in forms):
        raise UsageError(f"Tool '{name}' is a generator. To stream, make it an async one: async def {name}(...).")
    return "sync" if thread else "inline"
