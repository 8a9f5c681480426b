"""What the scripts of all sides have in common: a workload's name and size come in, an `Outcome` goes out."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass

REQUEST = "Refund order 4711, 129.90 EUR"  # what the runs that ask a question carry

Work = Callable[..., Awaitable["Outcome"]]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One repetition of a workload on one side.

    `result` is what the work came to; the runner refuses the figures of a side whose result differs from the floor's.
    """

    figures: dict[str, float]
    result: object = None
    note: str = ""


def main(works: Mapping[str, Work]) -> None:
    """Do the work that the command line names and print its outcome as the last line."""
    name, size = sys.argv[1], json.loads(sys.argv[2])
    outcome = asyncio.run(_started(works[name], size))
    print(json.dumps(asdict(outcome)))


async def _started(work: Work, size: dict[str, int]) -> Outcome:
    return await work(**size)
