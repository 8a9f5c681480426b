import shutil
from xml.etree import ElementTree as ET

import pytest

from tests.cli.shell import Shell

needs_dot = pytest.mark.skipif(
    shutil.which("dot") is None, reason="no `dot` on the path: install Graphviz (apt install graphviz)"
)

TREE = """
from adjourn import ChatModelAgent, DeepAgent, GraphAgent, LoopAgent, SequentialAgent, Supervisor, tool
from adjourn.models import DemoModel
from desk import book_ticket, review

model = DemoModel(delay=0)
writer = ChatModelAgent("writer", model=model, tools=[book_ticket])
critic = ChatModelAgent("critic", model=model)
row = SequentialAgent("row", agents=[LoopAgent("rounds", agents=[writer], max_iterations=3), critic])
boss = Supervisor("boss", model=model, agents=[row, GraphAgent("reviewer", review)])
deep = DeepAgent("deep", model=model)
graph_agent = GraphAgent("reviewer", review)
"""


@pytest.fixture
def trees(shell: Shell) -> Shell:
    (shell.folder / "trees.py").write_text(TREE)
    return shell


def test_a_graph_is_printed_as_mermaid(shell: Shell):
    done = shell.ok("draw", "desk:review")
    assert done.out.splitlines()[:3] == ["flowchart TD", '    s(["start"])', '    n0["write"]']
    assert done.err == ""


def test_the_format_can_be_named(shell: Shell):
    assert "write   → approve" in shell.ok("draw", "desk:review", "--format", "text").out
    assert shell.ok("draw", "desk:review", "--format", "dot").out.startswith("digraph {")


@needs_dot
def test_a_picture_is_drawn_by_graphviz(shell: Shell):
    assert ET.fromstring(shell.ok("draw", "desk:review", "--format", "svg").out).tag.endswith("svg")
    shell.ok("draw", "desk:review", "-o", "a.svg")
    assert ET.parse(shell.folder / "a.svg").getroot().tag.endswith("svg")


def test_without_graphviz_it_is_said_what_to_install(shell: Shell):
    done = shell.run("draw", "desk:review", "--format", "svg", PATH="")
    assert done.code == 2
    assert "apt install graphviz" in done.err


@pytest.mark.parametrize(("file", "begins"), [("a.dot", "digraph {"), ("a.mmd", "flowchart TD"), ("a.txt", "review")])
def test_the_file_decides_the_format(shell: Shell, file: str, begins: str):
    done = shell.ok("draw", "desk:review", "-o", file)
    assert (done.out, done.err) == ("", f"Drawn in {file}\n")
    assert (shell.folder / file).read_text(encoding="utf-8").startswith(begins)


@pytest.mark.parametrize("file", ["a.png", "a"])
def test_a_file_of_an_unknown_kind_is_refused(shell: Shell, file: str):
    done = shell.run("draw", "desk:review", "-o", file)
    assert done.code == 2
    assert "ends in .mmd, .md, .dot, .gv, .svg, .txt, or choose a --format" in done.err
    assert not (shell.folder / file).exists()
    shell.ok("draw", "desk:review", "-o", file, "--format", "dot")
    assert (shell.folder / file).read_text(encoding="utf-8").startswith("digraph {")


def test_a_file_that_cannot_be_written_is_told(shell: Shell):
    done = shell.run("draw", "desk:review", "-o", "nowhere/a.dot")
    assert done.code == 2
    assert "nowhere/a.dot cannot be written" in done.err


def test_an_agent_shows_its_tools(shell: Shell):
    drawn = shell.ok("draw", "desk:agent").out.splitlines()
    assert drawn[1] == '    a0[["TicketBooker<br/>ChatModelAgent<br/>tools#58; book_ticket"]]'


def test_agents_are_drawn_as_the_tree_that_they_are(trees: Shell):
    assert trees.ok("draw", "trees:boss", "--format", "text").out.splitlines() == [
        "boss (Supervisor)",
        "  row (SequentialAgent)",
        "    rounds (LoopAgent)",
        "      writer (ChatModelAgent, tools: book_ticket)",
        "    critic (ChatModelAgent)",
        "  reviewer (GraphAgent)",
    ]
    drawn = trees.ok("draw", "trees:boss").out
    # A model chooses among its agents; a row runs all of them, one after the other.
    assert "    a0 -.-> a1\n" in drawn
    assert '    a1 -->|"1"| a2\n' in drawn
    assert '    a1 -->|"2"| a4\n' in drawn
    assert '    subgraph a5["reviewer<br/>GraphAgent"]' in drawn
    drawn = trees.ok("draw", "trees:boss", "--format", "dot").out
    assert "    a0 -> a1 [style=dashed]\n" in drawn
    assert '    a1 -> a2 [label="1"]\n' in drawn
    assert "    subgraph cluster_a5 {" in drawn


def test_a_deep_agent_shows_whom_it_hands_tasks_to(trees: Shell):
    assert trees.ok("draw", "trees:deep", "--format", "text").out.splitlines() == [
        "deep (DeepAgent, tools: task)",
        "  general_purpose (ChatModelAgent)",
    ]


def test_a_graph_agent_is_drawn_as_its_graph(trees: Shell):
    assert trees.ok("draw", "trees:graph_agent").out == trees.ok("draw", "desk:review").out


def test_what_cannot_be_drawn_is_refused(shell: Shell):
    done = shell.run("draw", "desk:trip")
    assert done.code == 2
    assert "desk:trip is a function" in done.err
