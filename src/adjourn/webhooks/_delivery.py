"""Delivery: takes messages for one webhook out of a store's outbox, and sends each until it has arrived."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from adjourn._hiding import logger
from adjourn._text import visible_line
from adjourn.errors import StoreUnavailable, text_of
from adjourn.sessions._news import News, news_of
from adjourn.stores import Store, TakenNotice
from adjourn.stores.kit import DropNotices, SettleNotice, TakeNotices

from ._messages import message_of
from ._outcome import AT_ONCE, Outcome
from ._signing import headers_of
from ._webhook import Webhook

if TYPE_CHECKING:
    from ._sending import Sender

log = logger("adjourn.webhooks")

DELAYS = (5.0, 300.0, 1800.0, 7200.0, 18000.0, 36000.0, 50400.0, 72000.0, 86400.0)
"""Seconds after each attempt in vain: three days in all. After the last attempt, the message is given up."""

LEASE = 40.0
"""Seconds, after the time that an attempt may take, until others send a message again that this process has taken."""

POLL = 5.0
"""Seconds between two looks at the outbox, about, unless something was just written for it here."""

GAP = 0.02
"""Seconds after a look in vain, at least; and looking in vain takes at most a twentieth of the time."""

ENDING = 3.0
"""Seconds that messages on their way have to arrive when the process ends."""

CLEANING = 3600.0
"""Seconds between two looks for what nobody sends."""

KEPT = 7 * 86400.0
"""Seconds after which a message counts as nobody's: its webhook is not configured any more."""


