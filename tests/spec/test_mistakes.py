"""Every mistake has its line, its column and what to do, and all of them come at once."""

from __future__ import annotations

import re

import pytest

from adjourn.errors import SpecInvalid, UsageError
from adjourn.spec import load
from tests.spec.folder import Folder, document

CHAT = "type: chat_model_agent\nmodel: python://parts:model\n"

# What stands in a spec, with a mark before each mistake, and what is said about the first.
IN_A_SPEC: dict[str, tuple[str, str]] = {
    "an unknown field": (f"{CHAT}‸instructon: hi", "no field 'instructon' here. Did you mean 'instruction'?"),
    "a field of another library": (f"{CHAT}‸system_prompt: hi", "Write 'instruction' instead."),
    "a field at another place": (f"{CHAT}‸fallback: [x]", "Write 'model: {name: ..., fallback: [...]}' instead."),
    "an unknown type": ("type: ‸chat_agent", "no type 'chat_agent'. Did you mean 'chat_model_agent'?"),
    "a type that is like none": ("type: ‸robot", "no type 'robot'. There are: chat_model_agent, supervisor"),
    "no type": ("‸model: python://parts:model", "'type' is missing. Give one of: chat_model_agent"),
    "no model": ("‸type: chat_model_agent", "'model' is missing. Give a text or a mapping."),
    "a number for a text": (
        f"{CHAT}instruction: ‸12",
        "'instruction' is 12, which is a number; give a text. Put it in quotes: '12'.",
    ),
    "a boolean for a text": (f"{CHAT}instruction: ‸true", "a boolean; give a text"),
    "a list for a text": (f"{CHAT}instruction: ‸[hi]", "'instruction' is a list; give a text"),
    "a text for a list": (f"{CHAT}sub_agents: ‸other", "give a list. Write it as a list: [other]."),
    "a text for a number": (f"{CHAT}max_iterations: ‸ten", "give a whole number"),
    "a fraction for a whole number": (f"{CHAT}max_iterations: ‸1.5", "give a whole number"),
    "a number that is too small": (f"{CHAT}max_iterations: ‸0", "'max_iterations' is 0. Give 1 or more."),
    "a time of zero": (f"{CHAT}limits: {{seconds: ‸0}}", "Give a number above 0."),
    "a silent boolean": (f"{CHAT}exit_tool: ‸yes", "Write true or false"),
    "a silent boolean as a text": (f"{CHAT}instruction: ‸no", "in quotes if it is a text: 'no'"),
    "a word that is not a choice": (
        f"{CHAT}on_busy: ‸queu",
        "one of cancel, error, queue. Did you mean 'queue'?",
    ),
    "an empty list": ("type: sequential\nagents: ‸[]", "'agents' is empty. Give at least one."),
    "an empty text": (f'{CHAT}tools: [{{ref: python://parts:book, tags: [‸""]}}]', "item 1 of 'tags' is an empty text"),
    "a field without a value": (f"{CHAT}tools:‸\nexit_tool: true", "'tools' is empty; give a list"),
    "a text for a mapping": (f"{CHAT}values: ‸x", "give a mapping"),
    "an unknown provider": ("type: chat_model_agent\nmodel: ‸openay:gpt-5", "does not name a known provider"),
    "a model without provider": ("type: chat_model_agent\nmodel: ‸gpt-5", "For OpenAI's gpt-5, write 'openai:gpt-5'"),
    "an object that is not a model": ("type: chat_model_agent\nmodel: ‸python://parts:number", "7 is not a model"),
    "settings of an object": (
        "type: chat_model_agent\nmodel: ‸{name: python://parts:model, timeout_seconds: 3}",
        "has settings of its own. Remove timeout.",
    ),
    "a fallback that does not exist": (
        "type: chat_model_agent\nmodel: {name: python://parts:model, fallback: [‸python://parts:other]}",
        "parts has no 'other'",
    ),
    "a secret in the file": (
        "type: chat_model_agent\nmodel: {name: openai:gpt-5, api_key: ‸sk-1234}",
        "'api_key' does not name an environment variable. Secrets do not belong in files. Name the environment",
    ),
    "middleware that needs options": (
        f"{CHAT}middleware: [‸summarize]",
        "'summarize' needs options. Write {name: summarize, model: ...}. Its options: model, tokens",
    ),
    "interrupts without their mapping": (f"{CHAT}interrupt: ‸true", "Its fields are: enabled, require_token"),
    "a role without its mapping": (
        "type: plan_execute\nplanner: ‸demo:tickets\nexecutor: {model: demo:tickets}\nreplanner: {model: demo:tickets}",
        "give a mapping. Its fields are: model, agent.",
    ),
    "a variable that is not set": (
        "type: chat_model_agent\nmodel: {name: openai:gpt-5, api_key: ‸'${NOT_SET_HERE}'}",
        "the environment variable NOT_SET_HERE is not set. Set it: export NOT_SET_HERE=...",
    ),
    "a variable without a name": (
        "type: chat_model_agent\nmodel: {name: openai:gpt-5, base_url: ‸'http://${A B}/v1'}",
        "${A B} does not name an environment variable",
    ),
    "settings of a model that has none": (
        "type: chat_model_agent\nmodel: ‸{name: demo:tickets, options: {a: 1}}",
        "'demo:tickets' has no settings. Remove options.",
    ),
    "a demo that does not exist": ("type: chat_model_agent\nmodel: ‸demo:x", "The model 'demo:x' does not exist"),
    "an object that fails": (f"{CHAT}tools: [‸python://parts:odd]", "this failed with RuntimeError: odd"),
    "a workflow as a tool": (f"{CHAT}tools: [{{agent: ‸flow}}]", "'flow' is a Workflow, not an agent"),
    "a silent boolean among others": (f"{CHAT}tools: [{{ref: python://parts:book, approval: ‸yes}}]", "Write true or"),
    "an unknown module": (
        f"{CHAT}tools: [‸python://prts:book]",
        "no module prts in the folder of agents. Did you mean 'parts'?",
    ),
    "an unknown attribute": (f"{CHAT}tools: [‸python://parts:bok]", "parts has no 'bok'. Did you mean 'book'?"),
    "a reference without python://": (f"{CHAT}tools: [{{ref: ‸parts:book}}]", "Write python://module:attribute"),
    "an object that is not a tool": (f"{CHAT}tools: [‸python://parts:number]", "it is not a function"),
    "a tool that is nothing": (f"{CHAT}tools: [‸{{name: x}}]", "either a 'ref' or an 'agent'"),
    "a tool that is both": (
        f"{CHAT}tools: [‸{{ref: python://parts:book, agent: other}}]",
        "either a 'ref' or an 'agent'",
    ),
    "a history for a function": (
        f"{CHAT}tools: [{{ref: python://parts:book, full_history: ‸true}}]",
        "only an agent has the option 'full_history'",
    ),
    "internal events of a function": (
        f"{CHAT}tools: [{{ref: python://parts:book, emit_internal_events: ‸true}}]",
        "only an agent has the option 'emit_internal_events'",
    ),
    "approval where nobody may be asked": (
        f"{CHAT}tools: [{{ref: python://parts:book, approval: ‸true}}]",
        "but this agent must not ask. Write interrupt: {enabled: true}",
    ),
    "approval from Python where nobody may be asked": (
        f"{CHAT}tools: [‸python://parts:pay]",
        "calls of 'pay' need approval, but this agent must not ask",
    ),
    "approval that is taken back": (
        f"{CHAT}interrupt: {{enabled: true}}\ntools: [‸{{ref: python://parts:pay, approval: false}}]",
        "needs approval in Python, which a file cannot take back",
    ),
    "an approval function that does not fit": (
        f"{CHAT}interrupt: {{enabled: true}}\ntools: [‸{{ref: python://parts:pay, approval: python://parts:is_far}}]",
        "takes 'to', which is not one of the tool's parameters",
    ),
    "a rule that asks where nobody may be asked": (
        f"{CHAT}middleware: [{{name: approval_policy, rules: [‸{{tool: x}}]}}]",
        "this rule asks a person, but this agent must not ask",
    ),
    "files with approval where nobody may be asked": (
        f"{CHAT}middleware: [{{name: file_tools, approval: ‸true}}]",
        "changes of files need approval, but",
    ),
    "an agent that does not exist": (f"{CHAT}sub_agents: [‸othr]", "no agent 'othr'. Did you mean 'other'?"),
    "an agent that is not one": (f"{CHAT}sub_agents: [‸python://parts:number]", "is an int, not an agent"),
    "an agent below itself": ("type: sequential\nagents: [other, ‸x]", "'x' is below itself: x > x"),
    "an agent that may ask": (
        "type: sequential\nagents: [‸asking]",
        "'asking' may ask people, but this agent must not",
    ),
    "an agent that may ask, through another": ("type: loop\nagents: [‸between]", "'asking' may ask people, but this"),
    "two agents of one name in a group": ("type: sequential\nagents: ‸[other, other]", "two agents with the same name"),
    "unknown middleware": (f"{CHAT}middleware: [‸todolist]", "Did you mean 'todo_list'?"),
    "unknown middleware with options": (
        f"{CHAT}middleware: [{{name: ‸call_limit}}]",
        "no name 'call_limit'. Did you mean",
    ),
    "middleware by a key": (
        f"{CHAT}middleware:\n  - ‸call_limits: {{model_calls: 5}}",
        "'name' is missing. Write {name: call_limits, ...}, with its options beside it.",
    ),
    "a class of middleware": (f"{CHAT}middleware: [‸python://parts:Quiet]", "Give an object of it: Quiet(...)"),
    "a folder that leads out": (
        f"{CHAT}middleware: [‸{{name: skills, folder: ../x}}]",
        "leads out of the folder of agents",
    ),
    "a folder that is missing": (f"{CHAT}middleware: [‸{{name: skills, folder: x}}]", "there is no such folder"),
    "a bad pattern": (f"{CHAT}middleware: [‸{{name: redact_pii, patterns: {{x: '('}}}}]", "RedactPII"),
    "a summary without a model": (
        f"{CHAT}middleware: [{{name: summarize, model: ‸python://parts:number}}]",
        "is not a model",
    ),
    "a role that is nothing": (
        "type: plan_execute\nplanner: ‸{}\nexecutor: {agent: other}\nreplanner: {model: python://parts:model}",
        "either a 'model' or an 'agent'",
    ),
    "an instruction that cannot be filled": (f"{CHAT}instruction: ‸'Hi {{'", "instruction of agent 'x'"),
    "a Python object that cannot run": ("type: python\nref: ‸python://parts:number", "an int, which cannot be run"),
    "an input of an agent": ("type: python\nref: python://parts:x\ninput: ‸question", "only a graph has an 'input'"),
    "variables where none is read": (
        f"{CHAT}values: {{key: ‸'${{HOME}}', keys: [‸'${{HOME}}', 'a ${{HOME}}']}}\ninstruction: ‸${{HOME}}",
        "${HOME} is not read here. Environment variables are read in 'api_key', 'base_url' and",
    ),
    "a variable without braces": (
        f"{CHAT}checkpoint: {{backend: redis, url: ‸$REDIS_URL}}",
        "Write ${REDIS_URL} for the environment variable.",
    ),
    "a backend of another URL": (
        f"{CHAT}checkpoint: {{backend: redis, url: ‸'sqlite:///x'}}",
        "not the URL of a redis store. It begins with redis://.",
    ),
    "a time to live without Redis": (
        f"{CHAT}checkpoint: {{backend: sqlite, ttl_seconds: ‸60}}",
        "sqlite has no time to live",
    ),
    "a checkpoint at both places": (
        f"{CHAT}checkpoint: {{backend: memory}}\ninterrupt: {{checkpoint: ‸{{backend: memory}}}}",
        "the checkpoint is also under 'spec'",
    ),
    "another store": (f"{CHAT}checkpoint: {{backend: ‸redis}}", "two different stores: backend redis."),
}


