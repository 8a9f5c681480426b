"""Each type of agent, described in YAML, runs."""

from __future__ import annotations

from typing import Any

import pytest

from adjourn import ChatModelAgent, Retry, Runner
from adjourn._hiding import HIDDEN, known
from adjourn.agents import DeepAgent, GraphAgent, LoopAgent, ParallelAgent, PlanExecute, SequentialAgent, Supervisor
from adjourn.errors import InterruptsDisabled, UsageError
from adjourn.events import MessageEvent
from adjourn.models import OpenAIChatModel
from adjourn.spec import Checkpoint, Served
from tests.spec.folder import Folder

CHAT = "type: chat_model_agent\nmodel: python://parts:model\n"


def agent_of(found: Served) -> Any:
    """Return the agent; Any: the tests know which kind it is."""
    return found.program


def served(folder: Folder, name: str, spec: str) -> Served:
    folder.add(name, spec)
    return folder.load().check().served[name]


async def output(found: Served, message: str = "hi") -> str:
    return (await Runner(agent_of(found), interrupts=found.interrupts).run(message)).output


async def test_a_chat_model_agent_asks_and_goes_on(folder: Folder):  # rule V5
    found = served(
        folder,
        "ticket-booker",
        """
        type: chat_model_agent
        model: python://parts:booking
        instruction: You book tickets for {user}.
        values: {user: Ann}
        tools:
          - {ref: python://parts:book, approval: python://parts:is_far, timeout_seconds: 3, return_directly: true}
        interrupt: {enabled: true}
        """,
    )
    runner = Runner(agent_of(found))
    paused = await runner.run("Rome, please", session_id="s", values=found.values)
    assert [asked.id for asked in paused.interrupts] == ["agent:ticket-booker;tool:book:c1"]
    assert (await runner.resume("s", {paused.interrupts[0]: True})).output == "a ticket to Rome"
    assert isinstance(agent_of(found), ChatModelAgent)
    (tool,) = agent_of(found).tools
    assert (tool.timeout, tool.return_directly) == (3, True)


async def test_options_of_a_tool_are_those_of_the_file(folder: Folder):
    folder.add("b", f"{CHAT}served: false")
    found = served(
        folder,
        "a",
        f"""
{CHAT}
tools:
  - ref: python://parts:pay
    name: wire
    description: Send money.
    retry: {{attempts: 2, backoff_seconds: 0}}
    max_result: 10
    tags: [money]
  - agent: b
    name: ask_b
    description: Asks b.
    full_history: true
    at_most_once: true
  - python://parts:agent
interrupt: {{enabled: true}}
""",
    )
    assert isinstance(agent_of(found), ChatModelAgent)
    wire, ask, made = agent_of(found).tools
    assert (wire.name, wire.description, wire.approval, wire.at_most_once) == ("wire", "Send money.", True, False)
    assert (ask.at_most_once, ask.retry) == (True, ())
    assert (wire.retry, wire.max_result, wire.tags) == ((Retry(attempts=2, backoff=0.0),), 10, ("money",))
    assert (ask.name, ask.description, made.name) == ("ask_b", "Asks b.", "made")
    assert list(folder.load().agents) == ["a"]


async def test_an_agent_without_interrupts_must_not_ask(folder: Folder):  # rule V5
    folder.write(
        "asking.py", "from adjourn import interrupt, workflow\n\n@workflow\nasync def ask(x): interrupt('?')\n"
    )
    found = served(folder, "ask", "type: python\nref: python://asking:ask")
    with pytest.raises(InterruptsDisabled):
        await output(found)


async def test_what_a_model_has_is_passed_on(folder: Folder):
    folder.add(
        "a",
        """
        type: chat_model_agent
        model:
          name: openai:gpt-5
          api_key: ${MY_KEY}
          base_url: http://${HOST}/v1
          timeout_seconds: 5
          options: {temperature: 0}
          retry: {attempts: 7}
          fallback: [python://parts:model, {name: openai:gpt-4, api_key: "${MY_KEY}"}]
        """,
    )
    loaded = folder.load(environ={"MY_KEY": "sk-123456789", "HOST": "127.0.0.1:1"}).check()
    agent = loaded.agents["a"]
    assert isinstance(agent, ChatModelAgent)
    first, second, third = agent.models
    assert isinstance(first, OpenAIChatModel)
    assert isinstance(third, OpenAIChatModel)
    assert (first.model, first.options, third.model) == ("gpt-5", {"temperature": 0}, "gpt-4")
    assert not isinstance(second, OpenAIChatModel)
    assert agent.retry == (Retry(attempts=7),)


