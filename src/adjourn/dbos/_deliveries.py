"""Deliveries: the rows of DBOS that say which session somebody should go on with."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from adjourn.errors import UsageError
from adjourn.sessions import Sessions
from adjourn.stores import Head
from adjourn.stores.kit import ListSessions

if TYPE_CHECKING:
    from dbos import DBOSClient, EnqueueOptions, WorkflowSerializationFormat, WorkflowStatus
    from sqlalchemy import Connection

BATCH = 1000
"""How many rows one look takes."""

UNDER_WAY = ["ENQUEUED", "DELAYED", "PENDING"]
ENDED = ["SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"]


class Delivery(TypedDict, total=False):
    """How DBOS is to deliver a session: options of its queues."""

    priority: int
    delay_seconds: float
    queue_partition_key: str
    attributes: dict[str, Any]


class Deliveries:
    """The deliveries of one queue, through DBOS's client."""

    def __init__(
        self, url: str, queue: str, application: str, how: Callable[[Head], Delivery] | None, workflow: str
    ) -> None:
        self.client: DBOSClient = _client(url, application)
        self._queue = queue
        self._how = how
        self._workflow = workflow
        self._is_prepared = False

    async def prepare(self, sessions: Sessions) -> None:
        """Let the store create its tables, if need be: in a transaction of somebody else it cannot."""
        if not self._is_prepared:
            await sessions.store.read(ListSessions(app=sessions.app_name, limit=1))
            self._is_prepared = True

    # Making them

    async def add(self, head: Head, number: int = 1, delivery: Delivery | None = None) -> None:
        """Deliver a session as it stands, for the `number`th time; a delivery that is there already is enough."""
        await self.client.enqueue_async(self._options(head, number, delivery), head.app, head.session)

    def add_on(self, connection: Connection, head: Head, delivery: Delivery) -> None:
        """Do the same in a transaction of somebody else."""
        self.client.enqueue_in_transaction(connection, self._options(head, 1, delivery), head.app, head.session)

    def _options(self, head: Head, number: int, delivery: Delivery | None) -> EnqueueOptions:
        usual = Delivery() if self._how is None else self._how(head)
        return {
            "workflow_name": self._workflow,
            "queue_name": self._queue,
            "workflow_id": workflow_id(head, number),
            "serialization_type": portable(),
            **usual,
            **(delivery or Delivery()),
        }

    # Looking after them

    async def ended(self, ids: Sequence[str]) -> set[str]:
        """Return which of these deliveries nobody has before them any more."""
        if not ids:
            return set()
        rows = await self.client.list_workflows_async(
            workflow_ids=list(ids), status=UNDER_WAY, load_input=False, load_output=False
        )
        return set(ids) - {row.workflow_id for row in rows}

    async def begun(self, seconds: float) -> list[WorkflowStatus]:
        """List the deliveries that an executor took so long ago, or earlier, and that have not ended."""
        return await self.client.list_workflows_async(
            name=self._workflow,
            queue_name=self._queue,
            status="PENDING",
            dequeued_before=_ago(seconds),
            load_output=False,
            limit=BATCH,
        )

    async def cancel(self, ids: Sequence[str]) -> None:
        """Cancel deliveries."""
        if ids:
            await self.client.cancel_workflows_async(list(ids))

    async def delete_ended(self, seconds: float) -> int:
        """Delete deliveries that ended so long ago, or earlier; return how many."""
        rows = await self.client.list_workflows_async(
            name=self._workflow,
            queue_name=self._queue,
            status=ENDED,
            completed_before=_ago(seconds),
            load_input=False,
            load_output=False,
            limit=BATCH,
        )
        if rows:
            await self.client.delete_workflows_async([row.workflow_id for row in rows])
        return len(rows)


def workflow_id(head: Head, number: int) -> str:
    """Return the id of the `number`th delivery of a session that stands like this: equal deliveries are one row."""
    place = msgspec.json.encode((head.app, head.session, head.checkpoint, head.fence, head.claims))
    return f"adjourn-{hashlib.blake2b(place, digest_size=12).hexdigest()}-{number}"


def portable() -> WorkflowSerializationFormat:
    """Return the format of arguments and results: JSON. DBOS would pickle them."""
    from dbos import WorkflowSerializationFormat  # noqa: PLC0415 - an extra

    return WorkflowSerializationFormat.PORTABLE


def _client(url: str, application: str) -> DBOSClient:
    try:
        from dbos import DBOSClient, DBOSPortableJSONSerializer  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UsageError(
            f"DBOSQueue needs DBOS, which cannot be imported ({error}). Run: pip install 'adjourn[dbos]'."
        ) from None
    return DBOSClient(
        system_database_url=url,
        serializer=DBOSPortableJSONSerializer(),
        application_name=application,
        lazy=True,
        retry_connection_errors=False,
    )


def _ago(seconds: float) -> str:
    return datetime.fromtimestamp(time.time() - seconds, UTC).isoformat()
