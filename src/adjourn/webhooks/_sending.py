"""Sending one message: to an address that was checked, in bounded time, and without following anybody elsewhere."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any

import httpx2

from ._addresses import Forbidden, addresses_of
from ._outcome import AT_ONCE, Outcome
from ._webhook import Webhook

READ = 16 * 1024
"""Bytes that are read of an answer, which nobody needs: if it is short, the connection can be used again."""

ADDRESSES = 4
"""How many addresses of a host are tried."""

CONNECT = 5.0
"""Seconds, at most, for the connection to an address while there are others to try: it may never answer."""


class Sender:
    """Sends messages to one webhook."""

    def __init__(self, webhook: Webhook) -> None:
        self._webhook = webhook
        # Not a client: that would log the URL, follow the proxies of the environment, and keep cookies.
        self._transport = httpx2.AsyncHTTPTransport(limits=httpx2.Limits(max_connections=AT_ONCE))
        self._url = httpx2.URL(webhook.url)
        self._headers = _headers(self._url)

    async def close(self) -> None:
        """Close its connections."""
        await self._transport.aclose()

    async def send(self, headers: Mapping[str, str], body: bytes) -> Outcome:
        """Make one attempt."""
        webhook = self._webhook
        try:
            async with asyncio.timeout(webhook.timeout):
                addresses = await addresses_of(webhook.host, webhook.port, allow_private=webhook.allow_private)
                return await self._send(addresses[:ADDRESSES], {**self._headers, **headers}, body)
        except TimeoutError:
            return Outcome(reason=f"it took longer than {webhook.timeout:g} seconds")
        except Forbidden as error:
            return Outcome(reason=str(error))
        except (httpx2.TransportError, OSError, ValueError) as error:
            return Outcome(reason=f"{type(error).__name__}: {error}")

    async def _send(self, addresses: list[str], headers: dict[str, str], body: bytes) -> Outcome:
        *others, last = addresses
        patience = min(CONNECT, self._webhook.timeout / len(addresses))
        for address in others:
            try:
                return await self._send_to(address, headers, body, patience)
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                continue  # Nothing was sent. The next address may be of a network that this machine is in.
        return await self._send_to(last, headers, body, self._webhook.timeout)

    async def _send_to(self, address: str, headers: dict[str, str], body: bytes, connect: float) -> Outcome:
        url = self._url.copy_with(host=address, userinfo=b"")
        seconds = {**dict.fromkeys(("read", "write", "pool"), self._webhook.timeout), "connect": connect}
        extensions: dict[str, Any] = {"timeout": seconds}
        if not _is_address(self._webhook.host):
            # What the certificate must be for, although the connection is to an address.
            extensions["sni_hostname"] = self._webhook.host.rstrip(".")
        request = httpx2.Request("POST", url, headers=headers, content=body, extensions=extensions)
        response = await self._transport.handle_async_request(request)
        try:
            count = 0
            async for part in response.aiter_raw():
                count += len(part)
                if count > READ:
                    break
        finally:
            await response.aclose()
        return Outcome(status=response.status_code, retry_after=_retry_after(response.headers.get("retry-after")))


def _headers(url: httpx2.URL) -> dict[str, str]:
    headers = {"host": url.netloc.decode(), "content-type": "application/json", "user-agent": "Adjourn"}
    if url.userinfo:
        named = f"{url.username}:{url.password}".encode()
        headers["authorization"] = f"Basic {b64encode(named).decode()}"
    return headers


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _retry_after(text: str | None) -> float:
    """Return for how many seconds a receiver wants to be left alone; it may name a date, which is not worth reading."""
    return float(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 9 else 0.0
