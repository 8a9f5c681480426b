"""Read the token counts of an answer; servers name them in many ways, and odd ones never cost an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from adjourn.messages import Usage

_MOST = 2**53  # beyond this, JSON numbers are not exact

_INPUT = ("prompt_tokens", "input_tokens", "prompt_n")
_OUTPUT = ("completion_tokens", "output_tokens", "predicted_n")
_TOTAL = ("total_tokens",)
_CACHED = (
    "prompt_tokens_details.cached_tokens",
    "input_tokens_details.cached_tokens",
    "prompt_cache_hit_tokens",
    "cache_read_input_tokens",
    "cached_tokens",
    "cache_n",
)
_WRITTEN = (
    "prompt_tokens_details.cache_write_tokens",
    "prompt_tokens_details.cache_creation_tokens",
    "cache_creation_input_tokens",
)
_REASONING = (
    "completion_tokens_details.reasoning_tokens",
    "output_tokens_details.reasoning_tokens",
    "reasoning_tokens",
)


def usage_of(data: Mapping[str, Any]) -> Usage | None:
    """Return the usage in a piece of an answer; None if there is none, or nothing of it can be understood."""
    for place in _places(data):
        if isinstance(place, Mapping):
            usage = _usage(cast("Mapping[str, Any]", place))
            if usage is not None:
                return usage
    return None


def _places(data: Mapping[str, Any]) -> tuple[object, ...]:
    choices: object = data.get("choices")
    first: object = cast("list[object]", choices)[0] if isinstance(choices, list) and choices else None
    return (data.get("usage"), _at(data, "x_groq.usage"), _at(first, "usage"), data.get("timings"))


def _usage(counts: Mapping[str, Any]) -> Usage | None:
    read, written = _count(counts, _INPUT) or 0, _count(counts, _OUTPUT) or 0
    if not read and not written:
        # A total alone is counted as input, which most of it is. Zeros say nothing, and must not replace a real count.
        read = _count(counts, _TOTAL) or 0
    if not read and not written:
        return None
    return Usage(
        calls=1,
        input_tokens=read,
        output_tokens=written,
        cached_tokens=_count(counts, _CACHED) or 0,
        reasoning_tokens=_count(counts, _REASONING) or 0,
        cache_write_tokens=_count(counts, _WRITTEN) or 0,
    )


def _count(counts: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    found = (_number(_at(counts, name)) for name in names)
    return next((number for number in found if number is not None), None)


def _at(data: object, path: str) -> object:
    for name in path.split("."):
        data = cast("Mapping[str, object]", data).get(name) if isinstance(data, Mapping) else None
    return data


def _number(value: object) -> int | None:
    if isinstance(value, str | float):
        try:
            value = int(float(value))
        except (ValueError, OverflowError):
            return None
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST
    return cast("int", value) if is_count else None
