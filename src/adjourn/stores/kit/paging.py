"""Pages of sessions, most recently written first: their order, and where a page goes on."""

from __future__ import annotations

import binascii
import math
from base64 import urlsafe_b64decode
from typing import NamedTuple

import msgspec

from adjourn.errors import UsageError

from .rows import SessionRow


class Written(NamedTuple):
    """The place of a session in a listing: when it was last written; of those written at once, the greatest name first.

    Later places come first.
    """

    updated: float
    app: str
    session: str


def written(row: SessionRow) -> Written:
    """Return the place of a session."""
    return Written(row.updated, row.app, row.session)


def written_at(cursor: str) -> Written:
    """Return the place that the `cursor` of a `Head` stands for.

    Raises:
        UsageError: it is not one.
    """
    try:
        place = _place.decode(urlsafe_b64decode(cursor.encode("ascii")))
        is_place = math.isfinite(place[0])
    except (msgspec.MsgspecError, binascii.Error, ValueError):
        is_place, place = False, (0.0, "", "")
    if not is_place:
        raise UsageError(f"after={cursor[:100]!r}: give the cursor of a page that was listed, or None to begin.")
    return Written(*place)


_place = msgspec.json.Decoder(tuple[float, str, str])
