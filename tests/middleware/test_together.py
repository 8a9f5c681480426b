"""Questions cross every middleware untouched, alone and together, streamed or not, and go on in another process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from adjourn import ChatModelAgent, Delta, Message, Middleware, Runner, interrupt, tool
from adjourn.middleware import (
    ApprovalPolicy,
    CallLimits,
    FileTools,
    FolderBackend,
    LogCalls,
    PatchToolCalls,
    RedactPII,
    ReduceToolResults,
    Skills,
    Summarize,
    TodoList,
    ToolSearch,
)
from adjourn.models import ModelRequest
from adjourn.testing import FunctionModel, ScriptedModel

from .conftest import Reopen
from .scripts import call

done: list[str] = []


@tool(approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    done.append(f"pay {amount}")
    return "paid " + "x" * 300


@tool
def confirm(what: str) -> str:
    """Ask from a thread."""
    first = interrupt(f"{what}?", key="first", schema=str)
    second = interrupt(f"really {first}?", key="second", schema=str)
    done.append(f"confirm {second}")
    return f"{first} {second}"


@tool
async def tell(text: str) -> AsyncIterator[str]:
    """Stream, and ask in between."""
    yield text
    yield str(interrupt("more?", key="more"))
    done.append("tell")


def make(folder: Path) -> dict[str, Callable[[], Middleware]]:
    (folder / "skills" / "one").mkdir(parents=True, exist_ok=True)
    (folder / "skills" / "one" / "SKILL.md").write_text("---\nname: one\ndescription: The first.\n---\nBody")
    return {
        "RedactPII": lambda: RedactPII(answers=False),  # which would hold the pieces of answers back
        "ApprovalPolicy": lambda: ApprovalPolicy([]),
        "FileTools": FileTools,
        "FolderTools": lambda: FileTools(FolderBackend(folder)),
        "ReduceToolResults": lambda: ReduceToolResults(max_chars=100, clear_at=50, keep=1),
        "Summarize": lambda: Summarize(FunctionModel(lambda _: "a summary"), messages=3, keep=1),
        "PatchToolCalls": PatchToolCalls,
        "Skills": lambda: Skills(folder / "skills"),
        "TodoList": TodoList,
        "ToolSearch": lambda: ToolSearch([tool(tell.fn, name="hidden")]),
        "CallLimits": lambda: CallLimits(model_calls=50, tool_calls=50, tokens=10_000, tools={"pay": 5}),
        "LogCalls": lambda: LogCalls(content=True),
    }


ALL = [
    *("RedactPII", "ApprovalPolicy", "FileTools", "FolderTools", "ReduceToolResults", "Summarize"),
    *("PatchToolCalls", "Skills", "TodoList", "ToolSearch", "CallLimits", "LogCalls"),
]


def has_result(request: ModelRequest) -> bool:
    return request.messages[-1].role == "tool"


def agent(script: Sequence[Any], middleware: Sequence[Middleware]) -> ChatModelAgent:
    inner = ChatModelAgent(
        "Inner",
        description="Confirms.",
        model=FunctionModel(lambda request: "inner done" if has_result(request) else call("confirm", "i1", what="x")),
        tools=[confirm],
        middleware=middleware,
    )
    return ChatModelAgent("A", model=ScriptedModel(script), tools=[pay, confirm, tell, inner], middleware=middleware)


FIRST = Message.assistant(
    "let me see",
    tool_calls=[
        call("pay", "c1", amount=1),
        call("confirm", "c2", what="go"),
        call("tell", "c3", text="so "),
        call("Inner", "c4", request="please"),
    ],
)


async def story(reopen: Reopen, session: str, middleware: Callable[[], Sequence[Middleware]], streaming: bool) -> Any:
    """What the outside sees of one run over three processes."""
    done.clear()
    seen: list[Any] = []
    deltas: list[str] = []

    async def step(script: Sequence[Any], begin: Callable[[Runner], Any]) -> Any:
        run = begin(Runner(agent(script, middleware()), store=reopen(), streaming=streaming))
        deltas.extend([f"{event.address} {event.text}" async for event in run if isinstance(event, Delta)])
        result = await run
        seen.append([(each.id, each.info, each.reason, each.key, each.schema) for each in result.interrupts])
        return result

    paused = await step(["welcome", FIRST], lambda runner: runner.run("hello", session_id=session))
    paused = await step([FIRST], lambda runner: runner.run("go", session_id=session))
    answers = {each.id: True if each.reason == "need_approval" else "yes" for each in paused.interrupts}
    paused = await step([], lambda runner: runner.resume(session, answers))
    answers = {each.id: "sure" for each in paused.interrupts}
    result = await step(["all done"], lambda runner: runner.resume(session, answers))
    said = [(message.role, message.text[:4]) for message in result.messages]
    return seen, deltas, sorted(done), result.output, said


@pytest.mark.parametrize(
    ("name", "streaming"), [*((name, True) for name in ALL), ("all", True), ("all reversed", True), ("all", False)]
)
async def test_a_run_looks_the_same_from_outside_with_and_without(
    tmp_path: Path, reopen: Reopen, name: str, streaming: bool
) -> None:
    makers = make(tmp_path)
    assert [*makers] == ALL
    together = [each for each in ALL if each != "FolderTools"]  # which has the tools of FileTools
    chosen = {"all": together, "all reversed": together[::-1]}.get(name, [name])
    plain = await story(reopen, "plain", lambda: (), streaming)
    assert plain[2:4] == (["confirm sure", "confirm sure", "pay 1", "tell"], "all done")
    assert await story(reopen, "wrapped", lambda: [makers[each]() for each in chosen], streaming) == plain
