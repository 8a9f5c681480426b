"""Routing: what runs after what."""

import enum
import threading
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest

from adjourn import AdjournError, current, interrupt
from adjourn.errors import NodeNotFound, NotStorable
from adjourn.events import NodeEnd, NodeStart
from adjourn.graph import END, START, Command, CompiledGraph, StateGraph, append, last
from adjourn.sessions import Sessions
from adjourn.stores import Store
from tests.graph.shapes import Node, events_of, failing, giving, names


class Log(TypedDict, total=False):
    log: Annotated[list[Any], append]
    item: Any
    found: Annotated[Any, last]


def note(name: str, result: Any = None) -> Node:
    """A node that writes its address and what it sees as the item, and then does what it is told."""

    def node(state: Any) -> Any:
        place = str(current().address).removeprefix("runnable:g;node:")
        update = {"log": [place if "item" not in state else (place, state["item"])]}
        return Command(update=update, goto=result) if result is not None else update

    node.__name__ = name
    return node


def graph(*nodes: Node, entry: str | None = None) -> StateGraph:
    built = StateGraph(Log, name="g")
    for node in nodes:
        built.add_node(node.__name__, node, thread=False)
    return built.set_entry_point(entry or nodes[0].__name__)


async def log(built: StateGraph, **input: Any) -> list[Any]:
    return (await built.compile().invoke(input))["log"]


# Edges


async def test_a_run_ends_when_nothing_is_triggered() -> None:  # rule G3
    assert await log(graph(note("a"), note("b"))) == ["a"]
    assert await log(graph(note("a"), note("b")).add_edge("a", "b").add_edge("b", END)) == ["a", "b"]


async def test_a_node_that_returns_none_still_fires_its_edges() -> None:  # rule G3
    built = StateGraph(Log, name="g").add_node("quiet", giving(None)).add_node("b", note("b"))
    assert await log(built.set_entry_point("quiet").add_edge("quiet", "b")) == ["b"]
    conditional = StateGraph(Log, name="g").add_node("quiet", giving(None)).add_node("b", note("b"))
    assert await log(conditional.set_entry_point("quiet").add_conditional_edges("quiet", giving("b"))) == ["b"]


async def test_an_edge_to_the_end_among_others_does_not_end_the_others() -> None:  # rule G3
    assert await log(graph(note("a"), note("b")).add_edge("a", END).add_edge("a", "b")) == ["a", "b"]


async def test_an_edge_given_twice_counts_once() -> None:  # rule G8
    assert await log(graph(note("a"), note("b")).add_edge("a", "b").add_edge("a", "b")) == ["a", "b"]


async def test_two_edges_to_one_node_trigger_it_once() -> None:  # rule G8
    built = graph(note("a"), note("b"), note("c"), note("d")).add_edge("a", "b").add_edge("a", "c")
    assert await log(built.add_edge("b", "d").add_edge("c", "d")) == ["a", "b", "c", "d"]


async def test_plain_edges_of_different_lengths_trigger_twice() -> None:  # rule G8
    built = graph(note("a"), note("b"), note("c"), note("d")).add_edge("a", "b").add_edge("b", "c")
    assert await log(built.add_edge("a", "d").add_edge("c", "d")) == ["a", "b", "d", "c", "d"]


# Commands


async def test_goto_takes_only_its_target() -> None:  # rule G4
    built = graph(note("a", "c"), note("b"), note("c"), note("d")).add_edge("a", "b")
    assert await log(built.add_conditional_edges("a", giving("d"))) == ["a", "c"]


async def test_goto_may_name_several() -> None:  # rule G4
    assert await log(graph(note("a", ["c", "b", "c"]), note("b"), note("c"))) == ["a", "b", "c"]
    assert await log(graph(note("a", ("c", END)), note("b"), note("c"))) == ["a", "c"]


