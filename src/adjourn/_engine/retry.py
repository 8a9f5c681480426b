"""Retry policies, and retrying by them: the same for nodes, tools and models."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import msgspec

from adjourn._checks import is_count, is_number
from adjourn._habits import OF_RETRIES, ExplainedStruct
from adjourn.errors import AdjournError, ModelError, RetryExhausted, UsageError, text_of
from adjourn.events import Event, Retrying

from .frame import UserFrame
from .scope import RunCancelled

Matcher = type[BaseException] | tuple[type[BaseException], ...] | Callable[[Exception], bool]


def backoff(first: float = 0.5, factor: float = 2.0, cap: float = 30.0, jitter: float = 0.2) -> Callable[[int], float]:
    """Return a function for the seconds to wait after attempt 1, 2, …: times `factor` up to `cap`, with `jitter`."""

    def delay(attempt: int) -> float:
        try:
            seconds = min(cap, first * factor ** (attempt - 1))
        except OverflowError:
            seconds = cap
        return min(cap, seconds * (1 + random.uniform(-jitter, jitter)))

    return delay


class Retry(msgspec.Struct, frozen=True, kw_only=True, metaclass=ExplainedStruct):
    """How often to try (the first time included), after which errors, and how long to wait in between.

    `on` is an exception class, several, or a function of the exception; `backoff` a number of seconds or a function of
    the attempt. A provider may ask for a longer wait (`Retry-After`), which is respected up to `max_wait` seconds.
    Interrupts, cancellation and errors of Adjourn itself are never retried.
    """

    _instead = OF_RETRIES

    attempts: int = 3
    on: Matcher = Exception
    backoff: float | Callable[[int], float] = backoff()
    max_wait: float = 60.0

    def __post_init__(self) -> None:
        if not is_count(self.attempts):
            raise UsageError(f"Retry(attempts={self.attempts!r}): give 1 or more; the first attempt counts.")
        if not _is_matcher(self.on):
            raise UsageError(
                f"Retry(on={self.on!r}): give an exception class, a tuple of them, or a function of the exception."
            )
        if not callable(self.backoff) and not is_number(self.backoff):
            raise UsageError(f"Retry(backoff={self.backoff!r}): give seconds, or a function of the attempt.")
        if not is_number(self.max_wait) or self.max_wait < 0:
            raise UsageError(f"Retry(max_wait={self.max_wait!r}): give the most seconds to wait for a provider.")

    def matches(self, error: Exception) -> bool:
        """Return whether this policy is for `error`."""
        if isinstance(error, AdjournError) and not error.retryable:
            return False
        if self._names(error):
            return True
        # A model's own exception comes wrapped; a policy may still name it.
        cause = error.__cause__ if isinstance(error, ModelError) else None
        return isinstance(cause, Exception) and self._names(cause)

    def _names(self, error: Exception) -> bool:
        on = cast("Any", self.on)  # pyright cannot follow isinstance with a type alias that has a tuple in it
        return isinstance(error, on) if isinstance(on, type | tuple) else on(error)

    def delay(self, attempt: int, asked: float = 0.0) -> float:
        """Return the seconds to wait after this attempt, if the provider asked for a wait of `asked` seconds."""
        own = self.backoff(attempt) if callable(self.backoff) else self.backoff
        # A provider that says when to retry knows better than a policy, but cannot make it sooner.
        return max(0.0, own, min(asked, self.max_wait))


def _is_matcher(on: object) -> bool:
    if isinstance(on, tuple):
        return all(_is_error_class(each) for each in cast("tuple[object, ...]", on))
    return _is_error_class(on) if isinstance(on, type) else callable(on)


def _is_error_class(each: object) -> bool:
    return isinstance(each, type) and issubclass(each, BaseException)


def matching(policies: Sequence[Retry], error: Exception) -> Retry | None:
    """Return the first policy that is for `error`."""
    return next((policy for policy in policies if policy.matches(error)), None)


STEP = 0.05
"""Seconds between checks for a cancel of the run, while waiting for the next attempt."""


async def attempted(
    frame: UserFrame,
    policies: Sequence[Retry],
    call: Callable[[], Awaitable[Any]],
    tell: Callable[[Event], None] | None = None,
) -> Any:
    """Return the result of `call`, tried as often as the policies allow; each new attempt is reported.

    Raises:
        RetryExhausted: with the last error as its cause.
    """
    tries = 0
    while True:
        tries += 1
        try:
            return await call()
        except Exception as error:
            if not policies or not await wait_for_next(frame, policies, tries, error, tell):
                raise


async def wait_for_next(
    frame: UserFrame,
    policies: Sequence[Retry],
    tries: int,
    error: Exception,
    tell: Callable[[Event], None] | None = None,
) -> bool:
    """Report that there is another attempt, and wait for it; return False if no policy is for the error.

    Raises:
        RetryExhausted: there were as many attempts as the policy allows.
    """
    policy = matching(policies, error)
    if policy is None:
        return False
    if tries >= policy.attempts:
        raise RetryExhausted(frame.address, tries, error) from error
    delay = policy.delay(tries, getattr(error, "retry_after", None) or 0.0)
    if tell is not None:
        tell(
            Retrying(
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
    await frame.scope.log.assure()
    return True


async def _pause(frame: UserFrame, seconds: float) -> None:
    """Wait, unless the run is cancelled meanwhile."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        await asyncio.sleep(min(STEP, left))
        if frame.scope.cancellation.mode is not None:
            raise RunCancelled
