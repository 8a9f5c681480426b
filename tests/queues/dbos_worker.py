"""A process that runs the sessions of `test_dbos` for DBOS: `python -m tests.queues.dbos_worker URL FOLDER`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

from dbos import DBOS

from adjourn import Runner, current, interrupt, once, workflow
from adjourn.dbos import DBOSQueue
from adjourn.stores import PostgresStore


def runner_on(url: str, folder: Path) -> Runner:
    """A runner whose turn asks, and then does something that takes until the folder has a file `go`."""

    @once
    async def pay(amount: int) -> int:
        with (folder / "ledger").open("a") as ledger:
            ledger.write(f"begin {current().idempotency_key} {os.getpid()}\n")
            ledger.flush()
            while not (folder / "go").exists():  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.02)
            ledger.write(f"end {current().idempotency_key} {os.getpid()}\n")
        return amount

    @workflow(name="order")
    async def order(item: str) -> str:
        amount = interrupt(f"How much for {item}?", key="amount", schema=int)
        return f"{item}: {await pay(amount)}"

    return Runner(order, store=PostgresStore(url))


def queue_of(runner: Runner, url: str) -> DBOSQueue:
    """The queue of the test, which is looked after more often than usual."""
    return DBOSQueue(runner, url, poll=0.3, orphaned_after=2.0)


async def serve(url: str, folder: Path) -> None:
    """Run sessions until the process is told to end."""
    queue = queue_of(runner_on(url, folder), url)
    DBOS(config=queue.config(log_level="ERROR"))
    queue.register()
    DBOS.launch()
    await DBOS.register_queue_async(queue.name, worker_concurrency=4, polling_interval_sec=0.2)
    serving = asyncio.create_task(queue.serve())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await serving
    DBOS.destroy(workflow_completion_timeout_sec=10)
    queue.close()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], Path(sys.argv[2])))