async def test_goto_the_end_ends_that_path_alone() -> None:  # rule G4
    built = graph(note("s"), note("a", END), note("b"), note("c")).add_edge("s", "a").add_edge("s", "b")
    assert await log(built.add_edge("a", "c").add_edge("b", "c")) == ["s", "a", "b", "c"]
    assert await log(graph(note("a", []), note("b")).add_edge("a", "b")) == ["a"]


async def test_without_goto_a_commands_edges_fire_as_usual() -> None:  # rule G4
    built = StateGraph(Log, name="g").add_node("a", giving(Command(update={"log": ["a"]}))).add_node("b", note("b"))
    assert await log(built.set_entry_point("a").add_edge("a", "b")) == ["a", "b"]
    empty = StateGraph(Log, name="g").add_node("a", giving(Command())).add_node("b", note("b"))
    assert await log(empty.set_entry_point("a").add_edge("a", "b")) == ["b"]


async def test_a_commands_update_goes_through_reducers() -> None:  # rule G4
    assert await log(graph(note("a", "b"), note("b")), log=["start"]) == ["start", "a", "b"]


async def test_a_node_may_go_to_itself() -> None:  # rule G4
    def again(state: Any) -> Command:
        return Command(update={"log": ["again"]}, goto=END if len(state["log"]) == 2 else "again")

    assert await log(graph(again)) == ["again"] * 3


# Fan-outs


def spread(*commands: Command) -> Node:
    def node(state: Any) -> list[Command]:
        return list(commands)

    node.__name__ = "spread"
    return node


async def test_a_list_of_commands_is_a_task_each() -> None:  # rule G5
    commands = [Command(update={"item": item}, goto="w") for item in (3, 1, 2)]
    assert await log(graph(spread(*commands), note("w"))) == [("w:1", 3), ("w:2", 1), ("w:3", 2)]


async def test_targets_may_differ_and_repeat() -> None:  # rule G5
    commands = [Command(goto="b"), Command({"item": 1}, "a"), Command(goto=["b", END, "a"])]
    assert await log(graph(spread(*commands), note("a"), note("b"))) == [("a:1", 1), "a:2", "b:1", "b:2"]


async def test_what_is_laid_over_is_neither_reduced_nor_written_back() -> None:  # rule G5
    built = graph(spread(Command({"item": 2, "log": ["mine"]}, "w")), note("w"), note("after"))
    assert await log(built.add_edge("w", "after"), item=1, log=["theirs"]) == ["theirs", ("w:1", 2), ("after", 1)]


async def test_an_empty_list_ends_the_path() -> None:  # rule G5
    built = graph(note("s"), spread(), note("b"), note("c")).add_edge("s", "spread").add_edge("s", "b")
    assert await log(built.add_edge("spread", "c").add_conditional_edges("spread", giving("c"))) == ["s", "b"]


async def test_a_fan_outs_edges_fire_once_for_all_its_tasks() -> None:  # rule G5
    built = graph(spread(*[Command(goto="w")] * 3), note("w"), note("end")).add_edge("w", "end")
    assert await log(built) == ["w:1", "w:2", "w:3", "end"]


async def test_a_plain_trigger_beside_a_fan_out_is_numbered_too() -> None:  # rule G5
    built = graph(note("s"), spread(*[Command({"item": i}, "w") for i in (1, 2)]), note("b"), note("w"))
    built.add_edge("s", "spread").add_edge("s", "b").add_edge("b", "w")
    assert await log(built) == ["s", "b", ("w:1", 1), ("w:2", 2), "w:3"]


async def test_a_lone_plain_trigger_has_no_number_and_a_lone_send_has_one() -> None:  # rule G5
    assert await log(graph(spread(Command(goto="w")), note("w"))) == ["w:1"]
    assert await log(graph(note("a", "w"), note("w"))) == ["a", "w"]


