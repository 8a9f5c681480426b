"""The suite that proves a store: subclass it, give it a store, and run it with pytest."""

from __future__ import annotations

from .suite.answers import AnswerSuite
from .suite.keeping import KeepingSuite
from .suite.leases import LeaseSuite
from .suite.listings import ListingSuite
from .suite.log import LogSuite
from .suite.naming import NamingSuite


class StoreSuite(LogSuite, LeaseSuite, AnswerSuite, ListingSuite, KeepingSuite, NamingSuite):
    """Every promise of the store protocol, as async test methods.

    ```python
    class TestMyStore(StoreSuite):
        async def make_store(self, clock):
            return MyStore(clock=clock)
    ```

    Set `shared = True` and give `reopen` if another process can use the same data. A store that cannot be given a
    clock sets `tick` to a fraction of a second and sleeps in `pass_time`. Needs a runner for async tests, such as
    pytest-asyncio in auto mode.
    """
