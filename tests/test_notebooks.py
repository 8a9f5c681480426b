"""What a notebook shows of programs, runners, trees, results and questions: text that is escaped, by itself."""

from __future__ import annotations

from html.parser import HTMLParser
from shutil import which
from typing import Any, TypedDict

import pytest

from adjourn import (
    ChatModelAgent,
    DeepAgent,
    GraphAgent,
    LoopAgent,
    Runner,
    SequentialAgent,
    Supervisor,
    interrupt,
    tool,
    workflow,
)
from adjourn.agents.draw import draw_agent
from adjourn.graph import START, StateGraph
from adjourn.testing import ScriptedModel

NASTY = "<script>alert(1)</script> & \x1b[2J"


class Text(HTMLParser):
    """The tags and the text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def shown(thing: Any) -> Text:
    page = Text(thing._repr_html_())
    assert "script" not in page.tags
    assert "\x1b" not in page.text
    return page


class S(TypedDict, total=False):
    note: str


async def ask(state: S) -> S:
    return {"note": interrupt({"text": NASTY}, prompt=f"Really {NASTY}?", key="q", schema=str)}


async def test_results_questions_and_trees_are_shown(tmp_path: Any) -> None:
    graph = StateGraph(S, name="g").add_node(ask).add_edge(START, "ask").compile()
    paused = await graph.run({}, session_id="s<b>")
    page = shown(paused)
    assert "interrupted, session s<b>" in page.text
    assert "Really <script>" in page.text
    assert "runnable:g;node:ask" in shown(paused.interrupts[0]).text
    result = await graph.resume("s<b>", {"q": NASTY})
    assert "alert(1)" in shown(result).text
    tree = await graph.tree("s<b>")
    assert shown(tree).text == str(tree) == repr(tree)


async def test_values_of_workflows_are_shown() -> None:
    @workflow
    async def job(text: str) -> dict[str, str]:
        return {"text": text}

    assert repr({"text": "hi"}) in shown(await Runner(job).run("hi")).text


def test_a_graph_is_drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # without Graphviz
    graph: Any = StateGraph(S, name="g").add_node(ask).add_edge(START, "ask").compile()
    bundle = graph._repr_mimebundle_()
    assert bundle == {"text/plain": graph.draw("text"), "text/vnd.mermaid": graph.draw("mermaid")}
    dot = tmp_path / "dot"
    dot.write_text("#!/bin/sh\necho '<!DOCTYPE svg PUBLIC \"http://example.org/svg.dtd\">'\necho '<svg/>'\n")
    dot.chmod(0o755)
    assert graph._repr_mimebundle_(include=None, exclude=None)["image/svg+xml"] == "<svg/>"


def agents() -> list[Any]:
    model = ScriptedModel([])

    @tool
    def mark(name: str) -> str:
        """Mark."""
        return name

    graph: Any = StateGraph(S, name="g").add_node(ask).add_edge(START, "ask").compile()
    writer = ChatModelAgent("Writer", model=model, tools=[mark])
    deep = DeepAgent("Deep", model=model)
    row = SequentialAgent("Row", agents=[writer, GraphAgent("Graph", graph, input="note")])
    loop = LoopAgent("Loop", agents=[ChatModelAgent(NASTY.replace("\x1b", ""), model=model)])
    return [
        writer,
        deep,
        row,
        loop,
        Supervisor("Boss", model=model, agents=[row, loop]),
        GraphAgent("Graph", graph, input="note"),
    ]


@pytest.mark.parametrize("number", range(6))
def test_agents_and_runners_are_drawn(number: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    agent = agents()[number]
    runner: Any = Runner(agent)
    bundle = agent._repr_mimebundle_()
    assert bundle["text/plain"] == draw_agent(agent, "text")
    assert bundle["text/vnd.mermaid"] == draw_agent(agent, "mermaid")
    assert runner._repr_mimebundle_() == bundle
    if which("dot") is not None:
        image = Text(bundle["image/svg+xml"])
        assert image.tags[0] == "svg"
        assert not {"script", "image", "use", "foreignobject", "style"} & set(image.tags)
        assert "href" not in bundle["image/svg+xml"]
    monkeypatch.setenv("PATH", str(tmp_path))  # without Graphviz
    assert agent._repr_mimebundle_().keys() == {"text/plain", "text/vnd.mermaid"}
    assert "<script" not in bundle["text/vnd.mermaid"]


def test_a_runner_of_what_is_not_drawn_shows_its_name() -> None:
    @workflow
    async def job() -> None: ...

    runner: Any = Runner(job)
    assert runner._repr_mimebundle_() == {"text/plain": "<Runner of <workflow job>>"}
