"""Ours against the reference implementation of JSON Schema, over schemas and data that Hypothesis makes up.

Left out is what differs on purpose, and has its own tests: `format` and `contentEncoding` (checked here, notes there),
`discriminator` (not in the standard), integers that no float can hold, decimal fractions with `multipleOf` (ours counts
as people do), and references that lead back to themselves without end.
"""

import re
from typing import Any, cast

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from adjourn._schemas.jsonschema import CHECKS, KEYWORDS, NOTES, mistakes, problems

JSON = Any
Strategy = st.SearchStrategy[Any]

NAMES = st.sampled_from(["a", "b", "ab", "x1"])
TYPES = ["null", "boolean", "integer", "number", "string", "array", "object"]
PATTERNS = st.sampled_from(["a", "^a", "b$", "^x\\d", "^$", "."])
# Numbers that floats hold exactly, so that both count the same.
NUMBERS = st.integers(-6, 6) | st.integers(-12, 12).map(lambda quarters: quarters / 4)
TEXTS = st.sampled_from(["", "a", "b", "ab", "ba", "x1", "🙂", "1"])
SIZES = st.integers(0, 3)
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS
DATA: Strategy = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=8
)

VALUES: dict[str, Strategy] = {
    "type": st.sampled_from(TYPES) | st.lists(st.sampled_from(TYPES), min_size=1, max_size=3, unique=True),
    "enum": st.lists(DATA, min_size=1, max_size=4),
    "const": DATA,
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), NUMBERS),
    "multipleOf": st.sampled_from([1, 2, 3, 0.5, 0.25, 2.0]),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), SIZES),
    "pattern": PATTERNS,
    "uniqueItems": st.booleans(),
    "required": st.lists(NAMES, max_size=2, unique=True),
}
TARGETS = ("tree", "leaf")
REFS = st.sampled_from([{"$ref": f"#/$defs/{name}"} for name in TARGETS])


def some_of(keywords: dict[str, Strategy], most: int) -> Strategy:
    """Make a schema of some of these keywords; one with all of them would fit nothing."""

    def chosen(names: list[str]) -> Strategy:
        return st.fixed_dictionaries({name: keywords[name] for name in names})

    return st.lists(st.sampled_from(sorted(keywords)), max_size=most, unique=True).flatmap(chosen)


def around(inner: Strategy) -> Strategy:
    """Make a schema around others. References stand only where they lead on, to a part of the data."""
    below = inner | REFS
    return some_of(
        {
            **VALUES,
            "items": below,
            "prefixItems": st.lists(below, min_size=1, max_size=2),
            "properties": st.dictionaries(NAMES, below, max_size=3),
            "patternProperties": st.dictionaries(PATTERNS, below, max_size=2),
            "additionalProperties": below,
            "propertyNames": inner,
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "anyOf": st.lists(inner, min_size=1, max_size=3),
            "oneOf": st.lists(inner, min_size=1, max_size=3),
        },
        most=4,
    )


PARTS: Strategy = st.recursive(st.booleans() | some_of(VALUES, most=2), around, max_leaves=6)
OBJECTS = PARTS.filter(lambda part: isinstance(part, dict))


@st.composite
def whole_schemas(draw: st.DrawFn) -> dict[str, JSON]:
    root = draw(OBJECTS)
    if draw(st.booleans()):
        root = {**root, "$ref": draw(REFS)["$ref"]}
    return {**root, "$defs": {name: draw(PARTS) for name in TARGETS}}


def reference(schema: dict[str, JSON]) -> Any:  # Any: its types are written with what strict mode calls unknown
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def test_every_keyword_that_is_checked_is_compared():
    apart = {"format", "contentEncoding", "discriminator"}
    made = VALUES.keys() | {"$ref", "items", "prefixItems", "properties", "patternProperties", "additionalProperties"}
    assert made | {"propertyNames", "allOf", "anyOf", "oneOf"} == (CHECKS.keys() | {"type"}) - apart


@given(schema=whole_schemas(), data=DATA)
def test_data_fits_where_the_reference_says_so(schema: dict[str, JSON], data: JSON):
    assert mistakes(schema) == []
    expected = reference(schema).is_valid(data)
    assert (problems(data, schema) == []) is expected, problems(data, schema)


# Where


def alternatives(part: JSON) -> bool:
    """Whether a schema has parts that need not hold, or that hold nowhere: there, ours tells where more precisely."""
    if isinstance(part, dict):
        inner = cast("dict[str, JSON]", part)
        return not inner.keys().isdisjoint({"anyOf", "oneOf", "propertyNames"}) or any(
            map(alternatives, inner.values())
        )
    if isinstance(part, list):
        return any(map(alternatives, cast("list[JSON]", part)))
    return isinstance(part, bool)


def places_of(found: list[str]) -> set[str]:
    return {re.split(r": ", problem, maxsplit=1)[0] for problem in found}


def expected_places(schema: dict[str, JSON], data: JSON) -> set[str]:
    return {error.json_path for error in reference(schema).iter_errors(data)}


@given(schema=whole_schemas().filter(lambda schema: not alternatives(schema)), data=DATA)
def test_problems_are_only_where_the_reference_finds_some(schema: dict[str, JSON], data: JSON):
    # The reference goes on where the type is wrong already, so it may find more.
    assert places_of(problems(data, schema)) <= expected_places(schema, data)


# Schemas

ODD: Strategy = st.sampled_from([None, True, -1, 1.5, "", "a", "(", [], ["a", "a"], [1], [{}], {}, {"a": 1}, {"a": {}}])


@st.composite
def odd_schemas(draw: st.DrawFn) -> dict[str, JSON]:
    keywords = st.sampled_from(sorted((KEYWORDS.keys() | {"$defs"}) - NOTES - {"discriminator"}))
    schema: dict[str, JSON] = {name: draw(ODD) for name in draw(st.lists(keywords, min_size=1, max_size=2))}
    return draw(st.sampled_from([schema, {"items": schema}, {"$defs": {"a": schema}}]))


@given(odd_schemas())
def test_a_schema_that_is_taken_is_one_to_the_reference(schema: dict[str, JSON]):
    if not mistakes(schema):
        reference(schema)


def test_the_reference_refuses_what_it_should():  # so that the property above says something
    with pytest.raises(jsonschema.SchemaError):
        reference({"minLength": -1})