# These are found only when the rest is fine, so the places of the spec itself are theirs.
@pytest.fixture
def others(folder: Folder) -> Folder:
    folder.add("other", CHAT)
    folder.add("asking", f"{CHAT}interrupt: {{enabled: true}}\nserved: false")
    folder.add("flow", "type: python\nref: python://parts:flow")
    folder.add("between", "type: sequential\nagents: [asking]\nserved: false")
    return folder


@pytest.mark.parametrize("case", IN_A_SPEC)
def test_a_mistake_has_its_place_and_a_remedy(others: Folder, case: str):  # rules V5, V6
    spec, said = IN_A_SPEC[case]
    if case == "another store":
        others.add("a", f"{CHAT}checkpoint: {{backend: memory}}")
    text = document("x", spec)
    found, places = others.mistakes(text)
    assert [(each.line, each.column) for each in found] == places
    assert said in str(found[0])
    assert found[0].file == str(others.path / "x.yaml")


ELSEWHERE: dict[str, tuple[str, str]] = {
    "another version": (
        "apiVersion: ‸adjourn/v2\nkind: Agent\nmetadata: {name: flow}\nspec: {type: python, ref: python://parts:flow}",
        "give adjourn/v1",
    ),
    "no version": (
        "‸kind: Agent\nmetadata: {name: flow}\nspec: {type: python, ref: python://parts:flow}",
        "'apiVersion' is missing. Write it: adjourn/v1.",
    ),
    "a name that cannot be one": (
        "apiVersion: adjourn/v1\nkind: Agent\nmetadata: {name: ‸a b}\nspec: {type: python, ref: python://parts:flow}",
        "Use up to 64 letters, digits, '-' and '_'.",
    ),
    "another name than in Python": (
        "apiVersion: adjourn/v1\nkind: Agent\nmetadata: {name: ‸x}\nspec: {type: python, ref: python://parts:agent}",
        "in Python it is called 'made'. Call it that here, too",
    ),
    "a list": ("‸- a", "the document is a list; give a mapping"),
    "a text": ("‸hello", "the document is the text 'hello'; give a mapping"),
    "several": (
        document("x", "type: loop\nagents: [‸y]\nmax_iterations: ‸-1\n").replace("Agent", "‸Agents\n‸nme: x"),
        "give Agent. Did you mean 'Agent'?",
    ),
    "two of one name": (
        document("x", CHAT) + "---\n" + document("x", CHAT).replace("name: x", "name: ‸x"),
        "two agents are called 'x'. The first one is in",
    ),
    "a circle": (
        document("x", "type: sequential\nagents: [z]") + "---\n" + document("z", "type: loop\nagents: [‸x]"),
        "'x' is below itself: x > z > x",
    ),
}


