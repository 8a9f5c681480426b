"""Time travel: edits, forks, and runs from an older checkpoint, each on a branch of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, TypedDict, TypeVar

import pytest

from adjourn import (
    AlreadyResumed,
    CheckpointNotFound,
    Runner,
    SessionBusy,
    UnknownInterrupt,
    UsageError,
    current,
    interrupt,
    once,
    workflow,
)
from adjourn.errors import Conflict, NotStorable, StateInvalid
from adjourn.graph import END, START, Command, CompiledGraph, Overwrite, StateGraph
from adjourn.stores import Store
from adjourn.stores.kit import Claim, Commit, StoreRequest
from adjourn.testing import FaultStore

from .programs import (
    Gate,
    Path,
    ask,
    asking,
    begin,
    events_until_failure,
    held,
    ids,
    line,
    step,
    steps,
)

T = TypeVar("T")

ASKED = "runnable:asking;node:ask"


async def fails(state: Mapping[str, Any]) -> None:
    raise ValueError("no luck")


async def finished(graph: CompiledGraph, answer: Any = 1) -> list[str]:
    """A session that asked and was answered; the ids of its checkpoints, oldest first."""
    await graph.run({}, session_id="s")
    await graph.resume("s", {"go": answer})
    return [point.id for point in (await graph.history("s"))[::-1]]


# Running from an older checkpoint


async def test_running_from_an_older_checkpoint_makes_a_branch_and_leaves_the_old_one(store: Store):  # rule C4
    graph = steps("a", "b", "c", store=store)
    await graph.run({}, session_id="s")
    old = await graph.history("s")
    result = await graph.run(None, session_id="s", checkpoint_id=old[2].id)
    assert result.state["done"] == ["a", "b", "c"]
    history = await graph.history("s")
    assert history[-len(old) :] == old
    new = history[: -len(old)]
    assert [point.source for point in new] == ["end", "step", "fork"]
    assert new[-1].parent_id == old[2].id
    assert len({point.id.rpartition(".")[0] for point in new}) == 1


async def test_running_from_an_older_checkpoint_asks_its_questions_anew(store: Store):  # rule C4
    graph = asking(store=store)
    points = await finished(graph, "first")
    again = await graph.run(None, session_id="s", checkpoint_id=points[2])
    assert (again.status, ids(again.interrupts)) == ("interrupted", [ASKED])
    assert ids(await graph.pending("s")) == [ASKED]
    result = await graph.resume("s", {ASKED: "second"})
    assert result.state["answer"] == "second"
    assert (await graph.state("s", checkpoint_id=points[-1]))["answer"] == "first"


async def test_answers_and_counters_are_facts_of_a_branch(store: Store):  # rule C4
    async def twice(state: Mapping[str, Any]) -> Command:
        answer = interrupt("Well?", key="well")
        return Command(update={"done": [answer]}, goto=END if answer == "enough" else "twice")

    graph = line(("twice", twice), store=store)
    asked = "runnable:line;node:twice"
    await graph.run({}, session_id="s")
    first = (await graph.history("s"))[0].id
    assert ids((await graph.resume("s", {"well": "more"})).interrupts) == [f"{asked}#2"]
    assert (await graph.resume("s", {f"{asked}#2": "enough"})).status == "done"
    # On the new branch the first question is open again, and there is no second one yet.
    assert ids((await graph.run(None, session_id="s", checkpoint_id=first)).interrupts) == [asked]
    with pytest.raises(UnknownInterrupt):
        await graph.resume("s", {f"{asked}#2": "enough"})
    assert ids((await graph.resume("s", {asked: "more"})).interrupts) == [f"{asked}#2"]
    with pytest.raises(AlreadyResumed):
        await graph.resume("s", {asked: "more"})


async def test_a_question_answered_before_a_branch_began_is_answered_on_it(store: Store):  # rule R1
    graph = asking(store=store)
    points = await finished(graph)
    await graph.run(None, session_id="s", checkpoint_id=points[4])
    with pytest.raises(AlreadyResumed):
        await graph.resume("s", {ASKED: 2})


async def test_running_from_the_head_goes_on_there(store: Store):
    graph = asking(store=store)
    paused = await graph.run({}, session_id="s")
    again = await graph.run(None, session_id="s", checkpoint_id=paused.checkpoint_id)
    assert (again.status, ids(again.interrupts)) == ("interrupted", [ASKED])
    assert len({point.id.rpartition(".")[0] for point in await graph.history("s")}) == 1
    assert (await graph.resume("s", {"go": 1})).status == "done"


async def test_running_from_a_checkpoint_before_a_failure_tries_again(store: Store):
    graph = line(("a", step("a")), ("b", fails), store=store)
    await events_until_failure(graph.run({}, session_id="s"))
    point = (await graph.history("s"))[-1].id
    result = await steps("a", "b", store=store).run(None, session_id="s", checkpoint_id=point)
    assert result.state["done"] == ["a", "b"]
    assert (await graph.status("s")).status == "done"


async def test_running_from_a_checkpoint_that_does_not_exist_is_refused(store: Store):
    graph = asking(store=store)
    with pytest.raises(CheckpointNotFound):
        await graph.run(None, session_id="nobody", checkpoint_id="x.0")
    await graph.run({}, session_id="s")
    with pytest.raises(CheckpointNotFound):
        await graph.run(None, session_id="s", checkpoint_id="x.0")
    assert (await graph.resume("s", {"go": 1})).status == "done"


async def test_a_live_session_cannot_be_taken_back(store: Store):
    gate = Gate()
    graph = line(("a", step("a")), ("b", held("b", gate)), store=store)
    waiting = begin(graph.run({}, session_id="s"))
    await gate.reached.wait()
    point = (await graph.history("s"))[-1].id
    other = steps("a", "b", store=store)
    with pytest.raises(SessionBusy):
        await other.run(None, session_id="s", checkpoint_id=point)
    with pytest.raises(SessionBusy):
        await other.edit("s", {"done": ["x"]})
    gate.opened.set()
    assert (await waiting).state["done"] == ["a", "b"]


async def test_kept_results_are_used_up_to_the_branch_and_keys_differ_after_it(store: Store):  # failures 30, rule R14
    keys: list[str] = []

    @once
    async def charge() -> int:
        keys.append(current().idempotency_key)
        return len(keys)

    async def pays(state: Mapping[str, Any]) -> dict[str, Any]:
        first = await charge()
        answer = interrupt("Well?", key="well")
        return {"done": [f"{first}{answer}{await charge()}"]}

    graph = line(("pays", pays), store=store)
    await graph.run({}, session_id="s")
    point = (await graph.history("s"))[0].id
    assert (await graph.resume("s", {"well": "a"})).state["done"] == ["1a2"]
    await graph.run(None, session_id="s", checkpoint_id=point)
    assert (await graph.resume("s", {"well": "b"})).state["done"] == ["1b3"]
    assert len(keys) == len(set(keys)) == 3


async def test_a_branch_of_a_branch_of_a_branch(store: Store):
    graph = asking(store=store)
    points = await finished(graph)
    for number in range(3):
        await graph.run(None, session_id="s", checkpoint_id=points[2])
        await graph.resume("s", {"go": number})
        points = [point.id for point in (await graph.history("s"))[::-1] if point.source in ("interrupt", "end")]
        points = [points[0]] * 3
    assert (await graph.state("s"))["answer"] == 2
    assert len({point.id.rpartition(".")[0] for point in await graph.history("s")}) == 4


async def test_values_given_with_a_run_from_a_checkpoint_lie_over_those_saved(store: Store):
    seen: list[Any] = []

    async def look(state: Mapping[str, Any]) -> None:
        seen.append(dict(current().values))

    graph = line(("look", look), store=store)
    await graph.run({}, session_id="s", values={"tone": "dry", "lang": "en"})
    point = (await graph.history("s"))[-1].id
    await graph.run(None, session_id="s", checkpoint_id=point, values={"tone": "warm"})
    assert seen == [{"tone": "dry", "lang": "en"}, {"tone": "warm", "lang": "en"}]


# Edits


async def test_an_edit_goes_through_reducers_on_a_new_branch(store: Store):  # rule C4
    graph = asking(store=store)
    await graph.run({}, session_id="s")
    before = await graph.history("s")
    point = await graph.edit("s", {"done": ["edited"], "answer": "mine"})
    assert (point.source, point.metadata["edited"]) == ("edit", ["answer", "done"])
    assert (point.state["done"], point.state["answer"]) == (["before", "edited"], "mine")
    assert point.parent_id == before[0].id
    assert point.id.rpartition(".")[0] != before[0].id.rpartition(".")[0]
    assert (await graph.history("s"))[1:] == before
    assert (await graph.status("s")).checkpoint_id == point.id


async def test_overwrite_replaces(store: Store):  # rule C4
    graph = asking(store=store)
    await graph.run({}, session_id="s")
    assert (await graph.edit("s", {"done": Overwrite(["only"])})).state["done"] == ["only"]
    await graph.recover("s")
    assert (await graph.resume("s", {"go": 1})).state["done"] == ["only", "ask", "after"]


async def test_an_edit_keeps_what_is_pending(store: Store):  # rule C4
    graph = asking(store=store)
    await graph.run({}, session_id="s")
    point = await graph.edit("s", {"done": ["edited"]})
    assert (point.next, ids(point.interrupts)) == (("ask",), [])
    assert (await graph.status("s")).status == "cancelled"
    assert ids((await graph.recover("s")).interrupts) == [f"{ASKED}#2"]
    assert (await graph.resume("s", {"go": 1})).state["done"] == ["before", "edited", "ask", "after"]


async def test_an_edit_may_act_as_a_node(store: Store):  # rule C4
    graph = asking(store=store)
    await graph.run({}, session_id="s")
    point = await graph.edit("s", {"answer": "by hand"}, as_node="ask")
    assert (point.next, point.interrupts, point.metadata["as_node"]) == (("after",), (), "ask")
    assert await graph.pending("s") == []
    result = await graph.run(None, session_id="s", checkpoint_id=point.id)
    assert (result.state["done"], result.state["answer"]) == (["before", "after"], "by hand")


def answered(state: Mapping[str, Any]) -> str:
    return state["answer"]


async def test_an_edit_as_a_node_with_conditions_asks_them(store: Store):
    graph = StateGraph(Path, name="choice")
    for name in ("start", "left", "right"):
        graph.add_node(name, step(name))
    graph.add_edge(START, "start").add_conditional_edges("start", answered)
    compiled = graph.compile(store=store)
    await compiled.run({"answer": "left"}, session_id="s")
    point = await compiled.edit("s", {"answer": "right"}, as_node="start")
    result = await compiled.run(None, session_id="s", checkpoint_id=point.id)
    assert result.state["done"] == ["start", "left", "right"]


async def test_an_edit_before_conditions_leaves_something_to_recover(store: Store):
    graph = StateGraph(Path, name="choice")
    for name in ("start", "left", "right"):
        graph.add_node(name, step(name))
    compiled = graph.add_edge(START, "start").add_conditional_edges("start", answered).compile(store=store)
    await compiled.run({"answer": "left"}, session_id="s")
    await compiled.edit("s", {"answer": "right"}, as_node="start")
    assert (await compiled.status("s")).status == "cancelled"
    assert (await compiled.recover("s")).state["done"] == ["start", "left", "right"]


async def test_an_edit_of_an_older_checkpoint(store: Store):  # rule C4
    graph = steps("a", "b", "c", store=store)
    await graph.run({}, session_id="s")
    old = await graph.history("s")
    point = await graph.edit("s", {"done": ["x"]}, checkpoint_id=old[2].id)
    assert (point.state["done"], point.next, point.parent_id) == (["a", "x"], ("b",), old[2].id)
    result = await graph.run(None, session_id="s", checkpoint_id=point.id)
    assert result.state["done"] == ["a", "x", "b", "c"]
    assert (await graph.state("s", checkpoint_id=old[0].id))["done"] == ["a", "b", "c"]


async def test_two_edits_in_a_row(store: Store):
    graph = asking(store=store)
    await graph.run({}, session_id="s")
    await graph.edit("s", {"done": ["x"]})
    await graph.edit("s", {"done": ["y"]})
    await graph.recover("s")
    assert (await graph.resume("s", {"go": 1})).state["done"] == ["before", "x", "y", "ask", "after"]


async def test_an_edited_session_that_had_ended_takes_a_new_turn(store: Store):
    graph = steps("a", store=store)
    await graph.run({}, session_id="s")
    await graph.edit("s", {"done": ["x"]})
    assert (await graph.status("s")).status == "done"
    assert (await graph.run({}, session_id="s")).state["done"] == ["a", "x", "a"]


async def test_an_edited_session_that_failed_can_be_recovered(store: Store):
    graph = line(("a", step("a")), ("b", fails), store=store)
    await events_until_failure(graph.run({}, session_id="s"))
    await graph.edit("s", {"done": ["x"]})
    assert (await steps("a", "b", store=store).recover("s")).state["done"] == ["a", "x", "b"]


class Typed(TypedDict, total=False):
    count: int


async def test_an_edit_is_checked_and_a_wrong_one_changes_nothing(store: Store):  # rule S5
    async def counts(state: Mapping[str, Any]) -> dict[str, Any]:
        return {"count": 1}

    graph = StateGraph(Typed, name="typed").add_node("counts", counts).add_edge(START, "counts").compile(store=store)
    await graph.run({}, session_id="s")
    before = await graph.history("s")
    with pytest.raises(StateInvalid, match="count"):
        await graph.edit("s", {"count": "many"})
    with pytest.raises(StateInvalid, match="unknown"):
        await graph.edit("s", {"unknown": 1})
    with pytest.raises(UsageError, match="nowhere"):
        await graph.edit("s", {"count": 2}, as_node="nowhere")
    with pytest.raises(UsageError, match="node:nowhere"):
        await graph.edit("s", {"count": 2}, at="runnable:typed;node:nowhere")
    with pytest.raises(CheckpointNotFound):
        await graph.edit("s", {"count": 2}, checkpoint_id="x.0")
    with pytest.raises(CheckpointNotFound):
        await graph.edit("nobody", {"count": 2})
    assert await graph.history("s") == before


async def test_a_workflow_has_no_state_to_edit(store: Store):
    @workflow
    async def asks(_: Any) -> Any:
        return interrupt("Well?")

    runner = Runner(asks, store=store)
    await runner.run(None, session_id="s")
    with pytest.raises(UsageError, match="workflow"):
        await runner.edit("s", {"x": 1})
    assert (await runner.status("s")).status == "waiting"


# Nested frames


def nested(store: Store) -> CompiledGraph:
    inner = line(("x", step("x")), ("ask", ask), ("y", step("y")), name="inner")
    graph = StateGraph(Path, name="outer").add_node("a", step("a")).add_subgraph("in", inner)
    return graph.add_edge(START, "a").add_edge("a", "in").compile(store=store)


INNER = "runnable:outer;node:in"


async def test_state_reaches_nested_frames(store: Store):  # rule C4
    graph = nested(store)
    paused = await graph.run({}, session_id="s")
    for runner in (graph, nested(store)):
        assert (await runner.state("s", at=INNER))["done"] == ["a", "x"]
        assert (await runner.state("s", at="runnable:outer"))["done"] == ["a"]
        assert (await runner.state("s", checkpoint_id=paused.checkpoint_id, at=INNER))["done"] == ["a", "x"]
    with pytest.raises(UsageError, match=INNER):
        await graph.state("s", at="runnable:outer;node:i")


async def test_edits_reach_nested_frames(store: Store):  # rule C4
    await nested(store).run({}, session_id="s")
    graph = nested(store)
    point = await graph.edit("s", {"done": ["edited"]}, at=INNER)
    assert point.metadata["at"] == INNER
    assert (await graph.state("s", at=INNER))["done"] == ["a", "x", "edited"]
    assert (await graph.state("s"))["done"] == ["a"]
    await graph.recover("s")
    assert (await graph.resume("s", {"go": 1})).state["done"][-3:] == ["edited", "ask", "y"]


async def test_a_nested_edit_is_handed_up_with_what_the_frame_made(store: Store):  # rule G15
    await nested(store).run({}, session_id="s")
    graph = nested(store)
    await graph.edit("s", {"done": ["edited"]}, at=INNER)
    await graph.recover("s")
    assert (await graph.resume("s", {"go": 1})).state["done"] == ["a", "x", "edited", "ask", "y"]


async def test_a_nested_edit_may_act_as_a_node_of_the_nested_graph(store: Store):  # rule C4
    await nested(store).run({}, session_id="s")
    graph = nested(store)
    point = await graph.edit("s", {"answer": "by hand"}, as_node="ask", at=INNER)
    assert await graph.pending("s") == []
    result = await graph.run(None, session_id="s", checkpoint_id=point.id)
    assert (result.state["answer"], result.state["done"]) == ("by hand", ["a", "x", "y"])


async def test_state_reaches_children_that_user_code_runs(store: Store):
    inner = line(("x", step("x")), ("ask", ask), name="inner")

    @workflow
    async def parent(_: Any) -> Any:
        return (await current().run(inner, {}))["done"]

    await Runner(parent, store=store).run(None, session_id="s")
    runner = Runner(parent, store=store)
    at = "runnable:parent;runnable:inner"
    assert (await runner.state("s", at=at))["done"] == ["x"]
    with pytest.raises(UsageError, match="reducers"):
        await runner.edit("s", {"done": ["edited"]}, at=at)
    assert (await runner.resume("s", {"go": 1})).value == ["x", "ask"]


async def test_a_run_from_a_checkpoint_inside_a_nested_graph(store: Store):
    graph = nested(store)
    await graph.run({}, session_id="s")
    await graph.resume("s", {"go": "first"})
    inside = [point for point in await graph.history("s") if point.address == INNER][-1]
    again = await graph.run(None, session_id="s", checkpoint_id=inside.id)
    assert again.status == "interrupted"
    assert (await graph.resume("s", {"go": "second"})).state["done"] == ["a", "x", "ask", "y"]


async def test_what_cannot_be_meant_is_refused(store: Store):  # rule C4
    graph = asking(store=store)
    await graph.run({}, session_id="s")
    wrong: Any = 5
    for attempt in (
        graph.edit("s", wrong),
        graph.edit("s", {"done": ["x"]}, checkpoint_id=wrong),
        graph.fork("s", checkpoint_id=wrong),
        graph.run(None, session_id="s", checkpoint_id=wrong),
        graph.state("s", checkpoint_id=wrong),
    ):
        with pytest.raises(UsageError):
            await attempt


# What an edit holds while it is made


class Slow(FaultStore):
    """Keeps the caller of one kind of request waiting after it was done, or refuses it once before."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner, fail_at=0, times=0)
        self.kind: type | None = None
        self.lost: type | None = None
        self.done = asyncio.Event()

    async def write(self, request: StoreRequest[T]) -> T:
        kind = type(request.plain)
        if kind is self.lost:
            self.lost = None
            raise Conflict("s", "others were faster")
        written = await super().write(request)
        if kind is self.kind:
            self.kind = None
            self.done.set()
            await asyncio.Event().wait()
        return written


