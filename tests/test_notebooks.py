"""What a notebook shows of graphs, trees, results and questions: text that is escaped, without another library."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any, TypedDict

import pytest

from adjourn import Runner, interrupt, workflow
from adjourn.graph import START, StateGraph

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
    dot.write_text("#!/bin/sh\necho '<svg/>'\n")
    dot.chmod(0o755)
    assert graph._repr_mimebundle_(include=None, exclude=None)["image/svg+xml"] == "<svg/>"
