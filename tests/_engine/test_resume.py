"""Resuming: which questions an answer means, who may give it, and what runs again."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from adjourn import (
    AlreadyResumed,
    CheckpointNotFound,
    Interrupt,
    InvalidAnswer,
    Runner,
    RunResult,
    StaleCheckpoint,
    UnknownInterrupt,
    UsageError,
    current,
    interrupt,
    workflow,
)
from adjourn.errors import NotStorable
from adjourn.events import Custom, Done, Interrupted, NodeEnd, NodeStart
from adjourn.graph import END, Command, CompiledGraph, StateGraph
from adjourn.stores import SessionRef, Store
from adjourn.stores.kit import Audit
from tests._engine.asking import Log, Node, chain, events_of, ids, lone, together, until

runs: list[str] = []


@pytest.fixture(autouse=True)
def _no_runs() -> None:
    runs.clear()


def asker(name: str, schema: Any = None) -> Node:
    def node(state: Any) -> dict[str, Any]:
        runs.append(name)
        return {"log": [f"{name}={interrupt(name, key=name, schema=schema)!r}"]}

    return node


def three(store: Store | None = None, **options: Any) -> CompiledGraph:
    """Three nodes that ask at once; b wants a number."""
    return together({"a": asker("a"), "b": asker("b", int), "c": asker("c")}, store=store, **options)


def place(name: str) -> str:
    return f"runnable:g;node:{name}"


def by_id(asked: Interrupt) -> str:
    return asked.id


def keys(result: RunResult) -> list[str | None]:
    return [asked.key for asked in result.interrupts]


async def test_a_mapping_answers_exactly_the_named_questions(store: Store):  # rules R1, R7
    await three(store).run({}, session_id="s")
    runs.clear()
    result = await three(store).resume("s", {place("b"): 2})
    assert keys(result) == ["a", "c"]
    assert ids(result) == [place("a"), place("c")]
    assert runs == ["b"]
    assert result.state["log"] == []
    result = await three(store).resume("s", {"c": "see", "a": "ay"})
    assert sorted(runs) == ["a", "b", "c"]
    assert result.state["log"] == ["a='ay'", "b=2", "c='see'"]


@pytest.mark.parametrize("names", [{"a": 1, "nobody": 2}, {"nobody": 2}, ["nobody"], {"runnable:g": 1}, {"": 1}])
async def test_unknown_questions_change_nothing(names: Any, store: Store):  # rule R1
    before = await three(store).run({}, session_id="s")
    with pytest.raises(UnknownInterrupt) as raised:
        await three(store).resume("s", names)
    assert raised.value.open == tuple(ids(before))
    assert all(each in str(raised.value) for each in ids(before))
    assert (await three(store).recover("s")).interrupts == before.interrupts
    assert (await three(store).checkpoint("s")).id == before.checkpoint_id


async def test_open_questions_are_listed_with_their_keys(store: Store):  # rule R1
    @workflow
    async def asks(_: Any) -> Any:
        return interrupt("no key")

    with pytest.raises(UnknownInterrupt, match=r"Open: runnable:g;node:a \(key 'a'\), runnable:g;node:b \(key 'b'\),"):
        await _resumed_as(three(store), "nobody")
    with pytest.raises(UnknownInterrupt, match=r"Open: runnable:asks\. "):
        await _resumed_as(Runner(asks), "nobody")


async def _resumed_as(runner: Runner, name: str) -> None:
    paused = await runner.run({}, session_id="s")
    await runner.resume(paused.session_id, {name: 1})


async def test_a_question_that_was_answered_is_already_resumed(store: Store):  # rules R1, R4
    graph = three(store)
    await graph.run({}, session_id="s")
    await graph.resume("s", {"a": 1}, by="ann@example.org")
    for again in ({"a": 2}, {place("a"): 2}, [place("a")], {"a": 2, "b": 2}):
        for resumer in (graph, three(store)):
            with pytest.raises(AlreadyResumed) as raised:
                await resumer.resume("s", again)
            assert (raised.value.interrupt_id, raised.value.by, raised.value.live) == (
                *(place("a"), "ann@example.org", False),
            )
    assert keys(await graph.recover("s")) == ["b", "c"]


async def test_a_finished_session_cannot_be_resumed(store: Store):  # rule R1
    graph = lone(asker("a"), store=store)
    result = await graph.run({}, session_id="s")
    await graph.resume("s", {"a": 1})
    for again in ({"a": 1}, {ids(result)[0]: 1}, None, ids(result)):
        with pytest.raises(AlreadyResumed):
            await graph.resume("s", again)
    with pytest.raises(UnknownInterrupt):
        await graph.resume("s", {"b": 1})
    assert runs == ["a", "a"]


@pytest.mark.parametrize("answers", [{}, [], (), "", "a", place("a"), True, 1, b"ab", object(), [1], {1: 2}, {None: 1}])
async def test_what_is_no_set_of_answers_is_refused(answers: Any, store: Store):  # rule R1
    graph = three(store)
    before = await graph.run({}, session_id="s")
    with pytest.raises((UsageError, UnknownInterrupt)):
        await graph.resume("s", answers)
    assert (await graph.recover("s")).interrupts == before.interrupts


async def test_one_question_cannot_be_answered_twice_in_one_call(store: Store):  # rule R1
    graph = three(store)
    before = await graph.run({}, session_id="s")
    with pytest.raises(UsageError, match=place("a")):
        await graph.resume("s", {"a": 1, place("a"): 2})
    assert (await graph.recover("s")).interrupts == before.interrupts


async def test_no_mapping_resumes_all_that_can_do_without_data(store: Store):  # rule R1
    await three(store).run({}, session_id="s")
    result = await three(store).resume("s")
    assert keys(result) == ["b"]
    assert sorted(runs) == ["a", "a", "b", "c", "c"]
    result = await three(store).resume("s", {"b": 7})
    assert result.state["log"] == ["a=None", "b=7", "c=None"]


async def test_no_mapping_leaves_open_what_needs_data(store: Store):  # rule R1
    graph = lone(asker("a", int), store=store)
    await graph.run({}, session_id="s")
    with pytest.raises(InvalidAnswer):
        await graph.resume("s")
    assert keys(await graph.recover("s")) == ["a"]


async def test_a_list_of_ids_answers_those_without_data(store: Store):  # rule R1
    await three(store).run({}, session_id="s")
    result = await three(store).resume("s", [place("a"), "c"])
    assert keys(result) == ["b"]
    with pytest.raises(InvalidAnswer):
        await three(store).resume("s", [place("b")])
    assert (await three(store).resume("s", {"b": 1})).state["log"] == ["a=None", "b=1", "c=None"]


async def test_a_key_that_several_questions_have_does_not_do(store: Store):  # rule R1
    nodes: dict[str, Node] = {"one": asker("same"), "two": asker("same")}
    result = await together(nodes, store=store).run({}, session_id="s")
    with pytest.raises(UsageError) as raised:
        await together(nodes, store=store).resume("s", {"same": 1})
    assert all(each in str(raised.value) for each in ids(result))
    result = await together(nodes, store=store).resume("s", dict.fromkeys(ids(result), 1))
    assert result.status == "done"


async def test_the_question_of_another_session_is_unknown(store: Store):  # failure A9
    graph = lone(asker("a"), store=store)
    other = lone(asker("b"), store=store, name="other")
    await graph.run({}, session_id="s")
    asked = await other.run({}, session_id="t")
    with pytest.raises(UnknownInterrupt):
        await graph.resume("s", {ids(asked)[0]: 1})


# With a checkpoint id an answer counts only if nothing moved since


async def test_an_answer_to_what_was_seen_counts(store: Store):  # rule R1
    graph = three(store)
    result = await graph.run({}, session_id="s")
    assert result.checkpoint_id == result.interrupts[0].checkpoint_id
    result = await graph.resume("s", {"a": 1}, checkpoint_id=result.checkpoint_id)
    result = await three(store).resume("s", {"b": 1, "c": 1}, checkpoint_id=result.checkpoint_id)
    assert result.status == "done"


async def test_an_answer_to_what_has_moved_does_not_count(store: Store):  # rule R1, failure A7
    graph = three(store)
    seen = (await graph.run({}, session_id="s")).checkpoint_id
    after = await graph.resume("s", {"a": 1})
    for resumer in (graph, three(store)):
        with pytest.raises(StaleCheckpoint) as raised:
            await resumer.resume("s", {"b": 1}, checkpoint_id=seen)
        assert (raised.value.checkpoint_id, raised.value.head) == (seen, after.checkpoint_id)
        with pytest.raises(StaleCheckpoint):
            await resumer.resume("s", checkpoint_id=seen)
        with pytest.raises(AlreadyResumed):
            await resumer.resume("s", {"a": 1}, checkpoint_id=seen)
    assert keys(await graph.recover("s")) == ["b", "c"]


@pytest.mark.parametrize("answers", [{"a": 1}, None])
async def test_a_checkpoint_that_never_was_is_not_found(answers: Any, store: Store):
    graph = three(store)
    before = await graph.run({}, session_id="s")
    for resumer in (graph, three(store)):
        with pytest.raises(CheckpointNotFound, match=r"no checkpoint 'nothing\.1'") as raised:
            await resumer.resume("s", answers, checkpoint_id="nothing.1")
        assert raised.value.checkpoint_id == "nothing.1"
    assert (await graph.recover("s")).interrupts == before.interrupts


# Validation


async def test_a_refusal_is_one_sentence_after_the_other(store: Store):  # rule R2
    graph = three(store)
    await graph.run({}, session_id="s")
    for wrong in ("two", object(), {1: {2}}):
        with pytest.raises(InvalidAnswer) as raised:
            await graph.resume("s", {"b": wrong})
        assert ".." not in str(raised.value)


async def test_one_bad_answer_rejects_the_whole_call(store: Store):  # rule R2
    before = await three(store).run({}, session_id="s")
    runs.clear()
    for bad in ({"a": 1, "b": "two"}, {"b": "two", "a": 1}, {"a": 1, "b": None}, {"c": object(), "a": 1}):
        with pytest.raises((InvalidAnswer, NotStorable)):
            await three(store).resume("s", bad)
    assert (await three(store).recover("s")).interrupts == before.interrupts
    assert sorted(await three(store).pending("s"), key=by_id) == sorted(before.interrupts, key=by_id)
    assert runs == []


async def test_a_bad_answer_is_explained(store: Store):  # rule R2, failure A15
    graph = lone(asker("a", dict[str, int]), store=store)
    await graph.run({}, session_id="s")
    with pytest.raises(InvalidAnswer, match="n") as raised:
        await graph.resume("s", {"a": {"n": "x"}})
    assert raised.value.interrupt_id == place("ask")
    assert len(raised.value.problems) == 1


async def test_answers_that_cannot_be_stored_are_refused(store: Store):  # rules R2, I7
    graph = lone(asker("a"), store=store)
    await graph.run({}, session_id="s")
    for bad in (object(), float("nan"), "\ud800", {"x": lambda: 1}):
        with pytest.raises(NotStorable):
            await graph.resume("s", {"a": bad})
    assert (await graph.resume("s", {"a": (1, b"2")})).state["log"] == ["a=(1, b'2')"]


# Races


async def test_of_many_callers_exactly_one_proceeds(store: Store):  # rule R3, failure A1
    for trial in range(5):
        await lone(asker("a"), store=store).run({}, session_id=f"s{trial}")
        runs.clear()
        resumers = [lone(asker("a"), store=store) for _ in range(8)]
        calls = [graph.resume(f"s{trial}", {"a": n}) for n, graph in enumerate(resumers)]
        outcomes = await asyncio.gather(*(_awaited(call) for call in calls), return_exceptions=True)
        won = [outcome for outcome in outcomes if isinstance(outcome, RunResult)]
        assert len(won) == 1
        assert all(isinstance(outcome, AlreadyResumed) for outcome in outcomes if outcome not in won)
        assert runs == ["a"]


async def test_of_many_callers_on_one_runner_exactly_one_proceeds(store: Store):  # rule R3
    graph = lone(asker("a"), store=store)
    await graph.run({}, session_id="s")
    runs.clear()
    calls = [graph.resume("s", {"a": n}) for n in range(8)]
    outcomes = await asyncio.gather(*(_awaited(call) for call in calls), return_exceptions=True)
    assert sum(isinstance(outcome, RunResult) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, AlreadyResumed) for outcome in outcomes) == 7
    assert runs == ["a"]


async def test_different_people_answer_different_questions_at_once(store: Store):  # rule R3
    await three(store).run({}, session_id="s")
    calls = [three(store).resume("s", {name: n}, by=name) for n, name in enumerate("abc")]
    outcomes = await asyncio.gather(*(_awaited(call) for call in calls))
    assert [outcome.status for outcome in outcomes].count("done") >= 1
    assert (await three(store).recover("s")).state["log"] == ["a=0", "b=1", "c=2"]
    assert sorted(runs) == ["a", "a", "b", "b", "c", "c"]


async def test_whoever_answers_a_running_session_follows_its_owner(store: Store):  # rule R3
    go = asyncio.Event()

    async def slow(state: Any) -> Any:
        await go.wait()
        return {"log": ["slow"]}

    nodes: dict[str, Node] = {"a": asker("a"), "slow": slow}
    owner = asyncio.create_task(_awaited(together(nodes, store=store).run({}, session_id="s")))
    other = together(nodes, store=store)
    await until(lambda: other.pending("s"))
    follower = asyncio.create_task(_awaited(other.resume("s", {"a": 1})))
    await until(lambda: _nothing_pending(other))
    with pytest.raises(AlreadyResumed) as raised:
        await together(nodes, store=store).resume("s", {"a": 2})
    assert raised.value.live
    go.set()
    assert (await owner).state["log"] == (await follower).state["log"] == ["a=1", "slow"]
    assert runs == ["a", "a"]


async def _nothing_pending(graph: CompiledGraph) -> bool:
    return not await graph.pending("s")


async def _awaited(run: Any) -> RunResult:
    return await run


async def test_who_answered_is_kept(store: Store):  # rules R4, C4
    graph = three(store)
    await graph.run({}, session_id="s")
    await graph.resume("s", {"a": 1}, by="ann")
    await graph.resume("s", {"b": 2, "c": 3}, by="bob")
    assert sorted((each.id, each.how, each.by) for each in await store.read(Audit(SessionRef("s")))) == [
        (place("a"), "answered", "ann"),
        (place("b"), "answered", "bob"),
        (place("c"), "answered", "bob"),
    ]


# What runs again


async def test_what_has_finished_does_not_run_or_tell_again(store: Store):  # rules R5, R7
    def first(state: Any) -> Any:
        runs.append("first")
        current().emit("first")
        return {"log": ["first"]}

    def second(state: Any) -> Any:
        runs.append("second")
        current().emit("second")
        return {"log": [interrupt("q", key="q")]}

    told = await events_of(chain(first, second, store=store).run({}, session_id="s"))
    again = await events_of(chain(first, second, store=store).resume("s", {"q": 1}))
    assert runs == ["first", "second", "second"]
    assert [event.data for event in told if isinstance(event, Custom)] == ["first", "second"]
    assert [event for event in again if isinstance(event, Custom)] == []
    assert [event.node for event in told if isinstance(event, NodeEnd)] == ["first"]
    assert [event.node for event in again if isinstance(event, NodeEnd)] == ["second"]


async def test_a_finished_sibling_does_not_run_or_tell_again(store: Store):  # rule R7
    def quick(state: Any) -> Any:
        runs.append("quick")
        return {"log": ["quick"]}

    nodes: dict[str, Node] = {"quick": quick, "a": asker("a"), "b": asker("b")}
    await together(nodes, store=store).run({}, session_id="s")
    runs.clear()
    events = await events_of(together(nodes, store=store).resume("s", {"b": 1}))
    assert [event.node for event in events if isinstance(event, NodeStart)] == ["b"]
    events += await events_of(together(nodes, store=store).resume("s", {"a": 2}))
    assert runs == ["b", "a"]
    assert [type(event) for event in events if isinstance(event, Interrupted | Done)] == [Interrupted, Done]
    assert (await together(nodes, store=store).recover("s")).state["log"] == ["quick", "a=2", "b=1"]


async def test_a_loop_that_comes_back_asks_anew(store: Store):  # rule R8
    def node(state: Any) -> Command:
        answer = interrupt({"round": len(state["log"])}, key="again", schema=bool)
        return Command(update={"log": [answer]}, goto="ask" if answer else END)

    result = await lone(node, store=store).run({}, session_id="s")
    for answer in (True, True, False):
        assert result.interrupts[0].info == {"round": len(result.state["log"])}
        result = await lone(node, store=store).resume("s", {"again": answer})
    assert result.state["log"] == [True, True, False]


CHILD = """
import asyncio, sys
from adjourn.stores import SQLiteStore
from tests._engine.test_resume import three

