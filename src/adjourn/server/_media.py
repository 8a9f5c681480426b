"""Media by URL: from which hosts a model's server may be made to fetch what a caller names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from adjourn._text import visible_line
from adjourn._values.frozen import shorten
from adjourn.errors import UsageError
from adjourn.messages import AudioPart, FilePart, ImagePart, Message

from ._errors import ApiError

_HOST = re.compile(r"[a-z0-9]+(?:[.-]+[a-z0-9]+)*(?::[1-9]\d{0,4})?", re.ASCII)
# Whatever reads it next must find the same host in it: no user, no backslash, nothing that some leave out or convert.
_URL = re.compile(r"https://([a-z0-9.-]+(?::\d+)?)(?:[/?#][!-\[\]-~]*)?", re.ASCII | re.IGNORECASE)
_TOKEN = r"[\w!#$&'*+.^`|~%-]+"
# What precedes the comma names a type and nothing that any reader could take for a host.
_DATA = re.compile(rf"data:(?:{_TOKEN}/{_TOKEN})?(?:;{_TOKEN}(?:={_TOKEN})?)*,", re.ASCII | re.IGNORECASE)
_KINDS = ("image", "audio", "file")


class MediaHosts:
    """The hosts that callers may name in the URLs of images, audio and files."""

    def __init__(self, hosts: Iterable[str]) -> None:
        """Allow these hosts, each with its port if that is not 443.

        Raises:
            UsageError: one is not a host.
        """
        self._hosts = frozenset(map(_read, [hosts] if isinstance(hosts, str) else hosts))

    def check(self, given: Any) -> None:  # Any: JSON, or a message
        """Refuse a message or data of a caller if a part in it has a URL that is not allowed.

        Raises:
            ApiError: one is not.
        """
        match given:
            case Message():
                for part in given.parts:
                    if isinstance(part, ImagePart | AudioPart | FilePart):
                        self._check_part(part.url, part.media_type)
            case Mapping():
                data = cast("Mapping[str, Any]", given)
                if data.get("type") in _KINDS:
                    self._check_part(data.get("url"), data.get("media_type"))
                if _is_private(data):
                    raise _refusal("what only its provider understands")
                for each in data.values():
                    self.check(each)
            case list():
                for each in cast("list[Any]", given):
                    self.check(each)
            case _:
                pass

    def _check_part(self, url: object, media_type: object) -> None:
        if isinstance(url, str):
            self._check_url(url)
        elif isinstance(media_type, str):  # A model gets the data as a URL that begins with it.
            self._check_url(f"data:{media_type.replace('; ', ';')},")

    def _check_url(self, url: str) -> None:
        if _DATA.match(url) is not None:
            return
        found = _URL.fullmatch(url)
        if found is None or found[1].lower().removesuffix(":443") not in self._hosts:
            raise _refusal(shorten(visible_line(url)))


def _is_private(data: Mapping[str, Any]) -> bool:
    """Return whether this may be a part, message or call with data that goes to its provider as it is."""
    kind = data.get("type")
    is_said = "role" in data or kind in ("text", "reasoning") or {"id", "name"} <= data.keys()
    return "provider" in data and (kind == "opaque" or (is_said and bool(data.get("extra"))))


def _refusal(what: str) -> ApiError:
    return ApiError(
        "media_not_allowed",
        f"A model's server would fetch {what}, which is not allowed here.",
        "Send the data itself. The operator can allow hosts, whose URLs have to be https, with `adjourn serve "
        "--allow-media-host HOST` or App(media_hosts=[...]).",
    )


def _read(host: str) -> str:
    name = host.lower().removesuffix(":443")
    if _HOST.fullmatch(name) is None:
        raise UsageError(
            f"{host!r} is not a host that media may come from. Give its name alone, such as 'images.example.com' or "
            "'images.example.com:8443', and a name with other letters as its 'xn--' form."
        )
    return name
