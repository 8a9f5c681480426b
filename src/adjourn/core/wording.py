"""Words for messages that are built from names."""

from __future__ import annotations


def with_article(noun: str) -> str:
    """A name with "a" or "an" before it; one with u is taken to sound like "UUID" and "user"."""
    return f"{'an' if noun.lstrip('_')[:1].lower() in tuple('aeio') else 'a'} {noun}"


def a_type(value: object) -> str:
    """The name of a value's type, with its article."""
    return with_article(type(value).__qualname__)


def undotted(sentence: object) -> str:
    """Somebody else's text without the dot at its end, so that more can follow."""
    return str(sentence).rstrip(" .")
