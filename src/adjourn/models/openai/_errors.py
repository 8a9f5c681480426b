"""Convert errors of the OpenAI SDK to `ModelError`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import cast

from adjourn.errors import ModelError

# Statuses below 500 after which the same request may succeed: timeout, conflict, too many requests.
_TEMPORARY = frozenset({408, 409, 429})
# Codes for errors that waiting does not fix, whatever the status.
_PERMANENT = frozenset({"insufficient_quota", "billing_hard_limit_reached", "invalid_request_error"})
_HTTP_LIBRARIES = frozenset({"httpx", "httpx2", "httpcore", "httpcore2"})

_ADVICE = {
    400: "Fix the request: its messages, tools, options or output schema.",
    401: "Check the key: OPENAI_API_KEY in the environment, or api_key=....",
    403: "Check the permissions of the key: OPENAI_API_KEY in the environment, or api_key=....",
    404: "Check the name of the model, and base_url=....",
    413: "The request is too large: send less.",
    422: "Fix the request: its messages, tools, options or output schema.",
}
_AGAIN = "Try again, or use Retry(on=ModelError)."


def model_error(error: Exception, model: str) -> ModelError | None:
    """Return the error as a `ModelError`; None if it is not from the provider or the connection to it."""
    import openai  # noqa: PLC0415 - an extra, already loaded at this point

    if isinstance(error, openai.APITimeoutError) or (_is_of_http_library(error) and "Timeout" in type(error).__name__):
        return _interrupted(model, "did not respond in time", "Increase timeout=..., or try again.")
    if isinstance(error, openai.APIConnectionError) or _is_of_http_library(error):
        return _interrupted(model, f"could not be reached, or the connection broke: {_cause(error)}", _AGAIN)
    if isinstance(error, openai.APIStatusError):
        return _refused(error, model)
    if isinstance(error, openai.APIResponseValidationError | ValueError):
        return _interrupted(model, f"sent a malformed answer: {_cause(error)}", _AGAIN)
    if isinstance(error, openai.APIError):
        return _broken(error, model)
    return None


def unfinished(model: str) -> ModelError:
    """Return the error for a stream that ended without a finish reason."""
    return _interrupted(model, "ended its stream without a finish reason, so the answer is incomplete", _AGAIN)


def _interrupted(model: str, what: str, advice: str) -> ModelError:
    return ModelError(f"The model '{model}' {what}. {advice}", provider="openai")


def _refused(error: Exception, model: str) -> ModelError:
    import openai  # noqa: PLC0415 - as above

    error = cast("openai.APIStatusError", error)
    status, code = error.status_code, _code(error)
    is_temporary = (status in _TEMPORARY or status >= 500) and code not in _PERMANENT
    wait = retry_after(error.response.headers, time.time()) if is_temporary else None
    waiting = f"Wait {wait:g} seconds, then try again." if wait else _AGAIN
    advice = waiting if is_temporary else _ADVICE.get(status, "Fix the request, or check the account.")
    return ModelError(
        f"The model '{model}' answered with status {status}: {_message(error)}. {advice}",
        provider="openai",
        status=status,
        code=code,
        retry_after=wait,
        retryable=is_temporary,
    )


def _broken(error: Exception, model: str) -> ModelError:
    """Return the error for one that the server sent in the middle of a stream."""
    code = _code(error)
    is_temporary = code not in _PERMANENT and _type(error) not in _PERMANENT
    return ModelError(
        f"The model '{model}' stopped with an error: {_message(error)}. {_AGAIN if is_temporary else _ADVICE[400]}",
        provider="openai",
        code=code,
        retryable=is_temporary,
    )


def _code(error: Exception) -> str | None:
    return cast("str | None", getattr(error, "code", None)) or _type(error)


def _type(error: Exception) -> str | None:
    return cast("str | None", getattr(error, "type", None))


def _message(error: Exception) -> str:
    body: object = getattr(error, "body", None)
    message = cast("Mapping[str, object]", body).get("message") if isinstance(body, Mapping) else None
    return str(message or error).strip().removesuffix(".")[:1000]


def _cause(error: Exception) -> str:
    cause = error.__cause__ or error
    return ": ".join(filter(None, (type(cause).__name__, str(cause)[:300].strip().removesuffix("."))))


def _is_of_http_library(error: Exception) -> bool:
    # While streaming, older SDKs do not wrap the errors of their HTTP library, and the library has changed over time.
    return type(error).__module__.partition(".")[0] in _HTTP_LIBRARIES


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return how many seconds a server asks to wait, from a header in seconds, milliseconds or as a date."""
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