@pytest.mark.parametrize("case", ELSEWHERE)
def test_a_mistake_outside_of_a_spec_has_its_place(folder: Folder, case: str):  # rule V6
    text, said = ELSEWHERE[case]
    found, places = folder.mistakes(text)
    assert [(each.line, each.column) for each in found] == places
    assert said in str(found[0])


def test_all_mistakes_of_all_files_come_at_once_and_stop_no_other(folder: Folder):  # rule V6
    folder.add("good", CHAT)
    folder.add("user", "type: sequential\nagents: [bad]")
    folder.add("bad", f"{CHAT}tool: []\nmax_iterations: 0")
    folder.write("worse.yml", "a: [")
    loaded = folder.load()
    assert list(loaded.agents) == ["good"]  # and not `user`, which needs a bad one
    assert [(each.file.rpartition("/")[2], each.line) for each in loaded.mistakes] == [
        ("bad.yaml", 7),
        ("bad.yaml", 8),
        ("worse.yml", 1),
    ]
    with pytest.raises(SpecInvalid, match=re.escape(str(loaded.mistakes[1]))) as caught:
        loaded.check()
    assert caught.value.mistakes == tuple(loaded.mistakes)


TOGETHER: dict[str, str] = {
    "in a chat": """
        type: chat_model_agent
        model: ‸python://parts:number
        ‸instructions: x
        instruction: ‸"Hi {"
        output_type: ‸{type: strin}
        max_iterations: ‸017
        tools:
          - ‸{}
          - {ref: "python://parts:book", timeout_seconds: ‸x}
          - {ref: "python://parts:book", full_history: ‸true}
          - ‸python://parts:number
          - {ref: "python://parts:book", approval: ‸true}
        middleware: [‸nothing, ‸python://parts:Quiet]
        checkpoint: {backend: sqlite, url: ‸"redis://h"}
    """,
    "in a team": """
        type: supervisor
        model: ‸openai
        agents: [‸nobody, ‸flow]
        ‸sub_agents: []
        tools: ‸python://parts:book
        middleware: [‸{name: file_tools, folder: nowhere}]
    """,
    "in a plan": """
        type: plan_execute
        planner: ‸{model: "python://parts:model", agent: other}
        executor: {agent: ‸nobody}
        replanner: {model: ‸"python://parts:number"}
        max_iterations: ‸0
    """,
    "in a graph": """
        type: graph
        interrupt: {enabled: true}
        fields:
          a: {type: ‸text}
          b: ‸{type: integer, default: x}
        nodes:
          one: {type: function, ref: ‸"python://parts:nothing"}
          two: {type: function, ref: ‸"python://parts:number"}
          ask: {type: ask, prompt: Why, save_to: ‸c, show: [a, ‸d], choices: ["1"]}
          sub: {type: subgraph, ref: ‸"python://parts:flow"}
        edges:
          - {from: start, to: ‸onee}
          - {from: ask, to: two, ‸where: here}
          - {from: ask, field: ‸decision, to: {"1": one}}
        interrupt_after: [‸three]
        output: ‸e
    """,
    "with fields that are none": """
        type: graph
        interrupt: {enabled: true}
        fields: ‸-1
        nodes: {one: {type: ask, prompt: Why, save_to: x}}
        edges: [{from: start, to: ‸two}]
    """,
    "with a state that cannot be known": """
        type: graph
        interrupt: {enabled: true}
        state: ‸python://parts:nothing
        nodes: {one: {type: ask, prompt: Why, save_to: x}}
        edges: [{from: start, to: ‸two}]
        input: y
    """,
}
"""Mistakes that are found in several ways, one after the other."""


