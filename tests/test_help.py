"""What `help` says: every option of what people call every day, in a line each."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import adjourn.testing
from adjourn import ChatModelAgent, Delta, GraphAgent, Message, MessageEvent, Runner, ToolCall, tool
from adjourn.cli._running import print_talk
from adjourn.events import ToolCallPiece

EXPLAINED: list[Callable[..., Any]] = [ChatModelAgent.__init__, GraphAgent.__init__, tool, Runner.run, Runner.resume]
OPTIONS = [
    (explained, option)
    for explained in EXPLAINED
    for option in inspect.signature(explained).parameters
    if option != "self"
]


@pytest.mark.parametrize(("explained", "option"), OPTIONS, ids=lambda each: getattr(each, "__qualname__", each))
def test_help_tells_every_option(explained: Callable[..., Any], option: str):
    if (explained, option) == (tool, "fn"):
        return  # It is what the first sentence is about.
    lines = [line.strip() for line in (inspect.getdoc(explained) or "").splitlines()]
    assert sum(line.startswith(f"{option}: ") for line in lines) == 1


def test_the_tools_for_tests_are_listed():
    assert {"FunctionModel", "ScriptItem", "ScriptedModel"} <= set(dir(adjourn.testing)) & set(adjourn.testing.__all__)
    assert all(hasattr(adjourn.testing, name) for name in adjourn.testing.__all__)


def test_a_message_that_is_only_a_call_ends_its_line(capsys: pytest.CaptureFixture[str]):
    print_talk(Delta(agent="Bank", tool_call=ToolCallPiece(index=0, name="wire")))
    print_talk(MessageEvent(message=Message.assistant("", tool_calls=[ToolCall(id="c1", name="wire", arguments={})])))
    assert capsys.readouterr().out.endswith("[wire] \n")
