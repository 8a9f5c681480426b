"""Drawings are compared whole: that Mermaid reads them as meant was seen with Mermaid 11 itself, in a browser."""

from __future__ import annotations

import re
from functools import partial
from typing import Any, Literal, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjourn import ChatModelAgent, GraphAgent, UsageError, tool
from adjourn.errors import GraphError
from adjourn.graph import END, START, Command, CompiledGraph, MessagesState, StateGraph
from adjourn.testing import ScriptedModel


class Work(TypedDict):
    done: bool


def step(state: Work) -> dict[str, Any]:
    return {}


def graph(*names: str) -> StateGraph:
    built = StateGraph(Work, name="work")
    for name in names:
        built.add_node(name, step)
    return built.add_edge(START, names[0])


def mermaid(built: StateGraph) -> list[str]:
    first, *lines = built.compile().draw().splitlines()
    assert first == "flowchart TD"
    return [line.removeprefix("    ") for line in lines]


def text(built: StateGraph) -> list[str]:
    return built.compile().draw("text").splitlines()


def test_plain_edges_lead_from_the_start_to_the_end() -> None:
    built = graph("write", "send").add_edge("write", "send").add_edge("send", END)
    assert mermaid(built) == [
        's(["start"])',
        'n0["write"]',
        'n1["send"]',
        'e(["end"])',
        "s --> n0",
        "n0 --> n1",
        "n1 --> e",
    ]
    assert text(built) == ["work", "  start → write", "  write → send", "  send  → end"]


def test_a_condition_is_dotted_and_labelled_by_its_mapping() -> None:
    built = graph("check", "pay").add_conditional_edges("check", step, {True: "pay", "late": "pay", False: END})
    assert mermaid(built)[-4:] == [
        "s --> n0",
        'n0 -.->|"True#44; late"| n1',
        'n0 -.->|"False"| e',
        "n1 --> e",
    ]
    assert text(built)[2] == "  check ⇢ pay (True, late), end (False)"


def test_names_as_their_own_mapping_need_no_label() -> None:
    built = graph("check", "pay").add_conditional_edges("check", step, ["pay", END])
    assert "n0 -.-> n1" in mermaid(built)


def test_a_condition_without_a_mapping_leads_to_one_question_mark() -> None:
    built = graph("check", "pay", "decline").add_conditional_edges("check", step)
    assert 'q1(("#63;"))' in mermaid(built)
    assert [line for line in mermaid(built) if line.startswith("n0 ")] == ["n0 -.-> q1"]
    assert text(built)[2] == "  check   ⇢ ?"


def test_destinations_say_where_a_condition_without_a_mapping_leads() -> None:
    built = StateGraph(Work, name="work").add_node("check", step, destinations=["pay"]).add_node("pay", step)
    built.add_edge(START, "check").add_conditional_edges("check", step)
    assert [line for line in mermaid(built) if line.startswith("n0 ")] == ["n0 -.-> n1"]


def test_commands_are_dotted_where_the_node_names_their_destinations() -> None:
    built = graph("write").add_node("approve", step, destinations=["write", END]).add_edge("write", "approve")
    assert mermaid(built)[-4:] == ["s --> n0", "n0 --> n1", "n1 -.-> n0", "n1 -.-> e"]
    assert text(built)[-1] == "  approve ⇢ write, end"


def test_what_a_node_returns_names_the_destinations_of_its_commands() -> None:
    class Local(TypedDict):  # Outside, nobody can resolve the annotation of the state.
        done: bool

    def check(state: Local) -> list[Command[Literal["pay", "__end__"]]] | None:
        return None

    def pay(state: Work) -> Command[Literal["check"]]:
        return Command(goto="check")

    built = StateGraph(Work, name="work").add_node(check).add_node(pay).add_edge(START, "check")
    assert text(built)[2:4] == ["  check ⇢ pay, end", "  pay   ⇢ check"]
    built.compile(strict=True)
    named = graph("write").add_node(pay, ends={"approved": "write"})
    assert text(named)[-1] == "  pay   ⇢ write (approved)", "what the graph says comes first"
    with pytest.raises(GraphError, match="'pay' has the unknown destination 'check'"):
        graph("write").add_node(pay).compile()


