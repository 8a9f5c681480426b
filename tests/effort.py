"""How much the tests try, by `ADJOURN_TESTS`: little by default, much in a `proof`, all that there is in a `long` one.

It decides the number of examples of every property, and how much of a sweep over kills and races is made. `make test`
takes the first, `make proof` the second, which CI waits for, and `make proof EFFORT=long` a night.
"""

import os
from collections.abc import Sequence
from typing import Literal, TypeVar, get_args

from hypothesis import settings

T = TypeVar("T")
Effort = Literal["default", "proof", "long"]
EXAMPLES: dict[Effort, int] = {"default": 20, "proof": 100, "long": 1000}


def _effort() -> Effort:
    named = os.environ.get("ADJOURN_TESTS", "default")
    for effort in get_args(Effort):
        if named == effort:
            return effort
    raise ValueError(f"ADJOURN_TESTS={named} is unknown. Use one of: {', '.join(get_args(Effort))}.")


EFFORT = _effort()


def load_profile() -> None:
    """Set the number of examples; `ADJOURN_EXAMPLES` is for those who look for trouble by hand.

    There are no deadlines: an example's time says more about the machine than about the code, and pytest-timeout ends
    what hangs. In CI the examples are the same every time, so that a red run is the change's doing and can be repeated
    at will; at the desk they are new every time, and that is where new counterexamples are found.
    """
    is_ci = bool(os.environ.get("CI"))
    for effort, examples in EXAMPLES.items():
        most = int(os.environ.get("ADJOURN_EXAMPLES") or examples)
        settings.register_profile(effort, max_examples=most, deadline=None, derandomize=is_ci, print_blob=is_ci)
    settings.load_profile(EFFORT)


def amount(*, default: int, proof: int, long: int) -> int:
    """Return how many of something to try."""
    return {"default": default, "proof": proof, "long": long}[EFFORT]


def some(cases: Sequence[T], default: int) -> Sequence[T]:
    """Return all cases in a proof, else the first ones: order them by what they tell."""
    return cases[: amount(default=default, proof=len(cases), long=len(cases))]