def test_a_key_is_hidden_from_then_on(folder: Folder, monkeypatch: pytest.MonkeyPatch):  # attack 10
    monkeypatch.setenv("MY_KEY", "sk-of-the-environment")
    folder.add("a", "type: chat_model_agent\nmodel: {name: openai:gpt-5, api_key: '${MY_KEY}'}")
    assert folder.load().check()
    assert known.hide("it is sk-of-the-environment") == f"it is {HIDDEN}"


async def test_a_key_of_the_usual_name_needs_no_reference(folder: Folder):
    folder.add("a", "type: chat_model_agent\nmodel: openai:gpt-5")
    assert list(folder.load(environ={"OPENAI_API_KEY": "sk-123456789"}).check().agents) == ["a"]


async def test_the_first_model_that_answers_counts(folder: Folder):
    folder.write(
        "models.py",
        "from adjourn.errors import ModelError\nfrom adjourn.testing import ScriptedModel\n"
        "broken = ScriptedModel([ModelError('away')] * 9)\nwhole = ScriptedModel(['I am here.'])\n",
    )
    model = "{name: 'python://models:broken', fallback: ['python://models:whole']}"
    assert await output(served(folder, "a", f"type: chat_model_agent\nmodel: {model}")) == "I am here."


async def test_agents_in_sequence_in_parallel_and_in_loops(folder: Folder):
    for name in ("one", "two"):
        folder.add(name, f"{CHAT}served: false\noutput_key: {name}")
    row = served(folder, "row", "type: sequential\nagents: [one, two]\ndescription: In a row.")
    pair = served(folder, "pair", "type: parallel\nagents: [one, two]")
    loop = served(folder, "loop", "type: loop\nagents: [row, python://parts:agent]\nmax_iterations: 2")
    assert isinstance(agent_of(row), SequentialAgent)
    assert agent_of(row).description == "In a row."
    assert isinstance(agent_of(pair), ParallelAgent)
    assert isinstance(agent_of(loop), LoopAgent)
    assert agent_of(loop).max_iterations == 2
    for found, said in ((row, 2), (pair, 2), (loop, 6)):
        result = await Runner(agent_of(found)).run("hi")
        assert sum(message.role == "assistant" for message in result.messages) == said


async def test_a_supervisor_hands_over_and_goes_on(folder: Folder):
    folder.write(
        "boss.py",
        "from adjourn import ToolCall\nfrom adjourn.testing import ScriptedModel\n"
        "call = ToolCall(id='c1', name='transfer_to_agent', arguments={'agent_name': 'one'})\n"
        "model = ScriptedModel([call, 'Done.'])\n",
    )
    folder.add("one", f"{CHAT}served: false\ndescription: Does it.")
    found = served(folder, "boss", "type: supervisor\nmodel: python://boss:model\nagents: [one]")
    assert isinstance(agent_of(found), Supervisor)
    assert await output(found) == "Done."


async def test_a_plan_is_made_and_carried_out(folder: Folder):
    folder.write(
        "plans.py",
        "from adjourn.testing import ScriptedModel\n"
        'planner = ScriptedModel([\'{"steps": ["look"]}\'])\n'
        'replanner = ScriptedModel([\'{"steps": [], "response": "Found."}\'])\n',
    )
    folder.add("worker", f"{CHAT}served: false")
    found = served(
        folder,
        "planner",
        """
        type: plan_execute
        planner: {model: "python://plans:planner"}
        executor: {agent: worker}
        replanner: {model: "python://plans:replanner"}
        max_iterations: 3
        """,
    )
    assert isinstance(agent_of(found), PlanExecute)
    assert agent_of(found).max_iterations == 3
    assert await output(found, "find it") == "Found."


