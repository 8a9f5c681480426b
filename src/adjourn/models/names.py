"""Models by name: "openai:gpt-5"."""

from __future__ import annotations

from collections.abc import Callable

from adjourn.errors import UsageError

from .protocol import ChatModel

_LATER = ("anthropic", "gemini")


def resolve_model(model: str | ChatModel) -> ChatModel:
    """The model that a string names, such as "openai:gpt-5"; a model object is given back as it is.

    Raises:
        UsageError: no provider has this name, what it needs is not installed, its key is not in the environment, or
            the object is no model.
    """
    if isinstance(model, str):
        return _named(model)
    if isinstance(model, type) or not (hasattr(model, "generate") or hasattr(model, "stream")):
        raise UsageError(
            f"{model!r} is no model. Give an object with `async generate(request)` or `stream(request)`, or a string "
            f"such as 'openai:gpt-5'."
        )
    return model


def _named(text: str) -> ChatModel:
    provider, separator, name = text.partition(":")
    if provider in _LATER:
        raise UsageError(
            f"The model '{text}' cannot be had: this version of Adjourn has no adapter for {provider} yet. It has one "
            f"for {_known()}; {provider} through a server that speaks OpenAI's protocol is "
            "OpenAIChatModel(name, base_url=...)."
        )
    if not separator or provider not in _PROVIDERS:
        hint = "" if separator else f" For OpenAI's {text}, write 'openai:{text}'."
        raise UsageError(f"The model '{text}' names no provider that is known. Known: {_known()}.{hint}")
    if not name.strip():
        raise UsageError(f"The model '{text}' has no name after its provider. Write for instance '{provider}:gpt-5'.")
    return _PROVIDERS[provider](name)


def _known() -> str:
    return ", ".join(f"'{provider}:…'" for provider in _PROVIDERS)


def _openai(name: str) -> ChatModel:
    from .openai.model import OpenAIChatModel  # noqa: PLC0415 - an adapter is loaded by those who use it

    return OpenAIChatModel(name)


def _demo(name: str) -> ChatModel:
    from .demo import DemoModel  # noqa: PLC0415 - as above

    if name != "tickets":
        raise UsageError(f"The model 'demo:{name}' does not exist. There is 'demo:tickets'.")
    return DemoModel()


_PROVIDERS: dict[str, Callable[[str], ChatModel]] = {"openai": _openai, "demo": _demo}
