"""What a JSON Schema has against data, keyword by keyword."""

import itertools
from typing import Any

import pytest

from adjourn._schemas.jsonschema import MAX_PROBLEMS, mistakes, problems

TREE = {
    "$ref": "#/$defs/tree",
    "$defs": {"tree": {"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}, "n": {"type": "integer"}}}},
}
CARD = {
    "type": "object",
    "properties": {"kind": {"const": "card"}, "no": {"type": "string"}},
    "required": ["kind", "no"],
}
CASH = {
    "type": "object",
    "properties": {"kind": {"const": "cash"}},
    "required": ["kind"],
    "additionalProperties": False,
}

# schema, data that fits, data that does not, with the problem
CASES: list[tuple[dict[str, Any], list[Any], dict[str, Any]]] = [
    ({}, [None, 1, "a", [], {}], {}),
    ({"type": "null"}, [None], {"$: expected null, got 0": 0}),
    ({"type": "boolean"}, [True, False], {"$: expected boolean, got 1": 1}),
    (
        {"type": "integer"},
        [1, -1, 1.0, 2**80],
        {"$: expected integer, got true": True, "$: expected integer, got 1.5": 1.5},
    ),
    ({"type": "number"}, [1, 1.5], {'$: expected number, got "1"': "1", "$: expected number, got true": True}),
    ({"type": "number"}, [2**1000], {"$: expected number, got 1" + "0" * 58 + "…": 10**400}),
    ({"type": "string"}, ["", "a"], {"$: expected string, got null": None}),
    ({"type": "array"}, [[]], {"$: expected array, got {}": {}}),
    ({"type": "object"}, [{}], {"$: expected object, got []": []}),
    ({"type": ["integer", "null"]}, [1, None], {'$: expected integer or null, got "a"': "a"}),
    ({"enum": [1, "a", None]}, [1, 1.0, "a", None], {'$: expected one of 1, "a", null, got true': True}),
    (
        {"enum": [[1, {"a": True}]]},
        [[1.0, {"a": True}]],
        {'$: expected [1,{"a":true}], got [1,{"a":1}]': [1, {"a": 1}]},
    ),
    ({"const": False}, [False], {"$: expected false, got 0": 0}),
    ({"minimum": 1}, [1, "a"], {"$: expected at least 1, got 0.5": 0.5}),
    ({"maximum": 1}, [1, None], {"$: expected at most 1, got 2": 2}),
    ({"exclusiveMinimum": 1}, [1.1], {"$: expected more than 1, got 1": 1}),
    ({"exclusiveMaximum": 1}, [0, True], {"$: expected less than 1, got 1": 1}),
    ({"multipleOf": 3}, [0, 6, -9, 3.0], {"$: expected a multiple of 3, got 4": 4}),
    ({"multipleOf": 0.01}, [19.99, 1e300], {"$: expected a multiple of 0.01, got 0.005": 0.005}),
    ({"minLength": 2}, ["ab", "🙂🙂", 1], {'$: expected at least 2 characters, got "a"': "a"}),
    ({"maxLength": 2}, ["ab", "🙂🙂", [1, 2, 3]], {'$: expected at most 2 characters, got "abc"': "abc"}),
    ({"pattern": "^a+$"}, ["aa", 1], {'$: expected text that matches ^a+$, got "b"': "b"}),
    ({"format": "date"}, ["2026-02-28", 1], {'$: expected the format date, got "2026-02-30"': "2026-02-30"}),
    (
        {"format": "date-time"},
        ["2026-01-01T10:00:00Z", "2026-01-01T10:00:00.5+02:00", "2026-01-01T10:00:00"],
        {'$: expected the format date-time, got "tomorrow"': "tomorrow"},
    ),
    ({"format": "time"}, ["10:00:00"], {'$: expected the format time, got "25:00:00"': "25:00:00"}),
    ({"format": "duration"}, ["PT1H", "P3D"], {'$: expected the format duration, got "1 h"': "1 h"}),
    ({"format": "uuid"}, ["c582e252-79db-4881-9ffe-0deaa21015d7"], {'$: expected the format uuid, got "c5"': "c5"}),
    ({"format": "email"}, ["not checked"], {}),
    ({"contentEncoding": "base64"}, ["aGk=", ""], {'$: expected the format base64, got "a!"': "a!"}),
    ({"items": {"type": "integer"}}, [[], [1], "a"], {'$[1]: expected integer, got "a"': [1, "a"]}),
    (
        {"prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False},
        [[], [1], [1, "a"]],
        {"$[1]: expected string, got 2": [1, 2], "$[2]: expected nothing here, got 3": [1, "a", 3]},
    ),
    ({"minItems": 1}, [[1], {}], {"$: expected at least 1 items, got []": []}),
    ({"maxItems": 1}, [[1], {}], {"$: expected at most 1 items, got [1,2]": [1, 2]}),
    ({"uniqueItems": True}, [[1, True, "1", [1], [True]]], {"$: expected no duplicate items, got [1,1.0]": [1, 1.0]}),
    ({"uniqueItems": False}, [[1, 1]], {}),
    ({"required": ["a"]}, [{"a": 1}, []], {"$: lacks 'a'": {"b": 1}}),
    ({"properties": {"a": {"type": "string"}}}, [{}, {"a": "x", "b": 1}], {"$.a: expected string, got 1": {"a": 1}}),
    (
        {"properties": {"a": {}}, "patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": False},
        [{"a": "q", "x1": 1}],
        {"$: has the unknown key 'b'; known: a": {"b": 1}, '$.x2: expected integer, got "q"': {"x2": "q"}},
    ),
    ({"additionalProperties": {"type": "integer"}}, [{"a": 1}, 3], {'$.a: expected integer, got "x"': {"a": "x"}}),
    (
        {"propertyNames": {"maxLength": 1}},
        [{"a": 1}],
        {'$ (a key): expected at most 1 characters, got "ab"': {"ab": 1}},
    ),
    ({"minProperties": 1}, [{"a": 1}, []], {"$: expected at least 1 keys, got {}": {}}),
    ({"maxProperties": 0}, [{}], {'$: expected at most 0 keys, got {"a":1}': {"a": 1}}),
    ({"allOf": [{"minimum": 1}, {"maximum": 2}]}, [1, 2], {"$: expected at most 2, got 3": 3}),
    (
        {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]},
        [1, None],
        {
            "$: expected integer with minimum 1 or null, got 0": 0,
            '$: expected integer with minimum 1 or null, got "a"': "a",
        },
    ),
    (
        {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]},
        [[1], None],
        {'$[0]: expected integer, got "a"': ["a"]},
    ),
    ({"oneOf": [{"minimum": 1}, {"maximum": 1}]}, [0, 2], {"$: fits 2 alternatives, expected exactly one, got 1": 1}),
    (
        {"oneOf": [CARD, CASH], "discriminator": {"propertyName": "kind", "mapping": {"card": "", "cash": ""}}},
        [{"kind": "card", "no": "1"}, {"kind": "cash"}],
        {
            '$.kind: expected one of "card", "cash", got "coins"': {"kind": "coins"},
            "$.no: expected string, got 1": {"kind": "card", "no": 1},
            "$: lacks 'kind'": {"no": "1"},
        },
    ),
    (
        TREE,
        [{"left": {"left": {"n": 1}}}],
        {'$.left.left.n: expected integer, got "a"': {"left": {"left": {"n": "a"}}}},
    ),
]


@pytest.mark.parametrize(("schema", "fitting", "unfit"), CASES, ids=itertools.count())
def test_each_keyword_says_what_it_has_against_data(
    schema: dict[str, Any], fitting: list[Any], unfit: dict[str, Any]
) -> None:
    assert mistakes(schema) == []
    assert [problems(data, schema) for data in fitting] == [[] for _ in fitting]
    assert [problems(data, schema) for data in unfit.values()] == [[problem] for problem in unfit]


def test_every_problem_is_told_up_to_a_limit() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["b", "c"]}
    assert problems({"a": 1}, schema) == ["$.a: expected string, got 1", "$: lacks 'b'", "$: lacks 'c'"]
    assert len(problems([1] * 100, {"items": {"type": "string"}})) == MAX_PROBLEMS


