"""The tool with which a model ends the run."""

from __future__ import annotations

from adjourn import ExitTool, Runner, ToolCall
from adjourn.agents import ChatModelAgent
from adjourn.testing import ScriptedModel


async def test_a_model_ends_the_run_with_a_final_result():  # rule T8
    call = ToolCall(id="c1", name="exit", arguments={"final_result": "42"})
    model = ScriptedModel([call])
    done = await Runner(ChatModelAgent("A", model=model, tools=[ExitTool()])).run("go")
    assert (done.status, done.output, len(model.requests)) == ("done", "42", 1)


def test_it_is_told_like_any_other_tool():
    made = ExitTool(name="finish", description="Stop.")
    assert (made.name, made.description, made.schema["required"]) == ("finish", "Stop.", ["final_result"])
