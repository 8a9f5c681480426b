"""Convert errors of the OpenAI SDK to `ModelError`."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from adjourn.errors import ContextTooLong, ModelError

from ._answer import ErrorInAnswer, UnfinishedAnswer
from ._words import code_of, is_too_long, quoted, status_of, words_of

if TYPE_CHECKING:
    import openai

# Statuses below 500 after which the same request may succeed: timeout, conflict, a model that is not ready, too early,
# too many requests.
_TEMPORARY = frozenset({408, 409, 424, 425, 429})
# Codes for errors that waiting does not fix, whatever the status.
_PERMANENT = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
# The same where there is no status.
_WRONG = _PERMANENT | {"invalid_request_error"}
# Codes for errors after which the same request may succeed, whatever the status: the model wrote a call that the server
# could not read.
_FLEETING = frozenset({"tool_use_failed", "output_parse_failed"})
_HTTP_LIBRARIES = frozenset({"httpx", "httpx2", "httpcore", "httpcore2"})

_ADVICE = {
    400: "Fix the request: its messages, tools, options or output schema.",
    401: "Check the key: OPENAI_API_KEY in the environment, or api_key=....",
    403: "Check the permissions of the key: OPENAI_API_KEY in the environment, or api_key=....",
    404: "Check the name of the model, and base_url=..., which ends in /v1 for most servers.",
    413: "The request is too large: send less.",
    422: "Fix the request: its messages, tools, options or output schema.",
}
_REMEDIES = {
    re.compile(r"tools with reasoning.?effort|use /?v1/responses", re.IGNORECASE): (
        "This model takes tools in chat completions only without reasoning: give options={'reasoning_effort': 'none'}, "
        "or use a model that takes both, such as 'gpt-5'."
    ),
    re.compile(r"only (be )?(supported|available|used) (in|with|via) .{0,20}v1/responses", re.IGNORECASE): (
        "This model needs OpenAI's Responses API, which Adjourn does not support yet. Use another model, such as "
        "'gpt-5'."
    ),
    re.compile(r"requires? --jinja"): "Start llama.cpp's server with --jinja.",
}
_AGAIN = "Try again, or use Retry(on=ModelError)."


def model_error(error: Exception, model: str, provider: str) -> ModelError | None:
    """Return the error as a `ModelError`; None if it is not from the provider or the connection to it."""
    import openai  # noqa: PLC0415 - an extra, already loaded at this point

    about = _About(model, provider)
    if isinstance(error, openai.APITimeoutError) or (_is_of_http_library(error) and "Timeout" in type(error).__name__):
        return about.interrupted("did not respond in time", "Increase timeout=..., or try again.")
    if isinstance(error, openai.APIConnectionError) or _is_of_http_library(error):
        return about.interrupted(f"could not be reached, or the connection broke: {_cause(error)}", _AGAIN)
    if isinstance(error, openai.APIStatusError):
        return about.refused(error.status_code, error.response.headers, _body_of(error))
    if isinstance(error, openai.APIResponseValidationError | ValueError | UnfinishedAnswer):
        return about.interrupted(_fault(error), _AGAIN)
    if isinstance(error, openai.APIError | ErrorInAnswer):
        return about.broken(error.body or str(error))
    return None


class _About:
    """Makes the errors of one model."""

    def __init__(self, model: str, provider: str) -> None:
        self.model = model
        self.provider = provider

    def interrupted(self, what: str, advice: str) -> ModelError:
        return ModelError(f"The model '{self.model}' {what}. {advice}", provider=self.provider)

    def refused(self, status: int, headers: Mapping[str, str], body: object) -> ModelError:
        """Return the error for a response with an error status."""
        code, words = code_of(body), words_of(body) or quoted(body) or f"HTTP {status}"
        is_temporary = _is_temporary(status, code)
        wait = retry_after(headers, time.time()) if is_temporary else None
        waiting = f"Wait {_shown(wait)} seconds, then try again." if wait else _AGAIN
        advice = waiting if is_temporary else _ADVICE.get(status, "Fix the request, or check the account.")
        said = f"The model '{self.model}' answered with status {status}: {words.removesuffix('.')}."
        if is_too_long(body, words, status):
            return self._too_long(said, status, code)
        return ModelError(
            f"{said} {_remedy(words) or advice}",
            provider=self.provider,
            status=status,
            code=code,
            retry_after=wait,
            retryable=is_temporary,
        )

    def broken(self, body: object) -> ModelError:
        """Return the error for one that came in place of an answer, or in the middle of it."""
        code, status, words = code_of(body), status_of(body), words_of(body) or quoted(body) or "it does not say which"
        is_temporary = code not in _WRONG if status is None else _is_temporary(status, code)
        said = f"The model '{self.model}' stopped with an error: {words.removesuffix('.')}."
        if is_too_long(body, words, status):
            return self._too_long(said, status, code)
        advice = _remedy(words) or (_AGAIN if is_temporary else _ADVICE.get(status or 400, _ADVICE[400]))
        return ModelError(f"{said} {advice}", provider=self.provider, status=status, code=code, retryable=is_temporary)

    def _too_long(self, said: str, status: int | None, code: str | None) -> ModelError:
        return ContextTooLong(
            f"{said} Send less: shorten the conversation with Summarize(...), or use a model with a larger context.",
            provider=self.provider,
            status=status,
            code=code,
        )


def _is_temporary(status: int, code: str | None) -> bool:
    return (status in _TEMPORARY or status >= 500 or code in _FLEETING) and code not in _PERMANENT


def _remedy(words: str) -> str | None:
    return next((advice for pattern, advice in _REMEDIES.items() if pattern.search(words)), None)


def _body_of(error: openai.APIStatusError) -> object:
    """Return the whole body: the SDK keeps only what is called `error` in it."""
    try:
        return error.response.json()
    except Exception:  # noqa: BLE001  # not JSON, or already closed: the SDK kept what there is
        return error.body or str(error)


def _fault(error: Exception) -> str:
    if isinstance(error, UnfinishedAnswer):
        return ": ".join(filter(None, ("stopped before its answer was complete", str(error))))
    return f"sent a malformed answer: {_cause(error)}"


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
            wait = float(text) / 1000
        else:
            wait = _seconds(headers.get("retry-after") or "nan", now)
    except (ValueError, TypeError, OverflowError):
        return None
    return max(0.0, wait) if math.isfinite(wait) else None


def _shown(seconds: float) -> str:
    return f"{seconds:g}" if seconds < 100 else f"{math.ceil(seconds):,}"


def _seconds(text: str, now: float) -> float:
    try:
        return float(text)
    except ValueError:
        return parsedate_to_datetime(text).timestamp() - now
