"""The test suite for stores: subclass it, provide a store, and run it with pytest."""

from __future__ import annotations

from .suite.answers import AnswerSuite
from .suite.decided import DecisionSuite
from .suite.guards import GuardSuite
from .suite.hinting import HintSuite
from .suite.inbox import InboxSuite
from .suite.keeping import KeepingSuite
from .suite.leases import LeaseSuite
from .suite.listings import ListingSuite
from .suite.log import LogSuite
from .suite.marking import MarkSuite
from .suite.naming import NamingSuite
from .suite.outbox import OutboxSuite
from .suite.queue import QueueSuite


class StoreSuite(
    LogSuite,
    LeaseSuite,
    GuardSuite,
    AnswerSuite,
    ListingSuite,
    InboxSuite,
    DecisionSuite,
    MarkSuite,
    KeepingSuite,
    NamingSuite,
    QueueSuite,
    OutboxSuite,
    HintSuite,
):
    """Tests every promise of a store, as async test methods.

    That is what a store itself must do: atomic writes under their guards, facts, order, pages, indexes, hints. What the
    requests of the kit decide alike for all stores is proved with the kit.

    ```python
    class TestMyStore(StoreSuite):
        async def make_store(self, clock):
            return MyStore(clock=clock)
    ```

    Set `shared = True` and define `reopen` if another process can use the same data. If the store does not accept a
    clock, set `tick` to a fraction of a second and sleep in `pass_time`. It needs a plugin for async tests, such as
    pytest-asyncio in auto mode.
    """
