"""Structured output in three ways: a schema that the server enforces, a tool, and the schema in words."""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator
from typing import Any, Literal

import msgspec
import pytest

from adjourn import ChatModelAgent, OpenAIChatModel, Runner, ToolCall, UsageError
from adjourn.errors import ModelError
from adjourn.messages import Message
from adjourn.models import Abilities, Chunk, ToolCallChunk
from adjourn.stores import Store
from adjourn.testing import ScriptedModel
from tests.models.openai_server import Json, Server, answers, call_piece, delta, said, serving, streams

from .crew import ask, call, chat, model_of, note


class Kind(enum.Enum):
    CAT = "cat"
    DOG = "dog"


class Pet(msgspec.Struct):
    name: str
    kind: Kind
    age: int = 0
    mood: Literal["good", "bad"] = "good"


TOM = Pet(name="Tom", kind=Kind.CAT)
TOM_JSON = '{"name":"Tom","kind":"cat"}'
FINAL = ToolCall(id="f1", name="final_result", arguments={"name": "Tom", "kind": "cat"})
CALLED = {"id": "f1", "type": "function", "function": {"name": "final_result", "arguments": TOM_JSON}}


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as running:
        yield running


# Asking for it


async def asked(server: Server, reply: Any, abilities: Abilities, **options: Any) -> tuple[Any, Json]:
    """The value of a run, and the request that it made."""
    server.replies.append(reply)
    model = OpenAIChatModel("m", base_url=server.url, abilities=abilities)
    result = await Runner(ChatModelAgent("A", model=model, output_type=Pet, **options)).run("go")
    await model.close()
    return result.value, server.asked[-1].body


async def test_a_native_schema_is_strict(server: Server) -> None:  # rule A3
    value, body = await asked(server, answers(said(content=TOM_JSON)), Abilities())
    assert value == TOM
    schema = body["response_format"]["json_schema"]
    assert (schema["name"], schema["strict"]) == ("Pet", True)
    assert schema["schema"]["required"] == ["name", "kind", "age", "mood"]
    assert schema["schema"]["additionalProperties"] is False
    assert schema["schema"]["properties"]["age"] == {"type": "integer", "description": "(default: 0)"}
    assert schema["schema"]["$defs"]["Kind"]["type"] == "string", "an enum has a type"
    assert schema["schema"]["properties"]["mood"]["type"] == "string"


class Cat(msgspec.Struct, tag="cat"):
    lives: Literal[9, "many", None] = 9


class Dog(msgspec.Struct, tag="dog"):
    name: str


@pytest.mark.parametrize("mode", ["native", "tool"])
async def test_every_enum_has_a_type(server: Server, mode: Any) -> None:  # rule A3
    model = OpenAIChatModel("m", base_url=server.url, abilities=Abilities())
    server.replies.append(answers(said(content='{"value": {"type": "dog", "name": "Rex"}}')))
    agent = ChatModelAgent("A", model=model, output_type=Cat | Dog, output_mode=mode)
    assert (await Runner(agent).run("go")).value == Dog("Rex")
    await model.close()
    body = server.asked[-1].body
    native = body["response_format"]["json_schema"]["schema"] if mode == "native" else None
    schema = native or body["tools"][0]["function"]["parameters"]
    cat, dog = (schema["$defs"][name]["properties"] for name in ("Cat", "Dog"))
    assert dog["type"] == {"type": "string", "enum": ["dog"]}
    assert cat["lives"]["type"] == ["string", "integer", "null"]


async def test_the_result_as_a_tool(server: Server) -> None:  # rule A3
    value, body = await asked(
        server, answers(said("tool_calls", tool_calls=[CALLED])), Abilities(json_schema=False), tools=[note]
    )
    assert value == TOM
    assert [each["function"]["name"] for each in body["tools"]] == ["note", "final_result"]
    parameters = body["tools"][1]["function"]["parameters"]
    assert (parameters["type"], list(parameters["properties"])) == ("object", ["name", "kind", "age", "mood"])
    assert body["tool_choice"] == "required"
    assert "response_format" not in body


