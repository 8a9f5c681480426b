"""The twin: the same plan, run on the real engine and interrupted in every way that a session must survive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Literal

from adjourn import Interrupt, RunError, Runner, RunResult
from adjourn._engine.address import is_under
from adjourn.errors import RetryExhausted, StoreUnavailable, WriteConflict
from adjourn.runner import Run
from adjourn.stores import SessionRef, Store
from adjourn.stores.kit import GetHead
from adjourn.stores.types import Head, Lease, Renewed
from adjourn.testing import FakeClock, FaultStore

from .building import Trouble, World
from .strategies import Dice

STAGES = 300
"""Runs after which a session should long have ended."""

TROUBLED = 6
"""Runs that may be cancelled or crash; after them only questions and failures of the plan's own stop a run."""

TTL = 0.3
Durability = Literal["step", "async", "pause"]


class _Dying(FaultStore):
    """A store as a process that is about to die sees it: after the fault it does not renew its leases, either."""

    async def renew(self, leases: Sequence[Lease]) -> list[Renewed]:
        if self.fired:
            raise StoreUnavailable("faults", "the process is dead")
        return await super().renew(leases)


class Twin:
    """Takes one session from its input to its end, in many runs of what `build` builds on a store."""

    def __init__(
        self,
        build: Callable[..., Runner],
        answer: Callable[[Interrupt], Any],
        world: World,
        session: str,
        store: Store,
        clock: FakeClock,
        durability: Durability,
    ) -> None:
        self.build = build
        self.answer = answer
        self.session = session
        self.store = store
        self.clock = clock
        self.durability: Durability = durability
        self.world = world
        self.result: RunResult | None = None
        self.conflict: str | None = None
        self.stages = 0
        self.crashed = False
        self.is_calm = False
        self.exempt: set[str] = set()
        self.graph = self.built(store)

    def built(self, store: Store) -> Runner:
        """The program as another process would build it."""
        return self.build(store=store, durability=self.durability, clock=self.clock, lease_ttl=TTL)

    async def with_trouble(self, given: Any, dice: Dice) -> Twin:
        """Take one turn to its end through cancels, crashes, failures and answers in any groups and order."""
        self.result, self.stages, self.is_calm = None, 0, False
        answered: list[Interrupt] = []
        before = await self.store.read(GetHead(SessionRef(self.session)))

        def begin(graph: Runner) -> Run:
            return graph.run(given, session_id=self.session, deps=self.world)

        run: Callable[[Runner], Run] = begin
        while not await self.watched(run, answered, dice):
            self.stages += 1
            assert self.stages < STAGES, "it does not come to an end"
            if dice.roll(2) or self.crashed:
                self.graph = self.built(self.store)
            if await self.is_at(before):
                continue  # It died before its input was stored, which has to be given again.
            asked = await self.graph.pending(self.session)
            answered = dice.some(asked) if asked else []
            if len(answered) > 1 and dice.roll(3) == 0:
                await self.answer_apart(answered)
                answered, self.is_calm = [], False
            run = self.next(answered)
        return self

    async def is_at(self, before: Head | None) -> bool:
        head = await self.store.read(GetHead(SessionRef(self.session)))
        return head == before or (head is not None and before is not None and head.checkpoint == before.checkpoint)

    async def watched(self, run: Callable[[Runner], Run], answered: list[Interrupt], dice: Dice) -> bool:
        """One stage; what waits for other questions than those answered must not be entered in it."""
        so_far, was_calm = len(self.world.entered), self.is_calm
        before = {key for _, key in self.world.entered}
        ended = await self.stage(run, dice)
        if was_calm:
            for address, key in self.world.entered[so_far:]:
                woken = any(is_under(asked.address, address) for asked in answered)
                assert woken or key not in before, f"{address} was entered, though nothing in it was answered"
        return ended

    def next(self, answered: list[Interrupt]) -> Callable[[Runner], Run]:
        return lambda graph: self.going_on(graph, answered)

    def going_on(self, graph: Runner, answered: list[Interrupt]) -> Run:
        if not answered:
            return graph.recover(self.session, deps=self.world)
        answers = {asked.id: self.answer(asked) for asked in answered}
        return graph.resume(self.session, answers, deps=self.world, by="twin")

    async def answer_apart(self, answered: list[Interrupt]) -> None:
        """Answer several questions at once, each by somebody else on a graph of their own."""
        runs = [self.going_on(self.built(self.store), [asked]) for asked in answered]
        for outcome in await asyncio.gather(*runs, return_exceptions=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, Trouble | RunError):
                raise outcome

    async def stage(self, run: Callable[[Runner], Run], dice: Dice) -> bool:
        """One run, with or without trouble; True when the session has come to its end."""
        trouble = dice.roll(4) if self.stages < TROUBLED else 0
        self.crashed = self.is_calm = False
        if trouble == 1:
            return await self.cancelled(run(self.graph), dice)
        if trouble == 2:
            return await self.broken(run, dice)
        return await self.ended(run(self.graph))

    async def cancelled(self, run: Run, dice: Dice) -> bool:
        """Cancel a run after some ticks of its world."""
        loop, at, mode = asyncio.get_running_loop(), self.world.ticks + 1 + dice.roll(6), dice.roll(3)
        reached, before = asyncio.Event(), set(self.world.left)

        def on_tick(ticks: int) -> None:
            if ticks == at:
                loop.call_soon_threadsafe(reached.set)

        self.world.on_tick = on_tick
        ending = asyncio.ensure_future(self.ended(run))
        waiting = asyncio.ensure_future(reached.wait())
        await asyncio.wait([ending, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not ending.done():
            # Whatever is inside user code now may run again; all that has left it may not, except in a thread whose
            # result has not come back yet.
            self.exempt |= self.world.inside | (self.world.in_threads & (set(self.world.left) - before))
            await run.cancel("now" if mode else "after_step")
        self.world.on_tick = lambda _: None
        return await ending

    async def broken(self, run: Callable[[Runner], Run], dice: Dice) -> bool:
        """Lose the store at some write, as a process that dies does, and let the lease run out."""
        faults = _Dying(self.store, 1 + dice.roll(8), "after" if dice.roll(2) else "before", times=None)
        try:
            ended = await self.ended(run(self.built(faults)))
        except StoreUnavailable:
            ended = False
        if faults.fired and not ended:
            self.crashed = True
            self.exempt |= set(self.world.left) | self.world.inside
            self.clock.advance(TTL + 1)
        return ended

    async def ended(self, run: Run) -> bool:
        """Await a run and tell whether its session is at its end."""
        try:
            result = await run
        except (Trouble, RetryExhausted):
            return False
        except WriteConflict as conflict:
            self.conflict = conflict.field
            return not await self.graph.pending(self.session)
        self.is_calm = result.status == "interrupted"
        if result.status == "done":
            self.result = result
        return result.status == "done"
