"""What is due in the stores of some runners, which of them can take it up, and what has to wait."""

from __future__ import annotations

import asyncio
import random
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from adjourn._engine.address import segment_text
from adjourn._owner import is_dead
from adjourn.errors import StoreUnavailable, UsageError
from adjourn.stores.kit import ListDue, ListSessions
from adjourn.stores.protocol import Store
from adjourn.stores.types import Due

from .runner import Runner

SPREAD = 10
"""A worker lists this many times as many sessions as it can run, and takes them up in a random order.

So workers spread: those that look at the same time list the same sessions, the oldest.
"""

FRESH = 0.5
"""Seconds for which a worker goes on with what it has listed, instead of looking again whenever it has room."""

_MISSES = 3  # of sessions that other workers were faster to take up, after which a list is too old

LONGEST = 300
"""A session that cannot go on here is tried again after pauses that double: from one poll to this many."""

SEARCH, SEARCHED = 5.0, 200
"""Seconds between searches for what dead processes of this machine left behind, and how many sessions are looked at."""

REMEMBERED = 10_000
"""How many sessions that cannot go on here are remembered."""


class Source:
    """One app of one store, and the runners that can take up its sessions."""

    def __init__(self, runner: Runner) -> None:
        self.store: Store = runner.store
        self.app: str = runner.app_name
        self.user: str | None = runner.user_id
        self.was_seen: bool = False
        self.is_away: bool = False
        self._next_search: float = 0.0
        self._runners: dict[str, Runner] = {}
        self.add(runner)

    def add(self, runner: Runner) -> None:
        """Add a runner on the same store.

        Raises:
            UsageError: there is one of a program with the same name.
        """
        program = runner.program
        address = segment_text(program.kind, program.name)
        if address in self._runners:
            raise UsageError(
                f"Two runners of a worker run '{address}' in the app '{self.app}' of one store. Give the worker one of "
                "them, or other names to the programs."
            )
        self._runners[address] = runner

    def adopt(self, other: Source) -> None:
        """Go on with the runners of another source of the same sessions, in place of its own."""
        self._runners = other._runners

    @property
    def runners(self) -> Sequence[Runner]:
        """The runners that it can go on with."""
        return list(self._runners.values())

    @property
    def programs(self) -> tuple[str, ...]:
        """The addresses of the programs that it can go on with."""
        return tuple(self._runners)

    def serves(self, runner: Runner) -> bool:
        """Return whether it is the source of a runner's sessions."""
        return (self.store, self.app, self.user) == (runner.store, runner.app_name, runner.user_id)

    def runners_for(self, program: str) -> Sequence[Runner]:
        """Return who may be able to go on with a session of a program: one that names none is tried with each."""
        return [runner for address, runner in self._runners.items() if program in ("", address)]

    async def due(self, limit: int, skip_users: Sequence[str]) -> list[Due]:
        """List what is due, oldest first."""
        programs = ("", *self._runners)
        found = await self.store.read(
            ListDue(app=self.app, user=self.user, programs=programs, skip_users=skip_users, limit=limit)
        )
        if time.monotonic() >= self._next_search:
            found = [*await self._left_behind(skip_users), *found]
            self._next_search = time.monotonic() + SEARCH
        return found

    async def _left_behind(self, skip_users: Sequence[str]) -> list[Due]:
        """List what processes of this machine ran that are gone: nobody need wait for their leases to end."""
        heads = await self.store.read(ListSessions(app=self.app, user=self.user, status="running", limit=SEARCHED))
        return [
            Due(session=head.session, app=head.app, why="lease", program=head.program, user=head.user)
            for head in heads
            if head.owner is not None
            and is_dead(head.owner)
            and head.program in ("", *self._runners)
            and head.user not in skip_users
        ]


def sources_of(runners: Iterable[Runner]) -> list[Source]:
    """Return the sources of these runners' sessions."""
    found: list[Source] = []
    for runner in runners:
        source = next((each for each in found if each.serves(runner)), None)
        if source is None:
            found.append(Source(runner))
        else:
            source.add(runner)
    return found


Key = tuple[int, str]
"""Names a session within a worker: the number of its source, and its id."""


class Ahead:
    """What a worker has found to be due and has no room for yet.

    A look costs as much as several steps of a run, and those that end leave room for one at a time.
    """

    def __init__(self, found: Iterable[tuple[Key, Due]] = ()) -> None:
        listed = list(found)
        random.shuffle(listed)
        self._found = dict(listed)
        self._listed = time.monotonic()
        self._misses = 0

    def __bool__(self) -> bool:
        return bool(self._found)

    def is_used_up(self, after: float = FRESH) -> bool:
        """Return whether it is time to look again: nothing is left, others are faster, or so many seconds are over."""
        return not self._found or self._misses >= _MISSES or time.monotonic() > self._listed + after

    def pop(self) -> tuple[Key, Due]:
        """Return one of them, if there are any."""
        return self._found.popitem()

    def drop(self, key: Key) -> None:
        """Leave a session out that somebody has just written: mostly another worker that has taken it up."""
        self._found.pop(key, None)

    def note_miss(self) -> None:
        """Take note that another worker was faster."""
        self._misses += 1


class SetAside:
    """Sessions that cannot go on here, and when to try each again: after pauses that grow."""

    def __init__(self, poll: float) -> None:
        self._poll = poll
        self._until: OrderedDict[Key, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._until)

    def __contains__(self, key: Key) -> bool:
        """Return whether a session is not to be tried now."""
        return key in self._until and self._until[key][0] > time.monotonic()

    def add(self, key: Key) -> bool:
        """Set a session aside for a while; return whether this is the first time."""
        is_first = key not in self._until
        pause = self._poll if is_first else min(2 * self._until[key][1], LONGEST * self._poll)
        # With some jitter, so that what was refused together is not tried together for ever.
        self._until[key] = (time.monotonic() + pause * random.uniform(0.75, 1.25), pause)
        self._until.move_to_end(key)
        if len(self._until) > REMEMBERED:
            self._until.popitem(last=False)
        return is_first

    def forget(self, key: Key) -> None:
        """Forget a session that could go on after all."""
        self._until.pop(key, None)


ASKING = 3.0
"""Seconds for a store to say whether it can be used."""


async def check_store(store: Store) -> None:
    """Refuse a store that cannot be used before a process serves or works from it; one that is away may come back."""
    asking = asyncio.create_task(store.read(ListDue(limit=1)))
    await asyncio.wait([asking], timeout=ASKING)
    if not asking.done():
        asking.cancel()
        return
    try:
        await asking
    except StoreUnavailable as error:
        if error.is_lasting:
            raise
