"""Webhooks: who is told of what, and the process's part in telling them."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable
from importlib.util import find_spec
from urllib.parse import urlsplit

from adjourn._hiding import logger
from adjourn.errors import UsageError
from adjourn.runner import Occasion
from adjourn.stores import Notice, Store

from ._delivery import Delivery
from ._messages import note_of, test_message
from ._signing import headers_of
from ._webhook import Webhook

log = logger("adjourn.webhooks")


class Webhooks:
    """The webhooks of an application.

    `Runner(agent, notify=webhooks)` writes messages into the outbox of its store, each with the commit that it is
    about; `delivering` sends them. `App(webhooks=...)` does both. Several processes may deliver for one store: they
    share the work, and go on with what one of them leaves behind.
    """

    def __init__(self, webhooks: Iterable[Webhook], *, public_url: str | None = None) -> None:
        """Send messages to these webhooks.

        webhooks: where to, and which.
        public_url: where people and programs reach the server, such as "https://desk.example.com", for links to it.

        Raises:
            UsageError: there are none, two have the same name, or something is missing to send with.
        """
        given = list(webhooks)
        if not given or not all(isinstance(each, Webhook) for each in given):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("Webhooks: give it a list of `Webhook(url, secret=...)`.")
        self._by_name: dict[str, Webhook] = {each.name: each for each in given}
        if len(self._by_name) < len(given):
            raise UsageError("Webhooks: two of them have the same name or URL. Give each a name of its own.")
        if find_spec("httpx2") is None:
            raise UsageError('Webhooks are sent with httpx2: pip install "adjourn[client]".')
        self.public_url: str | None = None if public_url is None else _checked_public(public_url)
        self.counts: Counter[tuple[str, str]] = Counter()
        """How many messages this process has "sent", "failed" to send, "dropped" and "given_up", by webhook."""
        self._gone: set[str] = set()
        self._expected: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"Webhooks({list(self._by_name.values())})"

    def notices(self, occasion: Occasion, /) -> list[Notice]:
        """Return a message for each webhook that wants to know of something, as `Notify` says."""
        wanted = [each for each in self._by_name.values() if each.name not in self._gone and each.wants(occasion)]
        self._expected.update([each.name for each in wanted])
        return [
            Notice(id=_new_id(), to=each.name, body=note_of(each, occasion), due=each.due(occasion)) for each in wanted
        ]

    @contextlib.asynccontextmanager
    async def delivering(
        self, store: Store, *, app_name: str = "adjourn", on_outcome: Callable[[str, str], None] | None = None
    ) -> AsyncGenerator[None]:
        """Send what is in the outbox of a store, and what comes into it, until the context is left.

        What is on its way then has a moment to arrive; what has not is sent by another process, or the next time.
        `on_outcome` is called with the name of a webhook and an outcome for everything that `counts` counts.
        """
        tasks = [asyncio.create_task(each.run()) for each in self._deliveries(store, app_name, on_outcome)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            for ended in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(ended, Exception):
                    log.error("webhooks were not sent to the end: %r", ended)

    async def deliver(self, store: Store, *, app_name: str = "adjourn") -> int:
        """Make one attempt for everything in the outbox of a store that is due, and return how many were made.

        It is for whoever has no process that goes on, and calls this now and then instead of `delivering`.

        Raises:
            StoreError: the outbox cannot be read.
        """
        return sum(await asyncio.gather(*(each.deliver_due() for each in self._deliveries(store, app_name))))

    def _deliveries(
        self, store: Store, app_name: str, on_outcome: Callable[[str, str], None] | None = None
    ) -> list[Delivery]:
        def count(name: str, outcome: str) -> None:
            self.counts[name, outcome] += 1
            if on_outcome is not None:
                on_outcome(name, outcome)

        return [
            Delivery(store, app_name, each, self.public_url, count, self._expected, self._gone)
            for each in self._by_name.values()
        ]

    async def test(self) -> dict[str, str | None]:
        """Send a message of the type "test" to each, once; return by name why it did not arrive, None if it did."""
        from ._sending import Sender  # noqa: PLC0415 - with an extra

        outcomes: dict[str, str | None] = {}
        for each in self._by_name.values():
            sender, now = Sender(each), time.time()
            body = test_message(now)
            try:
                outcome = await sender.send(headers_of(each.keys, _new_id(), int(now), body), body)
            finally:
                await sender.close()
            outcomes[each.name] = None if outcome.is_sent else str(outcome)
        return outcomes


def _new_id() -> str:
    return f"msg_{secrets.token_hex(16)}"


def _checked_public(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_right = parts.scheme in ("http", "https") and bool(parts.hostname) and not (parts.query or parts.fragment)
    except (ValueError, AttributeError):
        is_right = False
    if not is_right:
        raise UsageError(f"public_url={url!r}: write where the server is reached, such as https://desk.example.com.")
    return url.rstrip("/")
