"""What somebody does first after `pip install adjourn`: ask, stop, and go on from the file."""

import sys
from pathlib import Path

import adjourn
from adjourn import Runner, interrupt, once, workflow

charged: list[int] = []


@once
def charge(cents: int) -> str:
    charged.append(cents)
    return f"charged {cents}"


@workflow
async def order(cents: int) -> str:
    receipt = charge(cents)
    return f"{receipt}, {interrupt('Ship it?', key='ship', schema=str)}"


assert Path(adjourn.__file__).is_relative_to(sys.prefix), f"{adjourn.__file__} is not the installed one"
asked = Runner(order, store="sqlite:///orders.db").run_sync(5, session_id="s")
assert asked.status == "interrupted", asked
done = Runner(order, store="sqlite:///orders.db").resume_sync("s", {"ship": "yes"})
assert (done.status, done.output) == ("done", "charged 5, yes"), done
assert charged == [5]