async def test_fan_outs_of_several_tasks_are_numbered_in_task_order() -> None:  # rule G5
    def more(state: Any) -> list[Command]:
        return [Command({"item": (state["item"], n)}, "w") for n in (1, 2)]

    built = graph(spread(Command({"item": "x"}, "more"), Command({"item": "y"}, "more")), more, note("w"))
    assert await log(built) == [
        ("w:1", ("x", 1)),
        ("w:2", ("x", 2)),
        ("w:3", ("y", 1)),
        ("w:4", ("y", 2)),
    ]


@pytest.mark.parametrize("element", [Command({"item": 1}), "w", None, {"log": ["x"]}])
async def test_every_element_of_a_fan_out_needs_a_target(element: Any) -> None:  # rule G5
    with pytest.raises(AdjournError, match="spread"):
        await log(graph(spread(Command(goto="w"), element), note("w")))


async def test_a_fan_out_that_asks_keeps_what_was_laid_over(store: Store) -> None:  # rules G5, R5
    def ask(state: Any) -> dict[str, Any]:
        return {"log": [(state["item"], interrupt(state["item"]))]}

    def build() -> CompiledGraph:
        commands = [Command({"item": item}, "ask") for item in ("a", "b", "c")]
        return graph(spread(*commands), ask).compile(store=store)

    paused = await build().run({"item": "base"}, session_id="s")
    assert [each.id for each in paused.interrupts] == [f"runnable:g;node:ask:{n}" for n in (1, 2, 3)]
    middle = await build().resume("s", {paused.interrupts[1].id: "B"})
    assert [each.info for each in middle.interrupts] == ["a", "c"]
    result = await build().resume("s", {paused.interrupts[0].id: "A", paused.interrupts[2].id: "C"})
    assert result.state["log"] == [("a", "A"), ("b", "B"), ("c", "C")]
    assert result.state["item"] == "base"


async def test_a_large_fan_out_joins_again() -> None:  # rules G5, G9
    commands = [Command({"item": item}, "w") for item in range(500)]
    built = graph(spread(*commands), note("w"), note("end")).add_edge("w", "end")
    found = await log(built)
    assert found == [*((f"w:{n + 1}", n) for n in range(500)), "end"]


async def test_a_fan_out_can_also_write_an_update(store: Store) -> None:  # rule G5
    def spread(state: Any) -> Command:
        return Command({"log": ["spread"]}, goto=[Command({"item": item}, "w") for item in (1, 2)])

    built = graph(spread, note("w"), note("end")).add_edge("w", "end").compile(store=store)
    assert (await built.run({}, session_id="s")).state["log"] == ["spread", ("w:1", 1), ("w:2", 2), "end"]


async def test_a_fan_out_with_an_update_is_stored_with_both(store: Store) -> None:  # rules G5, R5
    def spread(state: Any) -> Command:
        return Command({"log": ["spread"]}, goto=[Command({"item": item}, "w") for item in (1, 2)])

    def ask(state: Any) -> Any:
        return {"log": [interrupt("beside")]}

    def build() -> CompiledGraph:
        built = graph(note("s"), spread, ask, note("w")).add_edge("s", "spread").add_edge("s", "ask")
        return built.compile(store=store)

    # The fan-out has finished, and waits with its update for the question beside it.
    paused = await build().run({}, session_id="s")
    assert paused.state["log"] == ["s"]
    result = await build().resume("s", {paused.interrupts[0].id: "asked"})
    assert result.state["log"] == ["s", "spread", "asked", ("w:1", 1), ("w:2", 2)]


async def test_a_fan_out_without_commands_but_with_an_update_ends_the_path() -> None:  # rules G4, G5
    assert await log(graph(note("a", []), note("b")).add_edge("a", "b")) == ["a"]


@pytest.mark.parametrize("element", [Command({"item": 1}), "w", Command(goto=[Command(goto="w")])])
async def test_a_fan_out_in_a_command_is_checked_as_a_list_is(element: Any) -> None:  # rule G5
    with pytest.raises(AdjournError, match="Node 'a' returned"):
        await log(graph(note("a", [Command(goto="w"), element]), note("w")))


