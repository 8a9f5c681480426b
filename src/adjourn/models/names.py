"""Models by name: "openai:gpt-5"."""

from __future__ import annotations

from collections.abc import Callable

from adjourn.errors import UsageError

from .protocol import ChatModel

_LATER = ("anthropic", "gemini")


def resolve_model(model: str | ChatModel) -> ChatModel:
    """Return the model for a name such as "openai:gpt-5"; a model object is returned unchanged.

    Raises:
        UsageError: there is no such provider, its package is not installed, its key is not in the environment, or the
            object is not a model.
    """
    if isinstance(model, str):
        return _named(model)
    if isinstance(model, type) or not (hasattr(model, "generate") or hasattr(model, "stream")):
        raise UsageError(
            f"{model!r} is not a model. Give an object with `async generate(request)` or `stream(request)`, or a "
            "string such as 'openai:gpt-5'."
        )
    return model


def _named(text: str) -> ChatModel:
    provider, separator, name = text.partition(":")
    if provider in _LATER:
        raise UsageError(
            f"The model '{text}' is not available: this version of Adjourn has no adapter for {provider} yet, only "
            f"for {_known()}. To use {provider} through a server that speaks OpenAI's protocol, use "
            "OpenAIChatModel(name, base_url=...)."
        )
    if not separator or provider not in _PROVIDERS:
        hint = "" if separator else f" For OpenAI's {text}, write 'openai:{text}'."
        raise UsageError(f"The model '{text}' does not name a known provider. Known: {_known()}.{hint}")
    if not name.strip():
        raise UsageError(f"The model '{text}' has no name after its provider. Write, for example, '{provider}:gpt-5'.")
    return _PROVIDERS[provider](name)


def _known() -> str:
    return ", ".join(f"'{provider}:…'" for provider in _PROVIDERS)


def _openai(name: str) -> ChatModel:
    from .openai.model import OpenAIChatModel  # noqa: PLC0415 - adapters are loaded on first use

    return OpenAIChatModel(name)


def _demo(name: str) -> ChatModel:
    from .demo import DemoModel  # noqa: PLC0415 - as above

    if name != "tickets":
        raise UsageError(f"The model 'demo:{name}' does not exist. There is 'demo:tickets'.")
    return DemoModel()


_PROVIDERS: dict[str, Callable[[str], ChatModel]] = {"openai": _openai, "demo": _demo}
