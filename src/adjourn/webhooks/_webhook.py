"""Webhook: one place that messages are sent to, and which."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from ipaddress import ip_address
from typing import cast, get_args
from urllib.parse import urlsplit

from adjourn._checks import is_positive
from adjourn._text import did_you_mean, visible_line
from adjourn._values.secret import Secret
from adjourn.errors import UsageError
from adjourn.runner import NoticeKind, Occasion

from ._addresses import is_public
from ._signing import key_of

KINDS: tuple[NoticeKind, ...] = get_args(NoticeKind)

HOUR = 3600.0

_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")

_HOST = re.compile(r"(?!\d+(?:\.\d+){3}$)[A-Za-z0-9._-]{1,253}")  # not what looks like an address and is none

_LONGEST = 8000  # characters of a URL


class Webhook:
    """Sends signed messages about runs to one URL.

    What it knows of secrets, and of secrets in its URL, is in no log and no error: it is called by its `name` there.
    """

    def __init__(
        self,
        url: str,
        *,
        secret: str | Secret | Iterable[str | Secret],
        events: Iterable[str] = KINDS,
        agents: Iterable[str] = ("*",),
        name: str | None = None,
        details: bool = False,
        link: str | None = None,
        expiring_before: float = HOUR,
        timeout: float = 20.0,
        allow_private: bool = False,
        allow_http: bool = False,
    ) -> None:
        """Send messages to a URL.

        url: where to; https, unless `allow_http`.
        secret: signs the messages, `whsec_...` as `adjourn webhook secret` makes it. Several sign with each of them,
            so that a receiver can change from one to another.
        events: what it wants to know: "interrupt", "done", "error" and "expiring"; by default all.
        agents: whose runs, by name or pattern such as "refund-*"; by default everybody's.
        name: what it is called in logs, and in the outbox; by default its host and a digest of its URL. A webhook that
            gets another URL and keeps its name also gets what was meant for the old one.
        details: True sends what a question shows: its prompt, the arguments that are to be approved, and its token; and
            the message of an error.
        link: the address of a page for a question, in which `{session}` and `{question}` are replaced.
        expiring_before: seconds before a question expires at which "expiring" is sent; half of its time if that is
            shorter.
        timeout: seconds that one attempt may take in all.
        allow_private: True sends to addresses that are not public, such as those of this machine and its network.
        allow_http: True sends without encryption.

        Raises:
            UsageError: something cannot be meant.
        """
        self.url: str = url
        self.host: str
        self.port: int
        self.host, self.port = _checked_url(url, allow_http=allow_http, allow_private=allow_private)
        self.name: str = _default_name(self.host, url) if name is None else _checked_name(name)
        self.secrets: tuple[Secret, ...] = _secrets(secret)
        self.keys: tuple[bytes, ...] = tuple([key_of(each.reveal()) for each in self.secrets])
        self.events: tuple[str, ...] = _checked_events(events)
        self.agents: tuple[str, ...] = _texts("agents", agents)
        self.details: bool = _flag("details", details)
        self.link: str | None = None if link is None else _checked_link(link)
        if not is_positive(expiring_before):
            raise UsageError(f"Webhook(expiring_before={expiring_before!r}): give a number of seconds above zero.")
        self.expiring_before: float = float(expiring_before)
        if not is_positive(timeout):
            raise UsageError(f"Webhook(timeout={timeout!r}): give a number of seconds above zero.")
        self.timeout: float = float(timeout)
        self.allow_private: bool = _flag("allow_private", allow_private)

    def __repr__(self) -> str:
        return f"Webhook({self.name!r}, events={list(self.events)}, agents={list(self.agents)})"

    def wants(self, occasion: Occasion) -> bool:
        """Return whether it is to be told of something."""
        return occasion.kind in self.events and any(fnmatchcase(occasion.agent, each) for each in self.agents)

    def due(self, occasion: Occasion) -> float | None:
        """Return when it is to be told, None for at once."""
        if occasion.expires is None:
            return None
        return occasion.expires - min(self.expiring_before, max(occasion.expires - occasion.asked, 0.0) / 2)


def _checked_url(url: str, *, allow_http: bool, allow_private: bool) -> tuple[str, int]:
    """Return the host and the port of a URL; nothing else of it may be in an error."""
    _flag("allow_http", allow_http)
    try:
        if not isinstance(url, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
            raise TypeError
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except (TypeError, ValueError):
        raise UsageError("Webhook: the URL cannot be read. Write it as https://host/path.") from None
    schemes = {"https": 443, "http": 80} if allow_http else {"https": 443}
    if parts.scheme == "http" and not allow_http:
        raise UsageError(f"Webhook: the URL of {host} is not https. Use https, or set allow_http for tests.")
    if parts.scheme not in schemes or not host or len(url) > _LONGEST or not _is_host(host, parts.netloc):
        raise UsageError("Webhook: the URL is not that of a web server. Write it as https://host/path.")
    if any(not 0x20 < ord(letter) < 0x7F for letter in url):
        raise UsageError(
            f"Webhook: the URL of {visible_line(host)} has spaces or other letters than ASCII. Encode them."
        )
    try:
        is_refused = not allow_private and not is_public(host)
    except ValueError:
        is_refused = False  # It is a name, whose addresses are checked each time.
    if is_refused:
        raise UsageError(
            f"Webhook: {ip_address(host)} is not a public address. If that is meant, set allow_private for it."
        )
    return host, port if port is not None else schemes[parts.scheme]


def _is_host(host: str, place: str) -> bool:
    """Return whether a host has an address, or a name that can be looked up; `place` is how the URL writes it."""
    try:
        ip_address(host)
    except ValueError:
        return "[" not in place and _HOST.fullmatch(host) is not None
    return True


def _default_name(host: str, url: str) -> str:
    return f"{re.sub('[^A-Za-z0-9._-]', '-', host)[:80]}-{hashlib.sha256(url.encode()).hexdigest()[:12]}"


def _checked_name(name: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"Webhook(name={name!r}): use letters, digits, '.', '_' and '-', up to 100 of them.")
    return name


def _secrets(given: str | Secret | Iterable[str | Secret]) -> tuple[Secret, ...]:
    listed = [given] if isinstance(given, str | Secret) else list(given)
    if not listed:
        raise UsageError("Webhook: give it a secret. `adjourn webhook secret` makes one.")
    return tuple([each if isinstance(each, Secret) else Secret(each) for each in listed])


def _checked_events(events: Iterable[str]) -> tuple[str, ...]:
    names = _texts("events", events)
    for each in names:
        if each not in KINDS:
            meant = did_you_mean(each, KINDS)
            raise UsageError(f"Webhook(events=...): there is no event '{visible_line(each)}'.{meant} {_CHOOSE}")
    return names


_CHOOSE = f"Choose of: {', '.join(KINDS)}."


def _texts(name: str, given: Iterable[str]) -> tuple[str, ...]:
    listed: list[object] = [] if isinstance(given, str) else list(given)
    if not listed or not all(isinstance(each, str) for each in listed):
        raise UsageError(f"Webhook({name}={given!r}): give a list of texts.")
    return tuple(cast("list[str]", listed))


def _checked_link(link: str) -> str:
    try:
        filled = link.format(session="s", question="q")
        parts = urlsplit(filled)
    except (AttributeError, KeyError, IndexError, ValueError):
        parts = None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname or "{session}" not in link:
        raise UsageError(
            f"Webhook(link={link!r}): write the address of a page, such as "
            "'https://desk.example.com/review?session={session}&question={question}'."
        )
    return link


def _flag(name: str, value: bool) -> bool:
    if not isinstance(value, bool):  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
        raise UsageError(f"Webhook({name}={value!r}): give True or False.")
    return value