def test_an_annotation_that_names_nothing_changes_nothing() -> None:
    def plain(state: Work) -> Command:
        return Command()

    def unknown(state: Work) -> Nowhere:  # pyright: ignore[reportUndefinedVariable, reportUnknownParameterType]  # noqa: F821
        return {}

    def written(state: Work) -> Command[check]:  # pyright: ignore[reportUndefinedVariable, reportUnknownParameterType]  # noqa: F821
        return Command()

    functions: list[Any] = [plain, unknown, written, partial(plain)]
    for fn in functions:
        built = StateGraph(Work, name="work").add_node("x", fn).add_edge(START, "x")
        assert text(built)[-1] == "  x     → end"


def test_a_destination_that_an_edge_leads_to_is_drawn_once() -> None:
    built = graph("write").add_node("send", step).add_node("check", step, destinations=["send"])
    built.add_edge("check", "send").add_edge("write", "check")
    assert [line for line in mermaid(built) if line.startswith("n2 ")] == ["n2 --> n1"]


def test_a_join_gathers_its_sources() -> None:
    built = graph("a", "b", "c").add_edge(START, "b").add_edge(["b", "a"], "c")
    assert mermaid(built)[-8:] == [
        'j0{{"all"}}',
        'e(["end"])',
        "s --> n0",
        "s --> n1",
        "n2 --> e",
        "n0 --> j0",
        "n1 --> j0",
        "j0 --> n2",
    ]
    assert text(built)[2:4] == ["  a     → c (with b)", "  b     → c (with a)"]


def test_nodes_that_pause_or_come_last_are_marked() -> None:
    built = graph("a").add_node("b", step, interrupt_before=True).add_node("c", step, defer=True)
    built.add_edge("a", "b").add_edge("b", "c")
    drawn = built.compile(interrupt_after=["b"]).draw()
    assert 'n1["b<br/>pauses before<br/>pauses after"]' in drawn
    assert 'n2["c<br/>deferred"]' in drawn
    assert drawn.splitlines()[-4:] == [
        "    classDef pauses stroke-width:3px",
        "    class n1 pauses",
        "    classDef deferred stroke-dasharray:5 4",
        "    class n2 deferred",
    ]
    assert text(built)[3:] == ["  b (pauses before) → c", "  c (deferred)      → end"]


def nested() -> StateGraph:
    inner = graph("look", "read").add_edge("look", "read").compile()
    return graph("plan").add_subgraph("research", inner).add_edge("plan", "research")


def test_a_subgraph_is_drawn_inside_with_its_own_start_and_end() -> None:
    assert mermaid(nested()) == [
        's(["start"])',
        'n0["plan"]',
        'subgraph n1["research"]',
        '    n1_s(["start"])',
        '    n1_n0["look"]',
        '    n1_n1["read"]',
        '    n1_e(["end"])',
        "    n1_s --> n1_n0",
        "    n1_n0 --> n1_n1",
        "    n1_n1 --> n1_e",
        "end",
        'e(["end"])',
        "s --> n0",
        "n0 --> n1_s",
        "n1_e --> e",
    ]
    assert text(nested())[4:] == ["      start → look", "      look  → read", "      read  → end"]


def test_one_graph_added_twice_has_ids_of_its_own_each_time() -> None:
    inner = graph("look").compile()
    built = graph("plan").add_subgraph("one", inner).add_subgraph("two", inner)
    ids = re.findall(r"^\s*(\w+)[\[(]", "\n".join(mermaid(built)), re.MULTILINE)
    assert len(ids) == len(set(ids))


def test_a_loop_without_a_way_out_has_no_end() -> None:
    assert mermaid(graph("again").add_edge("again", "again")) == [
        's(["start"])',
        'n0["again"]',
        "s --> n0",
        "n0 --> n0",
    ]


def test_nodes_that_are_named_like_the_ends_are_told_apart_in_text() -> None:
    built = graph("start", "end").add_edge("start", "end")
    assert text(built)[1:] == ["  start   → 'start'", "  'start' → 'end'", "  'end'   → end"]