# Unknown names


class Name(enum.StrEnum):
    B = "b"


@pytest.mark.parametrize("goto", ["nowhere", START, ["b", "nowhere"], ""])
async def test_a_goto_to_an_unknown_node_is_an_error(goto: Any) -> None:  # rule G6
    with pytest.raises(NodeNotFound, match=r"'a' leads to the unknown node"):
        await log(graph(note("a", goto), note("b")))


@pytest.mark.parametrize("goto", ["nowhere", START])
async def test_a_fan_out_to_an_unknown_node_is_an_error(goto: str) -> None:  # rule G6
    with pytest.raises(NodeNotFound, match=goto):
        await log(graph(spread(Command(goto="b"), Command(goto=goto)), note("b")))


@pytest.mark.parametrize("result", ["nowhere", START, True, 5, ["b", "nowhere"], [5], {"b": 1}, Command(goto="b")])
async def test_a_condition_that_names_an_unknown_node_is_an_error(result: Any) -> None:  # rule G6
    with pytest.raises(NodeNotFound) as caught:
        await log(graph(note("a"), note("b")).add_conditional_edges("a", giving(result)))
    assert caught.value.by == "a"
    assert "b" in str(caught.value)


@pytest.mark.parametrize("result", ["maybe", ["yes", "maybe"], ["maybe"], [5]])
async def test_a_result_that_no_mapping_has_is_told_with_its_keys(result: Any) -> None:  # rule G6
    with pytest.raises(NodeNotFound, match=r"its condition has the keys: 'yes', False\. The graph has: a, b, "):
        await log(graph(note("a"), note("b")).add_conditional_edges("a", giving(result), {"yes": "b", False: END}))


# Conditions


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ("b", ["b"]),
        (Name.B, ["b"]),
        (["c", "b"], ["b", "c"]),
        (("c", "c"), ["c"]),
        ({"c", "b"}, ["b", "c"]),
        (None, []),
        ([], []),
        (END, []),
        ([END, "c"], ["c"]),
    ],
)
async def test_a_condition_names_where_to_go(result: Any, expected: list[str]) -> None:  # rule G7
    built = graph(note("a"), note("b"), note("c")).add_conditional_edges("a", giving(result))
    assert await log(built) == ["a", *expected]


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ("x", ["b"]),
        (True, ["c"]),
        (None, []),
        ("c", ["c"]),  # No key, so the literal name.
        ("b", ["c"]),  # A key, so the mapping.
        (["x", "b"], ["b", "c"]),
        (["x", "again"], ["b"]),
        ("stop", []),
        (3, ["b"]),
    ],
)
async def test_a_mapping_comes_first_then_the_literal_name(result: Any, expected: list[str]) -> None:  # rule G7
    mapping = {"x": "b", True: "c", "b": "c", "again": "b", "stop": END, 3: "b"}
    built = graph(note("a"), note("b"), note("c")).add_conditional_edges("a", giving(result), mapping)
    assert await log(built) == ["a", *expected]


@pytest.mark.parametrize("key", [None, (1, "x"), frozenset({1}), Name.B, 1.5])
async def test_anything_hashable_may_be_a_key_of_the_mapping(key: Any) -> None:  # rule G7
    built = graph(note("a"), note("b"), note("c")).add_conditional_edges("a", giving(key), {key: "c"})
    assert await log(built) == ["a", "c"]


async def test_several_conditions_and_edges_all_count() -> None:  # rule G7
    built = graph(note("a"), note("b"), note("c"), note("d")).add_conditional_edges("a", giving("c"))
    built.add_conditional_edges("a", giving(["b", "c"])).add_edge("a", "d")
    assert await log(built) == ["a", "b", "c", "d"]


