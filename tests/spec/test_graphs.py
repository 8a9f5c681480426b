"""Graphs described in YAML: nodes, edges, conditions and questions."""

from __future__ import annotations

import pytest

from adjourn import Runner
from adjourn.agents import GraphAgent
from tests.spec.folder import Folder, document

DESK = """
type: graph
description: Refunds.
interrupt: {enabled: true}
fields:
  decision: {type: string}
  notes: {type: list, reducer: append, default: []}
nodes:
  draft: {type: llm, model: "python://parts:model", instruction: Be brief.}
  decide:
    type: ask
    prompt: Refund?
    save_to: decision
    show: [last_response]
    choices: [refund, refuse]
    reason: need_approval
    tags: [money]
  pay: {type: function, ref: "python://desk:pay", retry: {attempts: 2}, timeout_seconds: 5}
  refuse: {type: agent, agent: clerk}
edges:
  - {from: start, to: draft}
  - {from: draft, to: decide}
  - {from: decide, field: decision, to: {refund: pay, else: refuse}}
  - {from: [pay], to: end}
"""
PAY = "def pay(state):\n    return {'last_response': 'Paid.', 'notes': ['paid']}\n"


@pytest.fixture
def desk(folder: Folder) -> Folder:
    folder.write("desk.py", PAY)
    folder.add("clerk", "type: chat_model_agent\nmodel: python://parts:model\nserved: false")
    return folder


@pytest.mark.parametrize(
    ("answer", "said"), [("refund", "Paid."), ("refuse", "Answer to For context: refunds said: Answer to a refund")]
)
async def test_a_graph_asks_and_goes_the_way_of_the_answer(desk: Folder, answer: str, said: str):
    desk.add("refunds", DESK)
    runner = Runner(desk.load().check().agents["refunds"])
    paused = await runner.run("a refund", session_id="s")
    (asked,) = paused.interrupts
    assert (asked.prompt, asked.reason, asked.tags) == ("Refund?", "need_approval", ("money",))
    assert asked.info == {"last_response": "Answer to a refund"}
    assert asked.schema == {"type": "string", "enum": ["refund", "refuse"]}
    assert (await runner.resume("s", {asked: answer})).output == said


async def test_a_field_decides_what_can_be_answered(folder: Folder):
    folder.add(
        "a",
        """
        type: graph
        interrupt: {enabled: true}
        fields: {ok: {type: boolean}}
        output: ok
        nodes:
          ask: {type: ask, prompt: "Go?", save_to: ok, expires_in_seconds: 60}
        edges:
          - {from: start, to: ask}
          - {from: ask, field: ok, to: {"true": end, "false": ask}}
        """,
    )
    runner = Runner(folder.load().check().agents["a"])
    (asked,) = (await runner.run("hi", session_id="s")).interrupts
    assert asked.schema == {"type": "boolean"}
    (again,) = (await runner.resume("s", {asked: False})).interrupts
    assert (await runner.resume("s", {again: True})).output == "true"


async def test_conditions_lists_and_joins(folder: Folder):
    folder.write(
        "steps.py",
        "def a(state): return {'seen': ['a']}\ndef b(state): return {'seen': ['b']}\n"
        "def both(state): return {'seen': ['both'], 'last_response': str(state['seen'])}\n"
        "def union(old, new): return sorted({*(old or ()), *new})\n",
    )
    folder.add(
        "g",
        """
        type: graph
        fields: {seen: {type: list, reducer: "python://steps:union"}}
        input: user_input
        output: last_response
        max_steps: 9
        nodes:
          begin: {type: function, ref: "python://parts:shout"}
          a: {type: function, ref: "python://steps:a"}
          b: {type: function, ref: "python://steps:b"}
          both: {type: function, ref: "python://steps:both", defer: true}
        edges:
          - {from: start, to: begin}
          - {from: begin, condition: "python://parts:way", to: {long: a, short: b}}
          - {from: a, to: [b, both]}
          - {from: b, to: both}
        """,
    )
    agent = folder.load().check().agents["g"]
    assert (await Runner(agent).run("hello")).output == "['a', 'b']"
    assert (await Runner(agent).run("hi")).output == "['b']"


