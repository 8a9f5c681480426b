"""Drawings in the language of Graphviz, and the pictures that it makes of them where it is installed."""

import re
import shutil
from typing import Any, TypedDict
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adjourn import ChatModelAgent, UsageError, tool
from adjourn.graph import END, START, CompiledGraph, MessagesState, StateGraph
from adjourn.testing import ScriptedModel

needs_dot = pytest.mark.skipif(
    shutil.which("dot") is None, reason="no `dot` on the path: install Graphviz (apt install graphviz)"
)


class Work(TypedDict):
    done: bool


def step(state: Work) -> dict[str, Any]:
    return {}


def route(state: Work) -> str:
    return "ok"


def review() -> CompiledGraph:
    built = StateGraph(Work, name="review")
    built.add_node("write", step)
    built.add_node("ask", step, interrupt_before=True)
    built.add_node("log", step, defer=True)
    built.add_edge(START, "write")
    built.add_conditional_edges("write", route, {"ok": "ask", "no": END})
    built.add_edge("ask", "log")
    return built.compile()


def test_nodes_and_edges_are_lines() -> None:
    lines = [line.strip() for line in review().draw("dot").splitlines()]
    assert lines[0] == "digraph {"
    assert lines[-1] == "}"
    assert 'n0 [label="write" shape=box]' in lines
    assert 'n1 [label="ask\\npauses before" shape=box penwidth=3]' in lines
    assert 'n2 [label="log\\ndeferred" shape=box style=dashed]' in lines
    assert "s -> n0" in lines
    assert 'n0 -> n1 [style=dashed label="ok"]' in lines
    assert 'n0 -> e [style=dashed label="no"]' in lines
    assert "n2 -> e" in lines


@tool
def look(place: str) -> str:
    """Look there."""
    return place


def test_kinds_of_nodes_are_told_apart() -> None:
    built = StateGraph(MessagesState, name="kinds")
    built.add_llm_node("model", ScriptedModel([]), tools=[look])
    built.add_tools_node("tools", [look])
    built.add_agent_node("agent", ChatModelAgent("Helper", model=ScriptedModel([])))
    built.add_sequence("model", "tools", "agent").set_entry_point("model")
    drawn = built.compile().draw("dot")
    assert 'n0 [label="model\\nLLM\\ntools: look" shape=box style=rounded color="#3b82f6"]' in drawn
    assert 'n1 [label="tools\\ntools: look" shape=parallelogram color="#d97706"]' in drawn
    assert 'n2 [label="agent\\nagent Helper" shape=box peripheries=2 color="#8b5cf6"]' in drawn


def test_a_graph_inside_is_a_cluster_that_ways_lead_through() -> None:
    built = StateGraph(Work, name="outer")
    built.add_node("before", step)
    built.add_subgraph("inner", review())
    built.add_node("after", step)
    built.add_sequence("before", "inner", "after").set_entry_point("before")
    lines = [line.strip() for line in built.compile().draw("dot").splitlines()]
    assert "subgraph cluster_n1 {" in lines
    assert 'n1_n0 [label="write" shape=box]' in lines
    assert "n0 -> n1_s" in lines
    assert "n1_e -> n2" in lines


NAME = st.text(min_size=1).filter(lambda name: name not in (START, END) and name.isprintable())


def named(name: str) -> CompiledGraph:
    built = StateGraph(Work, name=name)
    built.add_node(name, step)
    return built.set_entry_point(name).compile()


@given(NAME)
@settings(max_examples=60)
def test_a_name_cannot_leave_its_label(name: str) -> None:
    drawn = named(name).draw("dot")
    # Without its quoted texts, what is left is always the same.
    rest = re.sub(r'"(?:\\.|[^"\\])*"', "TEXT", drawn)
    assert rest == re.sub(r'"(?:\\.|[^"\\])*"', "TEXT", named("plain").draw("dot"))


@pytest.mark.parametrize("name", ['"] s [label="x', "\\", 'a\\"b', "\\N", "<b>bold</b>", "a;b{}", "line\\nbreak"])
def test_what_means_something_in_the_language_is_text(name: str) -> None:
    drawn = named(name).draw("dot")
    assert drawn.count("->") == 2
    assert '[label="x' not in drawn.replace('[label=\\"x', "")


@needs_dot
def test_graphviz_makes_a_picture_of_it() -> None:
    root = ET.fromstring(review().draw("svg"))
    assert root.tag.endswith("svg")
    texts = {each.text for each in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"write", "ask", "log", "ok"} <= texts


@needs_dot
@pytest.mark.parametrize("name", ['"', "\\", "<x>", "&amp;", "R&D", "&lt;b&gt;"])
def test_graphviz_reads_any_name(name: str) -> None:
    texts = {each.text for each in ET.fromstring(named(name).draw("svg")).iter("{http://www.w3.org/2000/svg}text")}
    assert name in texts


def test_without_graphviz_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match=r"apt install graphviz.*brew install graphviz.*mermaid"):
        review().draw("svg")
