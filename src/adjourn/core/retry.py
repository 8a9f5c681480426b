"""Retry policies, the same for nodes, tools and models."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from .errors import AdjournError, UsageError

Matcher = type[BaseException] | tuple[type[BaseException], ...] | Callable[[Exception], bool]


def backoff(first: float = 0.5, factor: float = 2.0, cap: float = 30.0, jitter: float = 0.2) -> Callable[[int], float]:
    """Seconds to wait after attempt 1, 2, …: growing by `factor` up to `cap`, varied by a share of `jitter`."""

    def delay(attempt: int) -> float:
        try:
            seconds = min(cap, first * factor ** (attempt - 1))
        except OverflowError:
            seconds = cap
        return min(cap, seconds * (1 + random.uniform(-jitter, jitter)))

    return delay


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """How often to try (the first time included), after which errors, and how long to wait in between.

    `on` is an exception class, several, or a function of the exception; `backoff` a number of seconds or a function of
    the attempt. Interrupts, cancellation and errors of Adjourn itself are never retried.
    """

    attempts: int = 3
    on: Matcher = Exception
    backoff: float | Callable[[int], float] = backoff()

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise UsageError(f"Retry(attempts={self.attempts}): give 1 or more; the first attempt counts.")

    def matches(self, error: Exception) -> bool:
        """Whether this policy is for `error`."""
        if isinstance(error, AdjournError) and not error.retryable:
            return False
        on = cast("Any", self.on)  # an isinstance of a type alias with a tuple in it is more than pyright can follow
        return isinstance(error, on) if isinstance(on, type | tuple) else on(error)

    def delay(self, attempt: int) -> float:
        """Seconds to wait after this attempt."""
        return max(0.0, self.backoff(attempt) if callable(self.backoff) else self.backoff)


def matching(policies: Sequence[Retry], error: Exception) -> Retry | None:
    """The first policy that is for `error`."""
    return next((policy for policy in policies if policy.matches(error)), None)