async def test_the_schema_in_words(server: Server) -> None:  # rule A3
    reply = answers(said(content=f"Sure! Here it is:\n```json\n{TOM_JSON}\n```"))
    value, body = await asked(server, reply, Abilities(json_schema=False, tools=False), instruction="You know pets.")
    assert value == TOM
    assert body.keys() == {"model", "messages"}
    [system, _] = body["messages"]
    assert system["content"].startswith("You know pets.\n\nAnswer with JSON only")
    assert '"enum":["cat","dog"]' in system["content"]
    assert '{"$ref"' not in system["content"].partition('"properties"')[0], "it begins with the object itself"


@pytest.mark.parametrize(
    ("abilities", "tools", "mode"),
    [
        (Abilities(), [], "native"),
        (Abilities(), [note], "native"),
        (Abilities(json_schema_with_tools=False), [], "native"),
        (Abilities(json_schema_with_tools=False), [note], "tool"),
        (Abilities(json_schema=False), [], "tool"),
        (Abilities(json_schema=False, tools=False), [], "prompt"),
    ],
)
async def test_abilities_choose(server: Server, abilities: Abilities, tools: list[Any], mode: str) -> None:  # rule A3
    reply = answers(said("tool_calls", tool_calls=[CALLED]) if mode == "tool" else said(content=TOM_JSON))
    value, body = await asked(server, reply, abilities, tools=tools)
    assert value == TOM
    assert ("response_format" in body) == (mode == "native")
    assert body.get("tool_choice") == ("required" if mode == "tool" else None)


async def test_an_agent_overrides_the_choice(server: Server) -> None:  # rule A3
    reply = answers(said("tool_calls", tool_calls=[CALLED]))
    _, body = await asked(server, reply, Abilities(), output_mode="tool")
    assert body["tools"][0]["function"]["name"] == "final_result"


def test_mistakes_are_named_where_they_are_made() -> None:
    with pytest.raises(UsageError, match=r"output_mode='json'\. Use one of: native, tool, prompt"):
        chat("A", output_type=Pet, output_mode="json")
    with pytest.raises(UsageError, match="no output_type"):
        chat("A", output_mode="tool")


async def test_a_tool_with_the_name_of_the_one_for_results_is_refused() -> None:
    def final_result() -> str:
        """Be in the way."""
        return ""

    with pytest.raises(UsageError, match=r"'final_result'.*another name"):
        await Runner(chat("A", output_type=Pet, output_mode="tool", tools=[final_result])).run("go")


# As a tool


async def test_tools_run_before_the_result_and_after_a_pause(store: Store) -> None:  # rule R9
    options: dict[str, Any] = {"tools": [ask, note], "output_type": Pet, "output_mode": "tool"}
    first = chat("A", call("note", text="x"), call("ask", "c2", question="?"), **options)
    await Runner(first, store=store).run("go", session_id="s")
    again = chat("A", FINAL, "Bye", **options)
    result = await Runner(again, store=store).resume("s", {"agent:A;tool:ask:c2": "y"})
    assert result.value == TOM
    assert model_of(again).requests[0].must_call
    last = (await Runner(again, store=store).messages("s"))[-1]
    assert (last.text, last.tool_calls, last.finish_reason) == (TOM_JSON, (), "stop")
    assert (await Runner(again, store=store).recover("s")).value == TOM


async def test_other_calls_beside_the_result_run_first() -> None:  # rule A3
    agent = chat("A", [call("note", text="x"), FINAL], FINAL, tools=[note], output_type=Pet, output_mode="tool")
    result = await Runner(agent).run("go")
    assert result.value == TOM
    assert [m.text for m in result.messages if m.role == "tool"] == ["noted x"]


async def test_a_misfit_of_a_tool_is_told_to_the_model() -> None:  # rule A3
    wrong = ToolCall(id="f0", name="final_result", arguments={"name": "Tom"})
    agent = chat("A", wrong, "Tom, a cat.", FINAL, output_type=Pet, output_mode="tool")
    assert (await Runner(agent).run("go")).value == TOM
    told = [request.messages[-1].text for request in model_of(agent).requests[1:]]
    assert "kind" in told[0]
    assert "no JSON" in told[1]


