"""Whatever stands in a file: it gives mistakes or agents, and nothing else happens."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import jsonschema
from hypothesis import example, given
from hypothesis import strategies as st

from adjourn._yaml import data_of, read_yaml
from adjourn.spec import Mistake, schema
from tests.spec import test_agents, test_graphs
from tests.spec.folder import Folder, document

VALIDATOR: Any = jsonschema.Draft202012Validator(schema())
WORDS = [
    "apiVersion", "kind", "metadata", "name", "spec", "type", "model", "tools", "agents", "nodes", "edges", "from",
    "to", "chat_model_agent", "graph", "sequential", "adjourn/v1", "Agent", "python://parts:model", "python://parts:book",
    "middleware", "todo_list", "x", "yes", "1", "~", "checkpoint", "interrupt", "enabled", "true", "ref", "approval",
]  # fmt: skip
PIECES = st.sampled_from(
    [
        *WORDS,
        ": ",
        ":\n",
        "\n",
        "\n  ",
        "- ",
        "[",
        "]",
        "{",
        "}",
        ", ",
        "'",
        '"',
        "&a ",
        "*a",
        "!!x ",
        "|\n",
        "---\n",
        "#",
        "\t",
        "? ",
        "%YAML 1.1\n",
        "<<: ",
        '"\\ud800"',
        "\x07",
        "\u2028",
    ]
)
TEXTS = st.one_of(st.text(max_size=200), st.lists(PIECES, max_size=40).map("".join))
GOOD = [test_agents.CHAT, test_graphs.DESK, f"{test_agents.CHAT}middleware:\n{test_agents.MIDDLEWARE}"]


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A good document with a piece cut out, doubled or put elsewhere."""
    text = document("x", draw(st.sampled_from(GOOD)))
    start = draw(st.integers(0, len(text)))
    end = draw(st.integers(start, min(start + 30, len(text))))
    return text[:start] + draw(st.one_of(st.just(""), PIECES, st.just(text[start:end] * 2))) + text[end:]


def fresh() -> Folder:
    return Folder(Path(tempfile.mkdtemp()))


FOLDER: list[Folder] = []


@given(TEXTS | damaged())
@example("a: " + "[" * 5000)
@example("- " * 5000)
@example("{" * 200_000)
@example('"\\U00110000"')
@example("%YAML " + "9" * 5000 + ".1\n--- x")
@example("a: &a [*a, *a]\nb: !!python/object/apply:os.system [x]")
def test_any_text_gives_mistakes_or_agents(text: str):  # attack 8, rule V6
    if not FOLDER:
        FOLDER.append(fresh())
    (folder,) = FOLDER
    (folder.path / "x.yaml").write_bytes(text.encode("utf-8", "replace"))
    loaded = folder.load()
    lines = text.encode("utf-8", "replace").decode().count("\n") + 2 + sum(map(text.count, "\r\x85\u2028\u2029"))
    assert all(isinstance(each, Mistake) and 1 <= each.line <= lines and each.column >= 1 for each in loaded.mistakes)
    assert bool(loaded.mistakes) or loaded.agents or not read_yaml(text)[0]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4),
    max_leaves=8,
)
SPECS = st.fixed_dictionaries(
    {"type": st.sampled_from(["sequential", "python", "chat_model_agent"])},
    optional={
        "agents": JSON, "ref": JSON, "model": JSON, "tools": JSON, "values": JSON, "interrupt": JSON,
        "checkpoint": JSON, "on_busy": JSON, "served": JSON, "limits": JSON, "middleware": JSON,
    },
)  # fmt: skip


@given(SPECS)
def test_the_schema_and_the_loader_agree_on_what_has_the_wrong_form(spec: dict[str, Any]):
    """Whatever the schema refuses, the loader refuses; what it accepts has only mistakes that are not of form."""
    whole = {"apiVersion": "adjourn/v1", "kind": "Agent", "metadata": {"name": "x"}, "spec": spec}
    if not FOLDER:
        FOLDER.append(fresh())
    (folder,) = FOLDER
    folder.write("x.yaml", json.dumps(whole))
    mistakes = folder.load().mistakes
    fits = VALIDATOR.is_valid(whole)
    assert fits or mistakes
    # What files, Python or other agents would have to be asked about is not of form.
    assert not fits or not [each for each in mistakes if "; give " in each.message or "no field" in each.message]


