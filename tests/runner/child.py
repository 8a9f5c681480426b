"""A process that runs a graph on a file and stops in the middle of it: `python -m tests.runner.child FILE HOW`.

It prints a line when it stands in its second node, and its result or error at its end.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from adjourn.stores import SQLiteStore

from .programs import line, step


def stopping(how: str) -> Any:
    async def second(state: dict[str, Any]) -> dict[str, Any]:
        print("here", flush=True)  # noqa: T201  # the parent waits for it
        match how:
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "freeze":
                os.kill(os.getpid(), signal.SIGSTOP)
            case _:
                await asyncio.sleep(300)  # until it is ended, or its parent long gone
        return {"done": ["b"]}

    return second


async def main(path: str, how: str) -> None:
    ttl = {"die": 1000.0, "freeze": 1.0, "hold": 1000.0, "wait": 0.3}[how]
    nodes = [("a", step("a")), ("b", stopping(how)), ("c", step("c"))]
    graph = line(*nodes, store=SQLiteStore(path), lease_ttl=ttl)
    try:
        result = await graph.run({}, session_id="s")
        print(result.status, flush=True)  # noqa: T201
    except Exception as error:  # noqa: BLE001  # the parent looks at it
        print(type(error).__name__, flush=True)  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
