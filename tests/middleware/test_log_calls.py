"""Logging of what an agent does."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from adjourn import Runner, interrupt, tool
from adjourn.errors import ModelError
from adjourn.middleware import LogCalls

from .conftest import Reopen
from .scripts import call, scripted


@tool
async def ask(secret: str) -> str:
    """Ask."""
    return str(interrupt("go on?", key="ask"))


@tool
async def fail() -> str:
    """Fail."""
    raise ValueError("broken")


def agent(*script: Any, **options: Any) -> Any:
    return scripted(*script, tools=[ask, fail], middleware=[LogCalls(**options)])[0]


async def test_calls_pauses_and_ends_are_logged_without_what_was_said(
    reopen: Reopen, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await Runner(agent(call("ask", secret="s3cret")), store=reopen()).run("go", session_id="s1")
    result = await Runner(agent("bye"), store=reopen()).resume("s1", {"ask": "yes"})
    assert result.output == "bye"
    lines = [record.getMessage() for record in caplog.records if record.name == "adjourn.calls"]
    assert [line.split(" after ")[0] for line in lines] == [
        "s1 agent:A;middleware:LogCalls: model call ended",
        "s1 agent:A;tool:ask:c1;middleware:LogCalls: tool ask (c1) paused",
        "s1 agent:A;tool:ask:c1;middleware:LogCalls: tool ask (c1) ended",
        "s1 agent:A;middleware:LogCalls: model call ended",
        "s1: agent A ended (answered)",
    ]
    assert "1 message in, 1 tool call out" in lines[0]
    assert "s3cret" not in caplog.text
    assert "bye" not in caplog.text


async def test_content_is_logged_if_wanted_and_cut(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("tests.calls")
    caplog.set_level(logging.DEBUG, logger.name)
    await Runner(agent("x" * 1000, logger=logger, level=logging.DEBUG, content=True, longest=10)).run("go")
    assert "xxxxxxxxx" in caplog.text
    assert "x" * 11 not in caplog.text
    assert {record.levelno for record in caplog.records if record.name == logger.name} == {logging.DEBUG}


async def test_failures_are_warnings_and_pass(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ModelError, match="away"):
        await Runner(agent(call("fail"), ModelError("away"))).run("go")
    ours = [record for record in caplog.records if record.name == "adjourn.calls"]
    warned = [record.getMessage() for record in ours if record.levelno == logging.WARNING]
    assert "failed with ValueError: broken" in warned[0]
    assert "failed with ModelError: away" in warned[1]
