"""DeepAgent: to-dos, sub-agents through the task tool, and files."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from adjourn import (
    ChatModelAgent,
    Custom,
    DeepAgent,
    MessageEvent,
    ParallelAgent,
    PlanExecute,
    Runner,
    Supervisor,
    UsageError,
    tool,
)
from adjourn.errors import ModelError
from adjourn.middleware import ApprovalPolicy, ApprovalRule, FolderBackend, MemoryBackend
from adjourn.models import ModelRequest
from adjourn.stores import SQLiteStore, Store
from adjourn.testing import FunctionModel, ScriptedModel
from adjourn.tools import ExitTool

from .crew import ask, call, chat, events_of, ids, model_of, note, said, seen, transfer


def deep(*script: Any, **options: Any) -> DeepAgent:
    """A deep agent whose model follows a script."""
    return DeepAgent("Deep", model=ScriptedModel(script), **options)


def task(agent: str, description: str = "do it", id: str = "k1") -> Any:
    """A model hands a task to a sub-agent."""
    return call("task", id, agent_name=agent, description=description)


def tools_of(request: ModelRequest) -> list[str]:
    """The names of the tools that a model was offered."""
    return [spec.name for spec in request.tools]


def results(messages: Any) -> list[str]:
    """The results of tools, in order."""
    return [message.text for message in messages if message.role == "tool"]


@tool(approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


async def test_a_task_is_done_by_a_sub_agent(store: Store) -> None:  # rule A6
    helper = chat("Helper", "found it")
    agent = deep(task("Helper", "find it"), "end", agents=[helper])
    result = await Runner(agent, store=store).run("go", session_id="s")
    assert said(result.messages) == ["user: go", "tool: found it", "assistant: end"]
    assert seen(model_of(helper).requests[0]) == ["user: find it"]


async def test_the_sub_agents_are_told_with_the_tool() -> None:
    agent = deep("end", agents=[chat("Helper", description="Finds things")])
    await Runner(agent).run("go")
    (spec,) = [spec for spec in model_of(agent).requests[0].tools if spec.name == "task"]
    assert "- Helper: Finds things" in spec.description
    assert "- general_purpose: " in spec.description
    assert spec.schema["properties"]["agent_name"]["enum"] == ["Helper", "general_purpose"]


async def test_the_own_instruction_comes_first() -> None:
    agent = deep("end", instruction="Be brief.")
    await Runner(agent).run("go")
    told = seen(model_of(agent).requests[0])[0]
    assert told.startswith("system: Be brief.\n\nYou do long work in steps.")
    assert "write_todos" in told


async def test_an_unknown_sub_agent_is_told_to_the_model(store: Store) -> None:  # rule T3
    agent = deep(task("Nobody"), task("Helper", id="k2"), "end", agents=[chat("Helper", "ok")])
    result = await Runner(agent, store=store).run("go", session_id="s")
    first, second = results(result.messages)
    assert "Nobody" in first or "agent_name" in first
    assert "Helper" in first
    assert second == "ok"


async def test_todos_are_kept_and_told(store: Store) -> None:
    todos = [{"text": "one", "status": "in_progress"}, {"text": "two"}]
    agent = deep(call("write_todos", todos=todos), call("ask", "c2", question="?"), tools=[ask])
    events = await events_of(Runner(agent, store=store).run("go", session_id="s"))
    (told,) = [event.data for event in events if isinstance(event, Custom)]
    assert [todo["text"] for todo in told["todos"]] == ["one", "two"]
    again = deep(call("read_todos", "c3"), "end", tools=[ask])
    result = await Runner(again, store=store).resume("s", {"agent:Deep;tool:ask:c2": "y"})
    assert results(result.messages)[-1] == "[>] one\n[ ] two"
    assert [todo["status"] for todo in result.state["values"]["~own:todos:Deep"]] == ["in_progress", "pending"]


async def test_the_todos_of_a_deep_sub_agent_are_its_own(store: Store) -> None:
    writes = [call("write_todos", todos=[{"text": name}]) for name in ("mine", "below")]
    mid = DeepAgent("Mid", model=ScriptedModel([call("read_todos", "r0"), writes[1], "mid done"]))
    agent = deep(writes[0], task("Mid"), call("read_todos", "r1"), "end", agents=[mid])
    result = await Runner(agent, store=store).run("go", session_id="s")
    assert results(result.messages) == ["[ ] mine", "mid done", "[ ] mine"]
    assert model_of(mid).requests[1].messages[-1].text == "There are no to-dos."


def by_text(answers: dict[str, Any]) -> FunctionModel:
    """A model that answers by what stands last in the conversation."""
    return FunctionModel(lambda request: answers[request.messages[-1].text])


async def test_the_general_sub_agent_has_the_same_model_and_tools(store: Store) -> None:
    model = by_text(
        {
            "go": task("general_purpose", "sub task"),
            "sub task": call("note", text="x"),
            "noted x": "sub done",
            "sub done": "end",
        }
    )
    agent = DeepAgent("Deep", model=model, tools=[note], backend=MemoryBackend())
    result = await Runner(agent, store=store).run("go", session_id="s")
    assert said(result.messages) == ["user: go", "tool: sub done", "assistant: end"]
    main, sub = tools_of(model.requests[0]), tools_of(model.requests[1])
    assert {"note", "task", "write_todos", "write_file"} <= set(main)
    assert {"note", "write_file"} <= set(sub)
    assert {"task", "write_todos"}.isdisjoint(sub)


async def test_the_general_sub_agent_keeps_to_the_same_rules(store: Store) -> None:  # rule T4
    def agent(*script: Any) -> DeepAgent:
        return deep(*script, tools=[note], middleware=[ApprovalPolicy([ApprovalRule(tool="note")])])

    first = agent(task("general_purpose"), call("note", text="x"))
    paused = await Runner(first, store=store).run("go", session_id="s")
    assert ids(paused) == ["agent:Deep;tool:task:k1;agent:general_purpose;tool:note:c1"]
    result = await Runner(agent("sub done", "end"), store=store).resume("s", dict.fromkeys(ids(paused), True))
    assert said(result.messages)[1:] == ["tool: sub done", "assistant: end"]


async def test_without_the_general_sub_agent(store: Store) -> None:
    agent = deep(task("general_purpose"), "end", agents=[chat("Helper")], general_purpose=False)
    result = await Runner(agent, store=store).run("go", session_id="s")
    assert "general_purpose" in results(result.messages)[0]
    (spec,) = [spec for spec in model_of(agent).requests[0].tools if spec.name == "task"]
    assert "general_purpose" not in spec.description


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match="no sub-agents"):
        deep(general_purpose=False)
    with pytest.raises(UsageError, match="the same name"):
        deep(agents=[chat("general_purpose")])
    with pytest.raises(UsageError, match="'task'"):
        deep(tools=[tool(note.fn, name="task")])
    with pytest.raises(UsageError, match="not an agent"):
        deep(agents=[note])
    with pytest.raises(UsageError, match="backend"):
        deep(backend="a folder")


async def test_without_a_backend_there_are_no_file_tools() -> None:
    agent = deep("end")
    await Runner(agent).run("go")
    assert set(tools_of(model_of(agent).requests[0])) == {"task", "write_todos", "read_todos"}


async def test_files_in_memory_outlive_a_pause(store: Store) -> None:  # rule S1
    writes = call("write_file", "w1", path="a.md", text="kept")
    first = deep(writes, call("ask", question="?"), tools=[ask], backend=MemoryBackend())
    paused = await Runner(first, store=store).run("go", session_id="s")
    again = deep(call("read_file", "r1", path="a.md"), "end", tools=[ask], backend=MemoryBackend())
    runner = Runner(again, store=store)
    result = await runner.resume("s", dict.fromkeys(ids(paused), "y"))
    assert results(result.messages)[-1] == "kept"
    other = deep(call("read_file", "r1", path="a.md"), "end", backend=MemoryBackend())
    elsewhere = await Runner(other, store=store).run("go", session_id="other")
    assert "kept" not in results(elsewhere.messages)[-1]


async def test_files_of_a_sub_agent_are_there_when_it_has_ended(store: Store) -> None:  # rule S1
    def model() -> FunctionModel:
        return by_text(
            {
                "go": task("general_purpose", "write"),
                "write": call("write_file", "w1", path="b.md", text="from below"),
                "'b.md' has 10 characters now.": call("ask", "a1", question="ok?"),
                "yes": "written",
                "written": call("read_file", "r1", path="b.md"),
                "from below": "end",
            }
        )

    def agent() -> DeepAgent:
        return DeepAgent("Deep", model=model(), tools=[ask], backend=MemoryBackend())

    paused = await Runner(agent(), store=store).run("go", session_id="s")
    assert ids(paused) == ["agent:Deep;tool:task:k1;agent:general_purpose;tool:ask:a1"]
    result = await Runner(agent(), store=store).resume("s", dict.fromkeys(ids(paused), "yes"))
    assert results(result.messages) == ["written", "from below"]
    assert result.state["values"]["~own:files:b.md"] == "from below"


async def test_files_of_a_folder(tmp_path: Path, store: Store) -> None:
    agent = deep(call("write_file", path="a/b.md", text="x"), "end", backend=FolderBackend(tmp_path))
    await Runner(agent, store=store).run("go", session_id="s")
    assert (tmp_path / "a" / "b.md").read_text() == "x"


async def test_several_tasks_at_once(store: Store) -> None:  # rules A6, R7
    met = asyncio.Barrier(3)

    async def work(request: ModelRequest) -> str:
        await met.wait()
        return f"did {request.messages[-1].text}"

    helper = ChatModelAgent("Helper", model=FunctionModel(work))
    tasks = [task("Helper", name, f"k-{name}") for name in ("a", "b", "c")]
    result = await Runner(deep(tasks, "end", agents=[helper]), store=store).run("go", session_id="s")
    assert results(result.messages) == ["did a", "did b", "did c"]


async def test_several_tasks_that_ask(store: Store) -> None:  # rules R7, I6
    def agent(*script: Any) -> DeepAgent:
        def answer(request: ModelRequest) -> Any:
            last = request.messages[-1]
            return f"got {last.text}" if last.role == "tool" else call("ask", question=last.text)

        return deep(*script, agents=[ChatModelAgent("Helper", model=FunctionModel(answer), tools=[ask])])

    tasks = [task("Helper", name, f"k-{name}") for name in ("a", "b", "c")]
    paused = await Runner(agent(tasks), store=store).run("go", session_id="s")
    assert ids(paused) == [f"agent:Deep;tool:task:k-{name};agent:Helper;tool:ask:c1" for name in "abc"]
    first, second, third = ids(paused)
    paused = await Runner(agent(), store=store).resume("s", {second: "B"})
    assert ids(paused) == [first, third]
    result = await Runner(agent("end"), store=store).resume("s", {first: "A", third: "C"})
    assert results(result.messages) == ["got A", "got B", "got C"]


async def test_a_question_from_two_levels_down_is_answered_in_another_process(tmp_path: Path) -> None:  # rules I6, R7
    def agent(*, top: tuple[Any, ...] = (), middle: tuple[Any, ...] = (), bottom: tuple[Any, ...] = ()) -> DeepAgent:
        low = chat("Low", *bottom, tools=[pay, note])
        return deep(*top, agents=[DeepAgent("Mid", model=ScriptedModel(middle), agents=[low])])

    store = SQLiteStore(tmp_path / "s.db")
    calls = [call("note", "n1", text="x"), call("pay", "p1", amount=5)]
    begun = agent(top=(task("Mid"),), middle=(task("Low", id="k2"),), bottom=(calls,))
    paused = await Runner(begun, store=store).run("go", session_id="s")
    await store.close()
    assert ids(paused) == ["agent:Deep;tool:task:k1;agent:Mid;tool:task:k2;agent:Low;tool:pay:p1"]

    store = SQLiteStore(tmp_path / "s.db")
    again = agent(top=("end",), middle=("mid done",), bottom=("low done",))
    runner = Runner(again, store=store)
    assert [asked.info for asked in await runner.pending("s")] == [asked.info for asked in paused.interrupts]
    result = await runner.resume("s", dict.fromkeys(ids(paused), True))
    assert said(result.messages) == ["user: go", "tool: mid done", "assistant: end"]
    await store.close()


async def test_a_sub_agent_that_fails_is_told_to_the_model(store: Store) -> None:  # rule T5
    helper = chat("Helper", ModelError("no answer", retryable=False))
    result = await Runner(deep(task("Helper"), "end", agents=[helper]), store=store).run("go", session_id="s")
    assert "no answer" in results(result.messages)[0]
    assert result.output == "end"


async def test_exit_of_a_sub_agent_ends_its_task_only(store: Store) -> None:  # rule A6
    helper = chat("Helper", call("exit", final_result="over"), tools=[ExitTool()])
    result = await Runner(deep(task("Helper"), "end", agents=[helper]), store=store).run("go", session_id="s")
    assert said(result.messages) == ["user: go", "tool: over", "assistant: end"]


async def test_what_sub_agents_do_is_hidden_unless_wanted(store: Store) -> None:  # rule A6
    async def authors(session: str, **options: Any) -> list[str]:
        agent = deep(task("Helper"), "end", agents=[chat("Helper", "found")], **options)
        events = await events_of(Runner(agent, store=store).run("go", session_id=session))
        return [event.agent for event in events if isinstance(event, MessageEvent)]

    assert await authors("hidden") == ["Deep", "Deep"]
    assert await authors("shown", emit_internal_events=True) == ["Deep", "Helper", "Deep"]


async def test_sub_agents_of_other_kinds(store: Store) -> None:  # rule A7
    def agent(*script: Any, executor: tuple[Any, ...], replanner: tuple[Any, ...]) -> Runner:
        side = ParallelAgent("Side", agents=[chat("X", "x"), chat("Y", "y")])
        boss = Supervisor("Boss", model=ScriptedModel([transfer("M"), "boss done"]), agents=[chat("M", "m")])
        plans = PlanExecute(
            "Plans",
            planner=ScriptedModel(['{"steps": ["one"]}']),
            executor=chat("Executor", *executor, tools=[ask]),
            replanner=ScriptedModel(replanner),
        )
        return Runner(deep(*script, agents=[side, boss, plans]), store=store)

    tasks = [task(name, id=f"k-{name}") for name in ("Side", "Boss", "Plans")]
    paused = await agent(tasks, executor=(call("ask", question="?"),), replanner=()).run("go", session_id="s")
    assert ids(paused) == ["agent:Deep;tool:task:k-Plans;agent:Plans;agent:Executor;tool:ask:c1"]
    last = agent("end", executor=("did one",), replanner=('{"response": "planned"}',))
    result = await last.resume("s", dict.fromkeys(ids(paused), "y"))
    assert results(result.messages) == ["x\n\ny", "boss done", "planned"]


async def test_the_task_tool_itself_may_need_approval(store: Store) -> None:  # rule T4
    def agent(*script: Any, helper: tuple[Any, ...] = ()) -> DeepAgent:
        return deep(*script, agents=[chat("Helper", *helper)], middleware=[ApprovalPolicy([ApprovalRule(tool="task")])])

    paused = await Runner(agent(task("Helper")), store=store).run("go", session_id="s")
    assert ids(paused) == ["agent:Deep;tool:task:k1"]
    again = agent("end", helper=("found",))
    result = await Runner(again, store=store).resume("s", dict.fromkeys(ids(paused), True))
    assert results(result.messages) == ["found"]


async def test_it_is_used_in_a_team_and_as_a_tool(store: Store) -> None:  # rules A5, A6
    team = chat("A", transfer("Deep"), sub_agents=[deep(task("Helper"), "end", agents=[chat("Helper", "found")])])
    assert (await Runner(team, store=store).run("go", session_id="s")).output == "end"
    outer = chat("A", call("Deep", request="x"), "end", tools=[deep("deep end")])
    result = await Runner(outer, store=store).run("go", session_id="t")
    assert results(result.messages) == ["deep end"]