async def test_a_deep_agent_has_files_and_helpers(folder: Folder):
    (folder.path / "work").mkdir()
    folder.add("helper", f"{CHAT}served: false\ndescription: Helps.")
    for files in ("memory", "{folder: work}"):
        found = served(
            folder,
            "deep",
            f"""
            type: deep_agent
            model: python://parts:model
            agents: [helper]
            general_purpose: false
            files: {files}
            """,
        )
        assert isinstance(agent_of(found), DeepAgent)
        assert [each.name for each in agent_of(found).helpers] == ["helper"]
        assert await output(found) == "Answer to hi"


CALLS = {
    "type: chat_model_agent\ntools: [{agent: helper, emit_internal_events: EMITS}]": ("helper", {"request": "x"}),
    "type: deep_agent\nagents: [helper]\nemit_internal_events: EMITS": (
        "task",
        {"agent_name": "helper", "description": "x"},
    ),
}


@pytest.mark.parametrize("emits", ["false", "true"])
@pytest.mark.parametrize("spec", CALLS)
async def test_what_agents_do_that_became_tools_is_hidden_unless_wanted(
    folder: Folder, spec: str, emits: str
):  # rule A6
    name, arguments = CALLS[spec]
    call = f"from adjourn import ToolCall\ncall = ToolCall(id='c', name='{name}', arguments={arguments})\n"
    folder.write("boss.py", f"{call}from adjourn.testing import ScriptedModel\nmodel = ScriptedModel([call, 'end'])\n")
    folder.add("helper", f"{CHAT}served: false")
    found = served(folder, "boss", f"model: python://boss:model\n{spec.replace('EMITS', emits)}")
    heard = [event.agent async for event in Runner(agent_of(found)).run("hi") if isinstance(event, MessageEvent)]
    assert heard == (["boss", "helper", "boss"] if emits == "true" else ["boss", "boss"])


async def test_python_objects_are_agents(folder: Folder):
    folder.add("made", "type: python\nref: python://parts:agent")
    folder.add("flow", "type: python\nref: python://parts:flow")
    folder.add("graph", "type: python\nref: python://parts:graph\noutput: last_response")
    found = folder.load().check().served
    assert isinstance(found["graph"].program, GraphAgent)
    assert [await output(found[name]) for name in ("made", "flow", "graph")] == ["Answer to hi", "flow of hi", "HI"]


async def test_an_answer_has_the_type_that_is_asked_for(folder: Folder):
    folder.write(
        "typed.py",
        "import msgspec\nfrom adjourn.testing import ScriptedModel\n\n"
        "class Trip(msgspec.Struct, frozen=True):\n    to: str\n\n"
        'model = ScriptedModel([\'{"to": "Rome"}\'] * 2)\n',
    )
    schema = "{type: object, properties: {to: {type: string}}, required: [to]}"
    for output_type in ("python://typed:Trip", schema):
        found = served(folder, "a", f"type: chat_model_agent\nmodel: python://typed:model\noutput_type: {output_type}")
        value = (await Runner(agent_of(found)).run("hi")).value
        assert (value["to"] if isinstance(value, dict) else value.to) == "Rome"


MIDDLEWARE = """
- todo_list
- python://parts:quiet
- {name: approval_policy, rules: [{tool: book, arguments: {to: R*}, action: deny, reason: "no"}]}
- {name: call_limits, model_calls: 5, tools: {book: 1}}
- {name: file_tools, folder: work, read_only: true}
- {name: log_calls, content: true}
- patch_tool_calls
- {name: project_instructions, paths: [NOTES.md]}
- {name: redact_pii, kinds: [email], patterns: {ticket: "T-[0-9]+"}}
- {name: reduce_tool_results, max_chars: 100}
- {name: skills, folder: skills}
- {name: summarize, model: "python://parts:model", keep: 3}
- task_board
- {name: tool_search, tools: ["python://parts:book"], limit: 1}
"""


async def test_every_middleware_can_be_named(folder: Folder):
    (folder.path / "work").mkdir()
    folder.write("NOTES.md", "Be brief.")
    folder.write("skills/trains/SKILL.md", "---\nname: trains\ndescription: About trains.\n---\nRead.\n")
    indented = "\n".join(f"  {line}" for line in MIDDLEWARE.strip().splitlines())
    found = served(folder, "a", f"{CHAT}middleware:\n{indented}")
    assert isinstance(agent_of(found), ChatModelAgent)
    assert [type(each).__name__ for each in agent_of(found).middleware] == [
        "TodoList",
        "Quiet",
        "ApprovalPolicy",
        "CallLimits",
        "FileTools",
        "LogCalls",
        "PatchToolCalls",
        "ProjectInstructions",
        "RedactPII",
        "ReduceToolResults",
        "Skills",
        "Summarize",
        "TaskBoard",
        "ToolSearch",
    ]
    assert await output(found) == "Answer to hi"


