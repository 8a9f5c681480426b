"""The JSON Schema for editors says what the loader says."""

from __future__ import annotations

from typing import Any, get_args

import jsonschema
import pytest

from adjourn._yaml import data_of, read_yaml
from adjourn.spec import _declared as declared
from adjourn.spec import schema
from tests.spec import test_agents, test_graphs, test_mistakes
from tests.spec.folder import MARK, document

SCHEMA = schema()
VALIDATOR: Any = jsonschema.Draft202012Validator(SCHEMA)


def fits(text: str) -> bool:
    nodes, problems = read_yaml(text)
    return not problems and all(VALIDATOR.is_valid(data_of(node, problems)) for node in nodes) and not problems


def test_it_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize(
    "spec", [test_graphs.DESK, test_agents.CHAT, f"{test_agents.CHAT}middleware:\n{test_agents.MIDDLEWARE}"]
)
def test_what_loads_fits(spec: str):
    assert fits(document("x", spec))


# What a schema cannot know: other files, Python, the environment, and what depends on other fields.
BEYOND = (
    "an unknown provider", "a model without provider", "an object that is not a model", "settings of an object",
    "a fallback that does not exist", "a variable that is not set", "an unknown module", "an unknown attribute",
    "an object that is not a tool", "a tool that is nothing", "a tool that is both", "a history for a function",
    "internal events of a function",
    "approval where nobody may be asked", "approval from Python where nobody may be asked",
    "approval that is taken back", "an approval function that does not fit",
    "a rule that asks where nobody may be asked", "files with approval where nobody may be asked",
    "an agent that does not exist", "an agent that is not one", "an agent below itself", "an agent that may ask",
    "an agent that may ask, through another",
    "two agents of one name in a group", "a class of middleware", "a folder that leads out",
    "a variable without a name", "a variable without braces", "variables where none is read",
    "settings of a model that has none", "a demo that does not exist", "an object that fails", "a workflow as a tool",
    "a folder that is missing", "a bad pattern", "a summary without a model", "a role that is nothing",
    "an instruction that cannot be filled", "a Python object that cannot run", "an input of an agent",
    "a backend of another URL", "a time to live without Redis", "a checkpoint at both places", "another store",
)  # fmt: skip


@pytest.mark.parametrize("case", test_mistakes.IN_A_SPEC)
def test_what_an_editor_can_know_does_not_fit(case: str):
    text = document("x", test_mistakes.IN_A_SPEC[case][0]).replace(MARK, "")
    assert fits(text) == (case in BEYOND)


def declarations() -> list[type[declared.Part]]:
    return [value for value in vars(declared).values() if isinstance(value, type) and issubclass(value, declared.Part)]


# What agents with a model share is described where its subclasses get the options of their constructors.
@pytest.mark.parametrize("cls", [each for each in declarations() if each is not declared.ChatSpec])
def test_every_field_is_described(cls: type[declared.Part]):
    named = set(cls.__struct_encode_fields__)
    assert named == set(declared.descriptions(cls))
    tags = {each.__struct_config__.tag for each in get_args(declared.AnySpec)}
    assert tags >= {"chat_model_agent", "sequential", "parallel", "loop", "supervisor", "plan_execute", "deep_agent"}
