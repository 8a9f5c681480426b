"""One soak: a store, a crew, chaos for some time, then peace, in which everything must come to its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec

from adjourn import Runner
from adjourn.errors import AdjournError, CheckpointNotFound
from adjourn.stores import open_store
from tests.proof.places import Kind

from .chaos import Backend, Crew, backend
from .history import History, check_forks, histories, receipts_in
from .programs import runners

PATIENCE = 90.0
"""Seconds after the last fault within which every session must have come to its end (I8)."""

LOSSES = ("is lost", "is gone", "I2 ", "I3 ", "I4 ", "I5 ", "T6", "C8 ", "is not what was written")
"""What may follow from an acknowledged write that is gone: its record, or what was decided and done because of it."""

Report = Callable[[str], None]


class Outcome(msgspec.Struct, kw_only=True):
    """What a soak came to."""

    kind: Kind
    tally: Counter[str]
    violations: list[str]
    losses: list[str] = []


def soak(
    kind: Kind,
    folder: Path,
    *,
    seed: int,
    seconds: float,
    report: Report,
    workers: int = 3,
    promotes: bool = False,
) -> Outcome:
    """Run a soak in an empty folder.

    With `promotes`, a replica of Redis is promoted now and then. It follows its server without being waited for, so
    what was acknowledged right before may be gone: that is a loss, and not a violation.
    """
    chance = random.Random(seed)
    outcome = Outcome(kind=kind, tally=Counter(), violations=[])
    for name in ("ledgers", "receipts", "logs", "faults", "ready"):
        (folder / name).mkdir(parents=True)
    os.environ["ADJOURN_TORTURE"] = str(folder)
    with backend(kind, folder, outcome.tally, promotes=promotes) as store:
        crew = Crew(store.url, folder, chance, outcome.tally)
        try:
            for role in ["person"] * 3 + ["worker"] * workers:
                crew.add(role)
            _wait_for_work(folder, crew)
            _break_things(store, crew, chance, seconds, lambda: report(_line(kind, folder, outcome.tally)))
            (folder / "enough").touch()
            crew.are_stores_sound = True
            crew.replace_all()
            asyncio.run(_settle(store, folder, outcome, crew))
        finally:
            crew.end()
        outcome.violations += crew.mishaps
        asyncio.run(_check(store, folder, outcome))
    if promotes:
        outcome.losses = [each for each in outcome.violations if any(kind in each for kind in LOSSES)]
        outcome.violations = [each for each in outcome.violations if each not in outcome.losses]
    outcome.tally["losses"] = len(outcome.losses)
    outcome.tally["violations"] = len(outcome.violations)
    report(_line(kind, folder, outcome.tally))
    return outcome


def _break_things(
    store: Backend, crew: Crew, chance: random.Random, seconds: float, progress: Callable[[], None]
) -> None:
    """Do one thing after the other to the crew and to its store: all of them, in an order that is new each time."""
    ends = time.monotonic() + seconds
    reported = time.monotonic()
    order = [crew.kill_one]
    while True:
        if not order:
            order = [crew.kill_one] * 3 + [crew.freeze_one] * 2 + [crew.stop_worker, *store.breaks]
            chance.shuffle(order)
        order.pop()()
        if time.monotonic() >= ends:
            return
        pause = time.monotonic() + chance.uniform(0.2, 1.2)
        while time.monotonic() < pause:
            crew.look_after()
            time.sleep(0.05)
        if time.monotonic() > reported + 5:
            reported = time.monotonic()
            progress()


def _wait_for_work(folder: Path, crew: Crew) -> None:
    """Wait until some sessions have begun."""
    patient_until = time.monotonic() + PATIENCE
    while sum(1 for _ in (folder / "ledgers").iterdir()) < 5 and time.monotonic() < patient_until:
        crew.look_after()
        time.sleep(0.05)


async def _settle(store: Backend, folder: Path, outcome: Outcome, crew: Crew) -> None:
    """Wait until every session is done; what workers leave as failed is taken up by hand, as its owner would."""
    opened = open_store(store.url)
    by_app = runners(opened)
    left = {(receipt.app, receipt.session) for receipt in receipts_in(folder)}
    began = time.monotonic()
    while left and time.monotonic() < began + PATIENCE:
        crew.look_after()
        for app, session in sorted(left):
            status = await _status(by_app[app], session)
            if status == "failed" and time.monotonic() > began + PATIENCE / 2:
                outcome.tally["taken up by hand"] += 1
                with contextlib.suppress(AdjournError):
                    await by_app[app].recover(session)
            if status == "done":
                left.discard((app, session))
        await asyncio.sleep(0.1)
    outcome.violations += [f"I8 {app}/{session} does not come to an end" for app, session in sorted(left)]
    await opened.close()


async def _status(runner: Runner, session: str) -> str:
    try:
        return (await runner.status(session)).status
    except CheckpointNotFound:
        return "done"  # It never began; whether that is right, the checker says.


async def _check(store: Backend, folder: Path, outcome: Outcome) -> None:
    opened = open_store(store.url)
    done: list[History] = []
    for history in histories(folder, opened):
        try:
            found = [each async for each in history.violations()]
        except CheckpointNotFound:
            found = [f"I1 {history.session} is gone"] if history.was_promised else []
        else:
            done.append(history)
        outcome.violations += found
    by_app = runners(opened)
    for history in done[:5]:
        outcome.violations += await check_forks(opened, by_app[history.app], history.session)
    receipts = Counter(receipt.outcome for receipt in receipts_in(folder) if receipt.question)
    outcome.tally["runs"] = len(done)
    outcome.tally["faults"] = sum(1 for _ in (folder / "faults").iterdir())
    outcome.tally["extra attempts"] = sum(history.extra_attempts() for history in done)
    outcome.tally["takeovers"] = sum(history.takeovers() for history in done)
    outcome.tally["answers"] = receipts["accepted"]
    outcome.tally["races lost"] = receipts["refused"]
    await opened.close()


def _line(kind: Kind, folder: Path, tally: Counter[str]) -> str:
    begun = sum(1 for _ in (folder / "ledgers").iterdir())
    counted = ", ".join(f"{count} {name}" for name, count in sorted(tally.items()) if count)
    return f"{kind}: {begun} sessions begun; {counted}"