def test_how_an_agent_is_served_is_in_its_file(folder: Folder):
    found = served(
        folder,
        "a",
        f"{CHAT}description: Helps.\nvalues: {{n: 1}}\n"
        "interrupt: {enabled: true, require_token: true, self_approval: false}\n"
        "on_busy: queue\non_pending: abandon\nanswer_pending: true",
    )
    assert found == Served(
        program=found.program,
        description="Helps.",
        interrupts=True,
        require_token=True,
        self_approval=False,
        on_busy="queue",
        on_pending="abandon",
        answer_pending=True,
        values={"n": 1},
        file=str(folder.path / "a.yaml"),
    )


@pytest.mark.parametrize(
    ("checkpoint", "store"),
    [
        ("checkpoint: {backend: redis, url: 'redis://h/${DB}', ttl_seconds: 3600}", ("redis", "redis://h/3", 3600)),
        (
            "interrupt: {enabled: true, checkpoint: {backend: sqlite, url: 'sqlite:///x'}}",
            ("sqlite", "sqlite:///x", None),
        ),
        ("checkpoint: {backend: postgres}", ("postgres", None, None)),
    ],
)
def test_a_store_is_named_at_either_place(folder: Folder, checkpoint: str, store: tuple[str, str | None, int | None]):
    folder.add("a", f"{CHAT}{checkpoint}")
    folder.add("b", CHAT)
    backend, url, ttl = store
    loaded = folder.load(environ={"DB": "3"}).check()
    assert loaded.checkpoint == Checkpoint(backend=backend, url=url, ttl_seconds=ttl)  # pyright: ignore[reportArgumentType]


def test_agents_that_say_nothing_about_a_store_leave_it_open(folder: Folder):
    folder.add("a", CHAT)
    assert folder.load().check().checkpoint is None


def test_options_of_an_agent_are_those_of_the_file(folder: Folder):
    found = served(folder, "a", f"{CHAT}limits: {{model_calls: 3}}\ntool_calls: sequential\nexit_tool: true")
    assert isinstance(agent_of(found), ChatModelAgent)
    assert agent_of(found).limits.model_calls == 3
    assert agent_of(found).is_sequential
    assert [tool.name for tool in agent_of(found).tools] == ["exit"]


@pytest.mark.parametrize(
    ("checkpoint", "given", "url"),
    [
        (Checkpoint(backend="redis", url="redis://h/0", ttl_seconds=60), None, "redis://h/0?ttl=60"),
        (
            Checkpoint(backend="redis", url="redis://h/0?timeout=5", ttl_seconds=60),
            None,
            "redis://h/0?timeout=5&ttl=60",
        ),
        (Checkpoint(backend="redis", ttl_seconds=60), "redis://other/0?ttl=9", "redis://other/0?ttl=9"),
        (Checkpoint(backend="redis", url="redis://h/0", ttl_seconds=60), "memory://", "memory://"),
        (Checkpoint(backend="memory"), None, "memory://"),
        (Checkpoint(backend="postgres"), "postgres://h/db", "postgres://h/db"),
    ],
)
def test_the_url_of_a_store_has_the_time_to_live(checkpoint: Checkpoint, given: str | None, url: str):
    assert checkpoint.store_url(given) == url


def test_a_store_without_a_time_to_live_is_warned_about(caplog: pytest.LogCaptureFixture):
    checkpoint = Checkpoint(backend="redis", url="redis://h/0", ttl_seconds=60)
    checkpoint.store_url()
    checkpoint.store_url("encrypted+rediss://h/0")
    assert not caplog.records
    checkpoint.store_url("encrypted+sqlite:///tickets.db")
    [warning] = caplog.records
    assert "after 60 seconds" in warning.getMessage()
    assert "stored in sqlite is kept until `adjourn prune --sessions`" in warning.getMessage()


def test_a_store_that_nobody_names_is_refused():
    with pytest.raises(UsageError, match="stored in postgres, but not where"):
        Checkpoint(backend="postgres").store_url()
