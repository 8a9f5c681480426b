"""Attempts: trying something again as its retry policies say, for nodes, tools and models alike."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from .errors import RetryExhausted, text_of
from .events import Event, ModelRetrying
from .frame import UserFrame
from .retry import Retry, matching
from .scope import Cut

STEP = 0.05
"""Seconds between looks at whether the run was cancelled, while waiting for the next attempt."""


async def attempted(
    frame: UserFrame,
    policies: Sequence[Retry],
    call: Callable[[], Awaitable[Any]],
    tell: Callable[[Event], None] | None = None,
) -> Any:
    """The result of `call`, tried as often as the policies allow; each new attempt is told.

    Raises:
        RetryExhausted: with the last error as its cause.
    """
    tries = 0
    while True:
        tries += 1
        try:
            return await call()
        except Exception as error:
            policy = matching(policies, error) if policies else None
            if policy is None:
                raise
            if tries >= policy.attempts:
                raise RetryExhausted(frame.address, tries, error) from error
            await _wait(frame, policy, tries, error, tell)
            await frame.scope.journal.assure()


async def _wait(
    frame: UserFrame, policy: Retry, tries: int, error: Exception, tell: Callable[[Event], None] | None
) -> None:
    # A provider that says when to come again knows better than a policy, but cannot make it sooner.
    delay = max(policy.delay(tries), getattr(error, "retry_after", None) or 0.0)
    if tell is not None:
        tell(
            ModelRetrying(
                address=frame.address,
                attempt=tries,
                max_attempts=policy.attempts,
                delay=delay,
                error=f"{type(error).__name__}: {text_of(error)}",
            )
        )
    frame.attempt += 1
    frame.scope.mark(frame)
    await _pause(frame, delay)


async def _pause(frame: UserFrame, seconds: float) -> None:
    """Wait, unless the run is cancelled meanwhile."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        await asyncio.sleep(min(STEP, left))
        if frame.scope.cancel_mode is not None:
            raise Cut