class Delivery:
    """Sends the messages of an app to one webhook."""

    def __init__(
        self,
        store: Store,
        app_name: str,
        webhook: Webhook,
        public_url: str | None,
        count: Callable[[str, str], None],
        expected: Counter[str],
        gone: set[str],
    ) -> None:
        """Send from a store; `expected` counts what was written for each webhook here, and not yet taken.

        `count` hears of each webhook, by its name, what became of a message. One that answers that it is gone is added
        to `gone`.
        """
        self._store = store
        self._app = app_name
        self._webhook = webhook
        self._public_url = public_url
        self._count_for = count
        self._expected = expected
        self._gone = gone
        self._sending: set[asyncio.Task[None]] = set()
        self._is_away = False
        self._cleaned = -math.inf

    @property
    def _name(self) -> str:
        return self._webhook.name

    async def run(self) -> None:
        """Send until it is cancelled, or the webhook is gone."""
        from ._sending import Sender  # noqa: PLC0415 - with an extra

        sender = Sender(self._webhook)
        try:
            async with news_of(self._store, (self._app, None)) as news:
                while self._name not in self._gone:
                    began = time.monotonic()
                    taken = await self._take()
                    for each in taken:
                        task = asyncio.create_task(self._deliver(sender, each))
                        self._sending.add(task)
                        task.add_done_callback(self._sending.discard)
                    if len(self._sending) >= AT_ONCE:
                        await asyncio.wait(self._sending, return_when=asyncio.FIRST_COMPLETED)
                    elif not taken:
                        await self._wait(news, time.monotonic() - began)
        finally:
            await self._end()
            await sender.close()

    async def deliver_due(self) -> int:
        """Make one attempt for everything that is due, and return how many were made.

        Raises:
            StoreError: the outbox cannot be read.
        """
        from ._sending import Sender  # noqa: PLC0415 - with an extra

        sender, count = Sender(self._webhook), 0
        try:
            while self._name not in self._gone:
                taken = await self._taken(AT_ONCE)
                if not taken:
                    break
                count += len(taken)
                await asyncio.gather(*(self._deliver(sender, each) for each in taken))
        finally:
            await sender.close()
        return count

    async def _take(self) -> list[TakenNotice]:
        try:
            if time.monotonic() - self._cleaned > CLEANING:
                self._cleaned = time.monotonic()
                await self._clean_up()
            taken = await self._taken(AT_ONCE - len(self._sending))
        except Exception as error:  # noqa: BLE001  # protects the loop: a store may raise anything, and may be back soon
            self._note_away(error)
            return []
        self._is_away = False
        self._expected[self._name] = max(self._expected[self._name] - len(taken), 0)
        return taken

    async def _taken(self, limit: int) -> list[TakenNotice]:
        return await self._store.write(TakeNotices(self._app, [self._name], self._webhook.timeout + LEASE, limit=limit))

    def _note_away(self, error: Exception) -> None:
        if not self._is_away:
            log.warning("%s: its messages wait, %s", self._name, visible_line(text_of(error)))
        self._is_away = True

    async def _clean_up(self) -> None:
        count = await self._store.write(DropNotices(self._app, KEPT))
        if count:
            log.warning("%d messages were dropped: for a week, nobody has sent them", count)

    async def _wait(self, news: News, looked: float) -> None:
        """Wait for something to send: after what was written here, until the next hint, else for a while."""
        until = time.monotonic() + POLL * random.uniform(0.5, 1.5)
        await asyncio.sleep(min(max(GAP, 19 * looked), POLL))
        while (left := until - time.monotonic()) > 0:
            await news.wait(left)
            if self._expected[self._name] and time.monotonic() < until:
                return
        self._expected[self._name] = 0  # Somebody else has sent it, or it was not stored.

    async def _end(self) -> None:
        if self._sending:
            _, late = await asyncio.wait(self._sending, timeout=ENDING)
            for task in late:
                task.cancel()

    async def _deliver(self, sender: Sender, taken: TakenNotice) -> None:
        try:
            await self._settle(taken, await self._sent(sender, taken))
        except Exception as error:  # noqa: BLE001  # protects the loop from whatever a store raises
            # Nobody has settled it, so it is taken again after a while.
            log.warning("%s: %s waits, %s", self._name, taken.id, visible_line(text_of(error)))

    async def _sent(self, sender: Sender, taken: TakenNotice) -> Outcome | None:
        """Make one attempt; None if there is nothing to send any more."""
        try:
            body = await message_of(self._store, self._webhook, taken, self._public_url)
            if body is None:
                return None
            headers = headers_of(self._webhook.keys, taken.id, int(time.time()), body)
            return await sender.send(headers, body)
        except StoreUnavailable:
            raise
        except Exception as error:  # noqa: BLE001  # protects the other messages: this one may be damaged
            return Outcome(reason=f"it cannot be sent: {text_of(error)}")

    async def _settle(self, taken: TakenNotice, outcome: Outcome | None) -> None:
        if outcome is None:
            self._count("dropped")
            log.debug("%s: %s was dropped: its question is not open any more", self._name, taken.id)
            await self._store.write(SettleNotice(taken))
            return
        if outcome.is_sent or outcome.is_gone:
            self._count("sent" if outcome.is_sent else "dropped")
            log.debug("%s: %s was sent, attempt %d: %s", self._name, taken.id, taken.attempt, outcome)
            if outcome.is_gone:
                self._gone.add(self._name)
                log.error("%s: it is gone (410). Nothing is sent there until the process starts again", self._name)
            await self._store.write(SettleNotice(taken))
            return
        self._count("failed")
        if taken.attempt > len(DELAYS):
            self._count("given_up")
            log.error("%s: %s is given up after %d attempts: %s", self._name, taken.id, taken.attempt, outcome)
            await self._store.write(SettleNotice(taken))
            return
        again = max(DELAYS[taken.attempt - 1] * random.uniform(0.8, 1.2), min(outcome.retry_after, DELAYS[-1]))
        text = "%s: %s was not sent, attempt %d: %s. It is tried again in %d s"
        log.warning(text, self._name, taken.id, taken.attempt, visible_line(str(outcome)), again)
        await self._store.write(SettleNotice(taken, again=again))

    def _count(self, what: str) -> None:
        self._count_for(self._name, what)
