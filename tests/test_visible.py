import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjourn._text import visible, visible_line


@pytest.mark.parametrize(
    ("hidden", "spelled"),
    [
        ("\x1b[2J", "<U+001B>[2J"),
        ("\x00\x07\x7f\x9b", "<U+0000><U+0007><U+007F><U+009B>"),
        ("pay\u202e0001", "pay<U+202E>0001"),
        ("\u2066a\u2069", "<U+2066>a<U+2069>"),
        ("ad\u200bmin\ufeff", "ad<U+200B>min<U+FEFF>"),
        ("so\u00adft", "so<U+00AD>ft"),
        ("x\u3164\u2800", "x<U+3164><U+2800>"),
        ("a\U000e0041", "a<U+E0041>"),
        ("a\ufe0f", "a<U+FE0F>"),
        ("one\u2028two", "one<U+2028>two"),
        ("\ud800", "<U+D800>"),
        ("one\rtwo", "one<U+000D>two"),
    ],
)
def test_what_is_not_seen_is_spelled(hidden: str, spelled: str) -> None:
    assert visible(hidden) == spelled


@pytest.mark.parametrize(
    "plain", ["", "Zürich, 日本\u3000語, Привет", "two\nlines\tand a tab", "n°\u00a05", "⚠\ufe0f 🙂"]
)
def test_what_is_seen_stays(plain: str) -> None:
    assert visible(plain) == plain


def test_a_selector_is_spelled_when_it_is_not_the_only_one_after_a_symbol() -> None:
    assert visible("⚠\ufe0f\ufe01") == "⚠<U+FE0F><U+FE01>"


def test_line_ends_of_windows_are_line_ends() -> None:
    assert visible("one\r\ntwo") == "one\ntwo"


def test_a_name_stays_on_its_line() -> None:
    assert visible_line("one\ntwo\t\u200b") == "one<U+000A>two<U+0009><U+200B>"


@given(st.text(st.characters(codec=None)))
def test_nothing_without_a_look_gets_through(text: str) -> None:
    shown = visible_line(text)
    categories = {unicodedata.category(char) for char in shown}
    assert not categories & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    assert visible(shown) == shown