@pytest.mark.parametrize("case", TOGETHER)
def test_one_mistake_does_not_hide_another(others: Folder, case: str):  # rule V6
    found, places = others.mistakes(document("x", TOGETHER[case]))
    assert [(each.line, each.column) for each in found] == places


def test_mistakes_across_agents_are_found_beside_those_of_each(folder: Folder):  # rule V6
    folder.add("a", f"{CHAT}nothing: 1\ncheckpoint: {{backend: sqlite}}")
    folder.add("b", "type: loop\nagents: [c, a]\nmax_iterations: 0\ncheckpoint: {backend: redis}")
    folder.add("c", "type: sequential\nagents: [b, nobody]\nserved: 1")
    folder.write("d.yaml", document("a", f"{CHAT}instruction: 'Hi {{'"))
    said = [(each.file[-6:], each.line, each.message) for each in folder.load().mistakes]
    assert said == [
        ("a.yaml", 7, "there is no field 'nothing' here"),
        ("b.yaml", 7, "'max_iterations' is 0"),
        ("b.yaml", 8, "there are two different stores: backend redis"),
        ("c.yaml", 6, "'b' is below itself: b > c > b"),
        ("c.yaml", 6, "there is no agent 'nobody'"),
        ("c.yaml", 7, "'served' is 1, which is a number; give true or false"),
        ("d.yaml", 3, "two agents are called 'a'"),
        ("d.yaml", 7, said[-1][2]),
    ]
    assert "instruction of agent 'a'" in said[-1][2]


