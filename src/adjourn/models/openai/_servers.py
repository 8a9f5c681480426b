"""What known servers can do, by their address and the name of the model."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from adjourn.models.abilities import Abilities

_OPENAI = Abilities()
# A server that we know nothing about. Nearly all enforce a JSON Schema, but several (llama.cpp, Groq, Gemini) refuse
# one beside tools; and the chat templates of many models cannot handle a content of null.
_UNKNOWN = Abilities(json_schema_with_tools=False, null_content=False)
# These answer a JSON Schema with an error, or ignore it, at least for some of their models.
_NO_SCHEMA = Abilities(json_schema=False, json_schema_with_tools=False, null_content=False)

_HOSTS: tuple[tuple[str, Abilities], ...] = (
    ("api.openai.com", _OPENAI),
    ("openai.azure.com", _OPENAI),
    ("services.ai.azure.com", _OPENAI),
    ("cognitiveservices.azure.com", _OPENAI),
    ("api.deepseek.com", Abilities(json_schema=False, json_schema_with_tools=False, images=False, null_content=False)),
    ("api.groq.com", _NO_SCHEMA),
    ("openrouter.ai", _NO_SCHEMA),
    ("api.together.xyz", _NO_SCHEMA),
    ("api.together.ai", _NO_SCHEMA),
)
# OpenAI's models from before August 2024 take tools, but no schema.
_EARLY = re.compile(r"gpt-3\.5|gpt-4(-turbo|-32k|-\d{4})?(-preview)?(-\d{4}(-\d\d){0,2})?$|gpt-4o-2024-05-13")


_EARLY_OPENAI = Abilities(json_schema=False, json_schema_with_tools=False)


def abilities_of(model: str, base_url: str | None) -> Abilities:
    """Return what a model can do on the server at `base_url`; None is OpenAI itself."""
    host = _host(base_url)
    found = next((known for name, known in _HOSTS if host == name or host.endswith(f".{name}")), _UNKNOWN)
    return _EARLY_OPENAI if found is _OPENAI and _EARLY.match(model) else found


def provider_of(base_url: str | None) -> str:
    """Return who gets back what an answer was signed with: "openai", or the address of another server.

    With the port, if the address has one: on one host, there may be servers of several providers.
    """
    if base_url is None or _host(base_url) == "api.openai.com":
        return "openai"
    return urlsplit(base_url).netloc.rpartition("@")[2].lower() or base_url


def _host(base_url: str | None) -> str:
    return "api.openai.com" if base_url is None else (urlsplit(base_url).hostname or base_url)