PIECES = [
    Chunk(text="Here: "),
    Chunk(tool_calls=(ToolCallChunk(index=0, id="f1", name="final_"),)),
    Chunk(tool_calls=(ToolCallChunk(index=0, name="result"),)),
    Chunk(tool_calls=(ToolCallChunk(index=0, arguments=TOM_JSON[:5]),)),
    Chunk(
        tool_calls=(
            ToolCallChunk(index=0, arguments=TOM_JSON[5:]),
            ToolCallChunk(index=1, id="f2", name="final_result"),
        )
    ),
    Chunk(finish_reason="tool_calls"),
]


async def test_a_result_is_streamed_as_text() -> None:  # rule A3
    agent = ChatModelAgent("A", model=ScriptedModel([PIECES]), output_type=Pet, output_mode="tool")
    run = Runner(agent).run("go")
    assert [text async for text in run.text()] == ["Here: ", TOM_JSON[:5], TOM_JSON[5:]]
    result = await run
    assert result.value == TOM
    last = result.messages[-1]
    assert (last.text, last.tool_calls, last.finish_reason) == (f"Here: {TOM_JSON}", (), "stop")


async def test_other_calls_are_streamed_as_calls(server: Server) -> None:  # rule A3
    server.replies += [
        streams(call_piece(0, id="c1", name="note"), call_piece(0, '{"text": "x"}'), delta("tool_calls")),
        streams(call_piece(0, id="f1", name="final_result"), call_piece(0, TOM_JSON), delta("tool_calls")),
    ]
    model = OpenAIChatModel("m", base_url=server.url)
    run = Runner(ChatModelAgent("A", model=model, tools=[note], output_type=Pet)).run("go")
    assert "".join([text async for text in run.text()]) == TOM_JSON
    assert (await run).value == TOM
    assert [body.body["tool_choice"] for body in server.asked] == ["required", "required"]
    await model.close()


# Reading it

TOLERATED = [
    f"Sure, here you are:\n\n{TOM_JSON}\n\nAnything else?",
    f"```json\n{TOM_JSON}\n```",
    f"First:\n```\n{TOM_JSON}\n```\nDone.",
    f'<think>It fits {{"name": 1}}, no?</think>\n{TOM_JSON}',
    f'{{"name": "no"}} is not it, but {TOM_JSON} is.',
]


@pytest.mark.parametrize("text", TOLERATED, ids=range(len(TOLERATED)))
async def test_words_around_the_json_are_tolerated(text: str) -> None:  # rule A3
    assert (await Runner(chat("A", text, output_type=Pet)).run("go")).value == TOM


async def test_markup_within_the_json_is_kept() -> None:  # rule A3
    text = '{"name": "<think>```\\n{}\\n```</think>", "kind": "dog"}'
    value = (await Runner(chat("A", text, output_type=Pet)).run("go")).value
    assert value.name == "<think>```\n{}\n```</think>"


@pytest.mark.parametrize("text", ["{" * 100_000, '{"a":' * 100_000, "```" * 50_000], ids=["braces", "deep", "fences"])
async def test_hostile_text_costs_little(text: str) -> None:  # rule A3
    with pytest.raises(ModelError, match="no JSON"):
        await Runner(chat("A", *[text] * 3, output_type=Pet)).run("go")


@pytest.mark.parametrize(("reason", "words"), [("length", "cut off at the limit of tokens"), ("refusal", "a refusal")])
async def test_an_answer_that_was_cut_off_says_so(reason: str, words: str) -> None:  # rule A3
    cut = Message.assistant('{"name": "To', finish_reason=reason)
    agent = chat("A", cut, cut, cut, output_type=Pet)
    with pytest.raises(ModelError, match=words):
        await Runner(agent).run("go")
    assert words in model_of(agent).requests[1].messages[-1].text