def test_a_document_that_is_not_yaml_has_one_mistake_and_stops_no_other(folder: Folder):  # rule V6
    broken = document("lost", f"{CHAT}tools: [").replace("metadata: {name: lost}", "metadata:\n  name: lost")
    folder.write("a.yaml", f"{document('good', CHAT)}---\n{broken}---\n{document('late', CHAT + 'x: 1')}")
    folder.add("user", "type: sequential\nagents: [lost, good]")
    loaded = folder.load()
    assert [(each.line, each.message) for each in loaded.mistakes] == [
        (17, "expected the node content, but found '<stream end>'"),
        (24, "there is no field 'x' here"),
    ]
    assert list(loaded.agents) == ["good"]


@pytest.mark.parametrize(
    "spec", [f"{CHAT}values: ‸*all", f"{CHAT}‸<<: {{description: x}}", f"{CHAT}‸yes: 1", f"{CHAT}tools: [‸*one]"]
)
def test_what_yaml_may_not_have_is_one_mistake(folder: Folder, spec: str):
    found, places = folder.mistakes(document("x", spec))
    assert [(each.line, each.column) for each in found] == places
    assert not folder.load().agents


def test_what_is_said_wrongly_about_asking_is_one_mistake(others: Folder):
    spec = f"{CHAT}tools: [python://parts:pay]\nsub_agents: [asking]\ninterrupt: {{‸enable: true}}"
    found, places = others.mistakes(document("x", spec))
    assert [(each.line, each.column) for each in found] == places


