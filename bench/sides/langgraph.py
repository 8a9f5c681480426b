"""LangGraph, as its documentation has it, with its SQLite saver as durable as ours: WAL and `synchronous=FULL`."""

import operator
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Annotated, Any, TypedDict

import aiosqlite
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, Send, interrupt

from bench.sides import conversation
from bench.sides.conversation import DEEP_CHARACTERS, converse_in, reply, said
from bench.sides.database import database
from bench.sides.imports import import_cost
from bench.sides.relay import Count, Node, Run, relay_race
from bench.sides.side import REQUEST, Outcome, main
from bench.sides.stopwatch import bytes_kept, typical

_threads = count()


def thread(name: object = None, **options: Any) -> dict[str, Any]:
    """The config of a thread, a new one if it has no name."""
    return {"configurable": {"thread_id": str(next(_threads) if name is None else name)}, **options}


@asynccontextmanager
async def sqlite_saver(path: Path) -> AsyncGenerator[AsyncSqliteSaver]:
    """The async SQLite saver on a connection that syncs every commit."""
    async with aiosqlite.connect(path) as connection:
        await connection.execute("PRAGMA journal_mode=WAL")
        await connection.execute("PRAGMA synchronous=FULL")
        saver = AsyncSqliteSaver(connection)
        await saver.setup()
        yield saver


@contextmanager
def blocking_saver(path: Path) -> Generator[SqliteSaver]:
    """The saver without asyncio, on a connection that syncs every commit."""
    with SqliteSaver.from_conn_string(str(path)) as saver:
        saver.conn.execute("PRAGMA journal_mode=WAL")
        saver.conn.execute("PRAGMA synchronous=FULL")
        yield saver


# --- steps -----------------------------------------------------------------------------------------------------------


async def add(state: Count) -> Count:
    return {"n": state["n"] + 1}


def add_blocking(state: Count) -> Count:
    return {"n": state["n"] + 1}


def loop(steps: int, node: Any = add) -> StateGraph:
    """One node that runs until it has counted to `steps`."""
    graph = StateGraph(Count).add_node("add", node).add_edge(START, "add")
    return graph.add_conditional_edges("add", lambda state: END if state["n"] >= steps else "add")


async def blocking_step(steps: int, saver: SqliteSaver | None = None) -> float:
    """The microseconds of a step in its API without asyncio, which is the faster one when nothing else runs."""
    graph = loop(steps, add_blocking).compile(checkpointer=saver)

    async def run() -> Count:
        return graph.invoke({"n": 0}, thread(recursion_limit=steps + 10), durability="sync" if saver else None)

    return await typical(run) / steps * 1e6


async def steps(steps: int) -> Outcome:
    graph = loop(steps).compile()
    run = partial(graph.ainvoke, {"n": 0}, {"recursion_limit": steps + 10})
    stored = loop(steps).compile(checkpointer=InMemorySaver())
    keep = partial(stored.ainvoke, {"n": 0}, durability="sync")
    figures = {
        "step": await typical(run) / steps * 1e6,
        "memory": await typical(lambda: keep(thread(recursion_limit=steps + 10))) / steps * 1e6,
        "blocking": await blocking_step(steps),
    }
    return Outcome(figures=figures, result=(await run())["n"])


async def steps_sqlite(steps: int) -> Outcome:
    with database() as path, blocking_saver(path.with_name("blocking.db")) as blocking:
        async with sqlite_saver(path) as saver:
            graph = loop(steps).compile(checkpointer=saver)

            async def run(durability: str) -> Count:
                return await graph.ainvoke({"n": 0}, thread(recursion_limit=steps + 10), durability=durability)

            figures = {mode: await typical(partial(run, mode)) / steps * 1e6 for mode in ("sync", "async")}
            figures["blocking"] = await blocking_step(steps, blocking)
            return Outcome(figures=figures, result=(await run("sync"))["n"])


# --- fan-out and chain -----------------------------------------------------------------------------------------------


class Fan(TypedDict):
    squares: Annotated[list[int], operator.add]
    item: int


def fan(tasks: int) -> StateGraph:
    """A node that starts `tasks` tasks of another one."""

    async def split(state: Fan) -> Command:
        return Command(goto=[Send("square", {"item": item}) for item in range(tasks)])

    async def square(state: Fan) -> dict[str, list[int]]:
        return {"squares": [state["item"] ** 2]}

    graph = StateGraph(Fan).add_node("split", split, destinations=("square",)).add_node("square", square)
    return graph.add_edge(START, "split")


async def fan1000(tasks: int) -> Outcome:
    plain = fan(tasks).compile()
    memory = await typical(partial(plain.ainvoke, {"item": 0}))
    with database() as path:
        async with sqlite_saver(path) as saver:
            graph = fan(tasks).compile(checkpointer=saver)

            async def run() -> Fan:
                return await graph.ainvoke({"item": 0}, thread(), durability="sync")

            figures = {"memory": memory / tasks * 1e6, "sqlite": await typical(run) / tasks * 1e6}
            return Outcome(figures=figures, result=(await run())["squares"])


