"""What one of many costs us: turns of a long session, answers, branches, levels of nested graphs, a page of the inbox.

Where the same is done in a small and in a large session, both take turns, and the figures are CPU time: on a busy
machine, a longer call is interrupted more often.
"""

from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from statistics import median
from typing import Annotated, Any, TypedDict

from adjourn import Message, Runner, interrupt
from adjourn.agents import ChatModelAgent
from adjourn.events import Done
from adjourn.graph import END, START, Command, CompiledGraph, MessagesState, StateGraph, append
from adjourn.models import ModelRequest
from adjourn.sessions import Sessions
from adjourn.stores import MemoryStore, SessionRef, SQLiteStore, Store
from adjourn.stores.kit import GiveAnswers, ListOpen, ListQuestions
from adjourn.stores.types import Answer
from bench.parked import fill
from bench.sides.conversation import DEEP_CHARACTERS, reply, said
from bench.sides.database import database
from bench.sides.side import Outcome
from bench.sides.stopwatch import Call, cpu_seconds, seconds
from tests.counting import calls_of

AT_ONCE = 20
"""How many of the open questions are answered for one figure."""


class Texts(TypedDict):
    """What was said."""

    texts: Annotated[list[str], append]


def talking(store: Store) -> CompiledGraph:
    """A graph that answers what was said last."""

    async def answer(state: Texts) -> Texts:
        return {"texts": [reply(state["texts"][-1])]}

    graph = StateGraph(Texts, name="talking").add_node("answer", answer)
    return graph.add_edge(START, "answer").add_edge("answer", END).compile(store=store)


