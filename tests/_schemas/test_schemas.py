"""Which JSON Schemas are taken, and when two of them mean the same."""

from typing import Any

import pytest

from adjourn._schemas.jsonschema import CHECKS, KEYWORDS, NOTES, essence, mistakes

MISTAKEN: list[tuple[dict[str, Any], str]] = [
    ({"if": {}}, "$: has the unknown key 'if'"),
    ({"not": {}}, "$: has the unknown key 'not'"),
    ({"properties": {"a": {"minimun": 1}}}, "$.properties.a: has the unknown key 'minimun'"),
    ({"anyOf": [{"$defs": {}}]}, "$.anyOf[0]: has the unknown key '$defs'"),
    ({"type": "strin"}, "$.type: expected one of"),
    ({"type": []}, "$.type: expected at least 1 items"),
    ({"properties": {"a": {"minimum": "1"}}}, "$.properties.a.minimum: expected number"),
    ({"multipleOf": 0}, "$.multipleOf: expected more than 0, got 0"),
    ({"maxLength": -1}, "$.maxLength: expected at least 0, got -1"),
    ({"enum": []}, "$.enum: expected at least 1 items"),
    ({"items": [{}]}, "$.items: expected boolean or object, got [{}]"),
    ({"anyOf": {}}, "$.anyOf: expected array"),
    ({"required": "a"}, "$.required: expected array"),
    ({"pattern": "("}, '$.pattern: expected the format regex, got "("'),
    ({"patternProperties": {"(": {}}}, '$.patternProperties (a key): expected the format regex, got "("'),
    ({"contentEncoding": "base16"}, '$.contentEncoding: expected "base64"'),
    ({"$ref": "https://example.org/schema"}, "$.$ref: expected text that matches"),
    ({"$ref": "#/$defs/a"}, "$: refers to #/$defs/a, which is not defined"),
    ({"items": {"anyOf": [{"$ref": "#/$defs/a"}]}, "$defs": {"b": {}}}, "$: refers to #/$defs/a"),
    ({"default": {1}}, "$.default is a set"),
    ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "$: $defs.a refers to itself endlessly"),
    ({"$defs": {"a": {"anyOf": [{"allOf": [{"$ref": "#/$defs/a"}]}]}}}, "$: $defs.a refers to itself endlessly"),
    ({"items": {"pattern": r"(a)\1"}}, r"$: the pattern (a)\1 refers back to a group"),
    ({"patternProperties": {"(?:a{999}){999}": {}}}, "$: the pattern (?:a{999}){999} is too large"),
]


@pytest.mark.parametrize(("schema", "mistake"), MISTAKEN)
def test_what_is_wrong_or_unknown_in_a_schema_is_refused(schema: dict[str, Any], mistake: str) -> None:
    found = mistakes(schema)
    assert len(found) == 1
    assert found[0].startswith(mistake)


def test_what_merely_looks_like_a_keyword_is_data() -> None:
    schema = {
        "properties": {"$ref": {"type": "string"}, "if": {"default": {"$ref": "x"}}},
        "enum": [{"$ref": "#/$defs/none"}],
        "required": ["not"],
    }
    assert mistakes(schema) == []


def test_every_keyword_that_is_taken_is_checked_or_a_note() -> None:
    assert set(KEYWORDS) == set(CHECKS) | NOTES | {"type"}


def test_essence_drops_the_wording_and_keeps_the_rest() -> None:
    schema: dict[str, Any] = {
        "title": "T",
        "properties": {"title": {"type": "string", "description": "d"}, "x": True},
        "anyOf": [{"$ref": "#/$defs/a", "examples": [1]}],
        "items": {"default": 3},
        "$defs": {"a": {"title": "A", "const": {"title": "kept"}}},
    }
    assert essence(schema) == {
        "properties": {"title": {"type": "string"}, "x": True},
        "anyOf": [{"$ref": "#/$defs/a"}],
        "items": {},
        "$defs": {"a": {"const": {"title": "kept"}}},
    }