async def test_conditions_choose_the_entry() -> None:  # rule G7
    built = StateGraph(Log, name="g").add_node("a", note("a")).add_node("b", note("b"))

    def choose(state: Any) -> str:
        return state["item"]

    built.add_conditional_edges(START, choose)
    assert await log(built, item="b") == [("b", "b")]


async def test_a_condition_sees_the_state_after_all_updates_without_overlays() -> None:  # rule G7
    seen: list[Any] = []

    async def route(state: Any) -> str:
        seen.append((state["log"], state["item"]))
        return END

    built = graph(spread(*[Command({"item": i}, "w") for i in (1, 2)]), note("w"), note("x"))
    await log(built.add_conditional_edges("w", route), item=0)
    assert seen == [([("w:1", 1), ("w:2", 2)], 0)]


async def test_conditions_are_asked_with_sync_and_async_functions_and_the_context() -> None:  # rules G7, G14
    threads: list[int] = []

    def sync(state: Any) -> str:
        threads.append(threading.get_ident())
        return "b"

    async def pending(state: Any) -> str:
        threads.append(threading.get_ident())
        return "c"

    built = graph(note("a"), note("b"), note("c")).add_conditional_edges("a", sync)
    assert await log(built.add_conditional_edges("a", pending)) == ["a", "b", "c"]
    assert threads == [threading.get_ident()] * 2


# Conditions that ask or fail


def asking(info: str) -> Callable[[Any], Any]:
    """A condition that leads where the answer says."""
    return lambda _: interrupt(info)


def counted(ran: list[str], *, route: Callable[[Any], Any], store: Store) -> CompiledGraph:
    """A node that notes its runs, a condition, and where that may lead."""

    def a(state: Any) -> dict[str, Any]:
        ran.append("a")
        return {"log": ["a"]}

    return graph(a, note("b"), note("c")).add_conditional_edges("a", route).compile(store=store)


async def test_a_condition_may_ask(store: Store) -> None:  # rules G7, G18
    ran: list[str] = []

    def route(state: Any) -> str:
        ran.append("route")
        return interrupt({"where": state["log"]})

    paused = await counted(ran, route=route, store=store).run({}, session_id="s")
    (asked,) = paused.interrupts
    assert asked.id == "runnable:g;node:a;branch:route"
    assert paused.state["log"] == ["a"]
    result = await counted(ran, route=route, store=store).resume("s", {asked.id: "c"})
    assert result.state["log"] == ["a", "c"]
    assert ran == ["a", "route", "route"]


async def test_a_session_that_waits_in_a_condition_can_be_forked(store: Store) -> None:  # rules G7, C4
    built = counted([], route=asking("where"), store=store)
    paused = await built.run({}, session_id="s")
    fork = await built.fork("s")
    (asked,) = await built.pending(fork)
    again = counted([], route=asking("where"), store=store)
    assert (await again.resume(fork, {asked.id: "c"})).state["log"] == ["a", "c"]
    assert (await again.resume("s", {paused.interrupts[0].id: "b"})).state["log"] == ["a", "b"]


async def test_a_checkpoint_names_the_conditions_that_have_not_decided(store: Store) -> None:  # rules C2, G7
    built = graph(note("a"), note("b"), note("c")).add_edge("a", "b")
    compiled = built.add_conditional_edges("a", asking("where"), name="way").compile(store=store)
    paused = await compiled.run({}, session_id="s")
    await compiled.resume("s", {paused.interrupts[0].id: "c"})
    found = [(point.source, point.next) for point in await compiled.history("s")]
    assert found[::-1] == [
        ("input", ("a",)),
        ("interrupt", ("node:a;branch:way", "b")),
        ("resume", ("node:a;branch:way", "b")),
        ("step", ("b", "c")),
        ("end", ()),
    ]
    assert "resume 1 → node:a;branch:way, b" in str(await compiled.tree("s"))