TEAM = {
    "chat": """
        type: chat_model_agent
        model: {name: "python://parts:model", fallback: ["python://parts:booking"], retry: {attempts: 2}}
        instruction: Hi {user?}
        tools: [{ref: "python://parts:book", approval: "python://parts:is_far", tags: [far]}, {agent: writer}]
        middleware: [todo_list, {name: call_limits, model_calls: 5}, {name: summarize, model: "python://parts:model"}]
        limits: {tokens: 9}
        interrupt: {enabled: true, checkpoint: {backend: sqlite, url: "sqlite:///s.db"}}
        """,
    "writer": "{type: chat_model_agent, model: python://parts:model, output_type: {type: string}, served: false}",
    "group": "{type: loop, agents: [writer, python://parts:agent], max_iterations: 2}",
    "boss": "{type: supervisor, model: python://parts:model, agents: [group], exit_tool: true}",
    "deep": "{type: deep_agent, model: python://parts:model, agents: [writer], sub_agents: [chat], files: memory}",
    "plan": "{type: plan_execute, planner: {model: python://parts:model}, executor: {agent: boss}, replanner: {}}",
    "flow": "{type: python, ref: python://parts:flow}",
    "desk": """
        type: graph
        interrupt: {enabled: true}
        fields: {decision: {type: boolean}, count: {type: integer, default: 1, reducer: last}}
        nodes:
          think: {type: llm, model: "python://parts:model", tools: ["python://parts:book"]}
          act: {type: tools, tools: [{ref: "python://parts:pay"}]}
          ask: {type: ask, prompt: Why, save_to: decision, show: [count]}
          one: {type: function, ref: "python://parts:shout", goes_to: [two]}
          two: {type: agent, agent: writer}
          sub: {type: subgraph, ref: "python://parts:graph"}
        edges:
          - {from: start, to: think}
          - {from: think, tools: act, to: ask}
          - {from: ask, field: decision, to: {"true": one, else: end}}
          - {from: one, condition: "python://parts:way", to: {long: sub, short: end}}
          - {from: [two, sub], to: end}
        interrupt_after: [two]
        input: user_input
        """,
}


def read_team() -> list[Any]:
    nodes, problems = read_yaml("---\n".join(document(name, spec) for name, spec in TEAM.items()))
    found = [data_of(node, problems) for node in nodes]
    assert problems == []
    return found


def paths(data: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if path:
        yield path
    if isinstance(data, dict):
        for key, value in cast("dict[str, Any]", data).items():
            yield from paths(value, (*path, key))
    elif isinstance(data, list):
        for number, value in enumerate(cast("list[Any]", data)):
            yield from paths(value, (*path, number))


ODD: list[Any] = [
    None, True, -1, 7, "", "x", "writer", "python://parts:nothing", "python://parts:number",
    [], {}, [{}], ["x"], {"x": 1},
]  # fmt: skip


@given(st.data())
def test_whatever_is_in_the_place_of_something_is_a_mistake_in_the_file(data: st.DataObject):  # rule V6
    """Nothing that is wrong makes the loader itself stumble over what is left."""
    team = read_team()
    for _ in range(data.draw(st.integers(1, 3))):
        *above, last = data.draw(st.sampled_from(list(paths(team))))
        place: Any = team
        for key in above:
            place = place[key]
        place[last] = data.draw(st.sampled_from(ODD))
    if not FOLDER:
        FOLDER.append(fresh())
    (folder,) = FOLDER
    folder.write("x.yaml", "".join(f"---\n{json.dumps(each)}\n" for each in team))
    said = [str(each) for each in folder.load().mistakes]
    assert not [each for each in said if "failed with" in each or "object at" in each]
