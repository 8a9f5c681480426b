"""DBOSQueue: a queue of DBOS that carries runs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, Unpack

from adjourn._checks import is_positive
from adjourn._hiding import logger
from adjourn._owner import process_id
from adjourn._text import visible_line
from adjourn.errors import CheckpointNotFound, Conflict, SessionBusy, UnfinishedRun, UsageError, describe
from adjourn.runner import Run, Runner
from adjourn.runner._due import Source, sources_of
from adjourn.stores import Head, SessionRef, Store
from adjourn.stores.kit import GetHead

from ._deliveries import Deliveries, Delivery, portable
from ._sweeping import Sweeper, Swept
from ._transaction import Transaction

if TYPE_CHECKING:
    from dbos import DBOSClient, DBOSConfig
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection

log = logger("adjourn.dbos")

VERSION = "adjourn"
"""The version that all executors have: whether code can go on with a session is decided for each session."""

Receipt = Literal["done", "waiting", "failed", "cancelled", "handed over", "busy", "not due", "left alone"]
"""What DBOS is told about a delivery; the session's log knows more."""


class DBOSQueue:
    """A queue of DBOS that carries the runs of some runners.

    Processes that run sessions call `register` before `DBOS.launch()`, and then `serve`. Any process may deliver
    sessions: in a transaction (`on`), or by name (`enqueue`). What nobody delivered, `serve` finds.
    """

    def __init__(
        self,
        runners: Runner | Iterable[Runner],
        url: str,
        *,
        name: str = "adjourn",
        application: str = "adjourn",
        delivery: Callable[[Head], Delivery] | None = None,
        poll: float = 1.0,
        orphaned_after: float = 60.0,
        keep: float = 86_400.0,
    ) -> None:
        """Use the queue `name` in the database at `url`, which the runners' sessions are in as well.

        runners: whose sessions to run, all in one store; those of the same app must run different programs.
        application: the name of the DBOS application; processes of one share its queues.
        delivery: a function of a session's head that returns how to deliver it, such as its priority.
        poll: seconds between looks at what is due, about.
        orphaned_after: seconds after which a row whose executor does not run the session is cancelled.
        keep: seconds for which rows of deliveries that have ended are kept.

        Raises:
            UsageError: DBOS is not installed, there are no runners, they have different stores, or an option is wrong.
        """
        for option, value in (("poll", poll), ("orphaned_after", orphaned_after), ("keep", keep)):
            if not is_positive(value):
                raise UsageError(f"DBOSQueue({option}={value!r}): give a number of seconds above zero.")
        self.runners: tuple[Runner, ...] = _checked(runners)
        self.store: Store = self.runners[0].store
        self.name: str = name
        self.application: str = application
        self.poll: float = poll
        self.orphaned_after: float = orphaned_after
        self.keep: float = keep
        self._url = url
        self._sources = {source.app: source for source in sources_of(self.runners)}
        self._deliveries = Deliveries(url, name, application, delivery, self.workflow)
        self._sweeper = Sweeper(self._deliveries, self.store, self._sources.values(), poll)
        self._runs: dict[Run, asyncio.AbstractEventLoop] = {}
        self._is_stopping = False

    @property
    def workflow(self) -> str:
        """The name of its workflow, as DBOS shows it."""
        return f"adjourn.{self.name}"

    @property
    def client(self) -> DBOSClient:
        """DBOS's client that it uses, to list, hold up or cancel deliveries with."""
        return self._deliveries.client

    def config(self, **more: Any) -> DBOSConfig:
        """Return a configuration for `DBOS(config=...)` that fits; `more` are other options of DBOS.

        Arguments and results are stored as JSON, never pickled, and each process is an executor of its own.
        """
        from dbos import DBOSPortableJSONSerializer  # noqa: PLC0415 - an extra

        fitting: DBOSConfig = {
            "name": self.application,
            "system_database_url": self._url,
            "application_version": VERSION,
            "executor_id": process_id(),
            "serializer": DBOSPortableJSONSerializer(),
        }
        return {**fitting, **more}  # pyright: ignore[reportReturnType]  # DBOS checks its own options

    def close(self) -> None:
        """Close the connections of this queue to DBOS's database."""
        self.client.destroy()

    # Delivering

    def on(self, connection: Connection | AsyncConnection, runner: Runner | None = None) -> Transaction:
        """Return what answers and submits in a transaction of yours, and delivers the session in the same one.

        connection: SQLAlchemy's, sync or async, to the database of this queue, with psycopg as its driver.
        runner: whose session it is; it can be left out if there is one runner.
        """
        first, *others = self.runners
        if runner is None and others:
            raise UsageError("This queue has several runners. Say whose session it is: on(connection, runner).")
        if runner is not None and runner.store is not self.store:
            raise UsageError("The runner has another store than this queue, whose workers would not find its sessions.")
        return Transaction(self._deliveries, connection, runner or first)

    async def enqueue(self, session_id: str, *, app_name: str | None = None, **delivery: Unpack[Delivery]) -> None:
        """Deliver a session, so that what is due in it is done. Delivering it twice does no harm.

        Raises:
            CheckpointNotFound: there is no such session.
        """
        app = self.runners[0].app_name if app_name is None else app_name
        head = await self.store.read(GetHead(SessionRef(session_id, app)))
        if head is None:
            raise CheckpointNotFound(session_id)
        await self._deliveries.add(head, delivery=delivery)

    # Running

    def register(self) -> None:
        """Register the workflow that runs sessions. Call it before `DBOS.launch()`, in processes that run them."""
        from dbos import DBOS  # noqa: PLC0415 - an extra

        async def advance(app: str, session: str) -> str:
            return await self._advance(app, session)

        DBOS.workflow(name=self.workflow, serialization_type=portable())(advance)

    async def _advance(self, app: str, session: str) -> Receipt:
        if self._is_stopping:
            return "handed over"  # It is still due, and others deliver it again.
        source = self._sources.get(app)
        if source is None:
            return _left_alone(session, f"no runner here is of the app {visible_line(app)}")
        head = await self.store.read(GetHead(SessionRef(session, app)))
        return "not due" if head is None else await self._begin(source, head)

    async def _begin(self, source: Source, head: Head) -> Receipt:
        refusal = f"no runner here runs {visible_line(head.program)}"
        for runner in source.runners_for(head.program):
            run = runner.advance(head.session)
            run.detach()
            try:
                await run.start()
            except (SessionBusy, Conflict):
                return "busy"
            except (UnfinishedRun, CheckpointNotFound):
                return "not due"
            except Exception as error:  # noqa: BLE001  # whatever is missing here: another process may have it
                refusal = _line(error)
            else:
                return await self._followed(run, head)
        return _left_alone(head.session, refusal)

    async def _followed(self, run: Run, begun: Head) -> Receipt:
        self._runs[run] = asyncio.get_running_loop()
        try:
            result = await run
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001  # the run is stored as failed, whatever it raised
            log.warning("%s: failed: %s", visible_line(begun.session), _line(error))
            return "failed"
        finally:
            del self._runs[run]
        if not run.has_driven:
            return "not due"
        if run.is_handed_over:
            return "handed over"
        head = await self.store.read(GetHead(begun.ref))
        if head is not None and head.inputs and head.status == "done":
            await self._deliveries.add(head)  # The next turn is another delivery, so that limits count turns.
        return "waiting" if result.status == "interrupted" else result.status

    # Looking after the queue

    async def serve(self, *, grace: float = 30.0) -> None:
        """Deliver what is due, and clear up, until this is cancelled. Every process that runs sessions calls it.

        On the way out, runs of this process have `grace` seconds to finish their steps, and are handed over to others.

        Raises:
            UsageError: DBOS was not configured with `config`.
        """
        from dbos import DBOS  # noqa: PLC0415 - an extra

        if DBOS.executor_id != process_id():
            raise UsageError(
                f"The executor_id of DBOS is '{DBOS.executor_id}', by which nobody can tell whether this process is "
                "alive. Use DBOS(config=queue.config())."
            )
        self._is_stopping, is_away = False, False
        try:
            while True:
                try:
                    await self.sweep()
                    is_away = False
                except Exception as error:  # noqa: BLE001  # protects the process: the database may be away for a while
                    if not is_away:
                        log.warning("cannot look after the queue %s: %s", visible_line(self.name), _line(error))
                    is_away = True
                await asyncio.sleep(self.poll * random.uniform(0.5, 1.5))
        finally:
            await self._hand_over(grace)

    async def _hand_over(self, grace: float) -> None:
        self._is_stopping = True
        # DBOS runs workflows in a thread of its own.
        runs = list(self._runs.items())
        handing = [asyncio.run_coroutine_threadsafe(run.hand_over(grace), loop) for run, loop in runs]
        await asyncio.gather(*map(asyncio.wrap_future, handing), return_exceptions=True)

    async def sweep(self) -> Swept:
        """Deliver once what is due, cancel what dead executors left behind, and delete old rows."""
        return await self._sweeper.sweep(self.orphaned_after, self.keep)


def _left_alone(session: str, why: str) -> Receipt:
    log.warning("%s: cannot go on here, and is left as it is: %s", visible_line(session), why)
    return "left alone"


def _checked(given: Runner | Iterable[Runner]) -> tuple[Runner, ...]:
    runners: list[Runner] = [given] if isinstance(given, Runner) else list(given)
    for each in runners:
        if not isinstance(each, Runner):  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
            raise UsageError(f"DBOSQueue: {each!r} is not a Runner. Make one of it: Runner(..., store=...).")
    if not runners:
        raise UsageError("A DBOSQueue needs at least one runner: DBOSQueue([runner], url).")
    if not all(each.has_store and each.store is runners[0].store for each in runners):
        raise UsageError("The runners of a DBOSQueue must share one store: give them the same PostgresStore.")
    if any(each.user_id is not None for each in runners):
        raise UsageError("A runner of a DBOSQueue is bound to one user. Give the one that `for_user` was called on.")
    return tuple(runners)


def _line(error: BaseException) -> str:
    failure = describe(error)
    return visible_line(f"{failure['type']}: {failure['message']}")
