"""What a long or wide session costs: rows, bytes and work grow with what is shown or done, not with what was before."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypedDict

import pytest

from adjourn import Runner, interrupt, workflow
from adjourn.events import Done, Interrupted
from adjourn.graph import END, START, Command, CompiledGraph, Overwrite, StateGraph, append
from adjourn.sessions import Sessions
from adjourn.stores import MemoryStore, Store
from tests.counting import calls_of, lines_of

from .programs import events_of
from .stores import ReadStore, WatchedStore


class Talk(TypedDict, total=False):
    said: Annotated[list[str], append]


Count = Callable[[Callable[[], Awaitable[Any]]], Awaitable[int]]

LONG = "a long text " * 100
"""With texts of this length, all partial records of a session together are cheaper to read than a full one."""


def talk(store: Store, *, asks: bool = False) -> CompiledGraph:
    """A graph that says one thing in every turn, after a question if it asks."""

    async def say(state: Any) -> dict[str, list[str]]:
        return {"said": [interrupt("What?") if asks else f"{LONG}{len(state['said'])}"]}

    graph = StateGraph(Talk, name="talk")
    graph.add_node("say", say)
    graph.add_edge(START, "say").add_edge("say", END)
    return graph.compile(store=store)


async def talked(store: Store, turns: int) -> CompiledGraph:
    graph = talk(store)
    for number in range(turns):
        await graph.run({"said": [f"{LONG}{number}"]}, session_id="s")
    return graph


# Branches


@pytest.mark.parametrize("how", ["edit", "fork"])
async def test_a_full_record_is_as_long_however_many_branches_came_before(how: str):  # rules C4, C9
    store = WatchedStore(MemoryStore())
    graph, lengths = await talked(store, 1), list[int]()
    for number in range(200):
        if how == "edit":
            await graph.edit("s", {"said": Overwrite([f"{number:03}"])})
        else:
            await graph.fork("s", to="s")
        lengths.append(next(len(write.body) for write in reversed(store.writes) if write.full))
    assert lengths[199] <= lengths[19] + 8
    await graph.fork("s", to="copy")
    assert len(store.writes[-2].body) <= lengths[19] + 100
    store.writes.clear()
    await graph.edit("copy", {"said": Overwrite(["000"])})
    assert len(store.writes[0].body) <= lengths[19] + 100


@pytest.mark.parametrize("to", ["s", None])
async def test_a_fork_of_a_fork_costs_the_same_however_many_came_before(to: str | None):  # rule C9
    store = MemoryStore()
    graph = await talked(store, 1)

    async def costs(session: str) -> tuple[int, int]:
        forked = await lines_of(lambda: graph.fork(session, to=session))
        return forked, await lines_of(lambda: graph.run({"said": ["more"]}, session_id=session))

    session = "s"
    few, many = (0, 0), (0, 0)
    for number in range(200):
        session = await graph.fork(session, to=to)
        if number in (5, 199):
            few, many = many, await costs(session)
    assert many[0] < 1.2 * few[0]
    assert many[1] < 1.2 * few[1]


async def test_a_fork_reads_the_row_of_its_checkpoint_however_many_there_are(store: Store):  # rule C9
    reads = ReadStore(store)
    graph = await talked(reads, 30)
    points = (await graph.history("s", source="end"))[::10]
    for point in points:
        await graph.fork("s", to="s")
        await graph.run({"said": ["more"]}, session_id="s", on_pending="abandon")
        reads.rows.clear()
        fork = await graph.fork("s", checkpoint_id=point.id)
        assert reads.rows["checkpoints"] <= 2  # The newest, and the one at or before it.
        [begun] = await graph.history(fork)
        assert begun.metadata["forked_from"]["checkpoint_id"] == point.id


# Graphs in graphs


def nested(depth: int, store: Store) -> CompiledGraph:
    """A graph in a graph in a graph, of which the innermost asks."""

    def ask(state: Any) -> dict[str, list[str]]:
        return {"votes": [interrupt("Your vote?", schema=str)]}

    graph = StateGraph(Votes, name="innermost").add_node("inside", ask, thread=False).add_edge(START, "inside")
    for level in range(depth):
        graph = StateGraph(Votes, name=f"level {level}").add_subgraph("inside", graph.compile())
        graph.add_edge(START, "inside")
    return graph.compile(store=store)


@pytest.mark.parametrize("where", ["here", "elsewhere"])
async def test_a_level_costs_the_same_however_deep_graphs_are_nested(where: str):  # rule C9
    async def cost(depth: int) -> float:
        store = MemoryStore()
        graph = nested(depth, store)
        other = graph if where == "here" else nested(depth, store)

        async def pause_and_resume() -> None:
            [asked] = (await graph.run({}, session_id="s")).interrupts
            assert (await other.resume("s", {asked.token: "yes"})).state == {"votes": ["yes"]}

        return await lines_of(pause_and_resume) / depth

    await cost(2)  # What is made and imported once.
    assert await cost(48) < 1.1 * await cost(12)


# Attach


async def test_following_a_session_from_its_start_reads_each_turn_a_bounded_number_of_times():  # rule C9
    async def rows(turns: int) -> int:
        store = ReadStore(MemoryStore())
        graph = await talked(store, turns)
        store.rows.clear()
        assert sum(isinstance(event, Done) for event in await events_of(graph.attach("s"))) == turns
        return store.rows.total()

    assert await rows(800) < 6 * await rows(200)


async def test_following_a_session_from_its_end_reads_the_events_of_its_end():  # rule C9
    store = ReadStore(MemoryStore())
    graph = await talked(store, 200)
    last = (await events_of(graph.attach("s")))[-1].seq or 0
    store.rows.clear()
    [*_, end] = await events_of(graph.attach("s", after=last - 3))
    assert isinstance(end, Done)
    assert end.state is not None
    assert len(end.state["said"]) == 400
    assert store.rows["events"] <= 3


async def test_awaiting_a_session_that_has_ended_loads_it_once():  # rule C9
    store = ReadStore(MemoryStore())
    graph = await talked(store, 100)
    store.rows.clear()
    result = await graph.attach("s")
    assert len(result.state["said"]) == 200
    once = store.rows["load"]
    store.rows.clear()
    await graph.state("s")
    assert once <= store.rows["load"]


async def test_every_end_has_the_state_of_its_own_turn(store: Store):  # rule A11
    graph = await talked(store, 120)  # More than one page of events.
    ends = [event for event in await events_of(graph.attach("s")) if isinstance(event, Done)]
    states = [event.state for event in ends]
    assert [len(state["said"]) for state in states if state is not None] == [2 * turn for turn in range(1, 121)]
    assert states[0] == {"said": [f"{LONG}0", f"{LONG}1"]}


async def test_every_pause_has_the_questions_that_were_open_then(store: Store):  # rule A11
    graph = talk(store, asks=True)
    for turn in range(60):
        [asked] = (await graph.run({"said": [f"question {turn}"]}, session_id="s")).interrupts
        await graph.resume("s", {asked.id: f"answer {turn}"})
    events = await events_of(graph.attach("s"))
    pauses = [event for event in events if isinstance(event, Interrupted)]
    assert len(pauses) == 60
    for pause in pauses:
        [asked] = pause.interrupts
        assert asked.checkpoint_id == pause.checkpoint_id
    assert len({pause.interrupts[0].id for pause in pauses}) == 60


async def test_a_branch_and_a_pruned_turn_are_followed_like_the_rest(store: Store):  # rule A11
    graph = await talked(store, 30)
    older = (await graph.history("s", source="end"))[9]
    await graph.edit("s", {"said": ["edited"]}, checkpoint_id=older.id)
    await graph.run({"said": ["after"]}, session_id="s", on_pending="abandon")
    ends = [event for event in await events_of(graph.attach("s")) if isinstance(event, Done)]
    assert ends[-1].state == await graph.state("s")
    assert [len(end.state["said"]) for end in ends if end.state is not None] == [*range(2, 61, 2), 45]
    await graph.prune("s", keep=3)
    ends = [event for event in await events_of(graph.attach("s")) if isinstance(event, Done)]
    assert ends[-1].state == await graph.state("s")


# History


async def test_a_page_of_history_reads_the_session_once():  # rule C9
    store = ReadStore(MemoryStore())
    graph = await talked(store, 200)
    store.rows.clear()
    await graph.state("s")
    once = store.rows["load"]
    for read in (graph.history, Sessions(store).history):
        store.rows.clear()
        assert len(await read("s", limit=10)) == 10
        assert store.rows == {"load": once, "checkpoints": 11}  # The last one's parent is not on the page.


async def test_the_whole_history_reads_the_session_as_often_as_it_was_stored_whole():  # rule C9
    async def rows(turns: int) -> int:
        store = ReadStore(MemoryStore())
        graph = await talked(store, turns)
        store.rows.clear()
        await graph.history("s")
        return store.rows["load"]

    assert await rows(200) < 5 * await rows(50)


async def test_a_checkpoint_is_read_without_the_list_of_all():  # rule C9
    store = ReadStore(MemoryStore())
    graph = await talked(store, 100)
    listed = await graph.history("s")
    for wanted in (listed[0], listed[1], listed[50], listed[-1]):
        store.rows.clear()
        assert await graph.checkpoint("s", wanted.id) == wanted
        assert store.rows["checkpoints"] <= 3  # It, the one before it, and its parent.


async def test_pages_of_history_are_what_each_checkpoint_is_by_itself(store: Store):  # rule C5
    graph = await talked(store, 12)
    older = (await graph.history("s", source="end"))[5]
    await graph.edit("s", {"said": ["edited"]}, checkpoint_id=older.id)
    await graph.run({"said": ["after"]}, session_id="s", on_pending="abandon")
    everything = await graph.history("s")
    assert [await graph.checkpoint("s", each.id) for each in everything] == everything
    assert [each.state for each in everything] == [await graph.state("s", checkpoint_id=each.id) for each in everything]
    pages = [await graph.history("s", limit=7)]
    while pages[-1]:
        pages.append(await graph.history("s", limit=7, before=pages[-1][-1].id))
    assert [each for page in pages for each in page] == everything
    ends = [each for each in everything if each.source == "end"]
    assert await graph.history("s", source="end") == ends
    assert await graph.history("s", under="runnable:talk", limit=4) == everything[:4]


# Many open questions


class Votes(TypedDict, total=False):
    number: int
    votes: Annotated[list[str], append]


def voting(count: int, store: Store) -> CompiledGraph:
    """A graph that asks so many people at once."""

    async def ask(state: Any) -> dict[str, list[str]]:
        return {"votes": [interrupt(f"Your vote, {state['number']}?", key=str(state["number"]), schema=str)]}

    async def call(state: Any) -> list[Command]:
        return [Command(update={"number": each}, goto="ask") for each in range(count)]

    graph = StateGraph(Votes, name="voting")
    graph.add_node("call", call)
    graph.add_node("ask", ask)
    graph.add_edge(START, "call").add_edge("ask", END)
    return graph.compile(store=store)


async def asked(count: int, store: Store) -> tuple[CompiledGraph, list[str]]:
    graph = voting(count, store)
    result = await graph.run({}, session_id="s")
    ids = [each.id for each in result.interrupts]
    assert len(ids) == count
    return graph, ids


async def test_an_answer_reads_its_own_question_only(store: Store):  # rules C9, R4
    reads = ReadStore(store)
    _, ids = await asked(60, reads)
    sessions = Sessions(reads)
    tokens = [each.token for each in await sessions.pending("s")]
    reads.rows.clear()
    await sessions.answer("s", {ids[0]: "yes"})
    await sessions.answer("s", {tokens[1]: "yes"})
    await sessions.answer("s", {ids[2]: "no", ids[3]: "no"})
    assert reads.rows == {"asked": 4}
    await sessions.answer("s", {"4": "by its key"})
    assert len(await sessions.pending("s")) == 55


async def test_an_answer_costs_the_same_however_many_are_open():  # rule C9
    async def cost(count: int) -> int:
        store = MemoryStore()
        _, ids = await asked(count, store)
        sessions = Sessions(store)
        await sessions.answer("s", {ids[0]: "yes"})
        return await calls_of(lambda: sessions.answer("s", {ids[1]: "yes"}))

    assert await cost(800) < 1.1 * await cost(50)


@pytest.mark.parametrize("count", [calls_of, lines_of])
async def test_going_on_costs_the_same_however_many_are_open(count: Count):  # rule C9
    async def cost(questions: int) -> int:
        graph, ids = await asked(questions, MemoryStore())
        await graph.resume("s", {ids[0]: "yes"})
        return await count(lambda: graph.resume("s", {ids[-1]: "yes"}))

    assert await cost(800) < 1.1 * await cost(50)


async def test_each_answer_runs_its_own_task_whichever_came_before(store: Store):  # rules I8, R4
    graph, ids = await asked(9, store)
    left = list(range(9))
    for number in (7, 0, 8, 3):
        result = await graph.resume("s", {ids[number]: f"vote {number}"})
        left.remove(number)
        assert [each.id for each in result.interrupts] == [ids[number] for number in left]
        assert (await graph.history("s", limit=1))[0].next == ("ask",)
    done = await graph.resume("s", {ids[number]: f"vote {number}" for number in reversed(left)})
    assert done.state["votes"] == [f"vote {number}" for number in range(9)]


async def test_what_is_left_of_a_superstep_is_named_by_its_nodes(store: Store):  # rule C5
    async def ask(state: Any) -> dict[str, list[str]]:
        return {"votes": [interrupt("Your vote?", schema=str)]}

    graph = StateGraph(Votes, name="voting")
    for name in ("first", "second", "third"):
        graph.add_node(name, ask).add_edge(START, name)
    voting = graph.compile(store=store)
    result = await voting.run({}, session_id="s")
    tokens, left = [each.token for each in result.interrupts], ["first", "second", "third"]
    for number in (1, 0):
        result = await voting.resume("s", {tokens[number]: left.pop(number)})
        assert (await voting.history("s", limit=1))[0].next == tuple(left)
    assert (await voting.resume("s", {tokens[2]: "third"})).state == {"votes": ["first", "second", "third"]}


async def test_another_process_loads_all_questions_and_stores_one():  # rule C9
    async def costs(count: int) -> tuple[float, float]:
        store = WatchedStore(MemoryStore())
        _, ids = await asked(count, store)
        made = await calls_of(lambda: voting(count, store).resume("s", {ids[0]: "yes"}))
        before = len(store.writes)
        for each in ids[1:9]:
            await voting(count, store).resume("s", {each: "yes"})
        partial = [write for write in store.writes[before:] if not write.full]
        return made / count, max(len(write.body) + len(write.events) for write in partial)

    few, many = await costs(100), await costs(800)
    assert many[0] < 1.2 * few[0]
    assert many[1] < 1.1 * few[1]


async def test_questions_stay_in_task_order_as_they_are_answered(store: Store):  # rule I8
    graph, ids = await asked(12, store)
    for each in (ids[5], ids[0], ids[11]):
        result = await graph.resume("s", {each: "yes"})
    left = [each for each in ids if each not in (ids[5], ids[0], ids[11])]
    assert [each.id for each in result.interrupts] == left
    assert [each.id for each in await graph.pending("s")] == left
    fresh = await voting(12, store).resume("s", {left[3]: "yes"})
    del left[3]
    assert [each.id for each in fresh.interrupts] == left
    done = await graph.resume("s", dict.fromkeys(left, "no"))
    assert done.state["votes"] == ["yes" if number in (0, 4, 5, 11) else "no" for number in range(12)]


async def test_the_questions_of_a_result_are_those_of_its_moment(store: Store):  # rule I8
    graph, ids = await asked(3, store)
    first = await graph.resume("s", {ids[0]: "yes"})
    second = await graph.resume("s", {ids[1]: "yes"})
    assert [each.id for each in second.interrupts] == ids[2:]
    assert [each.id for each in first.interrupts] == ids[1:], "even when it is looked at later"
    assert {each.checkpoint_id for each in first.interrupts} == {first.checkpoint_id}


async def test_another_process_takes_all_answers_at_once_at_the_same_cost_each():  # rule C9
    async def cost(count: int) -> float:
        store = MemoryStore()
        _, ids = await asked(count, store)
        return await calls_of(lambda: voting(count, store).resume("s", dict.fromkeys(ids, "yes"))) / count

    await cost(5)
    assert await cost(400) < 1.2 * await cost(50)


async def test_answers_by_key_cost_the_same_each_however_many_are_given():  # rule C9
    @workflow
    async def keyed(count: int) -> Any:
        async def one(n: int) -> Any:
            return interrupt(f"{n}?", key=f"k{n}")

        return await asyncio.gather(*(one(n) for n in range(count)))

    async def cost(count: int) -> float:
        store = MemoryStore()
        await Runner(keyed, store=store).run(count, session_id="s")
        given = {f"k{n}": n for n in range(count)}
        return await lines_of(lambda: Sessions(store).answer("s", given)) / count

    await cost(5)
    assert await cost(400) < 1.2 * await cost(50)