def test_a_password_is_not_repeated(folder: Folder):
    folder.add("a", f"{CHAT}checkpoint: {{backend: redis, url: 'redis://u:hunter2@h/0'}}")
    folder.add("b", f"{CHAT}checkpoint: {{backend: redis, url: 'redis://u:hunter3@h/0'}}")
    (found,) = folder.load().mistakes
    assert "two different stores" in str(found)
    assert "hunter" not in str(found)


def test_files_that_cannot_be_read_are_named(folder: Folder):
    (folder.path / "a.yaml").write_bytes(b"\xff\xfe")
    folder.write("b.yaml", "a: 1\n" * 60_000)
    folder.write("c.yaml", "x" * 1_100_000)
    assert [each.message for each in folder.load().mistakes] == [
        "the file is not UTF-8 text",
        "the file has 300,000 characters, and at most 131,072 are read",
        "the file is larger than 524,288 bytes",
    ]


def test_a_folder_without_files_is_a_mistake(folder: Folder):
    (found,) = folder.load().mistakes
    assert "there are no files that end in .yaml" in str(found)


def test_a_folder_that_is_missing_is_refused(folder: Folder):
    with pytest.raises(UsageError, match="There is no folder"):
        load(folder.path / "nothing")
    with pytest.raises(UsageError, match=r"parts.py' is a file. Name the folder that it is in"):
        load(folder.path / "parts.py")
    with pytest.raises(UsageError, match="give a list of packages"):
        load(folder.path, allow="x")


def test_files_are_found_below_but_hidden_ones_are_not_read(folder: Folder):
    folder.write("a/b/x.yaml", document("deep", CHAT))
    folder.write(".git/x.yaml", "[")
    folder.write("a/.x.yaml", "[")
    assert list(folder.load().check().agents) == ["deep"]


def test_fields_that_are_not_indented_are_sent_where_they_belong(folder: Folder):
    folder.write("a.yaml", "apiVersion: adjourn/v1\nkind: Agent\nmetadata:\nname: a\nspec:\ntype: graph\n")
    said = [str(each) for each in load(folder.path).mistakes]
    assert any("no field 'name' here. It belongs to 'metadata': write it below" in each for each in said)
    assert any("no field 'type' here. It belongs to 'spec': write it below" in each for each in said)


@pytest.mark.parametrize("text", ["", "# Later.\n"])
def test_a_folder_without_an_agent_is_a_mistake(folder: Folder, text: str):
    folder.write("a.yaml", text)
    (mistake,) = load(folder.path).mistakes
    assert "there is no agent in this folder" in str(mistake)


def test_a_secret_in_a_file_is_not_repeated(folder: Folder):
    folder.add("a", "type: chat_model_agent\nmodel: {name: openai:gpt-5, api_key: sk-1234567}")
    assert "sk-1234567" not in str(load(folder.path).mistakes)
