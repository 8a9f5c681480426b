"""`python -m tests.torture`: soak every store under fire, and print what happened; 1 if something did not hold."""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.proof.places import KINDS
from tests.servers import MissingServer

from .soak import Outcome, soak

FAILOVER = "redis-failover"
STORES = [*KINDS, FAILOVER]
COLUMNS = (
    *("runs", "answers", "races lost", "kills", "freezes", "stops", "takeovers"),
    *("restarts", "promotions", "connections cut", "disks filled", "faults", "extra attempts", "losses", "violations"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Soak the stores that are named one after the other."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0, help="for all stores together; 20 by default")
    parser.add_argument("--stores", nargs="+", choices=STORES, default=STORES, help="all by default")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _leave)
    folder = Path(tempfile.mkdtemp(prefix="adjourn-torture-"))
    _say(f"seed {given.seed}, {given.minutes:g} minutes, in {folder}")
    outcomes: dict[str, Outcome] = {}
    # Half a minute of each store's time goes to coming to an end and to the checks.
    seconds = max(5.0, given.minutes * 60 / len(given.stores) - 30)
    for name in given.stores:
        kind = "redis" if name == FAILOVER else name
        try:
            found = soak(kind, folder / name, seed=given.seed, seconds=seconds, report=_say, promotes=name == FAILOVER)
        except MissingServer as missing:
            _say(f"{name}: {missing}")
        else:
            outcomes[name] = found
    _say(table(outcomes))
    for name, outcome in outcomes.items():
        for loss in outcome.losses:
            _say(f"{name}: lost with the server, as documented: {loss}")
    violations = [f"{name}: {each}" for name, outcome in outcomes.items() for each in outcome.violations]
    if violations:
        _say("\n".join([*violations, f"seed {given.seed}; everything is kept in {folder}"]))
        return 1
    shutil.rmtree(folder)
    return 0


def table(outcomes: Mapping[str, Outcome]) -> str:
    """Return the counts of all soaks, a row for each kind of count."""
    rows = [["", *outcomes]]
    rows += [[name, *(str(outcome.tally[name]) for outcome in outcomes.values())] for name in COLUMNS]
    return "\n".join("  ".join([row[0].ljust(16), *(cell.rjust(14) for cell in row[1:])]) for row in rows)


def _leave(number: int, frame: object) -> None:
    """Leave the soak as Ctrl-C does, so that its processes, servers and mounts go."""
    sys.exit(128 + number)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
