"""The test suite for stores: subclass it, provide a store, and run it with pytest."""

from __future__ import annotations

from .suite.answers import AnswerSuite
from .suite.decided import DecisionSuite
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
    """Tests every guarantee of the store protocol, as async test methods.

    ```python
    class TestMyStore(StoreSuite):
        async def make_store(self, clock):
            return MyStore(clock=clock)
    ```

    Set `shared = True` and define `reopen` if another process can use the same data. If the store does not accept a
    clock, set `tick` to a fraction of a second and sleep in `pass_time`. It needs a plugin for async tests, such as
    pytest-asyncio in auto mode.
    """
