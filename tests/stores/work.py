"""What the child processes of the tests do: `python -m tests.stores.work <what> <path> ...`."""

import asyncio
import sys

from adjourn.errors import AlreadyResumed
from adjourn.stores import Answer, SessionRef, SQLiteStore
from adjourn.stores.kit import GetHead, GiveAnswers
from adjourn.testing.suite.bench import Drive


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def write(path: str, sessions: str) -> None:
    """Write until killed, and say what was acknowledged."""
    store = SQLiteStore(path)

    async def drive(name: str) -> None:
        run = Drive(store, name, owner=f"{name}'s")
        head = await store.read(GetHead(SessionRef(name)))
        if head is None:
            await run.start()
        else:
            run.branch, run.number, run.at = head.branch, int(head.checkpoint.rpartition(".")[2]), head.checkpoint
            await run.claim(replaces=run.owner)
        while True:
            say(f"{name} {run.number}")
            await run.commit(run.next(full=run.number % 50 == 0))

    await asyncio.gather(*(drive(f"s{n}") for n in range(int(sessions))))


async def answer(path: str, name: str) -> None:
    """Answer each question that a line of the input names, and say who won."""
    store = SQLiteStore(path)
    await store.read(GetHead(SessionRef("s")))
    say("ready")
    for line in sys.stdin:
        asked = line.strip()
        try:
            await store.write(
                GiveAnswers(ref=SessionRef("s"), answers=[Answer(id=asked, value=name.encode(), by=name)])
            )
        except AlreadyResumed as error:
            say(f"lost to {error.by}")
        else:
            say(f"won {name}")
    await store.close()


if __name__ == "__main__":
    asyncio.run({"write": write, "answer": answer}[sys.argv[1]](*sys.argv[2:]))
