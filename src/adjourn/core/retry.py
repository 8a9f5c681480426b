"""Retry policies, the same for nodes, tools and models."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from .amounts import is_count, is_number
from .errors import AdjournError, ModelError, UsageError

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
        if not is_count(self.attempts):
            raise UsageError(f"Retry(attempts={self.attempts!r}): give 1 or more; the first attempt counts.")
        if not _is_matcher(self.on):
            raise UsageError(
                f"Retry(on={self.on!r}): give an exception class, a tuple of them, or a function of the exception."
            )
        if not callable(self.backoff) and not is_number(self.backoff):
            raise UsageError(f"Retry(backoff={self.backoff!r}): give seconds, or a function of the attempt.")

    def matches(self, error: Exception) -> bool:
        """Whether this policy is for `error`."""
        if isinstance(error, AdjournError) and not error.retryable:
            return False
        if self._names(error):
            return True
        # A model's own exception comes wrapped; a policy may name it all the same.
        cause = error.__cause__ if isinstance(error, ModelError) else None
        return isinstance(cause, Exception) and self._names(cause)

    def _names(self, error: Exception) -> bool:
        on = cast("Any", self.on)  # an isinstance of a type alias with a tuple in it is more than pyright can follow
        return isinstance(error, on) if isinstance(on, type | tuple) else on(error)

    def delay(self, attempt: int) -> float:
        """Seconds to wait after this attempt."""
        return max(0.0, self.backoff(attempt) if callable(self.backoff) else self.backoff)


def _is_matcher(on: object) -> bool:
    if isinstance(on, tuple):
        return all(_is_error_class(each) for each in cast("tuple[object, ...]", on))
    return _is_error_class(on) if isinstance(on, type) else callable(on)


def _is_error_class(each: object) -> bool:
    return isinstance(each, type) and issubclass(each, BaseException)


def matching(policies: Sequence[Retry], error: Exception) -> Retry | None:
    """The first policy that is for `error`."""
    return next((policy for policy in policies if policy.matches(error)), None)
