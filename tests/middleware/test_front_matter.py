"""Front matter: the part of YAML that it uses, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from adjourn.middleware._front_matter import read_front_matter


def read(*lines: str) -> Any:
    return read_front_matter("\n".join(["---", *lines, "---", "", "Body.", ""]))[0]


def test_keys_have_texts_lists_and_keys_below() -> None:
    assert read(
        "# a comment",
        "name: pdf-forms",
        'quoted: "a: \\"b\\" # c"',
        "single: 'it''s'",
        "empty:",
        "list:",
        "  - one",
        "",
        "  # between",
        '  - "two"',
        "flat:",
        "- three",
        "metadata:",
        "  author: ann",
        "  version: 1.0",
    ) == {
        "name": "pdf-forms",
        "quoted": 'a: "b" # c',
        "single": "it's",
        "empty": "",
        "list": ["one", "two"],
        "flat": ["three"],
        "metadata": {"author": "ann", "version": "1.0"},
    }


def test_long_texts_are_folded_or_kept_line_by_line() -> None:
    assert read("a: >-", "  one", "  two", "", "  three", "b: |", "  # one", "    two", "c: x") == {
        "a": "one two\nthree",
        "b": "# one\n  two",
        "c": "x",
    }


def test_everything_is_text() -> None:
    assert read("a: no", "b: 1_000", "c: null", "d: 2026-01-01", "e: ~") == {
        "a": "no",
        "b": "1_000",
        "c": "null",
        "d": "2026-01-01",
        "e": "~",
    }


def test_the_body_is_what_stands_below() -> None:
    assert read_front_matter("---\nname: x\n---\n\n# Title\n---\nmore\n") == ({"name": "x"}, "# Title\n---\nmore")
    assert read_front_matter("\ufeff---\r\nname: x\r\n---\r\nBody")[1] == "Body"


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (["name: a", "name: b"], "line 3: the key 'name' comes twice"),
        (["m:", "  a: 1", "  a: 2"], "line 4: the key 'a' comes twice"),
        (["just words"], "line 2: 'just words' is not a 'key: value' line"),
        (["a: b: c"], "put it in double quotes"),
        (["a: b # c"], "put it in double quotes"),
        (["a: !!python/object:os.system x"], "put it in double quotes"),
        (["a: &anchor x", "b: *anchor"], "put it in double quotes"),
        (["a: {b: c}"], "put it in double quotes"),
        (["a: [b, c]"], "put it in double quotes"),
        (['a: "b'], "not a valid quoted text"),
        (["a: 'b' c"], "not a valid quoted text"),
        (["a: one", "  two"], "line 3: '  two' is not a 'key: value' line"),
        (["a:", "  - b", "    - c"], "indented differently from"),
        (["a:", "  - b", "  c: d"], "mixed"),
        (["a:", "\tb: c"], "line 3: a tab in the indentation"),
        (["a: >", "  b", "    c"], "indented differently"),
        (["? a", ": b"], "is not a 'key: value' line"),
        (["- a"], "is not a 'key: value' line"),
        ([f"k{n}: x" for n in range(300)], "more than 200 lines"),
    ],
)
def test_what_is_more_than_that_is_refused_with_its_line(lines: list[str], problem: str) -> None:  # attack 8
    with pytest.raises(ValueError, match=problem):
        read(*lines)


@pytest.mark.parametrize("text", ["", "name: x", "---\nname: x\n", "---", "# Title\n---\nname: x\n---"])
def test_a_text_without_front_matter_is_told(text: str) -> None:
    with pytest.raises(ValueError, match="---"):
        read_front_matter(text)
