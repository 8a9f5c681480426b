"""SVG drawings, as a program reads them. How they look was seen in a browser, in light and in dark."""

import re
from typing import Any, NamedTuple, TypedDict
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjourn import ChatModelAgent, tool
from adjourn.graph import END, START, CompiledGraph, MessagesState, StateGraph
from adjourn.testing import ScriptedModel

SVG = "{http://www.w3.org/2000/svg}"


class Work(TypedDict):
    done: bool


def step(state: Work) -> dict[str, Any]:
    return {}


class Box(NamedTuple):
    kind: str
    left: float
    top: float
    right: float
    bottom: float

    def holds(self, x: float, y: float) -> bool:
        """Whether a point is well inside."""
        return self.left + 1 < x < self.right - 1 and self.top + 1 < y < self.bottom - 1

    def meets(self, other: "Box") -> bool:
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom

    def surrounds(self, other: "Box") -> bool:
        across = self.left < other.left and other.right < self.right
        return across and self.top < other.top and other.bottom < self.bottom


class Picture:
    """What is drawn: boxes, the ends of the pieces of each line, the points of arrow tips, and texts."""

    def __init__(self, graph: CompiledGraph) -> None:
        root = ET.fromstring(graph.draw("svg"))
        self.width, self.height = float(root.attrib["width"]), float(root.attrib["height"])
        self.boxes = [_box(each) for each in root.iter(f"{SVG}rect") if each.attrib["class"] != "paper"]
        paths = [(each.attrib["class"], each.attrib["d"]) for each in root.iter(f"{SVG}path")]
        self.lines = [_ends(path) for kind, path in paths if kind == "line"]
        self.tips = [_ends(path)[0] for kind, path in paths if kind == "tip"]
        self.texts = [each.text for each in root.iter(f"{SVG}text")]
        self.titles = [each.text for each in root.iter(f"{SVG}title")]


def _box(rect: ET.Element) -> Box:
    left, top, width, height = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
    return Box(rect.attrib["class"], left, top, left + width, top + height)


def _ends(path: str) -> list[tuple[float, float]]:
    """Where each piece of a path ends."""
    points: list[tuple[float, float]] = []
    for command, numbers in re.findall(r"([MCV])([-\d. ]+)", path):
        values = [float(number) for number in numbers.split()]
        points.append((points[-1][0], values[0]) if command == "V" else (values[-2], values[-1]))
    return points


# Random graphs

NAMES = [f"n{number}" for number in range(9)]
PLACES = st.sampled_from([*NAMES, END])


class Plan(NamedTuple):
    edges: set[tuple[str, str]]
    choices: dict[str, dict[str, str]]
    commands: dict[str, list[str]]
    joins: list[tuple[str, str]]
    nested: set[str]


PLANS = st.builds(
    Plan,
    st.sets(st.tuples(st.sampled_from(NAMES), PLACES), max_size=16),
    st.dictionaries(st.sampled_from(NAMES), st.dictionaries(st.sampled_from("abcdef"), PLACES, min_size=1), max_size=4),
    st.dictionaries(st.sampled_from(NAMES), st.lists(PLACES, min_size=1, unique=True), max_size=3),
    st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), max_size=2),
    st.sets(st.sampled_from(NAMES), max_size=2),
)


def built(plan: Plan) -> CompiledGraph:
    inner = StateGraph(Work, name="inner").add_node("x", step).add_node("y", step)
    held = inner.add_edge(START, "x").add_edge("x", "y").add_edge("y", "x").compile()
    graph = StateGraph(Work, name="random")
    for name in NAMES:
        if name in plan.nested:
            graph.add_subgraph(name, held)
        else:
            graph.add_node(name, step, destinations=plan.commands.get(name))
    for source, target in sorted(plan.edges):
        graph.add_edge(source, target)
    for source, mapping in plan.choices.items():
        graph.add_conditional_edges(source, step, mapping)
    for source, target in plan.joins:
        graph.add_edge([source, NAMES[0]], target)
    return graph.add_edge(START, NAMES[0]).compile()


@given(PLANS)
def test_no_two_boxes_meet_unless_one_is_inside_the_other(plan: Plan) -> None:
    picture = Picture(built(plan))
    for number, box in enumerate(picture.boxes):
        assert min(box.left, box.top, picture.width - box.right, picture.height - box.bottom) >= 0
        for other in picture.boxes[number + 1 :]:
            assert not box.meets(other) or (box.kind == "group" and box.surrounds(other))


