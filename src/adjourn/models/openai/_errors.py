"""What the OpenAI SDK raises, as errors of ours."""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import cast

from adjourn.errors import ModelError

# Statuses below 500 after which the same request may well succeed: too slow, in conflict, too many.
_PASSING = frozenset({408, 409, 429})
# Words that providers use for what no waiting mends, whatever the status.
_LASTING = frozenset({"insufficient_quota", "billing_hard_limit_reached", "invalid_request_error"})
_HTTP_LIBRARIES = frozenset({"httpx", "httpx2", "httpcore", "httpcore2"})

_ADVICE = {
    400: "Mend the request: its messages, tools, options or output schema.",
    401: "Check the key: OPENAI_API_KEY in the environment, or api_key=....",
    403: "Check what the key may do: OPENAI_API_KEY in the environment, or api_key=....",
    404: "Check the name of the model, and base_url=....",
    413: "The request is too large: send less.",
    422: "Mend the request: its messages, tools, options or output schema.",
}
_AGAIN = "Try again, or let Retry(on=ModelError) do so."


def model_error(error: Exception, model: str) -> ModelError | None:
    """The error as a ModelError; None for what does not come from the provider or the way there."""
    import openai  # noqa: PLC0415 - an extra, loaded before anybody can get here

    if isinstance(error, openai.APITimeoutError) or (_is_of_http_library(error) and "Timeout" in type(error).__name__):
        return _cut(model, "gave no sign of life in time", "Raise timeout=..., or try again.")
    if isinstance(error, openai.APIConnectionError) or _is_of_http_library(error):
        return _cut(model, f"could not be reached, or broke off: {_cause(error)}", _AGAIN)
    if isinstance(error, openai.APIStatusError):
        return _refused(error, model)
    if isinstance(error, openai.APIResponseValidationError | ValueError):
        return _cut(model, f"answered with something malformed: {_cause(error)}", _AGAIN)
    if isinstance(error, openai.APIError):
        return _broken(error, model)
    return None


def unfinished(model: str) -> ModelError:
    """The error for a stream that ended before the server said why."""
    return _cut(model, "ended its stream without a finish reason, so the answer is incomplete", _AGAIN)


def _cut(model: str, what: str, advice: str) -> ModelError:
    return ModelError(f"The model '{model}' {what}. {advice}", provider="openai")


def _refused(error: Exception, model: str) -> ModelError:
    import openai  # noqa: PLC0415 - as above

    error = cast("openai.APIStatusError", error)
    status, code = error.status_code, _code(error)
    is_passing = (status in _PASSING or status >= 500) and code not in _LASTING
    wait = retry_after(error.response.headers, time.time()) if is_passing else None
    waiting = f"Wait {wait:g} seconds, then try again." if wait else _AGAIN
    advice = waiting if is_passing else _ADVICE.get(status, "Mend the request, or the account that it is made with.")
    return ModelError(
        f"The model '{model}' answered with status {status}: {_said(error)}. {advice}",
        provider="openai",
        status=status,
        code=code,
        retry_after=wait,
        retryable=is_passing,
    )


def _broken(error: Exception, model: str) -> ModelError:
    """An error that the server sent in the middle of a stream."""
    code = _code(error)
    is_passing = code not in _LASTING and _type(error) not in _LASTING
    return ModelError(
        f"The model '{model}' broke off with an error: {_said(error)}. {_AGAIN if is_passing else _ADVICE[400]}",
        provider="openai",
        code=code,
        retryable=is_passing,
    )


def _code(error: Exception) -> str | None:
    return cast("str | None", getattr(error, "code", None)) or _type(error)


def _type(error: Exception) -> str | None:
    return cast("str | None", getattr(error, "type", None))


def _said(error: Exception) -> str:
    body: object = getattr(error, "body", None)
    told = cast("Mapping[str, object]", body).get("message") if isinstance(body, Mapping) else None
    return str(told or error).strip().removesuffix(".")[:1000]


def _cause(error: Exception) -> str:
    cause = error.__cause__ or error
    return ": ".join(filter(None, (type(cause).__name__, str(cause)[:300].strip().removesuffix("."))))


def _is_of_http_library(error: Exception) -> bool:
    # Older SDKs let their HTTP library's errors through while they stream, and which library it is has changed.
    return type(error).__module__.partition(".")[0] in _HTTP_LIBRARIES


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """The seconds that a server wants to be left alone, given as such, in milliseconds, or as a date."""
    try:
        if text := headers.get("retry-after-ms"):
            return max(0.0, float(text) / 1000)
        text = headers.get("retry-after")
        return None if not text else max(0.0, _seconds(text, now))
    except (ValueError, TypeError):
        return None


def _seconds(text: str, now: float) -> float:
    try:
        return float(text)
    except ValueError:
        return parsedate_to_datetime(text).timestamp() - now