async def test_a_model_with_tools_is_a_loop(folder: Folder):
    folder.add(
        "g",
        """
        type: graph
        interrupt: {enabled: true}
        middleware: [patch_tool_calls]
        nodes:
          think: {type: llm, model: "python://parts:booking", tools: ["python://parts:book"]}
          act:
            type: tools
            tools: [{ref: "python://parts:book", approval: true}]
            middleware: [log_calls]
        edges:
          - {from: start, to: think}
          - {from: think, tools: act, to: end}
          - {from: act, to: think}
        """,
    )
    runner = Runner(folder.load().check().agents["g"])
    (asked,) = (await runner.run("Rome", session_id="s")).interrupts
    assert (await runner.resume("s", {asked: True})).output == "Booked."


async def test_a_state_class_a_subgraph_and_static_interrupts(folder: Folder):
    folder.write(
        "states.py",
        "from adjourn.graph import MessagesState\nclass Desk(MessagesState):\n    extra: str\n",
    )
    folder.add(
        "g",
        """
        type: graph
        interrupt: {enabled: true}
        state: python://states:Desk
        interrupt_before: [inner]
        nodes:
          inner: {type: subgraph, ref: "python://parts:graph"}
        edges: [{from: start, to: inner}]
        """,
    )
    agent = folder.load().check().agents["g"]
    assert isinstance(agent, GraphAgent)
    runner = Runner(agent)
    assert (await runner.run("hi", session_id="s")).status == "interrupted"
    assert (await runner.resume("s")).output == "HI"