def test_names_that_hide_something_show_it() -> None:
    built = graph("\u202eevil\n")
    assert text(built)[1] == "  start                → <U+202E>evil<U+000A>"
    assert 'n0["#60;U#43;202E#62;evil#60;U#43;000A#62;"]' in mermaid(built)


NODE = re.compile(r'n0\["(?:[\w /-]|#\d+;)*"\]')


@given(st.text(min_size=1).filter(lambda name: name not in (START, END)))
def test_no_name_can_break_out_of_its_label(name: str) -> None:
    lines = mermaid(graph(name))
    assert len(lines) == 5
    assert NODE.fullmatch(lines[1])


def test_words_that_markdown_would_read_otherwise_are_escaped() -> None:
    compiled: CompiledGraph = graph("__init__", "snake_case", "1. list", "- item", "kebab-case").compile()
    labels = re.findall(r'n\d\["(.*)"\]', compiled.draw())
    assert labels == ["#95;#95;init#95;#95;", "snake_case", "1#46; list", "#45; item", "kebab-case"]


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(UsageError, match="'mermaid', 'dot', 'svg' or 'text'"):
        graph("a").compile().draw("png")


# Nodes that are more than functions


@tool
def look(place: str) -> str:
    """Look."""
    return place


def seek(place: str) -> str:
    """Seek."""
    return place


def talking() -> StateGraph:
    built = StateGraph(MessagesState, name="talk").add_llm_node("ask", ScriptedModel([]), tools=[look])
    built.add_tools_node("use", [look]).add_agent_node("tell", ChatModelAgent("Teller", model=ScriptedModel([])))
    return built.add_edge(START, "ask").add_tools_conditional_edges("ask", "use", "tell").add_edge("use", "ask")


def test_models_tools_and_agents_have_shapes_and_say_what_they_are() -> None:
    assert mermaid(talking()) == [
        's(["start"])',
        'n0("ask<br/>LLM<br/>tools#58; look")',
        'n1[/"use<br/>tools#58; look"/]',
        'n2[["tell<br/>agent Teller"]]',
        'e(["end"])',
        "s --> n0",
        'n0 -.->|"calls tools"| n1',
        'n0 -.->|"answers"| n2',
        "n1 --> n0",
        "n2 --> e",
        "classDef llm stroke:#3b82f6",
        "class n0 llm",
        "classDef tools stroke:#d97706",
        "class n1 tools",
        "classDef agent stroke:#8b5cf6",
        "class n2 agent",
    ]
    assert text(talking())[2:] == [
        "  ask (LLM, tools: look) ⇢ use (calls tools), tell (answers)",
        "  use (tools: look)      → ask",
        "  tell (agent Teller)    → end",
    ]


def test_an_agent_that_is_a_graph_shows_it() -> None:
    inner = (
        StateGraph(MessagesState, name="inner").add_node("think", lambda state: None).add_edge(START, "think").compile()
    )
    built = StateGraph(MessagesState, name="outer").add_agent_node("deep", GraphAgent("Deep", inner))
    drawn = mermaid(built.add_edge(START, "deep"))
    assert drawn[1:5] == [
        'subgraph n0["deep<br/>agent Deep"]',
        '    n0_s(["start"])',
        '    n0_n0["think"]',
        '    n0_e(["end"])',
    ]
    assert "class n0 agent" in drawn
    assert "      think → end" in text(built)


def test_of_many_tools_some_are_named() -> None:
    tools = [tool(seek, name=f"t{number}") for number in range(7)]
    built = StateGraph(MessagesState, name="many").add_tools_node("use", tools).add_edge(START, "use")
    assert text(built)[2] == "  use (tools: t0, t1, t2, t3, 3 more) → end"


def test_what_an_agent_is_called_cannot_break_out_of_its_label() -> None:
    hostile = ChatModelAgent('"]\nx[', model=ScriptedModel([]))
    built = StateGraph(MessagesState, name="outer").add_agent_node("a", hostile).add_edge(START, "a")
    assert mermaid(built)[1] == ('n0[["a<br/>agent #34;#93;#60;U#43;000A#62;x#91;"]]')
