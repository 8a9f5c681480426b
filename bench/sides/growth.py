"""What one of many costs us: a turn of a long session that is followed, and an answer to one of many open questions."""

from collections.abc import Awaitable, Callable, Sequence
from statistics import median
from typing import Annotated, Any, TypedDict

from adjourn import Runner, interrupt
from adjourn.events import Done
from adjourn.graph import END, START, Command, CompiledGraph, StateGraph, append
from adjourn.sessions import Sessions
from adjourn.stores import MemoryStore, SQLiteStore
from bench.sides.conversation import DEEP_CHARACTERS, reply, said
from bench.sides.database import database
from bench.sides.side import Outcome
from bench.sides.stopwatch import seconds

AT_ONCE = 20
"""How many of the open questions are answered for one figure."""


class Texts(TypedDict):
    """What was said."""

    texts: Annotated[list[str], append]


def talking(store: SQLiteStore) -> CompiledGraph:
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