NODES = 'nodes: {one: {type: function, ref: "python://parts:shout"}}\n'
ASKING = "nodes: {one: {type: ask, prompt: Why, save_to: y}}\n"
START = "edges: [{from: start, to: one}]\n"
SHOUT = 'type: function, ref: "python://parts:shout"'
HEAD = "type: graph\ninterrupt: {enabled: true}\n"
MISTAKES: dict[str, tuple[str, str]] = {
    "an unknown node as a source": (
        f"{HEAD}{NODES}edges: [{{from: ‸onee, to: one}}]",
        "no node 'onee'. Did you mean 'one'?",
    ),
    "an unknown node as a target": (f"{HEAD}{NODES}edges: [{{from: start, to: ‸two}}]", "There are: one, start, end."),
    "an unknown node in a list": (f"{HEAD}{NODES}edges: [{{from: start, to: [one, ‸two]}}]", "no node 'two'"),
    "an unknown node in a mapping": (
        f"{HEAD}{NODES}edges: [{{from: one, field: user_input, to: {{a: ‸two}}}}, {{from: start, to: one}}]",
        "no node 'two'",
    ),
    "an unknown node to pause at": (f"{HEAD}{NODES}{START}interrupt_before: [‸two]", "no node 'two'"),
    "an unknown node of a command": (
        f'{HEAD}nodes: {{one: {{type: function, ref: "python://parts:shout", goes_to: [‸two]}}}}\n{START}',
        "no node 'two'",
    ),
    "no entry": (
        f"{HEAD}{NODES}edges: ‸[{{from: one, to: end}}]",
        "no edge begins at 'start'. Add one: {from: start, to: one}",
    ),
    "the words of Python for the ends": (
        f"{HEAD}{NODES}edges: [{{from: ‸START, to: one}}, {{from: one, to: ‸END}}]",
        "no node 'START'. Did you mean 'start'?",
    ),
    "a node that nothing leads to": (
        f"{HEAD}nodes: {{one: {{{SHOUT}}}, two: ‸{{{SHOUT}}}}}\n{START}",
        "no way leads to the node 'two'. Add an edge, or name it in the 'goes_to'",
    ),
    "an answer that nothing follows": (
        (
            f"{HEAD}nodes: {{one: {{type: ask, prompt: x, save_to: user_input, choices: [pay, refuse]}}}}\n"
            "edges: [{from: start, to: one}, {from: one, field: user_input, to: ‸{pay: end}}]"
        ),
        "nothing follows the answer 'refuse'. Add refuse: NODE, or else: NODE",
    ),
    "a way for an answer that cannot come": (
        (
            f"{HEAD}nodes: {{one: {{type: ask, prompt: x, save_to: user_input, choices: [pay, refuse]}}}}\n"
            "edges: [{from: start, to: one}, {from: one, field: user_input, to: {pay: end, refse: ‸end, else: end}}]"
        ),
        "'refse' is not one of the choices. Did you mean 'refuse'?",
    ),
    "a reserved name": (
        f'{HEAD}nodes: {{end: ‸{{type: function, ref: "python://parts:shout"}}, one: {{type: function, ref: "python://parts:shout"}}}}\n{START}',
        "cannot be called 'end'",
    ),
    "a node that is not a function": (
        f'{HEAD}nodes: {{one: {{type: function, ref: ‸"python://parts:number"}}}}\n{START}',
        "this is an int, not a function",
    ),
    "a condition that is not a function": (
        f'{HEAD}{NODES}{START}  - {{from: one, condition: ‸"python://parts:number", to: {{a: end}}}}'.replace(
            "[{from: start, to: one}]", "\n  - {from: start, to: one}"
        ),
        "this is an int, not a function",
    ),
    "an unknown type of node": (f"{HEAD}nodes: {{one: {{type: ‸llmm}}}}\n{START}", "Did you mean 'llm'?"),
    "a subgraph that is not one": (
        f'{HEAD}nodes: {{one: {{type: subgraph, ref: ‸"python://parts:flow"}}}}\n{START}',
        "not a compiled graph. Name what .compile() returned.",
    ),
    "an answer for no field": (
        f"{HEAD}nodes: {{one: {{type: ask, prompt: x, save_to: ‸lst_response}}}}\n{START}",
        "no field 'lst_response'. Did you mean 'last_response'?",
    ),
    "a field to show that does not exist": (
        f"{HEAD}nodes: {{one: {{type: ask, prompt: x, save_to: user_input, show: [‸x]}}}}\n{START}",
        "the state has no field 'x'",
    ),
    "a question where nobody may be asked": (
        f"type: graph\nnodes: {{one: ‸{{type: ask, prompt: x, save_to: user_input}}}}\n{START}",
        "this node asks a person, but this agent must not ask",
    ),
    "a pause where nobody may be asked": (
        f"type: graph\n{NODES}{START}interrupt_after: [‸one]",
        "every run pauses here, but this agent must not ask",
    ),
    "a pause of a node where nobody may be asked": (
        f"type: graph\nnodes: {{one: {{{SHOUT}, interrupt_before: ‸true}}}}\n{START}",
        "every run pauses here, but this agent must not ask",
    ),
    "two ways to decide": (
        f'{HEAD}{NODES}edges: [{{from: one, condition: "python://parts:way", field: ‸x, to: end}}]',
        "already has a 'condition'",
    ),
    "nothing that decides": (
        f"{HEAD}{NODES}edges: [{{from: start, to: one}}, {{from: one, to: ‸{{a: end}}}}]",
        "nothing says which way to go",
    ),
    "a field with one way": (
        f"{HEAD}{NODES}edges: [{{from: start, to: one}}, {{from: one, field: user_input, to: ‸end}}]",
        "give a node for each value",
    ),
    "tools with several ways": (
        f"{HEAD}{NODES}edges: [{{from: start, to: one}}, {{from: one, tools: one, to: ‸[one, end]}}]",
        "there is one other way",
    ),
    "a condition after several": (
        f"{HEAD}{NODES}edges: [{{from: start, to: one}}, {{from: ‸[one, start], field: user_input, to: {{a: end}}}}]",
        "has one source",
    ),
    "fields of a state class": (
        f"{HEAD}{NODES}{START}state: python://parts:MessagesState\nfields: ‸{{x: {{}}}}",
        "the state class has the fields",
    ),
    "a default that does not fit": (
        f"{HEAD}{NODES}{START}fields: {{x: ‸{{type: integer, default: a}}}}",
        "the default of field 'x' does not fit",
    ),
    "a default that does not fit, and a question": (
        f"{HEAD}{ASKING}{START}fields: {{x: ‸{{type: integer, default: a}}, y: {{}}}}",
        "the default of field 'x' does not fit",
    ),
    "a state that is not a class": (f"{HEAD}{NODES}{START}state: ‸python://parts:number", "cannot be a state schema"),
    "an unknown reducer": (f"{HEAD}{NODES}{START}fields: {{x: {{reducer: ‸apend}}}}", "Did you mean 'append'?"),
    "an output that does not exist": (f"{HEAD}{NODES}{START}output: ‸x", "the state has no field 'x'"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_in_a_graph_has_its_place(folder: Folder, case: str):  # rule V6
    spec, said = MISTAKES[case]
    found, places = folder.mistakes(document("x", spec))
    assert [(each.line, each.column) for each in found] == places
    assert said in str(found[0])
