"""Regular expressions: they mean what they mean to `re`, and no text takes long."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjourn._schemas.patterns import BadPattern, TooHard, Work, pattern

SINGLE = ["a", "b", ".", r"\d", r"\w", r"\s", "[ab]", "[^a]", "[a-c1]", r"[^\d\s]", r"\n", "é"]
PLACES = ["^", "$", r"\b", r"\B", r"\A", r"\Z", "(?=a)", "(?!ab)", "(?<=a)", "(?<!ba)", "(?=b$)", "(?!^a*$)"]
REPEATS = ["*", "+", "?", "*?", "+?", "{2}", "{0,2}", "{1,}", "{,2}?"]
FLAGS = ["", "(?i)", "(?m)", "(?s)", "(?a)", "(?x)", "(?ims)"]


def around(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return (
        st.lists(inner, max_size=3).map("".join)
        | st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"({'|'.join(parts)})")
        | st.tuples(inner, st.sampled_from(REPEATS)).map(lambda parts: f"(?:{parts[0]}){parts[1]}")
        | inner.map(lambda part: f"(?i:{part})")
    )


BODIES = st.recursive(st.sampled_from([*SINGLE, *PLACES]), around, max_leaves=8)
TEXTS = st.text("abcAB1 \né", max_size=8)


@given(st.sampled_from(FLAGS), BODIES, st.lists(TEXTS, max_size=4))
def test_an_expression_means_what_it_means_to_python(flags: str, body: str, texts: list[str]) -> None:
    found, expected = pattern(flags + body), re.compile(flags + body)
    for text in ["", *texts, *texts]:  # again, from what is remembered
        assert found.search(text, Work()) is (expected.search(text) is not None)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("(a+)+$", "a" * 100_000 + "!"),
        ("^(a|a)*$", "a" * 100_000 + "!"),
        (r"^(\w+\s?)*$", "a " * 50_000 + "!"),
        ("(.*)*x", "é" * 100_000),
        ("^a*a*a*a*a*a*$", "a" * 100_000 + "!"),
        ("a+b", "a" * 100_000),  # the square of the length, anywhere in the text
    ],
)
def test_no_text_stalls_the_search(source: str, text: str) -> None:  # attack 16
    # With a search that goes back, none of these would end before the time limit of a test.
    assert pattern(source).search(text, Work()) is False


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (r"(?=(a+)+$)b", "a" * 100_000),
        ("(?:a?){1000}a{1000}$", "a" * 100_000 + "b"),
        ("".join(f"[^{chr(code)}]*" for code in range(0x400, 0x500)) + "$", "".join(map(chr, range(0x400, 0x4000)))),
    ],
)
def test_what_would_take_too_long_is_given_up(source: str, text: str) -> None:  # attack 16
    with pytest.raises(TooHard):
        pattern(source).search(text, Work())


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("(", "is not a regular expression: missing )"),
        ("(" * 5000, "is nested too deeply"),
        ("a{99999999999}", "is not a regular expression"),
        ("(?:a{1000}){1000}", "is too large"),
        ("(?:){65000}", "is too large"),
        (r"(a)\1", "refers back to a group"),
        ("(a)?(?(1)b|c)", "depends on a group"),
        ("(?>a)", "has an atomic group"),
        ("a++", "has a possessive repetition"),
    ],
)
def test_what_cannot_be_searched_for_is_refused(source: str, why: str) -> None:
    with pytest.raises(BadPattern) as caught:
        pattern(source)
    assert str(caught.value).startswith(why)


def test_what_is_remembered_stays_small() -> None:
    found: Any = pattern("^[^x]*y$")
    for first in range(200):
        found.search("".join(map(chr, range(0x4E00 + first * 50, 0x4E00 + first * 50 + 400))), Work())
    assert len(found._known) < 20_000