@given(PLANS)
def test_every_edge_is_drawn_and_ends_at_a_box(plan: Plan) -> None:
    graph = built(plan)
    picture = Picture(graph)
    edges = [line for line in graph.draw().splitlines() if "-->" in line or "-.->" in line]
    assert len(picture.lines) == len(picture.tips) == len(edges)
    for x, y in picture.tips:
        assert any(
            min(abs(x - box.left), abs(x - box.right)) < 1 or min(abs(y - box.top), abs(y - box.bottom)) < 1
            for box in picture.boxes
            if box.left - 1 < x < box.right + 1 and box.top - 1 < y < box.bottom + 1
        )


@given(PLANS)
def test_lines_turn_between_boxes_and_not_in_them(plan: Plan) -> None:
    picture = Picture(built(plan))
    boxes = [box for box in picture.boxes if box.kind != "group"]
    assert not [point for line in picture.lines for point in line for box in boxes if box.holds(*point)]


def test_a_picture_grows_as_its_graph_does() -> None:
    def long(count: int) -> int:
        graph = StateGraph(Work, name="long").add_edge(START, "n0")
        for number in range(count):
            graph.add_node(f"n{number}", step, destinations=[END, "n0"])
            graph.add_edge(f"n{number}", f"n{number + 1}" if number + 1 < count else END)
        return len(graph.compile().draw("svg"))

    assert long(800) < 2.4 * long(400)


# What is shown


@tool
def look(place: str) -> str:
    """Look."""
    return place


def test_kinds_of_nodes_are_told_apart() -> None:
    graph = StateGraph(MessagesState, name="talk").add_llm_node("ask", ScriptedModel([]), tools=[look])
    graph.add_tools_node("use", [look]).add_agent_node("tell", ChatModelAgent("Teller", model=ScriptedModel([])))
    graph.add_edge(START, "ask").add_tools_conditional_edges("ask", "use", "tell").add_edge("use", "ask")
    picture = Picture(graph.compile())
    assert [box.kind for box in picture.boxes] == ["end", "llm", "tools", "agent", "end"]
    assert {"ask", "LLM", "tools: look", "agent Teller", "calls tools", "answers"} <= {*picture.texts}


def test_a_subgraph_is_a_box_around_its_own() -> None:
    inner = StateGraph(Work, name="inner").add_node("x", step).add_edge(START, "x").compile()
    graph = StateGraph(Work, name="outer").add_subgraph("held", inner).add_edge(START, "held")
    boxes = Picture(graph.compile()).boxes
    assert [box.kind for box in boxes] == ["end", "group", "end", "node", "end", "end"]
    assert all(boxes[1].surrounds(box) for box in boxes[2:5])


def test_two_ways_from_a_node_to_itself_are_two_lines() -> None:
    graph = StateGraph(Work, name="g").add_node("a", step).add_edge(START, "a").add_edge("a", "a")
    picture = Picture(graph.add_conditional_edges("a", step, {"again": "a", "done": END}).compile())
    assert len({*map(tuple, picture.lines)}) == len(picture.lines) == 4


def test_an_inner_graph_without_an_end_shows_none() -> None:
    inner = StateGraph(Work, name="inner").add_node("x", step).add_edge(START, "x").add_edge("x", "x").compile()
    graph = StateGraph(Work, name="outer").add_subgraph("held", inner).add_edge(START, "held")
    assert [box.kind for box in Picture(graph.compile()).boxes] == ["end", "group", "end", "node", "end"]


@pytest.mark.parametrize("name", ["</text><script>alert(1)</script>", "a&b\"'<", "]]>", "\x00\x0b\u202e", "名前" * 40])
def test_names_are_text_whatever_they_are(name: str) -> None:
    graph = StateGraph(Work, name=name).add_node(name, step).add_edge(START, name)
    graph.add_conditional_edges(name, step, {name + "!": END, name: name})
    picture = Picture(graph.compile())
    root = ET.fromstring(graph.compile().draw("svg"))
    assert {each.tag.removeprefix(SVG) for each in root.iter()} <= {
        "svg",
        "title",
        "style",
        "rect",
        "g",
        "text",
        "path",
    }
    assert max(len(text or "") for text in picture.texts) <= 42


@given(st.text(min_size=1).filter(lambda name: name not in (START, END)))
def test_any_name_gives_a_document_that_can_be_read(name: str) -> None:
    picture = Picture(StateGraph(Work, name=name).add_node(name, step).add_edge(START, name).compile())
    assert [box.kind for box in picture.boxes] == ["end", "node", "end"]


def test_it_loads_nothing() -> None:
    drawn = StateGraph(Work, name="g").add_node("a", step).add_edge(START, "a").compile().draw("svg")
    assert re.findall(r"https?://[^\"]*", drawn) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"url\(|@import|href|<script|<image", drawn)
    assert "prefers-color-scheme:dark" in drawn