async def chain(short: int, long: int) -> Outcome:
    return await relay_race(prepare_line, short=short, long=long)


def prepare_line(nodes: dict[str, Node]) -> Run:
    """A compiled graph of the nodes in line."""
    graph = StateGraph(Count).add_sequence(list(nodes.items())).add_edge(START, next(iter(nodes))).compile()
    return partial(graph.ainvoke, {"n": 0}, {"recursion_limit": len(nodes) + 10})


# --- questions -------------------------------------------------------------------------------------------------------


class Asked(TypedDict, total=False):
    request: str
    answer: str


async def ask(state: Asked) -> Asked:
    return {"answer": interrupt("Go on?")}


def asking() -> StateGraph:
    """One node that asks one question."""
    return StateGraph(Asked).add_node("ask", ask).add_edge(START, "ask")


async def round_trip(saver: Any) -> Outcome:
    """Run into the question, answer it, run to the end."""
    graph = asking().compile(checkpointer=saver)

    async def once() -> str:
        config = thread()
        paused = await graph.ainvoke({"request": REQUEST}, config, durability="sync")
        assert paused["__interrupt__"][0].value == "Go on?"
        return (await graph.ainvoke(Command(resume="yes"), config, durability="sync"))["answer"]

    return Outcome(figures={"round_trip": await typical(once) * 1e6}, result=await once())


async def hitl_memory() -> Outcome:
    return await round_trip(InMemorySaver())


async def hitl_sqlite() -> Outcome:
    with database() as path:
        async with sqlite_saver(path) as saver:
            return await round_trip(saver)


async def parked(runs: int) -> Outcome:
    graph = asking().compile(checkpointer=InMemorySaver())

    async def park() -> None:
        await graph.ainvoke({"request": REQUEST}, thread(), durability="sync")

    kept = await bytes_kept(park, times=runs)
    last = await graph.ainvoke(Command(resume="yes"), thread(next(_threads) - 1))
    return Outcome(figures={"parked": kept / 1024}, result=last["answer"])


# --- conversations ---------------------------------------------------------------------------------------------------


class Texts(TypedDict):
    messages: Annotated[list[str], operator.add]


def extend(messages: list[AnyMessage], writes: Sequence[Sequence[AnyMessage]]) -> list[AnyMessage]:
    return [*messages, *(message for write in writes for message in write)]


class Deltas(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(extend)]


async def answer(state: MessagesState) -> dict[str, list[AnyMessage]]:
    return {"messages": [AIMessage(reply(state["messages"][-1].content))]}


async def answer_text(state: Texts) -> Texts:
    return {"messages": [reply(state["messages"][-1])]}


class Talk(conversation.Talk):
    """A conversation whose list is of messages (`MessagesState`, or the new delta channel) or of plain strings."""

    def __init__(self, schema: Any, saver: Any) -> None:
        node, self.message = (answer_text, str) if schema is Texts else (answer, HumanMessage)
        graph = StateGraph(schema).add_node("answer", node, input_schema=schema).add_edge(START, "answer")
        self.graph = graph.compile(checkpointer=saver)

    async def say(self, session: str, *texts: str) -> None:
        await self.graph.ainvoke(
            {"messages": [self.message(text) for text in texts]}, thread(session), durability="sync"
        )

    async def load(self, session: str) -> Sequence[Any]:
        return (await self.graph.aget_state(thread(session))).values["messages"]

    def text(self, message: Any) -> str:
        return message if isinstance(message, str) else message.content


@asynccontextmanager
async def talk(schema: Any, path: Path) -> AsyncGenerator[Talk]:
    async with sqlite_saver(path) as saver:
        yield Talk(schema, saver)


async def convo(turns: int) -> Outcome:
    schemas = {"messages": MessagesState, "append": Texts, "delta": Deltas}
    outcome = await converse_in({kind: partial(talk, schema) for kind, schema in schemas.items()}, turns)
    return replace(outcome, note="delta is its DeltaChannel, in beta, a snapshot every 100 updates")


async def resume_deep(messages: int) -> Outcome:
    with database() as path:
        async with talk(MessagesState, path) as seed:
            # In one turn: the whole list stands in the last checkpoint, however many turns it took.
            asked = [said(turn, DEEP_CHARACTERS) for turn in range(messages // 2)]
            await seed.say("deep", *[text for ask in asked for text in (ask, reply(ask))][:-1])
        return await conversation.restore(partial(talk, MessagesState, path))


async def imports(times: int) -> Outcome:
    took, packages = import_cost("langgraph.graph", times=times)
    return Outcome(figures={"import": took, "packages": len(packages)}, note=" ".join(packages))


WORKS = {
    "steps": steps,
    "steps_sqlite": steps_sqlite,
    "fan1000": fan1000,
    "chain": chain,
    "hitl_memory": hitl_memory,
    "hitl_sqlite": hitl_sqlite,
    "parked": parked,
    "convo": convo,
    "resume_deep": resume_deep,
    "import": imports,
}

if __name__ == "__main__":
    main(WORKS)
