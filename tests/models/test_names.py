"""Models by name, and what is said when there is none of that name."""

from __future__ import annotations

from typing import Any

import pytest

from adjourn import OpenAIChatModel, UsageError
from adjourn.models import DemoModel, resolve_model
from adjourn.testing import ScriptedModel


def test_a_string_names_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    model = resolve_model("openai:ft:gpt-5:acme")
    assert isinstance(model, OpenAIChatModel)
    assert model.model == "ft:gpt-5:acme"
    assert isinstance(resolve_model("demo:tickets"), DemoModel)


def test_a_model_is_given_back_as_it_is() -> None:
    model = ScriptedModel([])
    assert resolve_model(model) is model


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "gpt-5",
            r"'gpt-5' does not name a known.*Known: 'openai:…', 'demo:…'\. For OpenAI's gpt-5, write 'openai:gpt-5'",
        ),
        ("", "does not name a known provider"),
        ("acme:best", r"'acme:best' does not name a known provider\. Known: 'openai:…'"),
        ("OpenAI:gpt-5", "Known: 'openai:…'"),
        ("openai:", "no name after its provider"),
        ("anthropic:claude", "has no adapter for anthropic yet"),
        ("gemini:pro", "has no adapter for gemini yet"),
        ("demo:cars", "There is 'demo:tickets'"),
    ],
)
def test_a_string_that_names_none_is_explained(text: str, error: str) -> None:
    with pytest.raises(UsageError, match=error):
        resolve_model(text)


def test_a_missing_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(UsageError, match="'openai:gpt-5' needs a key, and OPENAI_API_KEY is not set"):
        resolve_model("openai:gpt-5")


@pytest.mark.parametrize("wrong", [None, 3, object(), ScriptedModel])
def test_what_is_no_model_is_explained(wrong: Any) -> None:
    with pytest.raises(UsageError, match=r"is not a model\. Give an object with"):
        resolve_model(wrong)