async def test_a_fork_from_before_a_condition_has_decided_goes_on(store: Store) -> None:  # rules C4, G7
    built = graph(note("a"), note("b"), note("c"), entry="a")
    built.add_conditional_edges(START, giving("a"), name="first").add_conditional_edges("a", asking("where"))
    compiled = built.compile(store=store)
    paused = await compiled.run({}, session_id="s")
    assert (await compiled.resume("s", {paused.interrupts[0].id: "c"})).state["log"] == ["a", "c"]
    statuses: list[tuple[str, str]] = []
    for point in await compiled.history("s"):
        # Without the program, as the command line does it.
        fork = await Sessions(store).fork("s", checkpoint_id=point.id)
        statuses.append((point.source, (await compiled.status(fork)).status))
        if point.source == "resume":
            assert (await compiled.recover(fork)).state["log"] == ["a", "c"]
    assert statuses[::-1] == [
        ("input", "cancelled"),
        ("step", "cancelled"),
        ("interrupt", "waiting"),
        ("resume", "cancelled"),
        ("step", "cancelled"),
        ("end", "done"),
    ]


async def test_several_conditions_ask_at_once(store: Store) -> None:  # rules G7, I4
    def build() -> CompiledGraph:
        built = graph(note("s"), note("a"), note("b"), note("c"), note("d")).add_edge("s", "a").add_edge("s", "b")
        built.add_conditional_edges("a", asking("a1"))
        built.add_conditional_edges("a", asking("a2"))
        return built.add_conditional_edges("b", asking("b1")).compile(store=store)

    paused = await build().run({}, session_id="s")
    places = ["node:a;branch:<lambda>", "node:a;branch:<lambda>:2", "node:b;branch:<lambda>"]
    assert [each.id for each in paused.interrupts] == [f"runnable:g;{place}" for place in places]
    middle = await build().resume("s", {paused.interrupts[1].id: "d"})
    assert [each.info for each in middle.interrupts] == ["a1", "b1"]
    assert middle.state["log"] == ["s", "a", "b"]
    result = await build().resume("s", {paused.interrupts[0].id: "c", paused.interrupts[2].id: END})
    assert result.state["log"] == ["s", "a", "b", "c", "d"]


async def test_a_condition_of_the_start_may_ask(store: Store) -> None:  # rule G7
    def build() -> CompiledGraph:
        built = StateGraph(Log, name="g").add_node("a", note("a")).add_node("b", note("b"))
        return built.add_conditional_edges(START, asking("entry")).compile(store=store)

    paused = await build().run({}, session_id="s")
    result = await build().resume("s", {paused.interrupts[0].id: "b"})
    assert result.state["log"] == ["b"]


@pytest.mark.parametrize("broken", [failing(ZeroDivisionError()), giving("nowhere")], ids=["raises", "unknown"])
async def test_a_condition_that_fails_does_not_repeat_its_node(broken: Any, store: Store) -> None:  # rules G6, G18
    ran: list[str] = []
    with pytest.raises((ZeroDivisionError, NodeNotFound)):
        await counted(ran, route=broken, store=store).run({}, session_id="s")
    with pytest.raises((ZeroDivisionError, NodeNotFound)):
        await counted(ran, route=broken, store=store).recover("s")
    events = await events_of(counted(ran, route=giving("b"), store=store).recover("s"))
    assert ran == ["a"]
    assert names(events, NodeStart) == names(events, NodeEnd) == ["b"]
    assert (await counted(ran, route=broken, store=store).state("s"))["log"] == ["a", "b"]