async def attach(few: int, many: int) -> Outcome:
    """Follow a session from its start; the figure is one of its turns."""

    async def followed(turns: int) -> tuple[float, int]:
        with database() as path:
            # How it got there is not measured.
            store = SQLiteStore(path, synchronous="NORMAL")
            graph = talking(store)
            for turn in range(turns):
                await graph.run({"texts": [said(turn, DEEP_CHARACTERS)]}, session_id="s")
            ends: list[int] = []

            async def follow() -> None:
                ends.append(sum([isinstance(event, Done) async for event in graph.attach("s")]))

            took = median([await seconds(follow) for _ in range(max(3, many // turns // 2))])
            await store.close()
        return took / turns * 1e6, ends[0]

    short, long = await followed(few), await followed(many)
    return Outcome(figures={"few": short[0], "growth": long[0] / short[0]}, result=[short[1], long[1]])


class Votes(TypedDict, total=False):
    """Who is asked, and what all have said."""

    voter: int
    votes: Annotated[list[str], append]


def voting(voters: int, store: MemoryStore) -> CompiledGraph:
    """A graph that asks all voters at once."""

    async def call(state: Votes) -> list[Command]:
        return [Command(update={"voter": voter}, goto="ask") for voter in range(voters)]

    async def ask(state: Votes) -> Votes:
        return {"votes": [interrupt(f"Your vote, {state.get('voter')}?", schema=str)]}

    graph = StateGraph(Votes, name="voting").add_node("call", call).add_node("ask", ask)
    return graph.add_edge(START, "call").add_edge("ask", END).compile(store=store)


async def many_questions(few: int, many: int) -> Outcome:
    """Answer one of many open questions: record it, go on with it here, go on with it in another process."""
    short, long = await _answered(few), await _answered(many)
    figures: dict[str, float] = {}
    for name, one, other in zip(("answer", "resume", "load"), short[0], long[0], strict=True):
        figures |= {f"{name}_few": one, f"{name}_growth": other / one}
    return Outcome(figures=figures, result=[short[1], long[1]])


async def _answered(voters: int) -> tuple[Sequence[float], int]:
    """The microseconds of an answer, of going on here, and of one of the questions that another process loads."""
    store = MemoryStore()
    graph, sessions = voting(voters, store), Sessions(store)
    left = [asked.id for asked in (await graph.run({}, session_id="s")).interrupts]

    async def typically(give: Callable[[dict[str, str]], Awaitable[Any]]) -> float:
        return median([await seconds(lambda: give({left.pop(): "yes"})) for _ in range(AT_ONCE)]) * 1e6

    async def go_on(answers: dict[str, str]) -> None:
        await graph.resume("s", answers)

    async def go_on_elsewhere(answers: dict[str, str]) -> None:
        await Runner(voting(voters, store), store=store).resume("s", answers)

    recorded = await typically(lambda answers: sessions.answer("s", answers))
    await graph.recover("s")
    here, elsewhere = await typically(go_on), await typically(go_on_elsewhere)
    done = await graph.resume("s", dict.fromkeys(left, "yes"))
    return (recorded, here, elsewhere / voters), len(done.state["votes"])


# --- turns, one answer, branches, levels, the inbox ------------------------------------------------------------------


async def beside(few: Call, many: Call, *, times: int = AT_ONCE) -> tuple[float, float]:
    """The seconds of CPU time of one of few, and how many times as long one of many takes."""
    small: list[float] = []
    large: list[float] = []
    for _ in range(times):
        small.append(await cpu_seconds(few))
        large.append(await cpu_seconds(many))
    return median(small), median(large) / median(small)


async def turns(few: int, many: int) -> Outcome:
    """A turn of a session in memory that has had few or many: of texts, of messages, of an agent."""
    figures: dict[str, float] = {}
    for name, turn in {"texts": _texts(), "messages": _messages(), "agent": _agent()}.items():
        for session, number in (("few", few), ("many", many)):
            for _ in range(number):
                await turn(session)
        took, growth = await beside(lambda turn=turn: turn("few"), lambda turn=turn: turn("many"), times=5 * AT_ONCE)
        figures |= {f"{name}_few": took * 1e6, f"{name}_growth": growth}
    return Outcome(figures=figures)


Turn = Callable[[str], Awaitable[object]]


def _texts() -> Turn:
    graph, numbers = talking(MemoryStore()), count()
    return lambda session: graph.run({"texts": [said(next(numbers), DEEP_CHARACTERS)]}, session_id=session)


def _messages() -> Turn:
    async def answer(state: MessagesState) -> dict[str, Message]:
        return {"messages": Message.assistant(reply(state["messages"][-1].text))}

    graph, numbers = StateGraph(MessagesState, name="talking").add_node("answer", answer), count()
    compiled = graph.add_edge(START, "answer").compile(store=MemoryStore())
    return lambda session: compiled.run(
        {"messages": Message.user(said(next(numbers), DEEP_CHARACTERS))}, session_id=session
    )


class Replies:
    """A model that answers at once."""

    async def generate(self, request: ModelRequest) -> Message:
        """Return the answer."""
        return Message.assistant(reply(request.messages[-1].text))


def _agent() -> Turn:
    runner, numbers = Runner(ChatModelAgent("talker", model=Replies()), store=MemoryStore()), count()
    return lambda session: runner.run(said(next(numbers), DEEP_CHARACTERS), session_id=session)


async def one_answer(few: int, many: int) -> Outcome:
    """Answer one question, by its token, beside few or many others that stay open."""
    figures: dict[str, float] = {}
    for name, others in (("few", few), ("many", many)):
        graph = voting(others + 2 * AT_ONCE, MemoryStore())
        left = [asked.token for asked in (await graph.run({}, session_id="s")).interrupts]

        async def answer(graph: CompiledGraph = graph, left: list[str] = left) -> None:
            await graph.resume("s", {left.pop(): "yes"})

        took = median([await cpu_seconds(answer) for _ in range(AT_ONCE)]) * 1e6
        figures |= {name: took, f"{name}_calls": median([await calls_of(answer) for _ in range(AT_ONCE)])}
    growth = {"growth": figures["many"] / figures["few"], "calls_growth": figures["many_calls"] / figures["few_calls"]}
    return Outcome(figures=figures | growth)


async def branches(few: int, many: int) -> Outcome:
    """A fork of a fork of a fork, in one session and in a new one each, and a turn after it."""
    figures: dict[str, float] = {}
    for name in ("branch", "fork"):
        graph = talking(MemoryStore())
        at = {"few": "a", "many": "b"}

        async def fork(which: str, name: str = name, graph: CompiledGraph = graph, at: dict[str, str] = at) -> None:
            at[which] = await graph.fork(at[which], to=at[which] if name == "branch" else None)

        async def turn(which: str, graph: CompiledGraph = graph, at: dict[str, str] = at) -> None:
            await graph.run({"texts": ["more"]}, session_id=at[which])

        for which, number in (("few", few), ("many", many)):
            await turn(which)
            for _ in range(number):
                await fork(which)
        for what, work in (("", fork), ("_turn", turn)):
            took, growth = await beside(lambda work=work: work("few"), lambda work=work: work("many"))
            figures |= {f"{name}{what}": took * 1e6, f"{name}{what}_growth": growth}
    return Outcome(figures=figures)


class Vote(TypedDict, total=False):
    """What the innermost graph asks for."""

    vote: str


def nested(levels: int, store: Store) -> CompiledGraph:
    """A graph that asks, in a graph in a graph."""

    def ask(state: Vote) -> Vote:
        return {"vote": interrupt("Your vote?", schema=str)}

    graph = StateGraph(Vote, name="level 1").add_node("inside", ask, thread=False).add_edge(START, "inside")
    for level in range(2, levels + 1):
        graph = StateGraph(Vote, name=f"level {level}").add_subgraph("inside", graph.compile())
        graph.add_edge(START, "inside")
    return graph.compile(store=store)


async def nesting(few: int, many: int) -> Outcome:
    """Pause and resume in nested graphs, here or in another process: what each level adds to one graph alone."""

    async def ask_and_answer(asks: CompiledGraph, answers: CompiledGraph) -> None:
        session = f"s{next(numbers)}"
        asked = (await asks.run({}, session_id=session)).interrupts[0]
        await answers.resume(session, {asked.token: "yes"})

    numbers, store, figures = count(), MemoryStore(), dict[str, float]()
    alone, small, large = ([nested(levels, store) for _ in range(2)] for levels in (1, few, many))
    for name, other in (("here", 0), ("elsewhere", 1)):

        def work(graphs: list[CompiledGraph], other: int = other) -> Call:
            return lambda: ask_and_answer(graphs[0], graphs[other])

        base, times = await beside(work(alone), work(small), times=2 * AT_ONCE)
        another, more = await beside(work(alone), work(large), times=2 * AT_ONCE)
        few_took, many_took = base * (times - 1) / (few - 1), another * (more - 1) / (many - 1)
        figures |= {name: few_took * 1e6, f"{name}_growth": many_took / few_took}
    return Outcome(figures=figures)


async def inbox_here(few: int, many: int) -> Outcome:
    """A page of the inbox and an answer, with few or many parked sessions, in memory and in SQLite."""
    figures = await _inbox("memory", MemoryStore(), MemoryStore(), few, many)
    with database() as small, database() as large:
        # How they got there is not measured.
        stores = SQLiteStore(small, synchronous="NORMAL"), SQLiteStore(large, synchronous="NORMAL")
        figures |= await _inbox("sqlite", *stores, few, many)
        for store in stores:
            await store.close()
    return Outcome(figures=figures)


async def _inbox(name: str, small: Store, large: Store, few: int, many: int) -> dict[str, float]:
    await fill(small, few)
    await fill(large, many)
    numbers = count()

    async def page(store: Store) -> None:
        assert len(await store.read(ListQuestions(limit=10))) == 10

    async def answer(store: Store) -> None:
        ref = SessionRef(f"session {next(numbers) // 2}")
        (asked,) = await store.read(ListOpen(ref))
        await store.write(GiveAnswers(ref=ref, answers=[Answer(id=asked.id, value=b"true")]))

    figures: dict[str, float] = {}
    for what, work in (("page", page), ("answer", answer)):
        took, growth = await beside(lambda work=work: work(small), lambda work=work: work(large))
        figures |= {f"{name}_{what}": took * 1e6, f"{name}_{what}_growth": growth}
    return figures


WORKS = {
    "attach": attach,
    "many_questions": many_questions,
    "turns": turns,
    "one_answer": one_answer,
    "branches": branches,
    "nesting": nesting,
    "inbox_here": inbox_here,
}
