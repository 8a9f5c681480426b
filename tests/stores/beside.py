"""A process that answers a question, marks another and submits inputs, beside the owner of the session."""

import asyncio
import sys

from adjourn.stores import Answer, Input, open_store
from adjourn.stores.kit import Cancel, GiveAnswers, Mark, Submit, Withdraw
from adjourn.stores.types import Note
from adjourn.testing.suite.bench import S


async def main(url: str, name: str) -> None:
    """Write again and again, each time something else."""
    store = open_store(url)
    for number in range(10):
        await store.write(Mark(ref=S, id="marked", taker=name, note=Note(kind="seen", name=f"{name}.{number}")))
        await store.write(Submit(S, Input(id=f"{name}.{number}", body=b"{}")))
        if number % 2:
            await store.write(Withdraw(S, f"{name}.{number}"))
    await store.write(GiveAnswers(S, [Answer(id=name, value=b"true")]))
    await store.write(Cancel(S, "after_step"))
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
