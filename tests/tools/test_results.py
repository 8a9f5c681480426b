"""What a model reads of a result."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Any

import pytest
from msgspec import Struct
from pydantic import BaseModel

from adjourn import ToolError
from adjourn.tools import result_text


@dataclass
class Point:
    x: int


class Ware(BaseModel):
    price: Decimal


class Offer(Struct):
    ware: Ware
    until: date


class Color(Enum):
    RED = "red"


class Size(StrEnum):
    SMALL = "small"


class Marked(str):
    __slots__ = ()


TEXTS: dict[str, tuple[Any, str]] = {
    "text": ("a\nb “c” ☃", "a\nb “c” ☃"),
    "no text": ("", ""),
    "a subclass of text": (Marked("m"), "m"),
    "none": (None, "null"),
    "number": (3, "3"),
    "a large number": (2**100, "1267650600228229401496703205376"),
    "bool": (True, "true"),
    "list": (["a", 1, None], '["a",1,null]'),
    "dict": ({"a": {"b": (1, 2)}}, '{"a":{"b":[1,2]}}'),
    "dataclass": (Point(1), '{"x":1}'),
    "pydantic": (Ware(price=Decimal("1.50")), '{"price":"1.50"}'),
    "within others": (
        [Offer(Ware(price=Decimal(1)), date(2026, 1, 2))],
        '[{"ware":{"price":"1"},"until":"2026-01-02"}]',
    ),
    "enum": (Color.RED, '"red"'),
    "an enum of texts": (Size.SMALL, '"small"'),
    "bytes": (b"hi", '"aGk="'),
}


@pytest.mark.parametrize("case", TEXTS)
def test_text_stays_text_and_all_else_is_json(case: str):
    value, text = TEXTS[case]
    assert result_text(value) == text


def endless() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


UNTOLD: dict[str, tuple[Any, str]] = {
    "object": (object(), "returned an object"),
    "inside": ([object()], "an object has no JSON form"),
    "function": (len, "builtin_function_or_method"),
    "NaN": (float("nan"), "nan"),
    "infinity inside": ({"a": [float("-inf")]}, "a[0] is -inf"),
    "half a character": ("\ud800", "lone surrogate"),
    "half a character inside": (["\ud800"], "surrogate"),
    "endless": (endless(), "list"),
    "too long a number": (10**5000, "digits"),
    "a class": (Point, "type"),
}


@pytest.mark.parametrize("case", UNTOLD)
def test_what_has_no_form_in_json_is_an_error_that_names_it(case: str):
    value, words = UNTOLD[case]
    with pytest.raises(ToolError) as caught:
        result_text(value)
    assert words in str(caught.value)
