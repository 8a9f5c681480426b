"""YAML is read as plain data, with the place of everything that is wrong."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from adjourn._yaml import MAX_DEPTH, MAX_DOCUMENTS, data_of, read_yaml
from adjourn.errors import UsageError
from tests.spec.folder import MARK, marked


def data(text: str) -> list[Any]:
    nodes, problems = read_yaml(text)
    found = [data_of(node, problems) for node in nodes]
    assert problems == []
    return found


def test_data_is_what_both_versions_of_yaml_agree_on():
    assert data(
        "a: [1, -2, 0x1F, 1.5, 1.0e+3, true, False, null, ~, '1', \"true\", text, a b]\n"
        "b:\n- |\n  one\n  two\n- >-\n  one\n  two\n- {}\n- y\n- 1.2.3\n- 12:30pm\n- e2e\n- v1\n- .\nc:\n"
        "---\n# nothing\n---\n- x\n"
    ) == [
        {
            "a": [1, -2, 31, 1.5, 1000.0, True, False, None, None, "1", "true", "text", "a b"],
            "b": ["one\ntwo\n", "one two", {}, "y", "1.2.3", "12:30pm", "e2e", "v1", "."],
            "c": None,
        },
        ["x"],
    ]


@pytest.mark.parametrize(
    "text",
    [
        *("yes", "No", "ON", "off", "1_000", "017", "0o17", "0b11", "1:30", "1e3", "1.", ".5", ".inf", "-.NaN"),
        *("2026-01-01", "2026-01-01T10:00:00Z", "123456789012345678901", "<<", "="),
    ],
)
def test_what_they_read_differently_must_be_quoted(text: str):  # attack 8
    nodes, problems = read_yaml(f"a: {text}\nb: '{text}'")
    data_of(nodes[0], problems)
    ((place, message, hint),) = [(each.place, each.message, each.hint) for each in problems]
    assert (place.line, place.column) == (1, 4)
    assert message == f"{text} means different things in different versions of YAML"
    assert f"'{text}'" in hint


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\n‸a: 2", "the key 'a' comes twice. It is already in line 1."),
        ("x: {a: 1, ‸a: 2, ‸a: 3}", "the key 'a' comes twice"),
        ("a: ‸!!python/object/apply:os.system [x]", "python/object/apply:os.system is a tag, which is not allowed"),
        ("a: ‸!mine x", "!mine is a tag"),
        ("a: ‸&x [1]\nb: ‸*x", "&x is an anchor, which is not allowed. Remove it."),
        ("‸<<: {a: 1}", "'<<' merges mappings"),
        ("‸yes: 1", "the key yes is not a text. Put it in quotes: 'yes'."),
        ("‸1: 1", "the key 1 is not a text"),
        ("‸[a]: 1", "a list or a mapping cannot be a key"),
        ("a: b‸: c", "mapping values are not allowed here. A text that contains ': ' must be in quotes."),
        ("a:\n‸\tb: c", "Indent with spaces, not with tabs."),
        ("a: ‸'b", "what begins here has no end. Is a quote or a bracket still open?"),
        ("a: 1\nb: ‸{c: 1\nd", "what begins here has no end"),
        ("a: {b: 1\nc‸: 1", "Or is one still open?"),
        ("a: [‸", "Is a quote or a bracket still open?"),
        ("a: ‸[1\n---\nb: ‸&x 2", "what begins here has no end"),
        ("a: [1, ‸[2\n...\n%YAML 1.1\n---\nb: ‸!x 2", "what begins here has no end"),
        ("a:\n  b: 1\n ‸c: 1", "Indent lines alike that belong together"),
        ("a: {b} ‸is here", "put a text that begins with { in quotes."),
        ("a: {b: $‸{C}}", "Between brackets, a text that contains any of { } [ ] , ? must be in quotes."),
        ("a: ‸@b", "A text that begins with @ must be in quotes."),
        ("a: ‸\x07", "U+0007 is not allowed in YAML"),
        ("a: 1\n---\na: ‸\x00\n---\nb: ‸&x", 'In a text in double quotes, write "\\u0000".'),
        ('a: ‸"\\ud800"', "half of a surrogate pair"),
        (f"{'[' * MAX_DEPTH}‸[", "more than 32 levels"),
    ],
)
def test_what_is_wrong_has_its_place(text: str, said: str):  # attack 8
    _, problems = read_yaml(text.replace(MARK, ""))
    assert [(each.place.line, each.place.column) for each in problems] == marked(text)
    assert said in f"{problems[0].message}. {problems[0].hint}"


def test_documents_before_and_after_a_broken_one_are_kept():
    nodes, problems = read_yaml("a: 1\n---\nb: [x\n--- # c\nc: 1\n---\nd: \x00\n---\ne: 1")
    assert [data_of(node, problems) for node in nodes] == [{"a": 1}, {"c": 1}, {"e": 1}]
    assert [each.place.line for each in problems] == [3, 7]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("---", []),
        ("---\n---\n# x\n---", []),
        ("a: 1\n...\n", [{"a": 1}]),
        ("# x\n%YAML 1.1\n---\na: 1", [{"a": 1}]),
        ("a: 1\n...\n%YAML 1.2\n---\nb: 1", [{"a": 1}, {"b": 1}]),
        ("--- {a: 1}\n--- {b: 1}", [{"a": 1}, {"b": 1}]),
        ("a: |\n  ---\n  x\n---x: 1", [{"a": "---\nx\n", "---x": 1}]),
        ("\ufeffa: 1\r\n---\r\nb: 1\r\n", [{"a": 1}, {"b": 1}]),
    ],
)
def test_documents_are_told_apart(text: str, found: list[Any]):
    assert data(text) == found


def test_there_are_not_too_many_documents():  # attack 16
    nodes, problems = read_yaml("--- 1\n" * (MAX_DOCUMENTS + 2))
    assert len(nodes) == MAX_DOCUMENTS
    assert [(each.place.line, each.message) for each in problems] == [(1001, "there are more than 1,000 documents")]


def test_bombs_stay_small():  # attacks 8 and 16
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 9)}]" for n in range(8)]
    nodes, problems = read_yaml("\n".join(lines))
    assert len(str([data_of(node, problems) for node in nodes])) < 1000
    assert read_yaml("x" * 300_000)[1][0].message == "the file has 300,000 characters, and at most 131,072 are read"


def test_files_with_too_much_in_them_are_not_read_to_their_end():  # attack 16
    _, (problem,) = read_yaml("- x\n" * 20_000)
    assert (problem.place.line, problem.message) == (10_001, "there are more than 10,000 keys and values")


def test_a_missing_library_names_itself(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "yaml.parser", None)
    with pytest.raises(UsageError, match=r"pip install 'adjourn\[yaml\]'"):
        read_yaml("a: 1")
