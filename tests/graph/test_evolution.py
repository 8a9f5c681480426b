"""Schemas that change while sessions are stored: added fields, other types, classes that refuse what is stored."""

import enum
import operator
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest

from adjourn import interrupt
from adjourn.errors import StateInvalid
from adjourn.graph import START, Command, CompiledGraph, StateGraph, StateSchema, append, merge
from adjourn.stores import Store


def ask(state: Any) -> dict[str, Any]:
    return {"log": [interrupt("go on?", key="q")]}


def built(schema: Any, store: Store, node: Any = ask) -> CompiledGraph:
    return StateGraph(schema, name="g").add_node("node", node).add_edge(START, "node").compile(store=store)


class Old(TypedDict, total=False):
    log: Annotated[list[str], append]
    amount: int


class Added(Old, total=False):
    notes: Annotated[list[str], append]
    seen: Annotated[dict[str, int], merge]
    total: Annotated[int, operator.add]


def use(state: Any) -> dict[str, Any]:
    interrupt("go on?", key="q")
    return {"notes": [*state["notes"], "new"], "seen": {"a": len(state["seen"])}, "total": state["total"] + 1}


async def test_an_added_field_with_a_reducer_is_there_in_an_old_session(store: Store) -> None:  # rules S3, R10
    await built(Old, store).run({"amount": 1}, session_id="s")
    assert (await built(Added, store).state("s"))["notes"] == []
    result = await built(Added, store, use).resume("s", {"q": "yes"})
    assert result.state == {"log": [], "amount": 1, "notes": ["new"], "seen": {"a": 0}, "total": 1}
    assert await built(Added, store).state("s") == result.state


async def test_an_added_field_is_there_in_the_next_turn(store: Store) -> None:  # rules S3, R10
    await built(Old, store).run({"amount": 1}, session_id="s")
    await built(Old, store).resume("s", {"q": "yes"})
    again = built(Added, store, use)
    await again.run({}, session_id="s")
    assert (await again.resume("s", {"q": "yes"})).state["total"] == 1


async def test_an_added_field_has_its_default_in_an_old_session(store: Store) -> None:  # rule S3
    def schema(*, is_new: bool) -> StateSchema:
        made = StateSchema().add_field("log", list[str], reducer=append)
        return made.add_field("limit", int, default=7) if is_new else made

    await built(schema(is_new=False), store).run({}, session_id="s")
    result = await built(schema(is_new=True), store).resume("s", {"q": "yes"})
    assert result.state == {"log": ["yes"], "limit": 7}


async def test_a_field_whose_type_has_changed_is_named(store: Store) -> None:  # rules S5, R10
    class Changed(TypedDict, total=False):
        log: Annotated[list[str], append]
        amount: str

    ran: list[str] = []

    def noted(state: Any) -> None:
        ran.append("node")

    await built(Old, store).run({"amount": 1}, session_id="s")
    changed = built(Changed, store, noted)
    problem = r"State field 'amount': .* expected str, got 1 \(int\).* declared as int"
    for call in (
        lambda: changed.resume("s", {"q": "yes"}),
        lambda: changed.recover("s"),
        lambda: changed.run({}, session_id="s"),
    ):
        with pytest.raises(StateInvalid, match=problem):
            await call()
    assert ran == []
    # It can still be looked at, and goes on with a type that fits.
    assert (await changed.state("s"))["amount"] == 1
    assert [point.state["amount"] for point in await changed.history("s")] == [1, 1]
    assert (await built(Old, store).resume("s", {"q": "yes"})).state == {"log": ["yes"], "amount": 1}


async def test_a_field_whose_new_type_fits_goes_on(store: Store) -> None:  # rule S5
    class Wider(TypedDict, total=False):
        log: Annotated[list[str], append]
        amount: int | str

    await built(Old, store).run({"amount": 1}, session_id="s")
    assert (await built(Wider, store).resume("s", {"q": "yes"})).state["amount"] == 1


async def test_a_value_that_never_fitted_is_not_found_out_later(store: Store) -> None:  # rule S5
    def sloppy(state: Any) -> dict[str, Any]:
        return {"amount": "many"}

    def build(schema: Any) -> CompiledGraph:
        graph = StateGraph(schema, name="g").add_node("sloppy", sloppy).add_node("ask", ask)
        return graph.add_sequence(START, "sloppy", "ask").compile(store=store, check_updates=False)

    await build(Old).run({}, session_id="s")
    # What the nodes return is not checked here, and adding a field elsewhere does not change that.
    assert (await build(Added).resume("s", {"q": "yes"})).state["amount"] == "many"