async def test_an_edit_that_is_refused_leaves_the_session_free(store: Store):  # rule C4
    runner = Runner(steps("a"), store=store, max_session_bytes=5_000)
    await runner.run({}, session_id="s")
    with pytest.raises(NotStorable):
        await runner.edit("s", {"done": ["x" * 10_000]})
    assert (await runner.run({}, session_id="s")).state["done"] == ["a", "a"]


@pytest.mark.parametrize(("kind", "done"), [(Claim, ["a", "a"]), (Commit, ["a", "edited", "a"])])
async def test_an_edit_whose_caller_leaves_leaves_the_session_free(store: Store, kind: type, done: list[str]):
    slow = Slow(store)
    graph = steps("a", store=slow)
    await graph.run({}, session_id="s")
    slow.kind = kind
    editing = asyncio.create_task(graph.edit("s", {"done": ["edited"]}))
    await slow.done.wait()
    editing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await editing
    assert (await graph.run({}, session_id="s")).state["done"] == done


@pytest.mark.parametrize("kind", [Claim, Commit])
async def test_what_is_refused_because_others_were_faster_is_made_again(store: Store, kind: type):  # rule C4
    slow = Slow(store)
    graph = asking(store=slow)
    await graph.run({}, session_id="s")
    slow.lost = kind
    assert await graph.cancel("s")
    assert slow.lost is None
    slow.lost = kind
    point = await graph.edit("s", {"done": ["edited"]})
    assert slow.lost is None
    newest, before = (await graph.history("s"))[:2]
    assert (newest.id, newest.source, newest.state["done"]) == (point.id, "edit", ["before", "edited"])
    assert (before.source, before.state["done"]) == ("cancel", ["before"])