def test_without_a_schema_all_json_data_fits_and_nothing_else() -> None:
    assert problems({"a": [1, None]}, None) == []
    assert problems({"a": {1}}, None)[0].startswith("$.a is a set ({1}), which is not plain JSON data")
    assert problems(float("nan"), {})[0].startswith("$ is nan")
    assert problems("\ud800", {"type": "string"})[0].startswith("$ holds the lone surrogate")


@pytest.mark.parametrize(
    "loop",
    [
        {"$ref": "#/$defs/a"},
        {"allOf": [{"$ref": "#/$defs/a"}]},
        {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]},
    ],
)
def test_a_schema_that_refers_to_itself_without_end_is_told(loop: dict[str, Any]) -> None:
    schema = {"$ref": "#/$defs/a", "$defs": {"a": loop}}
    assert mistakes(schema) == ["$: $defs.a refers to itself endlessly"]
    assert problems(1, schema) != []


def test_deep_data_ends_in_a_problem_and_never_in_a_crash() -> None:
    deep: dict[str, Any] = {}
    for _ in range(99):
        deep = {"left": deep}
    assert problems(deep, TREE) == []
    nested: Any = {"type": "object"}
    for _ in range(10):
        nested = {"anyOf": [{"allOf": [nested]}]}
    schema = {"$ref": "#/$defs/a", "$defs": {"a": {"additionalProperties": {"$ref": "#/$defs/a"}, "allOf": [nested]}}}
    assert problems(deep, schema) in ([], ["$: is nested too deeply for its schema"])
    assert "nested more than 100 levels" in problems({"left": deep}, TREE)[0]


