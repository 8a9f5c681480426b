"""Adjourn, through its public API."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Literal, TypedDict, cast

from adjourn import Message, Runner, RunResult, interrupt, once, workflow
from adjourn.graph import END, START, Command, MessagesState, StateGraph, append, merge
from adjourn.stores import MemoryStore, SQLiteStore, Store
from bench.sides import conversation, growth
from bench.sides.conversation import DEEP_CHARACTERS, converse, converse_in, reply, said
from bench.sides.database import database, megabytes
from bench.sides.imports import import_cost
from bench.sides.relay import Count, Node, Run, relay_race
from bench.sides.side import REQUEST, Outcome, main
from bench.sides.stopwatch import bytes_kept, python_calls, seconds, typical

_sessions = (f"s{number}" for number in count())


@asynccontextmanager
async def sqlite_store(path: Path, *, synchronous: Literal["NORMAL", "FULL"] = "FULL") -> AsyncGenerator[SQLiteStore]:
    """A store that is closed afterwards."""
    store = SQLiteStore(path, synchronous=synchronous)
    try:
        yield store
    finally:
        await store.close()


# --- steps -----------------------------------------------------------------------------------------------------------


def loop(steps: int) -> StateGraph:
    """One node that runs until it has counted to `steps`."""

    async def add(state: Count) -> Count:
        return {"n": state["n"] + 1}

    def onward(state: Count) -> str:
        return END if state["n"] >= steps else "add"

    graph = StateGraph(Count, name="loop").add_node("add", add).add_edge(START, "add")
    return graph.add_conditional_edges("add", onward)


async def steps(steps: int) -> Outcome:
    graph = loop(steps).compile(max_steps=steps + 10)
    run, store = partial(graph.run, {"n": 0}), MemoryStore()
    kept, result = await stored_steps(steps, store, "step")
    figures = {"step": await typical(run) / steps * 1e6, "memory": kept, "calls": await python_calls(run) / steps}
    stored = loop(steps).compile(store=store, max_steps=steps + 10)
    figures["memory_calls"] = await python_calls(lambda: stored.run({"n": 0}, session_id=next(_sessions))) / steps
    return Outcome(figures=figures, result=result)


async def steps_sqlite(steps: int) -> Outcome:
    with database() as path:
        async with sqlite_store(path) as store:
            sync, result = await stored_steps(steps, store, "step")
            behind, _ = await stored_steps(steps, store, "async")
    return Outcome(figures={"sync": sync, "async": behind}, result=result)


async def stored_steps(steps: int, store: Store, durability: Literal["step", "async"]) -> tuple[float, int]:
    """The microseconds of a step, and what was counted."""
    graph = loop(steps).compile(store=store, durability=durability, max_steps=steps + 10)

    async def run() -> RunResult:
        return await graph.run({"n": 0}, session_id=next(_sessions))

    return await typical(run) / steps * 1e6, (await run()).state["n"]


# --- fan-out and chain -----------------------------------------------------------------------------------------------


class Fan(TypedDict):
    squares: Annotated[list[int], append]
    item: int


def fan(tasks: int) -> StateGraph:
    """A node that starts `tasks` tasks of another one."""

    async def split(state: Fan) -> list[Command]:
        return [Command(update={"item": item}, goto="square") for item in range(tasks)]

    async def square(state: Fan) -> dict[str, list[int]]:
        return {"squares": [state["item"] ** 2]}

    return StateGraph(Fan, name="fan").add_node("split", split).add_node("square", square).add_edge(START, "split")


async def fan1000(tasks: int) -> Outcome:
    memory = await typical(partial(fan(tasks).compile().run, {"item": 0}))
    with database() as path:
        async with sqlite_store(path) as store:
            graph = fan(tasks).compile(store=store)

            async def run() -> RunResult:
                return await graph.run({"item": 0}, session_id=next(_sessions))

            figures = {"memory": memory / tasks * 1e6, "sqlite": await typical(run) / tasks * 1e6}
            return Outcome(figures=figures, result=(await run()).state["squares"])


async def chain(short: int, long: int) -> Outcome:
    return await relay_race(prepare_line, short=short, long=long)


def prepare_line(nodes: dict[str, Node]) -> Run:
    """A compiled graph of the nodes in line."""
    graph = StateGraph(Count, name="line")
    for source, (name, node) in zip((START, *nodes), nodes.items(), strict=False):
        graph.add_node(name, node).add_edge(source, name)
    line = graph.compile(max_steps=len(nodes) + 10)

    async def run() -> Count:
        return (await line.run({"n": 0})).state

    return run


# --- questions -------------------------------------------------------------------------------------------------------


class Asked(TypedDict, total=False):
    request: str
    answer: str


async def ask(state: Asked) -> Asked:
    return {"answer": interrupt("Go on?")}  # no schema: the other side checks none, either


def asking() -> StateGraph:
    """One node that asks one question."""
    return StateGraph(Asked, name="asking").add_node("ask", ask).add_edge(START, "ask")


async def round_trip(store: Store) -> Outcome:
    """Run into the question, answer it, run to the end."""
    graph = asking().compile(store=store)

    async def ask_once() -> str:
        paused = await graph.run({"request": REQUEST}, session_id=next(_sessions))
        (question,) = paused.interrupts
        assert question.info == "Go on?"
        return (await graph.resume(paused.session_id, {question.id: "yes"})).state["answer"]

    figures = {"round_trip": await typical(ask_once) * 1e6, "calls": await python_calls(ask_once)}
    return Outcome(figures=figures, result=await ask_once())


async def hitl_memory() -> Outcome:
    return await round_trip(MemoryStore())


async def hitl_sqlite() -> Outcome:
    with database() as path:
        async with sqlite_store(path) as store:
            return await round_trip(store)


async def parked(runs: int) -> Outcome:
    graph = asking().compile(store=MemoryStore())

    async def park() -> RunResult:
        return await graph.run({"request": REQUEST}, session_id=next(_sessions))

    kept = await bytes_kept(park, times=runs)
    last = await park()
    done = await graph.resume(last.session_id, {last.interrupts[0].id: "yes"})
    return Outcome(figures={"parked": kept / 1024}, result=done.state["answer"])


@once
async def charge(number: int) -> int:
    return number


@workflow
async def charging(calls: int) -> int:
    """Make `calls` kept calls, ask, and give their sum."""
    total = sum([await charge(number) for number in range(calls)])
    interrupt("Go on?")
    return total


async def once_calls(few: int, many: int) -> Outcome:
    memory, _ = await kept_calls(MemoryStore(), "memory", few, many)
    with database() as path:
        async with sqlite_store(path) as store:
            sqlite, result = await kept_calls(store, "sqlite", few, many)
    return Outcome(figures=memory | sqlite, result=result)


async def kept_calls(
    store: MemoryStore | SQLiteStore, name: str, few: int, many: int
) -> tuple[dict[str, float], list[int]]:
    """The microseconds of a call when it is made and when it is given back, and how they grow with the calls before."""

    async def calls(count: int) -> tuple[float, float, int]:
        session = next(_sessions)
        made = await seconds(lambda: Runner(charging, store=store).run(count, session_id=session))
        # Another runner has to load the session, as another process would.
        results: list[RunResult] = []

        async def resume() -> None:
            results.append(await Runner(charging, store=store).resume(session))

        return made / count * 1e6, await seconds(resume) / count * 1e6, results[0].value

    async def typically(count: int) -> tuple[float, float, int]:
        runs = [await calls(count) for _ in range(max(3, many // count))]
        made, given_back = (median(each) for each in list(zip(*runs, strict=True))[:2])
        return made, given_back, runs[0][2]

    short, long = await typically(few), await typically(many)
    figures = {
        f"{name}_few": short[0],
        f"{name}_growth": long[0] / short[0],
        f"{name}_replay_few": short[1],
        f"{name}_replay_growth": long[1] / short[1],
    }
    return figures, [short[2], long[2]]


# --- merging ---------------------------------------------------------------------------------------------------------


class Notes(TypedDict, total=False):
    notes: Annotated[dict[str, str], merge]


def noting(steps: int) -> StateGraph:
    """One node that adds a note until there are as many as `steps`."""
    numbers = count(1)

    async def note(state: Notes) -> Command:
        number = next(numbers)
        return Command({"notes": {f"note {number}": "x" * 100}}, goto=END if number % steps == 0 else "note")

    return StateGraph(Notes, name="noting").add_node("note", note).add_edge(START, "note")


async def merging(few: int, many: int) -> Outcome:
    async def noted(steps: int) -> tuple[float, float, int]:
        with database() as path:
            async with sqlite_store(path) as store:
                graph = noting(steps).compile(store=store, max_steps=steps + 10)
                results: list[RunResult] = []

                async def run() -> None:
                    results.append(await graph.run({}, session_id=next(_sessions)))

                time = await seconds(run)
                return time / steps * 1e6, megabytes(path), len(results[0].state["notes"])

    async def typically(steps: int) -> tuple[float, float, int]:
        runs = [await noted(steps) for _ in range(max(3, many // steps))]
        return median(run[0] for run in runs), runs[0][1], runs[0][2]

    short, long = await typically(few), await typically(many)
    figures = {"few": short[0], "growth": long[0] / short[0], "disk": long[1]}
    return Outcome(figures=figures, result=[short[2], long[2]])


# --- conversations ---------------------------------------------------------------------------------------------------


class Texts(TypedDict):
    messages: Annotated[list[str], append]


async def answer(state: MessagesState) -> dict[str, Message]:
    return {"messages": Message.assistant(reply(state["messages"][-1].text))}


async def answer_text(state: Texts) -> Texts:
    return {"messages": [reply(state["messages"][-1])]}


class Talk(conversation.Talk):
    """A conversation whose list is of messages or of plain strings."""

    def __init__(self, schema: Any, store: Store) -> None:
        node, self.message = (answer_text, str) if schema is Texts else (answer, Message.user)
        graph = StateGraph[Any](schema, name="talk").add_node("answer", cast("Any", node)).add_edge(START, "answer")
        self.graph = graph.compile(store=store)

    async def say(self, session: str, *texts: str) -> None:
        await self.graph.run({"messages": [self.message(text) for text in texts]}, session_id=session)

    async def load(self, session: str) -> Sequence[Any]:
        return (await self.graph.state(session))["messages"]

    def text(self, message: Any) -> str:
        return message if isinstance(message, str) else message.text


@asynccontextmanager
async def talk(schema: Any, path: Path, *, synchronous: Literal["NORMAL", "FULL"] = "FULL") -> AsyncGenerator[Talk]:
    async with sqlite_store(path, synchronous=synchronous) as store:
        yield Talk(schema, store)


async def convo(turns: int) -> Outcome:
    return await converse_in({"messages": partial(talk, MessagesState), "append": partial(talk, Texts)}, turns)


async def convo_long(turns: int) -> Outcome:
    return await converse(partial(talk, MessagesState), turns, window=100)


async def resume_deep(messages: int) -> Outcome:
    with database() as path:
        # Turn by turn, as sessions grow: the log is as long as it gets. How the disk was synced leaves no trace in it.
        async with talk(MessagesState, path, synchronous="NORMAL") as seed:
            for turn in range(messages // 2):
                await seed.say("deep", said(turn, DEEP_CHARACTERS))
        return await conversation.restore(partial(talk, MessagesState, path))


async def imports(times: int) -> Outcome:
    took, packages = import_cost("adjourn", times=times)
    with_graph, _ = import_cost("adjourn.graph", times=times)
    figures = {"import": took, "graph": with_graph, "packages": len(packages)}
    return Outcome(figures=figures, note=" ".join(packages))


WORKS = {
    "steps": steps,
    "steps_sqlite": steps_sqlite,
    "fan1000": fan1000,
    "chain": chain,
    "hitl_memory": hitl_memory,
    "hitl_sqlite": hitl_sqlite,
    "parked": parked,
    "once": once_calls,
    "merge": merging,
    **growth.WORKS,
    "convo": convo,
    "convo_long": convo_long,
    "resume_deep": resume_deep,
    "import": imports,
}

if __name__ == "__main__":
    main(WORKS)
