"""Lists as CSV, which people open in spreadsheets: what others have written must be text there, and no formula."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec
from starlette.requests import Request

_FORMULAS = tuple("=+-@\uff1d\uff0b\uff0d\uff20")
"""What a formula begins with; those of full width do in some languages."""


def wants_csv(request: Request, format: str | None) -> bool:
    """Return whether a list is wanted as CSV: the query says so, or the header Accept names it and no JSON."""
    if format is not None:
        return format == "csv"
    accepted = {each.partition(";")[0].strip().lower() for each in request.headers.get("accept", "").split(",")}
    return "text/csv" in accepted and "application/json" not in accepted


def to_csv(kind: type[msgspec.Struct], rows: Iterable[msgspec.Struct]) -> str:
    """Return structs of one kind as CSV, with a line of the names of their fields."""
    written = io.StringIO()
    writer = csv.writer(written, quoting=csv.QUOTE_ALL)
    names = kind.__struct_fields__
    writer.writerow(names)
    writer.writerows([_cell(getattr(row, name)) for name in names] for row in rows)
    return written.getvalue()


def _cell(value: Any) -> str:  # Any: JSON data, or a moment
    match value:
        case None:
            return ""
        case str():
            # A spreadsheet shows the apostrophe as what it is: a sign that text follows.
            return f"'{value}" if value.lstrip().startswith(_FORMULAS) else value
        case datetime():
            return value.isoformat()
        case _:
            return msgspec.json.encode(value).decode()