async def test_a_field_of_a_nested_graph_whose_type_has_changed_is_named(store: Store) -> None:  # rules S5, R10
    class Changed(TypedDict, total=False):
        log: Annotated[list[str], append]
        amount: list[int]

    def build(schema: Any) -> CompiledGraph:
        inner = StateGraph(schema, name="inner").add_node("ask", ask).add_edge(START, "ask").compile()
        outer = StateGraph(Old, name="g").add_subgraph("sub", inner, input=dict, output=dict)
        return outer.add_edge(START, "sub").compile(store=store)

    await build(Old).run({"amount": 1}, session_id="s")
    with pytest.raises(StateInvalid, match="State field 'amount'"):
        await build(Changed).resume("s", {"q": "yes"})
    (asked,) = await build(Old).pending("s")
    assert asked.key == "q"
    assert (await build(Old).resume("s", {"q": "yes"})).state["log"] == ["yes"]


@dataclass
class Lenient:
    amount: int = 0
    log: Annotated[list[str], append] = field(default_factory=list[str])


@dataclass
class Strict:
    amount: int = 0
    log: Annotated[list[str], append] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        if self.amount < 0:
            raise ValueError("an amount is not negative")


async def test_a_class_that_refuses_a_stored_value_does_not_take_history_down(store: Store) -> None:  # rules C5, S10
    lenient = built(Lenient, store)
    await lenient.run({"amount": 1}, session_id="s")
    await lenient.edit("s", {"amount": -1})
    strict = built(Strict, store)
    newest, *others = await strict.history("s")
    assert newest.state == {"amount": -1, "log": []}
    assert [each.state for each in others] == [Strict(amount=1), Strict(amount=1)]
    assert (await strict.checkpoint("s")).state == await strict.state("s") == newest.state
    assert (await strict.diff("s", others[0].id, newest.id)).changed == {"amount": (1, -1)}
    assert "edit" in str(await strict.tree("s"))
    with pytest.raises(StateInvalid, match=r"State: Strict cannot be built from .*an amount is not negative"):
        await strict.recover("s")


async def test_a_state_class_that_got_a_field_without_a_default_names_it(store: Store) -> None:  # rule S10
    @dataclass
    class Needy:
        limit: int
        amount: int = 0
        log: Annotated[list[str], append] = field(default_factory=list[str])

    for session in ("s", "t"):
        await built(Lenient, store).run({"amount": 1}, session_id=session)
    needy = built(Needy, store)
    assert await needy.state("s") == {"amount": 1, "log": []}
    with pytest.raises(StateInvalid, match=r"State field 'limit': Needy needs it.*resume\(state=") as caught:
        await needy.resume("s", {"q": "yes"})
    assert caught.value.field == "limit"
    assert (await built(Lenient, store).recover("s")).state == Lenient(1, ["yes"])
    result = await needy.resume("t", {"q": "yes"}, state={"limit": 3})
    assert result.state == Needy(3, 1, ["yes"])


# Classes in fields that have changed: each call defines the class again, as a new version of a module does.

NAME, PRICE = ("name", str), ("price", int)


def item(*fields: Any, **methods: Any) -> Any:
    return make_dataclass("Item", fields, namespace={"__module__": __name__, **methods})


def color(*names: str) -> Any:
    return enum.Enum("Color", names, module=__name__)


def refuse(_: Any) -> None:
    raise ValueError("not any more")


def pen_of(cls: Any) -> Any:
    return cls["pen"] if issubclass(cls, enum.Enum) else cls("pen")


Definition = Callable[[], Any]
CHANGES: dict[str, tuple[Definition, Definition, str]] = {
    "a field was added": (lambda: item(NAME), lambda: item(NAME, PRICE), "needs the field 'price'"),
    "a field was removed": (lambda: item(NAME, (*PRICE, 0)), lambda: item(NAME), "has no field 'price'"),
    "it refuses": (lambda: item(NAME), lambda: item(NAME, __post_init__=refuse), "refuses its content"),
    "a member was removed": (lambda: color("ink", "pen"), lambda: color("ink"), "has no member 'pen'"),
}


@pytest.mark.parametrize("name", CHANGES)
async def test_a_field_with_a_class_that_has_changed_is_named(name: str, store: Store) -> None:  # rules S5, R10, C5
    before, after, problem = CHANGES[name]

    def build(cls: Any) -> CompiledGraph:
        schema = StateSchema().add_field("log", list[str], reducer=append).add_field("items", list[cls], reducer=append)
        return built(schema, store)

    old = before()
    await build(old).run({"items": [pen_of(old)]}, session_id="s")
    changed = build(after())
    for call in (
        lambda: changed.resume("s", {"q": "yes"}),
        lambda: changed.recover("s"),
        lambda: changed.run({}, session_id="s"),
        lambda: changed.fork("s"),
        lambda: changed.edit("s", {"log": ["by hand"]}),
    ):
        with pytest.raises(StateInvalid, match=f"State field 'items': .*{problem}") as caught:
            await call()
        assert caught.value.field == "items"
    # It can still be looked at: nothing is left out, and what cannot be built is shown as it is stored.
    newest, oldest = await changed.history("s")
    for state in (newest.state, oldest.state, (await changed.checkpoint("s")).state, await changed.state("s")):
        assert state["log"] == []
        assert "pen" in str(state["items"][0].data)
    assert (await changed.diff("s", oldest.id, newest.id)).changed == {}
    assert await changed.messages("s") == ()
    assert [asked.key for asked in await changed.pending("s")] == ["q"]
    again = before()
    result = await build(again).resume("s", {"q": "yes"})
    assert (result.state["log"], result.state["items"]) == (["yes"], [pen_of(again)])


