"""The options of a request: which belong into its body and which around it, and the types of those that are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from msgspec import Struct

from adjourn._checks import is_number, is_positive
from adjourn._text import a_type
from adjourn._values.frozen import shorten
from adjourn.errors import UsageError


def _is_int(value: object) -> bool:
    return type(value) is int


def _is_bool(value: object) -> bool:
    return type(value) is bool


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_mapping(value: object) -> bool:
    return isinstance(value, Mapping)


def _is_text_or_list(value: object) -> bool:
    return isinstance(value, str | list | tuple)


def _is_text_or_mapping(value: object) -> bool:
    return isinstance(value, str | Mapping)


_KINDS: tuple[tuple[str, Callable[[object], bool], str], ...] = (
    ("a number", is_number, "temperature top_p frequency_penalty presence_penalty"),
    ("an int", _is_int, "max_tokens max_completion_tokens seed top_logprobs n"),
    ("True or False", _is_bool, "parallel_tool_calls logprobs store"),
    ("a text", _is_text, "reasoning_effort service_tier user"),
    ("a text or a list of texts", _is_text_or_list, "stop"),
    ("a text or a mapping", _is_text_or_mapping, "tool_choice"),
    ("a mapping", _is_mapping, "stream_options logit_bias metadata response_format"),
    ("a mapping", _is_mapping, "extra_headers extra_query extra_body"),
    ("a number of seconds above 0", is_positive, "timeout"),
)
_TYPES = {name: (words, fits) for words, fits, names in _KINDS for name in names.split()}
_NOT_OPTIONS = {
    "max_retries": "Give the agent a Retry: ChatModelAgent(..., retry=Retry(attempts=3)).",
    "api_key": "Give it to the model: OpenAIChatModel(..., api_key=...).",
    "base_url": "Give it to the model: OpenAIChatModel(..., base_url=...).",
}


def check_options(options: object, whose: str) -> Mapping[str, Any]:
    """Return options whose types are right, as far as they are known; unknown options are the server's business.

    Raises:
        UsageError: an option is of the wrong type, or not an option.
    """
    if not isinstance(options, Mapping):
        raise UsageError(f"{whose}: options={shorten(options)}. Give a mapping of the provider's options.")
    for name, value in cast("Mapping[str, object]", options).items():
        if name in _NOT_OPTIONS:
            raise UsageError(f"{whose} has the option '{name}', which is not sent to a model. {_NOT_OPTIONS[name]}")
        words, fits = _TYPES.get(name, ("", None))
        if value is not None and fits is not None and not fits(value):
            # What is meant for headers may be a secret, and must not be shown.
            shown = a_type(value) if name.startswith("extra_") else shorten(value)
            raise UsageError(f"{whose} has the option {name}={shown}. Give {words}.")
    return cast("Mapping[str, Any]", options)


class Around(Struct, frozen=True):
    """What is sent around the body of a request, and how long to wait for the server; a None removes a header."""

    headers: Mapping[str, str | None] = {}
    query: Mapping[str, Any] = {}
    timeout: float | None = None


def split_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], Around]:
    """Return the options that belong into the body, and the rest."""
    body = {name: value for name, value in options.items() if not name.startswith("extra_") and name != "timeout"}
    headers: Mapping[object, object] = options.get("extra_headers") or {}
    around = Around(
        headers={str(name): None if value is None else str(value) for name, value in headers.items()},
        query=dict(options.get("extra_query") or {}),
        timeout=options.get("timeout"),
    )
    unknown = {name: value for name, value in options.items() if name.startswith("extra_") and name not in _TYPES}
    return {**body, **unknown, **(options.get("extra_body") or {})}, around
