"""The log `adjourn.tools`, and what a model reads of an error: what must be known, and nothing that was not chosen."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from adjourn import ChatModelAgent, Message, Runner, ToolCall, ToolError, tool
from adjourn.graph import MessagesState, StateGraph
from adjourn.middleware import ApprovalPolicy, ApprovalRule, FileTools, LogCalls, ReduceToolResults
from adjourn.testing import ScriptedModel

FORGED = "x\nWARNING adjourn.tools: all is well\r\x1b[2K\u2028"


@tool
async def refuse(text: str = "") -> str:
    """Refuse."""
    raise ToolError(f"not today{text}")


@tool
async def break_(key: int = 0) -> str:
    """Break."""
    raise ValueError("the key is s3cret")


@tool
def leave() -> str:
    """Try to end the program."""
    raise SystemExit("s3cret")


@tool(timeout=0.01)
async def wait() -> str:
    """Wait."""
    await asyncio.sleep(10)
    return "late"


def agent(*calls: ToolCall, name: str = "A", **options: Any) -> Any:
    return ChatModelAgent(name, model=ScriptedModel([*calls, "done"]), tools=[refuse, break_, leave, wait], **options)


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, bool]]:
    """What the log of tools says, and whether with a traceback."""
    found = [record for record in caplog.records if record.name == "adjourn.tools"]
    return [(record.getMessage(), record.exc_info is not None) for record in found]


ORDINARY = {
    "a tool's refusal": (ToolCall(id="c", name="refuse", arguments={}), "ToolError: not today"),
    "bad arguments": (ToolCall(id="c", name="refuse", arguments={"text": 1}), "InvalidArguments: Tool 'refuse' cannot"),
    "no arguments": (ToolCall(id="c", name="refuse", arguments={}, raw="{"), "InvalidArguments: Tool 'refuse' cannot"),
    "an unknown tool": (ToolCall(id="c", name="none", arguments={}), "ToolError: There is no tool 'none'"),
    "a timeout": (ToolCall(id="c", name="wait", arguments={}), "ToolTimeout: 'wait' gave no result"),
    "a policy": (ToolCall(id="c", name="break_", arguments={}), "ToolError: calls of 'break_' like this one"),
}


@pytest.mark.parametrize("case", ORDINARY)
async def test_an_ordinary_refusal_is_one_line(  # failures 66, 71 and 72
    case: str, caplog: pytest.LogCaptureFixture
) -> None:
    call, text = ORDINARY[case]
    policy = ApprovalPolicy([ApprovalRule(tool="break_", action="deny")])
    await Runner(agent(call, middleware=[policy])).run("go", session_id="s1")
    ((line, has_traceback),) = lines(caplog)
    assert line.startswith(f"a tool call was refused or failed: agent=A tool={call.name} call=c session=s1: {text}")
    assert not has_traceback


@pytest.mark.parametrize("name", ["break_", "leave"])
async def test_what_nobody_expected_keeps_its_traceback(name: str, caplog: pytest.LogCaptureFixture) -> None:
    await Runner(agent(ToolCall(id="c", name=name, arguments={}))).run("go", session_id="s1")
    ((line, has_traceback),) = lines(caplog)
    assert line.startswith(f"a tool failed unexpectedly: agent=A tool={name} call=c session=s1: ")
    assert has_traceback
    assert "Traceback" in caplog.text


async def test_no_name_forges_a_line(caplog: pytest.LogCaptureFixture) -> None:  # attack 17
    caplog.set_level(logging.DEBUG)
    calls = (
        ToolCall(id=FORGED, name=FORGED, arguments={}),
        ToolCall(id=FORGED, name="refuse", arguments={FORGED: 1}),
        ToolCall(id=FORGED, name="refuse", arguments={"text": FORGED}),
    )
    files, reduces = FileTools(), ReduceToolResults(max_chars=1)
    runner = Runner(agent(*calls, name=FORGED, middleware=[LogCalls(content=True), files, reduces]))
    await runner.run("go", session_id=FORGED, user_id=FORGED)
    texts = [record.getMessage() for record in caplog.records if record.name.startswith("adjourn")]
    assert len(texts) > 6
    for text in texts:
        assert text.isprintable(), text


# What the model reads


@pytest.mark.parametrize(("name", "type_"), [("break_", "ValueError"), ("leave", "SystemExit")])
async def test_a_model_may_be_told_only_the_type(name: str, type_: str) -> None:  # failures 67, attack 10
    calls = [ToolCall(id="c", name=name, arguments={}), ToolCall(id="d", name="refuse", arguments={})]
    runner = Runner(agent(*calls, on_tool_error="tell_type"))
    events = [event async for event in runner.run("go", session_id="s1")]
    told = [message.text for message in await runner.messages("s1") if message.role == "tool"]
    assert told == [f"Error: The tool failed ({type_}).", "Error: not today"]
    assert "s3cret" not in repr(events)


async def test_a_node_may_tell_only_the_type() -> None:
    model = ScriptedModel([ToolCall(id="c", name="break_", arguments={})])
    graph = (
        StateGraph(MessagesState)
        .add_llm_node("think", model)
        .add_tools_node("act", [break_], on_tool_error="tell_type")
        .add_sequence("think", "act")
        .set_entry_point("think")
        .compile()
    )
    result = await graph.run({"messages": [Message.user("go")]})
    assert result.state["last_tool_response"] == "Error: The tool failed (ValueError)."
