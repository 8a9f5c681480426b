"""Runs carried by DBOS: its queues, with their limits, priorities and delays, deliver the sessions that are due.

Whose session it is, the order of its turns and what was done stay with the store; a row of DBOS is only a receipt.
"""

from ._deliveries import Delivery
from ._queue import DBOSQueue
from ._sweeping import Swept
from ._transaction import Transaction

__all__ = ["DBOSQueue", "Delivery", "Swept", "Transaction"]
