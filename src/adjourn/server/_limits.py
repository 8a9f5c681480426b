"""Limits: how much of a server one caller may use at a time, and how long a body may take to arrive."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextvars import ContextVar

import msgspec
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from adjourn.errors import UsageError

from ._callers import Caller
from ._errors import ApiError

MINUTE = 60.0


class CallerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much one caller may do at a time in one process of a server, where callers have names.

    requests: how many requests may be open, streams included.
    runs: how many of their turns may run before they can begin another; answers are always taken, and inputs that
        were taken wait.
    turns: how many turns they may begin in a minute.
    upload: seconds in which the body of a request has to arrive, whoever sends it.
    stall: seconds after which a stream is closed whose reader takes nothing; what is stored waits for its return.
    inputs: how many may wait in the queue of a session, whoever sends them.
    """

    requests: int = 200
    runs: int = 50
    turns: int = 600
    upload: float = 30.0
    stall: float = 60.0
    inputs: int = 100

    def __post_init__(self) -> None:
        for name in ("requests", "runs", "turns", "upload", "stall", "inputs"):
            if not getattr(self, name) > 0:
                raise UsageError(f"CallerLimits({name}={getattr(self, name)!r}): give a number above zero.")


class _Place:
    """Stands for the turn that a request begins, until its run counts: others must not begin theirs in between."""

    def __init__(self, name: str | None) -> None:
        self.name = name
        self.is_taken: bool = True


_place: ContextVar[_Place | None] = ContextVar("adjourn_place", default=None)


class Usage:
    """What callers use at the moment."""

    def __init__(self, limits: CallerLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._requests: Counter[str] = Counter()
        self._running: Counter[str | None] = Counter()
        self._turns: dict[str, tuple[float, float]] = {}
        self.on_end: Callable[[], None] = lambda: None
        """Called when a run has ended, or a request that was to begin one."""

    def open(self, caller: Caller) -> None:
        """Note that a request of a caller is open, until `close`.

        Raises:
            ApiError: too many of theirs are.
        """
        if caller.name is None:
            return
        if self._requests[caller.name] >= self._limits.requests:
            raise too_much("requests", self._limits.requests, "requests of yours are open", "Close some of them.", 1)
        self._requests[caller.name] += 1

    def close(self, caller: Caller) -> None:
        """Note that a request has ended."""
        if caller.name is not None:
            self._requests[caller.name] -= 1
            if not self._requests[caller.name]:
                del self._requests[caller.name]

    @contextlib.contextmanager
    def turn(self, caller: Caller) -> Generator[dict[str, str]]:
        """Count a turn that a caller begins, as one that runs until its run has begun; give headers as `begin_turn`.

        Raises:
            ApiError: as `begin_turn`.
        """
        headers = self.begin_turn(caller)
        place = _place.set(_Place(caller.name))
        self._running[caller.name] += 1
        try:
            yield headers
        finally:
            self._leave_place()
            _place.reset(place)

    def _leave_place(self) -> None:
        """Count the turn of the request at hand no more."""
        place = _place.get()
        if place is not None and place.is_taken:
            place.is_taken = False
            self.end_run(place.name)

    def begin_run(self, user_id: str | None) -> None:
        """Count a run in a turn of a user, whoever begins it; if that is the request at hand, its place is free."""
        self._running[user_id] += 1
        self._leave_place()

    def end_run(self, user_id: str | None) -> None:
        """Note that a run has ended."""
        self._running[user_id] -= 1
        if not self._running[user_id]:
            del self._running[user_id]
        self.on_end()

    def is_full(self, user_id: str | None, opening: int = 0) -> bool:
        """Return whether a user may begin no turn, since as many run, or are being opened, as may."""
        return user_id is not None and self._running[user_id] + opening >= self._limits.runs

    def begin_turn(self, caller: Caller) -> dict[str, str]:
        """Count a turn that a caller begins; return the headers that say how many more they may.

        Raises:
            ApiError: they have begun too many in a minute, or too many run.
        """
        if caller.name is None:
            return {}
        if self.is_full(caller.name):
            raise too_much("runs", self._limits.runs, "turns of yours are running", "Wait until one has ended.", 2)
        allowed, now = self._limits.turns, self._clock()
        left, at = self._turns.get(caller.name, (float(allowed), now))
        left = min(float(allowed), left + (now - at) * allowed / MINUTE)
        if left < 1:
            wait = math.ceil((1 - left) * MINUTE / allowed)
            raise too_much("turns", allowed, "turns were begun by you within a minute", "Wait a little.", wait)
        self._turns[caller.name] = (left - 1, now)
        if len(self._turns) > MANY:
            self._forget(now)
        return _headers("turns", allowed, int(left - 1), math.ceil((allowed - left + 1) * MINUTE / allowed))

    def _forget(self, now: float) -> None:
        """Forget callers who have begun nothing for so long that they may do as if they never had."""
        self._turns = {name: kept for name, kept in self._turns.items() if now - kept[1] < MINUTE}

    def held(self, caller: Caller, response: Response) -> Response:
        """Return a response whose request is open until it is sent."""
        return response if caller.name is None else _Held(self, caller, response)


MANY = 10_000
"""How many callers are remembered before those are forgotten about whom there is nothing to say."""


class _Held(Response):
    """A response that is sent as it is, and then noted as such."""

    def __init__(self, usage: Usage, caller: Caller, response: Response) -> None:
        super().__init__()
        self._usage = usage
        self._caller = caller
        self._response = response

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._response(scope, receive, send)
        finally:
            self._usage.close(self._caller)


def too_much(name: str, limit: int, what: str, hint: str, wait: int) -> ApiError:
    """Return the refusal of what is beyond a limit, with headers that name it."""
    refusal = ApiError("too_many_requests", f"{limit} {what}, which is as many as there may be.", hint, limit=name)
    refusal.headers = {"retry-after": str(wait), **_headers(name, limit, 0, wait)}
    return refusal


def _headers(name: str, limit: int, left: int, reset: int) -> dict[str, str]:
    window = ";w=60" if name == "turns" else ""
    return {"ratelimit-policy": f'"{name}";q={limit}{window}', "ratelimit": f'"{name}";r={left};t={reset}'}


def hurried(receive: Receive, seconds: float) -> Receive:
    """Return what receives a body that has to arrive in time."""
    is_whole = False
    ends: float | None = None

    async def receive_in_time() -> Message:
        nonlocal is_whole, ends
        if is_whole:
            return await receive()
        if ends is None:
            ends = asyncio.get_running_loop().time() + seconds
        try:
            async with asyncio.timeout_at(ends):
                message = await receive()
        except TimeoutError:
            refusal = ApiError("too_slow", f"The body did not arrive within {seconds:g} s.", "Send it again.")
            refusal.headers = {"connection": "close"}
            raise refusal from None
        is_whole = not message.get("more_body", False)
        return message

    return receive_in_time
