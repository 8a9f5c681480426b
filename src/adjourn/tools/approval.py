"""How a tool's calls are approved: when a person is asked, and what the question says."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple, cast

import msgspec
from msgspec import Struct

from adjourn._engine.questions import checked_words
from adjourn._engine.record import Words
from adjourn._text import visible_line
from adjourn._values.frozen import shorten
from adjourn.errors import UsageError

_PLACE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_MOST = 200
"""How many characters of a value a summary shows. The question shows all of it, too."""


class Approval(Struct, frozen=True, kw_only=True):
    """How the calls of a tool are approved: `@tool(approval=Approval(summary="Refund {cents|money:EUR} to {name}"))`.

    `when` is a predicate: a function that takes some of the tool's parameters by name, and returns whether a person
    must approve the call; by default, each call must be approved. A question that is not answered within `expires_in`
    is refused. The other fields are what the question says, as in `interrupt`.

    `summary` may name arguments: `{name}`, or `{name|format}` with one of the formats `text`, `number`, `money:EUR`
    (a whole number of cents), `date` and `time`. `{{` and `}}` are braces. Nothing in the values is evaluated.

    Raises:
        UsageError: something in it is not what it must be.
    """

    title: str | None = None
    summary: str | None = None
    description: str | None = None
    priority: int = 0
    link: str | None = None
    when: Callable[..., bool | Awaitable[bool]] | None = None
    expires_in: timedelta | float | None = None

    def __post_init__(self) -> None:
        checked_words(self._words(), "Approval")

    def _words(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in Words.__struct_fields__}

    def check(self, tool: str, schema: Mapping[str, Any]) -> None:
        """Refuse a summary that a tool with this schema cannot fill in.

        Raises:
            UsageError: it names no argument, or a format that there is not, or that does not fit.
        """
        for each in _places(self.summary or ""):
            each.check(tool, schema)

    def asking(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return how a call with these arguments is asked about, as keywords of `interrupt`."""
        said = self._words() | {"expires_in": self.expires_in}
        return said if self.summary is None else said | {"summary": _filled(self.summary, arguments)}


class _Place(NamedTuple):
    """A place in a summary: an argument, with the name of a format and what follows it after a colon."""

    argument: str
    format: str
    detail: str

    def check(self, tool: str, schema: Mapping[str, Any]) -> None:
        where = f"The summary of the approval of tool '{tool}'"
        properties: Mapping[str, Any] = schema.get("properties", {})
        if self.argument not in properties:
            raise UsageError(
                f"{where} has {{{self.argument}}}, which is not an argument of the tool. It has "
                f"{', '.join(properties) or 'none'}. Write {{{{ and }}}} for braces."
            )
        if self.format not in _FORMATS:
            raise UsageError(f"{where} has the format '{self.format}'. Use one of {', '.join(_FORMATS)}.")
        if self.format == "money":
            if not re.fullmatch("[A-Z]{3}", self.detail):
                raise UsageError(f"{where} has money without a currency. Write {{{self.argument}|money:EUR}}, say.")
            if not _is_whole(properties[self.argument]):
                raise UsageError(
                    f"{where} shows '{self.argument}' as money, which is for whole numbers of cents. Give the tool an "
                    f"int of the smallest unit, or write {{{self.argument}|number}} {self.detail}."
                )
        elif self.detail:
            raise UsageError(f"{where} has '{self.format}:{self.detail}'. Only money takes something after a colon.")


def _is_whole(schema: Mapping[str, Any]) -> bool:
    forms: list[Mapping[str, Any]] = schema.get("anyOf") or [schema]
    kinds = {each.get("type") for each in forms}
    return "integer" in kinds and kinds <= {"integer", "null"}


def _places(template: str) -> list[_Place]:
    found: list[_Place] = []
    for match in _PLACE.finditer(template):
        if match[0] in ("{", "}"):
            raise UsageError(
                f"The summary {shorten(template)} has a lone '{match[0]}'. Write '{match[0] * 2}' for a brace."
            )
        if match[1] is not None:
            found.append(_place(match[1]))
    return found


def _place(text: str) -> _Place:
    argument, _, shown = text.partition("|")
    kind, _, detail = shown.partition(":")
    return _Place(argument.strip(), kind.strip() or "text", detail.strip())


def _filled(template: str, arguments: Mapping[str, Any]) -> str:
    """Return a summary with the arguments in it. One pass: what a value looks like does not matter."""

    def value(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0][0]
        place = _place(match[1])
        given = arguments.get(place.argument)
        try:
            shown = _FORMATS[place.format](given, place.detail)
        except (TypeError, ValueError, InvalidOperation, OverflowError):
            shown = _text(given, "")  # whatever it is, people see it
        shown = visible_line(shown)
        return shown if len(shown) <= _MOST else f"{shown[:_MOST]}…"

    return _PLACE.sub(value, template)


def _text(value: Any, _: str) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _number(value: Any, _: str) -> str:
    if isinstance(value, bool):
        raise TypeError
    return f"{value if isinstance(value, int | float) else Decimal(value):,}"


_WITHOUT_CENTS = "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX VND VUV XAF XOF XPF"
_IN_THOUSANDTHS = "BHD IQD JOD KWD LYD OMR TND"
_DIGITS: dict[str, int] = {
    **dict.fromkeys(_WITHOUT_CENTS.split(), 0),
    **dict.fromkeys(_IN_THOUSANDTHS.split(), 3),
}
"""How many digits of an amount are behind the point, for currencies that do not have two."""


def _money(value: Any, currency: str) -> str:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError
    digits = _DIGITS.get(currency, 2)
    return f"{Decimal(value).scaleb(-digits):,.{digits}f} {currency}"


def _date(value: Any, _: str) -> str:
    moment = date.fromisoformat(cast("str", value)[:10])
    return f"{moment.day} {moment:%B %Y}"


def _time(value: Any, _: str) -> str:
    text = cast("str", value)
    moment = datetime.fromisoformat(text).timetz() if "T" in text or " " in text else time.fromisoformat(text)
    return f"{moment:%H:%M}{'' if moment.tzinfo is None else f' {moment.tzname()}'}"


_FORMATS: dict[str, Callable[[Any, str], str]] = {
    "text": _text,
    "number": _number,
    "money": _money,
    "date": _date,
    "time": _time,
}