def test_nested_alternatives_do_not_multiply() -> None:
    child = {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}, {"type": "null"}]}
    node = {"type": "object", "properties": {"l": child, "r": child}}
    schema = {**child, "$defs": {"a": {**node, "required": ["a"]}, "b": {**node, "required": ["b"]}}}
    deep: Any = None
    for level in range(60):
        deep = {"l": deep, "a" if level % 2 else "b": 1}
    assert problems(deep, schema) == []
    assert problems({"l": deep}, schema) == ["$: lacks 'a'"]


# What data and schemas may cost


def test_no_pattern_stalls_the_check() -> None:  # attack 16
    evil = {"pattern": "^(a+)+$"}
    schema: dict[str, Any] = {"items": evil, "patternProperties": {"^(a+)+$": {}}, "additionalProperties": False}
    text = "a" * 5_000 + "!"
    assert problems([text], schema)[0].startswith("$[0]: expected text that matches ^(a+)+$")
    assert problems({text: 1}, schema)[0].startswith("$: has the unknown key")
    assert problems([text] * 1_000, {"items": {"pattern": r"\b(\w+ ?)+$"}}) == [
        "$: is too long to be compared with the patterns of its schema"
    ]


def test_a_pattern_that_was_never_checked_fits_nothing() -> None:
    assert problems("aa", {"pattern": r"(a)\1"}) == [r'$: expected text that matches (a)\1, got "aa"']


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
@pytest.mark.parametrize("data", [1, "x", None, [1], {"a": 1}])
def test_doubled_references_do_not_double_the_time(keyword: str, data: Any) -> None:  # attack 16
    defs: dict[str, Any] = {f"d{n}": {keyword: [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(60)}
    schema = {"$ref": "#/$defs/d0", "$defs": defs | {"d60": {"type": "boolean"}}}
    assert problems(data, schema)


def test_equal_values_at_several_places_are_each_reported() -> None:
    schema = {"items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"type": "string"}}}
    assert problems([1, 1], schema) == ["$[0]: expected string, got 1", "$[1]: expected string, got 1"]
