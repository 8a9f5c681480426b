"""Results, questions, messages and events as JSON documents: what `dict` makes of them, and what Pydantic does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import jsonschema
import pytest
from msgspec.structs import asdict
from pydantic import BaseModel, TypeAdapter, ValidationError

from adjourn import (
    Checkpoint,
    Event,
    Interrupt,
    Message,
    Runner,
    RunResult,
    SessionStatus,
    ToolCall,
    interrupt,
    stored,
    tool,
)
from adjourn._documents import Question
from adjourn.graph import START, MessagesState, StateGraph
from adjourn.messages import ImagePart, TextPart, Usage
from adjourn.sessions import AuditEntry
from adjourn.tools import Tool
from tests.agents.calling import call
from tests.agents.crew import chat


@stored("tests.plain.shown")
@dataclass
class Shown:
    price: int


async def ask(state: MessagesState) -> dict[str, Any]:
    answer = interrupt(Shown(5), key="ok", prompt="Ok?", schema=bool, tags=["money"])
    return {"messages": [Message.assistant(str(answer))]}


def runner() -> Any:
    return StateGraph(MessagesState, name="g").add_node(ask).add_edge(START, "ask").compile(store="memory://")


def as_fastapi_does(value: Any) -> Any:
    """What FastAPI sends of a value that a handler without an annotation returns, and the rest as it is."""
    if isinstance(value, dict):
        return {key: as_fastapi_does(each) for key, each in cast("dict[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [as_fastapi_does(each) for each in cast("Sequence[Any]", value)]
    if isinstance(value, str | int | float | None):
        return value
    return as_fastapi_does(dict(value))


def returned(value: Any, annotation: Any) -> Any:
    """What a web framework sends of a value, which is the same with an annotation and without one."""
    adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    sent = json.loads(adapter.dump_json(adapter.validate_python(value)))
    assert sent == json.loads(json.dumps(as_fastapi_does(value)))
    schema = adapter.json_schema(mode="serialization")
    assert schema == adapter.json_schema()
    for definition in schema.get("$defs", {}).values():
        definition["additionalProperties"] = False
    jsonschema.validate(sent, schema)
    return sent


async def test_questions_results_and_statuses_are_returned_as_they_are() -> None:
    graph = runner()
    paused = await graph.run({"user_input": "hi"}, session_id="s")
    [asked] = returned(paused.interrupts, list[Interrupt])
    assert asked == returned(await graph.pending("s"), list[Interrupt])[0] | {"removed_after": None}
    assert asked == asdict(Question.of(paused.interrupts[0]))
    assert (asked["info"], asked["schema"], asked["tags"]) == ({"price": 5}, {"type": "boolean"}, ["money"])
    assert isinstance(asked["created"], str)
    assert not {"parent", "is_root_cause"} & asked.keys()
    result = returned(paused, RunResult)
    assert (result["status"], result["interrupts"]) == ("interrupted", [asked])
    status = returned(await graph.status("s"), SessionStatus)
    assert (status["status"], status["interrupts"][0]["token"]) == ("waiting", asked["token"])
    assert returned(await graph.history("s"), list[Checkpoint])[0]["interrupts"][0]["id"] == asked["id"]
    assert returned(await graph.audit("s"), list[AuditEntry])[0]["interrupt"]["id"] == asked["id"]
    done = returned(await graph.resume("s", {"ok": True}), RunResult)
    assert done["state"]["messages"][-1] | {"id": "m"} == {"role": "assistant", "content": "True", "id": "m"}
    assert returned([event async for event in graph.attach("s")], list[Event])[-1]["type"] == "done"


async def test_a_result_of_an_agent_has_no_state() -> None:
    result = await Runner(chat("A", "hi")).run("secret question")
    sent = returned(result, RunResult)
    assert (sent["output"], sent["state"], sent["usage"]) == ("hi", None, {"calls": 1})
    assert "secret" not in json.dumps(sent)
    assert returned(result.messages, list[Message])[1]["content"] == "hi"


def test_messages_are_read_back() -> None:
    said = [
        Message.system(""),
        Message.user([TextPart(text="look"), ImagePart(data=b"\x00\xff", media_type="image/png")], name="ann"),
        Message.assistant("a", tool_calls=[ToolCall(id="c", name="f", arguments={"x": [1]})], usage=Usage(calls=1)),
        Message.tool("done", tool_call_id="c"),
    ]
    sent = returned(said, list[Message])
    assert sent[0] == {"role": "system", "content": ""}
    adapter = TypeAdapter(list[Message])
    assert adapter.validate_python(sent) == adapter.validate_json(json.dumps(sent)) == said
    with pytest.raises(ValidationError, match="Invalid enum value"):
        adapter.validate_python([{"role": "nobody"}])
    asked = Interrupt(id="node:a", info={"a": 1}, schema={"type": "boolean"})
    assert TypeAdapter(Interrupt).validate_json(json.dumps(dict(asked))) == asked


def test_a_model_of_pydantic_can_hold_them() -> None:
    class Reply(BaseModel):
        messages: list[Message]
        asked: Interrupt | None = None

    reply = Reply(messages=[Message.user("hi")], asked=Interrupt(id="node:a"))
    assert reply.model_dump()["messages"] == [Message.user("hi")]
    assert Reply.model_validate_json(reply.model_dump_json()) == reply


def test_a_result_is_not_read() -> None:
    with pytest.raises(ValidationError, match="A RunResult is made by a run"):
        TypeAdapter(RunResult).validate_python({"status": "done", "session_id": "s", "checkpoint_id": None})


@pytest.mark.parametrize("value", [Message.user("hi"), Interrupt(id="node:a"), Usage()])
def test_a_document_is_no_list(value: Any) -> None:
    with pytest.raises(TypeError, match="not iterable"):
        iter(value)


async def test_tools_take_them_as_before() -> None:
    @tool
    def count(usage: Usage) -> int:
        """Count."""
        return usage.calls

    made: Tool = count
    assert made.schema["properties"] == {"usage": {"$ref": "#/$defs/Usage"}}, "msgspec describes it, not Pydantic"
    agent = chat("A", call("count", usage={"calls": 2}), "done", tools=[count])
    assert (await Runner(agent).run("go")).messages[2].text == "2"
