"""Long conversations in a database: what they take there, per turn, and to come back to.

A side gives an opener: an async context manager that opens the database anew and has a `Talk` on it.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from hashlib import sha256, shake_256
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Protocol

from bench.sides.database import database, megabytes
from bench.sides.side import Outcome
from bench.sides.stopwatch import seconds

TURN_CHARACTERS = 1024  # said by the user, and as many by the reply: a turn is 2 KB of text
DEEP_CHARACTERS = 200


class Talk(Protocol):
    """A side's conversation graph on an open database."""

    async def say(self, session: str, *texts: str) -> None:
        """Give the session the user's texts; its node answers the last one with `reply`."""
        ...

    # Any: each side has a message type of its own.
    async def load(self, session: str) -> Sequence[Any]:
        """The session's messages, as the store has them."""
        ...

    def text(self, message: Any) -> str:
        """What a message says."""
        ...


SessionOpener = Callable[[Path], AbstractAsyncContextManager[Talk]]
Opener = Callable[[], AbstractAsyncContextManager[Talk]]
"""The same for a database that is known."""


def said(turn: int, characters: int = TURN_CHARACTERS) -> str:
    """What the user says in a turn: the same on all sides, different in each turn, and nothing that packs well."""
    return _text(f"turn {turn}", characters)


def reply(text: str) -> str:
    """The answer to a text, of the same length."""
    return _text(text, len(text))


def _text(seed: str, characters: int) -> str:
    return shake_256(seed.encode()).hexdigest(characters // 2)


async def converse(opener: SessionOpener, turns: int, *, window: int = 30) -> Outcome:
    """Talk for `turns` turns; then compare the next `window` turns with the first ones of a new session."""
    with database() as path:
        return await converse_at(partial(opener, path), partial(megabytes, path), turns, window=window)


async def converse_at(opener: Opener, size: Callable[[], float], turns: int, *, window: int = 30) -> Outcome:
    """The same in a database whose size, in MB, the caller knows how to get."""
    empty = size()
    async with opener() as talk:
        times = [await seconds(partial(talk.say, "long", said(turn))) for turn in range(turns)]
        opened = size()
    closed = size()
    async with opener() as talk:
        growth = await _growth(talk, turns, window)
        result = digest(talk, await talk.load("long"))
    figures = {"turn": median(times) * 1e3, "open": opened, "closed": closed, "growth": growth, "kept": closed - empty}
    return Outcome(figures=figures, result=result)


async def converse_in(openers: Mapping[str, SessionOpener], turns: int) -> Outcome:
    """The same conversation in several kinds of state; each figure carries its kind's name."""
    return together({kind: await converse(opener, turns) for kind, opener in openers.items()})


def together(outcomes: Mapping[str, Outcome]) -> Outcome:
    """Put the outcomes of the same work on several kinds into one; each figure carries its kind's name."""
    (result,) = {outcome.result for outcome in outcomes.values()}
    figures = {
        f"{kind}_{name}": figure for kind, outcome in outcomes.items() for name, figure in outcome.figures.items()
    }
    return Outcome(figures=figures, result=result)


async def _growth(talk: Talk, turns: int, window: int) -> float:
    # Turn about, on one file: the write-ahead log, the caches and the machine's mood are the same for both,
    # and only the length of the history differs.
    early: list[float] = []
    late: list[float] = []
    for turn in range(window):
        early.append(await seconds(partial(talk.say, "new", said(turn))))
        late.append(await seconds(partial(talk.say, "long", said(turns + turn))))
    return median(late[5:]) / median(early[5:])


async def restore(opener: Opener, *, times: int = 5) -> Outcome:
    """Open the database anew and load the session `deep`, several times."""
    runs = [await _restored(opener) for _ in range(times)]
    return Outcome(figures={"restore": median(took for took, _ in runs) * 1e3}, result=runs[0][1])


async def _restored(opener: Opener) -> tuple[float, str]:
    start = perf_counter()
    async with opener() as talk:
        messages = await talk.load("deep")
        return perf_counter() - start, digest(talk, messages)


def digest(talk: Talk, messages: Sequence[Any]) -> str:
    """How many messages there are, and a hash of all that they say."""
    texts = [talk.text(message) for message in messages]
    return f"{len(texts)} messages {sha256(''.join(texts).encode()).hexdigest()[:12]}"
