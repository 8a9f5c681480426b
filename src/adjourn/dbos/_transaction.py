"""Answering or submitting, and delivering the session, in one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from adjourn.errors import UsageError
from adjourn.runner import Runner, Submission
from adjourn.sessions import Answers, SessionSummary
from adjourn.sessions._sync import sync_twin
from adjourn.stores import EncryptedStore, PostgresStore, SessionRef, Store
from adjourn.stores.kit import GetHead

from ._deliveries import Deliveries, Delivery

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection

    from adjourn.stores.postgres._store import TransactionStore


class Transaction:
    """Answers and submits in a transaction of its user, and delivers the session in the same one: see `DBOSQueue.on`.

    If the transaction is rolled back, nothing was answered, submitted or delivered.
    """

    def __init__(self, deliveries: Deliveries, connection: Connection | AsyncConnection, runner: Runner) -> None:
        self._deliveries = deliveries
        self._connection = connection
        self._runner = runner
        self._joined: list[TransactionStore] = []

    async def answer(
        self,
        session_id: str,
        answers: Answers = None,
        *,
        by: str | None = None,
        message: str | None = None,
        checkpoint_id: str | None = None,
        user_id: str | None = None,
        **delivery: Unpack[Delivery],
    ) -> SessionSummary:
        """Record answers as `Sessions.answer` does, and deliver the session."""
        runner = await self._joined_runner()
        summary = await runner.answer(
            session_id, answers, by=by, message=message, checkpoint_id=checkpoint_id, user_id=user_id
        )
        await self._deliver(runner, session_id, delivery)
        return summary

    async def submit(
        self, input: Any = None, *, session_id: str | None = None, delivery: Delivery | None = None, **options: Any
    ) -> Submission:
        """Store the input of a turn as `Runner.submit` does, with its options, and deliver the session."""
        runner = await self._joined_runner()
        submitted = await runner.submit(input, session_id=session_id, **options)
        await self._deliver(runner, submitted.session_id, delivery or Delivery())
        return submitted

    def notify(self) -> None:
        """Let those who run or follow the sessions know at once; call it after the commit."""
        for store in self._joined:
            store.notify()

    @sync_twin(answer)
    def answer_sync(self) -> None:
        """Do what `answer` does, from sync code."""

    @sync_twin(submit)
    def submit_sync(self) -> None:
        """Do what `submit` does, from sync code."""

    async def _joined_runner(self) -> Runner:
        """Return the runner with its store on this transaction's connection."""
        await self._deliveries.prepare(self._runner)
        store = self._on(self._runner.store, await self._driver_connection())
        runner = Runner(self._runner.program, **{**self._runner.options, "store": store})
        return runner if self._runner.user_id is None else runner.for_user(self._runner.user_id)

    def _on(self, store: Store, connection: Any) -> Store:
        if isinstance(store, EncryptedStore):
            return store.over(self._on(store.inner, connection))
        if not isinstance(store, PostgresStore):
            raise UsageError(f"{store!r} has no transactions that others can join. Use a PostgresStore.")
        joined = store.on(connection)
        self._joined.append(joined)
        return joined

    async def _driver_connection(self) -> Any:
        import psycopg  # noqa: PLC0415 - an extra
        from sqlalchemy.ext.asyncio import AsyncConnection  # noqa: PLC0415 - an extra

        given = self._connection
        pooled = await given.get_raw_connection() if isinstance(given, AsyncConnection) else given.connection
        driver: Any = pooled.driver_connection
        if not isinstance(driver, psycopg.Connection | psycopg.AsyncConnection):
            raise UsageError(
                f"The driver of the connection is {type(driver).__module__}. Create its engine with psycopg: "
                "create_engine('postgresql+psycopg://...')."
            )
        if driver.autocommit:
            raise UsageError("The connection commits every statement by itself. Use one without AUTOCOMMIT.")
        return driver  # pyright: ignore[reportUnknownVariableType]  # of whatever rows

    async def _deliver(self, runner: Runner, session_id: str, delivery: Delivery) -> None:
        from sqlalchemy.ext.asyncio import AsyncConnection  # noqa: PLC0415 - an extra

        # The transaction has just written the session's row, so nobody moves the head before it ends.
        head = await runner.store.read(GetHead(SessionRef(session_id, runner.app_name)))
        assert head is not None
        if isinstance(self._connection, AsyncConnection):
            await self._connection.run_sync(self._deliveries.add_on, head, delivery)
        else:
            self._deliveries.add_on(self._connection, head, delivery)
