"""Which functions can be tools, and what is told of their parameters."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Optional

import msgspec
import pytest

from adjourn import RunContext, Tool, UsageError, tool
from adjourn.errors import NotInRun

if TYPE_CHECKING:
    from collections import OrderedDict as OnlyForCheckers


def told(made: Tool) -> dict[str, Any]:
    return dict(made.schema["properties"])


def refusal(fn: Callable[..., Any], **options: Any) -> str:
    with pytest.raises(UsageError) as caught:
        tool(fn, **options)
    return str(caught.value)


# Where types are found


def test_names_of_the_functions_and_classes_around_are_found():
    @dataclass
    class Purchase:
        number: int

    class Desk:
        @dataclass
        class Line:
            what: str

        @staticmethod
        @tool
        def take(order: Purchase, line: Line) -> str:
            return f"{order.number} {line.what}"

    values = Desk.take.validate({"order": {"number": 3}, "line": {"what": "tea"}})
    assert Desk.take.call(values) == "3 tea"


@dataclass
class Order:
    everywhere: int


def test_a_local_name_comes_before_a_global_one():
    @dataclass
    class Order:
        here: int

    @tool
    def take(order: Order) -> str:
        return repr(order)

    assert take.validate({"order": {"here": 1}})["order"] == Order(1)


def _caller(make: Callable[[], Tool]) -> Tool:
    Order = 5  # noqa: N806  # a name of the caller, which the function does not see
    return make() if Order == 5 else _caller(make)


def test_names_of_callers_are_not_found():
    assert _caller(lambda: tool(_takes_order)).validate({"order": {"everywhere": 1}}) == {
        "order": globals()["Order"](1)
    }


def _takes_order(order: Order) -> int:
    return order.everywhere


class Tree(msgspec.Struct):
    value: int
    children: list[Tree] = []


def test_recursive_types_are_converted_at_every_level():
    @tool
    def plant(tree: Tree) -> int:
        return tree.value

    values = plant.validate({"tree": {"value": 1, "children": [{"value": 2}]}})
    assert values["tree"] == Tree(1, [Tree(2)])


def test_a_name_that_is_nowhere_is_refused():
    def look(order: OnlyForCheckers[str, int]) -> str:
        return ""

    assert "'order: OnlyForCheckers[str, int]', whose type cannot be found" in refusal(look)


def test_a_return_type_that_is_nowhere_does_no_harm():
    def look(order: str) -> OnlyForCheckers[str, int]:
        raise NotImplementedError

    assert list(told(tool(look))) == ["order"]


# What can be a tool


class Desk:
    """A desk."""

    def greet(self, name: str) -> str:
        """Greet."""
        return f"hello {name}"

    @classmethod
    def make(cls, name: str) -> str:
        return f"{cls.__name__} {name}"

    async def __call__(self, name: str) -> str:
        """Call."""
        return f"called {name}"


def test_a_bound_method_is_a_tool():
    made = tool(Desk().greet)
    assert (made.name, made.description, list(told(made))) == ("greet", "Greet.", ["name"])
    assert made.call({"name": "Ann"}) == "hello Ann"


def test_a_method_that_is_not_bound_is_refused():
    assert "tool(instance.method)" in refusal(Desk.greet)


def test_a_class_method_is_a_tool():
    assert tool(Desk.make).call({"name": "Ann"}) == "Desk Ann"


async def test_a_callable_object_is_a_tool():
    made = tool(Desk(), name="desk")
    assert (made.description, made.kind, list(told(made))) == ("Call.", "async", ["name"])
    assert await made.call({"name": "Ann"}) == "called Ann"


class Echo:
    """Says it again."""

    def __call__(self, text: str) -> str:
        return text


def test_a_callable_object_is_described_by_its_class_if_need_be():
    assert (tool(Echo()).name, tool(Echo()).description) == ("Echo", "Says it again.")


@pytest.mark.parametrize("thing", [Desk, 5, "text", None.__class__])
def test_what_is_no_function_is_refused(thing: Any):
    assert "it is not a function" in refusal(thing)


def pay(account: str, cents: int, *, currency: str = "EUR") -> str:
    """Pay.

    Args:
        account: Whose.
    """
    return f"{account} {cents} {currency}"


def test_what_a_partial_has_fixed_is_not_for_the_model_to_change():
    made = tool(functools.partial(pay, currency="USD", account="a1"))
    assert (made.name, made.description, list(told(made))) == ("pay", "Pay.", ["cents"])
    assert made.call(made.validate({"cents": 3})) == "a1 3 USD"
    assert list(told(tool(functools.partial(pay, "a1")))) == ["cents", "currency"]
    assert list(told(tool(functools.partial(functools.partial(pay, currency="USD"), "a1")))) == ["cents"]


def logged(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return wrapper


async def test_a_decorated_function_is_told_as_what_it_decorates():
    @logged
    async def look(order: Order) -> int:
        """Look."""
        return order.everywhere

    made = tool(look)
    assert (made.name, made.description, made.kind) == ("look", "Look.", "async")
    assert await made.call(made.validate({"order": {"everywhere": 4}})) == 4


async def test_an_async_generator_is_a_streaming_tool():  # rule T7
    @tool
    async def count(to: int):
        for number in range(to):
            yield str(number)

    assert count.kind == "stream"
    assert [chunk async for chunk in count.call({"to": 2})] == ["0", "1"]


def test_a_sync_function_runs_in_a_thread_unless_told_otherwise():
    assert (tool(pay).kind, tool(pay, thread=False).kind) == ("sync", "inline")
    assert (tool(pay).thread, tool(pay, thread=False).thread) == (True, False)


def test_a_sync_generator_is_refused():
    def count(to: int):
        yield to

    assert "make it an async one" in refusal(count)


def star(*orders: str) -> None: ...
def double_star(**orders: str) -> None: ...
def by_position(order: str, /) -> None: ...


CANNOT_BE_GIVEN: list[Any] = [
    (star, "takes *orders"),
    (double_star, "takes **orders"),
    (by_position, "by position only"),
]


@pytest.mark.parametrize(("fn", "words"), CANNOT_BE_GIVEN)
def test_parameters_that_a_model_cannot_give_are_refused(fn: Any, words: str):
    assert words in refusal(fn)


@pytest.mark.parametrize("name", ["", "two words", "größe", "a" * 65, "a.b"])
def test_a_name_that_models_do_not_take_is_refused(name: str):
    assert "cannot be the name of a tool" in refusal(pay, name=name or "\n")


def test_a_lambda_needs_a_name():
    assert "'<lambda>' cannot be the name of a tool" in refusal(lambda: 1)
    assert tool(lambda: 1, name="one").call({}) == 1


class Opaque:
    pass


def of_type(annotation: Any) -> Callable[..., Any]:
    def look(order: Any) -> None: ...

    look.__annotations__["order"] = annotation
    return look


@pytest.mark.parametrize(
    "annotation",
    [Opaque, list[Opaque], Callable[[int], str], dict[int, str], complex, object, Opaque | str, type],
    ids=str,
)
def test_a_type_that_json_has_no_form_for_is_refused_by_name(annotation: Any):
    text = refusal(of_type(annotation))
    assert "Tool 'look' has the parameter 'order' of the type" in text
    assert "tool(schema=...)" in text


# Defaults

SENTINEL = object()


def test_a_default_that_is_no_json_is_given_and_not_told():
    @tool
    def look(order: str, how: Any = SENTINEL, far: float = float("inf"), when: str = "\ud800") -> None: ...

    assert told(look) == {
        "order": {"type": "string"},
        "how": {},
        "far": {"type": "number"},
        "when": {"type": "string"},
    }
    values = look.validate({"order": "o1"})
    assert values == {"order": "o1", "how": SENTINEL, "far": float("inf"), "when": "\ud800"}
    assert look.lower(values) == {"order": "o1"}
    assert look.lower(look.validate({"order": "o1", "how": 1, "far": 2.0, "when": "now"})) == {
        "order": "o1",
        "how": 1,
        "far": 2.0,
        "when": "now",
    }


def test_a_default_that_is_equal_to_nothing_is_given():
    @tool
    def look(far: float = float("nan")) -> None: ...

    assert str(look.validate({})["far"]) == "nan"
    assert look.lower(look.validate({})) == {}


def test_a_default_of_none_makes_a_parameter_optional():  # rule T1
    @tool
    def look(limit: int = None, text: Annotated[str, "Which"] = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013  # as people write

    assert told(look) == {
        "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
        "text": {
            "anyOf": [{"type": "string", "description": "Which"}, {"type": "null"}],
            "description": "Which",
            "default": None,
        },
    }
    assert look.lower(look.validate({})) == look.validate({"limit": None}) == {"limit": None, "text": None}


def test_an_optional_parameter_without_a_default_must_be_given():
    @tool
    def look(order: Optional[str]) -> None: ...  # noqa: UP045  # as people write

    assert look.schema["required"] == ["order"]
    assert look.validate({"order": None}) == {"order": None}


def test_a_parameter_may_have_any_name():
    @tool
    def odd(self_: str, __hidden__: int, _f0: int, schema: str, f1: int = 1) -> None: ...

    given = {"self_": "a", "__hidden__": 1, "_f0": 2, "schema": "s"}
    assert odd.validate(given) == {**given, "f1": 1}


# The context


@pytest.mark.parametrize(
    "annotation",
    [
        RunContext,
        RunContext[int],
        RunContext | None,
        Annotated[RunContext, "the run"],
        "RunContext",
        "RunContext[OnlyForCheckers]",
        "RunContext[int] | None",
    ],
    ids=str,
)
def test_a_parameter_for_the_context_is_given_by_the_run(annotation: Any):
    made = tool(of_type(annotation))
    assert (made.contexts, told(made)) == (("order",), {})
    with pytest.raises(NotInRun):
        made.call({})


# A schema of one's own

SCHEMA = {"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]}


def test_a_given_schema_is_checked_and_the_arguments_passed_on_as_they_are():
    def look(ctx: RunContext, **arguments: Any) -> None: ...

    made = tool(look, schema=SCHEMA)
    assert (made.schema, made.contexts) == (SCHEMA, ("ctx",))
    assert made.validate({"order": "o1", "more": [1]}) == {"order": "o1", "more": [1]}
    with pytest.raises(UsageError, match="unknown key 'if'"):
        tool(look, schema={"type": "object", "if": {}})
    with pytest.raises(UsageError, match="'object'"):
        tool(look, schema={"type": "string"})


def takes_less() -> None: ...
def takes_more(order: str, more: str) -> None: ...
def takes_it(order: str, more: str = "") -> None: ...
def takes_all(**given: Any) -> None: ...


def test_a_function_that_cannot_take_what_its_schema_allows_is_refused():
    for fn in (takes_less, takes_more, by_position):
        assert "cannot be called with order" in refusal(fn, schema=SCHEMA)
    assert tool(takes_it, schema=SCHEMA).call({"order": "o1"}) is None
    assert tool(takes_all, schema=SCHEMA).call({"order": "o1"}) is None
    assert "cannot be called with nothing" in refusal(takes_it, schema={**SCHEMA, "required": []})


# Approval predicates


async def later(cents: int) -> bool:
    return cents > 1


def in_a_mapping(arguments: dict[str, Any]) -> bool:
    return arguments["cents"] > 1


def two_of_them(currency: str, cents: int) -> bool:
    return currency == "EUR" and cents > 1


def all_of_them(**given: Any) -> bool:
    return given["cents"] > 1


@pytest.mark.parametrize("predicate", [later, in_a_mapping, two_of_them, all_of_them])
async def test_a_predicate_takes_the_arguments_that_it_names(predicate: Any):
    made = tool(pay, approval=predicate)

    async def asks(cents: int) -> bool:
        return await made.needs_approval(made.validate({"account": "a1", "cents": cents}))

    assert (await asks(1), await asks(2)) == (False, True)


def test_a_predicate_that_takes_something_else_is_refused():
    assert "takes 'order', which is not one of the tool's parameters (account, cents, currency)" in refusal(
        pay, approval=of_type(int)
    )


@pytest.mark.parametrize("options", [{"timeout": 0}, {"timeout": -1.0}, {"max_result": 0}, {"timeout": float("nan")}])
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]):
    refusal(pay, **options)


def test_a_tool_cannot_be_changed():
    made = tool(pay)
    with pytest.raises(AttributeError):
        made.name = "other"  # pyright: ignore[reportAttributeAccessIssue]
    assert inspect.iscoroutinefunction(made.fn) is False