async def test_conditions_that_were_decided_are_not_asked_again(store: Store) -> None:  # rule G18
    asked: list[str] = []

    def deciding(name: str, error: bool) -> Callable[[Any], Any]:
        def route(state: Any) -> str:
            asked.append(name)
            if error:
                raise NotStorable("field", None, "A trap.")
            return name

        return route

    def build(error: bool) -> CompiledGraph:
        built = graph(note("a"), note("b"), note("c"), note("d"))
        built.add_conditional_edges("a", deciding("b", error=False))
        built.add_conditional_edges("a", deciding("c", error))
        return built.add_conditional_edges("a", deciding("d", error=False)).compile(store=store)

    with pytest.raises(NotStorable):
        await build(error=True).run({}, session_id="s")
    result = await build(error=False).recover("s")
    assert asked == ["b", "c", "d", "c"]
    assert result.state["log"] == ["a", "b", "c", "d"]


def left_by(store: Store, *conditions: tuple[Callable[[Any], Any], str | None]) -> CompiledGraph:
    """A node that is left by these conditions, each with its name."""
    built = graph(note("a"), note("b"), note("c"), note("d"))
    for condition, name in conditions:
        built.add_conditional_edges("a", condition, name=name)
    return built.compile(store=store)


async def test_conditions_are_known_by_name_when_their_order_changes(store: Store) -> None:  # rules G7, G18, R10
    first, second = (asking("first"), "one"), (asking("second"), "two")
    paused = await left_by(store, first, second).run({}, session_id="s")
    assert [each.id.rpartition(":")[2] for each in paused.interrupts] == ["one", "two"]
    middle = await left_by(store, second, first).resume("s", {paused.interrupts[0].id: "b"})
    assert [each.info for each in middle.interrupts] == ["second"]
    # A condition that is new decides, too.
    mended = left_by(store, (giving("d"), None), second, first)
    assert (await mended.resume("s", {paused.interrupts[1].id: "c"})).state["log"] == ["a", "b", "c", "d"]


async def test_a_condition_that_failed_may_be_moved_and_mended(store: Store) -> None:  # rules G18, R10
    decided: list[str] = []

    def fine(state: Any) -> str:
        decided.append("fine")
        return "b"

    with pytest.raises(ZeroDivisionError):
        await left_by(store, (failing(ZeroDivisionError()), "broken"), (fine, None)).run({}, session_id="s")
    result = await left_by(store, (fine, None), (giving("c"), "broken")).recover("s")
    assert result.state["log"] == ["a", "b", "c"]
    assert decided == ["fine"]


async def test_a_condition_that_failed_may_get_another_name(store: Store) -> None:  # rules G18, R10
    with pytest.raises(ZeroDivisionError):
        await left_by(store, (failing(ZeroDivisionError()), "broken"), (giving("b"), "ok")).run({}, session_id="s")
    built = left_by(store, (giving("b"), "ok"), (asking("where"), "mended"))
    paused = await built.recover("s")
    result = await left_by(store, (giving("b"), "ok"), (asking("where"), "mended")).resume(
        "s", {paused.interrupts[0].id: "c"}
    )
    assert [each.id for each in paused.interrupts] == ["runnable:g;node:a;branch:mended"]
    assert result.state["log"] == ["a", "b", "c"]


async def test_the_error_of_the_first_condition_in_order_is_raised() -> None:  # rules G11, G18
    built = graph(note("a"), note("b")).add_conditional_edges("a", failing(KeyError("first")))
    with pytest.raises(KeyError):
        await log(built.add_conditional_edges("a", failing(ValueError("second"))))


async def test_a_deferred_node_does_not_come_next_while_a_condition_is_undecided(store: Store) -> None:
    built = graph(note("a"), note("b")).add_node("d", note("d"), defer=True).add_edge(START, "a").add_edge("a", "d")
    compiled = built.add_conditional_edges("a", lambda _: interrupt("?"), ["b"]).compile(store=store)
    result = await compiled.run({}, session_id="s")
    assert (await compiled.checkpoint("s")).next == (result.interrupts[0].address.removeprefix("runnable:g;"),)
    result = await compiled.resume("s", {result.interrupts[0].id: "b"})
    assert [str(each) for each in result.state["log"]] == ["a", "b", "d"]
