"""Nodes in line that tell what one step costs, without the cost of starting and ending a run."""

from collections.abc import Awaitable, Callable
from statistics import median
from time import perf_counter
from typing import TypedDict

from bench.sides.side import Outcome


class Count(TypedDict):
    """A state that counts the nodes it went through."""

    n: int


Node = Callable[[Count], Awaitable[Count]]
Run = Callable[[], Awaitable[Count]]
Prepare = Callable[[dict[str, Node]], Run]


class Relay:
    """`length` nodes, of which the first and the last look at the clock."""

    def __init__(self, length: int) -> None:
        self.length = length
        self._started = self._ended = 0.0
        self.nodes: dict[str, Node] = {f"node{index}": _count for index in range(length)}
        self.nodes["node0"] = self._first
        self.nodes[f"node{length - 1}"] = self._last

    async def _first(self, state: Count) -> Count:
        self._started = perf_counter()
        return {"n": state["n"] + 1}

    async def _last(self, state: Count) -> Count:
        self._ended = perf_counter()
        return {"n": state["n"] + 1}

    def step_seconds(self) -> float:
        """What a step of the latest run took, on average."""
        return (self._ended - self._started) / (self.length - 1)


async def _count(state: Count) -> Count:
    return {"n": state["n"] + 1}


async def relay_race(prepare: Prepare, *, short: int, long: int) -> Outcome:
    """The cost of a step on a short and on a long line, and how many times dearer the long one is.

    `prepare` turns nodes into something that runs them in order.
    """
    brief, _ = await _step(prepare, short)
    lengthy, result = await _step(prepare, long)
    figures = {"short": brief * 1e6, "long": lengthy * 1e6, "growth": lengthy / brief}
    return Outcome(figures=figures, result=result)


async def _step(prepare: Prepare, length: int, *, budget: float = 0.3) -> tuple[float, Count]:
    relay = Relay(length)
    run = prepare(relay.nodes)
    result = await run()
    times: list[float] = []
    end = perf_counter() + budget
    while not times or perf_counter() < end:
        await run()
        times.append(relay.step_seconds())
    return median(times), result
