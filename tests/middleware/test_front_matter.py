"""Front matter is YAML, read as plain data, where everything is text."""

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
        (["name: a", "name: b"], "line 3: the key 'name' comes twice. It is already in line 2"),
        (["m:", "  a: 1", "  a: 2"], "line 4: the key 'a' comes twice"),
        (["just words"], "line 2: it has to be lines of 'key: value'"),
        (["- a"], "line 2: it has to be lines of 'key: value'"),
        (["a: 1", "--- # b", "b: 1"], "line 4: it has to be lines of 'key: value'"),
        (
            ["a:", "  b: c: d"],
            "line 3: mapping values are not allowed here. A text that contains ': ' must be in quotes",
        ),
        (["a: one", "  two: three"], "line 3: mapping values are not allowed"),
        (["a: !!python/object:os.system x"], "line 2: .*os.system is a tag, which is not allowed"),
        (["a: &anchor x", "b: *anchor"], "line 2: &anchor is an anchor"),
        (["a: *anchor"], "line 2: .*anchor is an alias"),
        (['a: "b'], "line 2: what begins here has no end. Is a quote or a bracket still open"),
        (["a: 'b' c"], "line 2: expected <block end>"),
        (["a:", "  - b", "  c: d"], "line 4: expected <block end>"),
        (["a:", "\tb: c"], "line 3: .*Indent with spaces, not with tabs"),
        (["yes: x"], "line 2: the key yes is not a text"),
        ([f"k{n}: x" for n in range(300)], "more than 200 lines"),
    ],
)
def test_what_is_not_plain_data_is_refused_with_its_line(lines: list[str], problem: str) -> None:  # attack 8
    with pytest.raises(ValueError, match=problem):
        read(*lines)


@pytest.mark.parametrize("text", ["", "name: x", "---\nname: x\n", "---", "# Title\n---\nname: x\n---"])
def test_a_text_without_front_matter_is_told(text: str) -> None:
    with pytest.raises(ValueError, match="---"):
        read_front_matter(text)


@pytest.mark.parametrize(
    ("lines", "value"),
    [
        ("key: one\n  two\n\n  three", "one two\nthree"),
        ("key: Use when: one\n  two: three # four\n\n  five", "Use when: one two: three five"),
        ('key: Use "when": one\\two', 'Use "when": one\\two'),
        ("key:\n  one two\n  three", "one two three"),
        ("key: >+\n  one\n  two", "one two"),
        ("key: [a, 'b c']", ["a", "b c"]),
        ("key: []", []),
        ("key: Use when: a test fails:", "Use when: a test fails:"),
        ('key: one\n  "two" three', 'one "two" three'),
        ("key: one#1 # a comment", "one#1"),
        ("key: 'one # 1' # a comment", "one # 1"),
        ('key: "one # 1"   # a comment', "one # 1"),
        ("key: | # a comment\n  one # 1", "one # 1"),
        ("key: [a, b] # a comment", ["a", "b"]),
        ("key: ['a # b']", ["a # b"]),
        ("key: # a comment\n  - a # another", ["a"]),
        ("key:\n  tags: [a, b]\n  version: 1 # a comment", {"tags": ["a", "b"], "version": "1"}),
    ],
)
def test_texts_over_several_lines_and_lists_in_one(lines: str, value: object) -> None:
    assert read_front_matter(f"---\n{lines}\nnext: x\n---\n")[0] == {"key": value, "next": "x"}


def test_values_may_be_nested() -> None:
    lines = "hooks:\n  Stop:\n    - run: [{a: b}]\n  Start: {c: no}\nname: x # y"
    about, _ = read_front_matter(f"---\n{lines}\n---\n")
    assert about == {"hooks": {"Stop": [{"run": [{"a": "b"}]}], "Start": {"c": "no"}}, "name": "x"}
