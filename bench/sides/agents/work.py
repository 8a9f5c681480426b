"""What every side's agent is given: the same instant model, tool and question; and how it is measured.

A side gives three functions that prepare a run: of a chat, of a chat whose tool needs approval, and of one that is
streamed. What they prepare is run many times, and gives the agent's answer.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from hashlib import sha256
from itertools import pairwise
from statistics import median
from time import perf_counter

from bench.sides.side import Outcome, Work
from bench.sides.stopwatch import python_calls, typical

INSTRUCTION = "You look up orders."
QUESTION = "What does my order cost?"
WINDOW = 20  # calls at the beginning and at the end of a long run that stand for its first and its last one

Run = Callable[[], Awaitable[str]]
_laps: list[float] = []


async def look_up(number: int) -> str:
    """Look up the price of an order.

    Args:
        number: The order's number.
    """
    _laps.append(perf_counter())
    return f"Order {number} costs 129.90 EUR."


class Script:
    """What the model says in each run: one call of the tool after the other, then an answer."""

    def __init__(self, calls: int) -> None:
        self.calls = calls
        self._asked = 0

    def next(self) -> int | None:
        """The number that the tool is called with; None when the model answers."""
        self._asked = (self._asked + 1) % (self.calls + 1)
        return self._asked or None

    def answer(self, result: str) -> str:
        """The model's answer, which has the last result in it: it must have come through."""
        return f"I have looked: {result}"


def tokens(count: int) -> list[str]:
    """The pieces of a streamed answer."""
    return [f"word{number} " for number in range(count)]


def seen(pieces: list[str]) -> str:
    """What a reader of a stream got: each piece for itself, as it would be shown."""
    return "|".join(pieces)


def works(
    chat: Callable[[Script], Run],
    approval: Callable[[Script], dict[str, Run]],
    stream: Callable[[list[str]], Run],
) -> dict[str, Work]:
    """The workloads of a side. `approval` may keep a paused run in more than one way, each under its figure's name."""
    return {
        "react": partial(_react, chat),
        "react_long": partial(_react_long, chat),
        "approval": partial(_approval, approval),
        "stream": partial(_stream, stream),
    }


async def _react(chat: Callable[[Script], Run]) -> Outcome:
    run = chat(Script(1))
    return Outcome(figures={"run": await typical(run) * 1e6, "calls": await python_calls(run)}, result=await run())


async def _react_long(chat: Callable[[Script], Run], calls: int) -> Outcome:
    run, began = chat(Script(calls)), perf_counter()
    result = await run()
    totals, firsts, lasts = list[float](), list[float](), list[float]()
    while not totals or perf_counter() < began + 2.0:
        _laps.clear()
        start = perf_counter()
        await run()
        totals.append(perf_counter() - start)
        gaps = [after - before for before, after in pairwise(_laps)]
        firsts.append(median(gaps[:WINDOW]))
        lasts.append(median(gaps[-WINDOW:]))
    first, last = median(firsts), median(lasts)
    figures = {"total": median(totals) * 1e3, "first": first * 1e6, "last": last * 1e6, "growth": last / first}
    return Outcome(figures=figures, result=result)


async def _approval(approval: Callable[[Script], dict[str, Run]]) -> Outcome:
    runs = approval(Script(1))
    figures = {name: await typical(run) * 1e6 for name, run in runs.items()}
    if "stored" in runs:
        figures["calls"] = await python_calls(runs["stored"])
    (result,) = {await run() for run in runs.values()}
    return Outcome(figures=figures, result=result)


async def _stream(stream: Callable[[list[str]], Run], count: int) -> Outcome:
    run = stream(tokens(count))
    took = await typical(run, budget=2.0)
    return Outcome(figures={"token": took / count * 1e6}, result=sha256((await run()).encode()).hexdigest())