async def main():
    graph = three(SQLiteStore(sys.argv[1]))
    result = await graph.resume("s", {"b": 5}, values={"who": "child"})
    print(result.status, [asked.key for asked in result.interrupts])

asyncio.run(main())
"""


async def test_another_process_can_resume(tmp_path: Path):  # rule R9
    url = f"sqlite:///{tmp_path}/s.db"
    graph = three(url)  # pyright: ignore[reportArgumentType]  # a store's URL
    await graph.run({}, session_id="s")
    done = await asyncio.to_thread(
        lambda: subprocess.run([sys.executable, "-c", CHILD, f"{tmp_path}/s.db"], check=True, capture_output=True)
    )
    assert done.stdout.decode().split("\n")[0] == "interrupted ['a', 'c']"
    result = await graph.resume("s", {"a": 1, "c": 2})
    assert result.state["log"] == ["a=1", "b=5", "c=2"]
    await graph.store.close()


async def test_saved_values_come_back_and_given_ones_lie_over_them(store: Store):  # rule R9
    def node(state: Any) -> Any:
        interrupt("q", key="q")
        return {"log": [dict(current().values)]}

    await lone(node, store=store).run({}, session_id="s", values={"user": "Ann", "lang": "en"})
    result = await lone(node, store=store).resume("s", {"q": 1}, values={"lang": "de", "new": 1})
    assert result.state["log"] == [{"user": "Ann", "lang": "de", "new": 1}]


async def test_deps_are_given_again(store: Store):  # rule R9
    def node(state: Any) -> Any:
        interrupt("q", key="q")
        return {"log": [current().deps["name"]]}

    await lone(node, store=store).run({}, session_id="s", deps={"name": "first", "socket": object()})
    result = await lone(node, store=store).resume("s", {"q": 1}, deps={"name": "second"})
    assert result.state["log"] == ["second"]


async def test_the_user_is_remembered(store: Store):  # rules R9, C12
    def node(state: Any) -> Any:
        interrupt("q", key="q")
        return {"log": [current().user_id]}

    await lone(node, store=store).run({}, session_id="s", user_id="u1")
    assert (await lone(node, store=store).resume("s", {"q": 1})).state["log"] == ["u1"]
    assert (await lone(node, store=store).status("s")).user_id == "u1"


async def test_sync_code_can_run_and_resume(tmp_path: Path):  # api: run_sync, resume_sync, recover_sync
    url = f"sqlite:///{tmp_path}/s.db"
    graph = lone(asker("a"), store=url)

    def work() -> list[Any]:
        paused = graph.run_sync({}, session_id="s")
        done = graph.resume_sync("s", {"a": 1})
        return [paused.status, done.status, graph.recover_sync("s").state["log"]]

    assert work() == ["interrupted", "done", ["a=1"]]
    assert await asyncio.to_thread(work) == ["interrupted", "done", ["a=1", "a=1"]]
    await graph.store.close()


async def test_a_run_is_lazy_and_says_what_is_wrong_when_it_starts(store: Store):  # api: Run
    graph = lone(asker("a"), store=store)
    run = graph.run({})
    assert run.session_id
    assert runs == []
    missing = graph.resume("nobody", {"a": 1})
    with pytest.raises(CheckpointNotFound):
        await events_of(missing)
    assert ids(await run) == ids(await run) == [place("ask")]
    assert runs == ["a"]


async def test_the_workflow_forgets_answers_of_the_last_turn(store: Store):  # rule R8
    @workflow
    async def flow(turn: int) -> Any:
        return [turn, interrupt("q", key="q")]

    runner = Runner(flow, store=store)
    for turn in (1, 2):
        result = await runner.run(turn, session_id="s")
        (asked,) = result.interrupts
        assert isinstance(asked, Interrupt)
        assert asked.id == ("runnable:flow" if turn == 1 else "runnable:flow#2")
        assert (await Runner(flow, store=store).resume("s", {"q": turn * 10})).value == [turn, turn * 10]


async def test_missing_state_can_be_supplied(store: Store):  # api: resume(state=...)
    class Wider(Log):
        extra: str

    def ask(state: Any) -> Any:
        answer = interrupt("q", key="q")
        return {"log": [answer, state.get("extra")]}

    await (
        StateGraph(Log, name="g")
        .add_node("ask", ask)
        .set_entry_point("ask")
        .compile(store=store)
        .run({}, session_id="s")
    )
    wider = StateGraph(Wider, name="g").add_node("ask", ask).set_entry_point("ask").compile(store=store)
    result = await wider.resume("s", {"q": 1}, state={"extra": "given", "log": ["ignored"]})
    assert result.state["log"] == [1, "given"]
