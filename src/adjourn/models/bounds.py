"""How much of an answer is read before it is given up: a server may send without end."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext

from msgspec import Struct

from adjourn._checks import is_positive
from adjourn.errors import ModelError, UsageError

PIECE = 128
"""Bytes that a piece of an answer counts as, besides what is in it: about what it takes in memory."""

LONGEST_NAME = 10_000
"""Characters that the id and name of one call may have together; readers get all of them with every piece."""


class AnswerBounds(Struct, frozen=True, kw_only=True):
    """How much one answer of a model may have; one that has more is a `ModelError`, which is not tried again.

    A model says so in its attribute `bounds`; one without it has the defaults, and as much time as it takes.

    size: bytes, as the server sends them and as they are kept. Each piece counts as 128 bytes more; a single event, and
        an answer that is not streamed, may have a sixteenth: all of it is read in
        one go, while others wait, and small values take twenty times their bytes.
    calls: calls of tools.
    arguments: characters in the arguments of all calls together, which are parsed in one go, too.
    seconds: from the request to the end of the answer.
    """

    size: int = 256 * 1024 * 1024
    calls: int = 1000
    arguments: int = 1024 * 1024
    seconds: float = 3600.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not is_positive(getattr(self, name)):
                raise UsageError(f"AnswerBounds({name}={getattr(self, name)!r}): give a number above zero.")

    @property
    def at_once(self) -> int:
        """Bytes that have to be in memory together to be read."""
        return self.size // 16


DEFAULT = AnswerBounds(seconds=math.inf)
"""For models without bounds of their own, which may be functions of this process: these take the time they take."""


def bounds_of(model: object) -> AnswerBounds:
    """Return how much an answer of this model may have."""
    found: object = getattr(model, "bounds", None)
    return found if isinstance(found, AnswerBounds) else DEFAULT


def exceeded(what: str, bound: str) -> ModelError:
    """Return the error for an answer that has more of something than it may."""
    return ModelError(
        f"The answer of a model has more than {what}, and was given up. If such answers are meant, give the model "
        f"bounds=AnswerBounds({bound}=...).",
        retryable=False,
    )


_AT_LEISURE = nullcontext()


def in_time(bounds: AnswerBounds) -> AbstractAsyncContextManager[None]:
    """Give up an answer that takes too long.

    Raises:
        ModelError: it took too long.
    """
    return _AT_LEISURE if bounds.seconds == math.inf else _limited(bounds)


@asynccontextmanager
async def _limited(bounds: AnswerBounds) -> AsyncGenerator[None]:
    limit = asyncio.timeout(bounds.seconds)
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise exceeded(f"{bounds.seconds:g} seconds", "seconds") from None