async def test_a_class_in_what_a_fan_out_gave_has_changed(store: Store) -> None:  # rules S5, R10
    def build(cls: Any) -> CompiledGraph:
        def spread(state: Any) -> Command:
            return Command(goto=[Command({"item": cls("pen")}, goto="ask")])

        schema = StateSchema().add_field("log", list[str], reducer=append).add_field("item", cls)
        graph = StateGraph(schema, name="g").add_node("spread", spread, destinations=["ask"]).add_node("ask", ask)
        return graph.add_edge(START, "spread").compile(store=store)

    await build(item(NAME)).run({}, session_id="s")
    changed = build(item(NAME, PRICE))
    with pytest.raises(StateInvalid, match="State field 'item'"):
        await changed.resume("s", {"q": "yes"})
    assert len(await changed.history("s")) == 3
    assert (await build(item(NAME)).resume("s", {"q": "yes"})).state["log"] == ["yes"]


async def test_a_class_in_what_a_question_shows_has_changed(store: Store) -> None:  # rule C5
    def build(cls: Any) -> CompiledGraph:
        def show(state: Any) -> dict[str, Any]:
            return {"log": [interrupt({"item": cls("pen")}, key="q")]}

        schema = StateSchema().add_field("log", list[str], reducer=append).add_field("item", cls)
        return built(schema, store, show)

    await build(item(NAME)).run({}, session_id="s")
    newest, _ = await build(item(NAME, PRICE)).history("s")
    assert newest.interrupts[0].key == "q"


GONE = """
import asyncio, sys
from dataclasses import dataclass
from typing import TypedDict
from adjourn import interrupt
from adjourn.errors import StateInvalid
from adjourn.graph import START, StateGraph

if sys.argv[1] == "old":
    @dataclass
    class Item:
        name: str
else:
    Item = dict

class State(TypedDict, total=False):
    item: Item

def ask(state):
    interrupt("go on?", key="q")

graph = StateGraph(State, name="g").add_node("ask", ask).add_edge(START, "ask").compile(store=sys.argv[2])

async def main():
    if sys.argv[1] == "old":
        await graph.run({"item": Item("pen")}, session_id="s")
        return
    try:
        await graph.resume("s", {"q": "yes"})
    except StateInvalid as error:
        print(error)
    print([point.state["item"].data for point in await graph.history("s")], len(await graph.pending("s")))

asyncio.run(main())
"""


def test_a_field_with_a_class_that_is_gone_is_named(tmp_path: Path) -> None:  # rules S5, R10, C5
    program = tmp_path / "program.py"
    program.write_text(GONE)
    for version in ("old", "new"):
        command = [sys.executable, str(program), version, f"sqlite:///{tmp_path}/sessions.db"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    refusal, looked_at = done.stdout.splitlines()
    assert refusal.startswith("State field 'item': ")
    assert "no class is registered as 'program.Item'" in refusal
    assert looked_at == "[{'name': 'pen'}, {'name': 'pen'}] 1"


# Fields that were added between two versions


async def test_the_type_of_a_field_that_was_added_later_is_known(store: Store) -> None:  # rules S5, R10
    class Another(Old, total=False):
        count: int

    class Third(Old, total=False):
        count: list[str]

    def first(state: Any) -> dict[str, Any]:
        interrupt("first?", key="first")
        return {"count": 5}

    def second(state: Any) -> dict[str, Any]:
        return {"log": [interrupt("second?", key="second")]}

    def build(schema: Any) -> CompiledGraph:
        graph = StateGraph(schema, name="g").add_node("first", first).add_node("second", second)
        return graph.add_sequence(START, "first", "second").compile(store=store)

    await build(Old).run({}, session_id="s")
    await build(Another).resume("s", {"first": 1})
    with pytest.raises(
        StateInvalid, match=r"State field 'count': .* expected list\[str\], got 5 \(int\).* declared as int"
    ):
        await build(Third).resume("s", {"second": 1})
    assert (await build(Another).resume("s", {"second": "yes"})).state["log"] == ["yes"]


async def test_a_field_that_only_extra_fields_allow_now_goes_on(store: Store) -> None:  # rules S4, S5
    def schema(*, is_new: bool) -> StateSchema:
        made = StateSchema(extra="allow").add_field("log", list[str], reducer=append)
        return made if is_new else made.add_field("amount", int)

    await built(schema(is_new=False), store).run({"amount": 1}, session_id="s")
    result = await built(schema(is_new=True), store).resume("s", {"q": "yes"})
    assert result.state == {"log": ["yes"], "amount": 1}
