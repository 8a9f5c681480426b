"""Answers in the shapes that real servers send are read rightly, whole and streamed, over HTTP and the real client."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncGenerator, Iterator
from copy import deepcopy
from typing import Any, cast

import pytest

from adjourn import Message
from adjourn.errors import ContextTooLong, ModelError
from adjourn.messages import ImagePart, ReasoningPart, Usage
from adjourn.models import Gathering, ModelRequest, OpenAIChatModel
from tests.models.openai_server import Reply, Server, answers, serving, streams
from tests.models.quirks import Quirk, corpus, shown, table

HELLO = ModelRequest(messages=[Message.user("hello")])


@pytest.fixture
async def server() -> AsyncGenerator[Server]:
    async with serving() as made:
        yield made


@pytest.mark.parametrize("name", corpus())
async def test_answers_of(server: Server, name: str) -> None:
    model = OpenAIChatModel("m", api_key="sk-test", base_url=server.url)
    wrong: list[str] = []
    for entry in corpus()[name]:
        if "whole" in entry:
            server.replies.append(
                answers(entry["whole"], status=entry.get("status", 200), headers=entry.get("headers"))
            )
            wrong += [f"{entry['quirk']}, whole: {each}" for each in differences(entry, await whole(model))]
        if "stream" in entry:
            server.replies.append(sse(entry["stream"]))
            wrong += [f"{entry['quirk']}, streamed: {each}" for each in differences(entry, await streamed(model))]
    await model.close()
    assert not wrong, "\n".join(wrong)


def test_the_corpus_is_large_and_each_quirk_is_named_once() -> None:
    entries = [entry for entries in corpus().values() for entry in entries]
    assert sum(("whole" in entry) + ("stream" in entry) for entry in entries) >= 240
    names = [(entry["server"], entry["quirk"]) for entry in entries]
    assert len(set(names)) == len(names)


def test_the_docs_have_the_same_table() -> None:
    assert shown() == table(), "run: python -m tests.models.quirks"


ODD: list[Any] = [
    *(None, 0, -1, 1.5, True, "", "null", "9" * 30, 10**30, "\ud83d", "\0", [], {}, [None], [{}], ["a"]),
    *({"text": "t"}, [{"type": ["text"], "text": 5}], {"type": {"text": 1}}, [[["deep"]]], {"index": None}),
    *([{"index": "x", "function": None}], [{"function": {"name": 5, "arguments": {"a": [1]}}}], [{"function": "f"}]),
]
"""What a field may hold that nobody would expect there."""


@pytest.mark.parametrize("seed", range(8))
async def test_whatever_a_field_holds_it_is_an_answer_or_an_error_of_the_model(server: Server, seed: int) -> None:
    chance = random.Random(seed)
    model = OpenAIChatModel("m", api_key="sk-test", base_url=server.url)
    entries = [entry for entries in corpus().values() for entry in entries]
    for entry in chance.sample(entries, 40):
        if isinstance(entry.get("whole"), dict):
            server.replies.append(answers(changed(entry["whole"], chance), status=entry.get("status", 200)))
            assert isinstance(await whole(model), Message | ModelError)
        if isinstance(entry.get("stream"), list):
            server.replies.append(sse([changed(each, chance) for each in entry["stream"]]))
            assert isinstance(await streamed(model), Message | ModelError)
    await model.close()


def changed(data: Any, chance: random.Random) -> Any:
    """The same data with one or two fields that are gone, or hold something odd."""
    data = deepcopy(data)
    for _ in range(chance.randint(1, 2)):
        if places := list(fields_in(data)):
            holder, key = chance.choice(places)
            if chance.random() < 0.2:
                del holder[key]
            else:
                holder[key] = deepcopy(chance.choice(ODD))
    return data


def fields_in(data: Any) -> Iterator[tuple[Any, Any]]:
    """Every field of an object and item of a list, at all depths, with what holds it."""
    if isinstance(data, dict | list):
        given = cast("dict[Any, Any] | list[Any]", data)
        for key in list(given) if isinstance(given, dict) else range(len(given)):
            yield given, key
            yield from fields_in(given[key])


# Asking


async def whole(model: OpenAIChatModel) -> Message | ModelError:
    try:
        return await model.generate(HELLO)
    except ModelError as error:
        return error


async def streamed(model: OpenAIChatModel) -> Message | ModelError:
    gathering = Gathering()
    try:
        async for chunk in model.stream(HELLO):
            gathering.add(chunk)
    except ModelError as error:
        return error
    return gathering.message()


def sse(stream: Any) -> Reply:
    if isinstance(stream, dict):
        given = cast("dict[str, Any]", stream)
        if "json" in given:
            return answers(given["json"])
        if "raw" in given:
            return answers(given["raw"], headers={"content-type": given.get("type", "text/event-stream")})
        return streams(*(odd(data, given["lines"]) for data in given["events"]))
    return streams(*map(event, stream), done="[DONE]" not in stream)


def event(data: Any) -> bytes:
    if isinstance(data, str) and data.startswith(":"):
        return f"{data}\n\n".encode()
    return f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()


def odd(data: Any, lines: str) -> bytes:
    written = json.dumps(data)
    shapes = {
        "crlf": f"event: message\r\ndata: {written}\r\n\r\n",
        "cr": f"data: {written}\r\r",
        "single": f"data: {written}\n",
    }
    return shapes.get(lines, f"data:{written}\n\n").encode()


# Comparing


def differences(entry: Quirk, found: Message | ModelError) -> list[str]:
    expected = entry["expected"]
    if "error" in expected:
        return failure(expected["error"], found)
    if isinstance(found, ModelError):
        return [f"{type(found).__name__}: {found}"]
    pairs = {key: (value, facts(found)[key]) for key, value in expected.items() if key in facts(found)}
    wrong = [f"{key} is {is_!r}, not {wanted!r}" for key, (wanted, is_) in pairs.items() if is_ != wanted]
    if "usage" not in expected and found.usage is not None:
        wrong.append(f"there is a usage: {found.usage}")
    if "calls" not in expected and found.tool_calls:
        wrong.append(f"there are calls: {found.tool_calls}")
    if "calls" in expected:
        wrong += calls(expected["calls"], found)
    if not expected.keys() & {"reasoning", "reasoning_like"} and facts(found)["reasoning"]:
        wrong.append(f"there is reasoning: {facts(found)['reasoning']}")
    if not expected.keys() & {"extra", "any_extra"} and found.extra is not None:
        wrong.append(f"there is extra: {found.extra}")
    return wrong


def facts(message: Message) -> dict[str, Any]:
    reasoning = "".join(part.text for part in message.parts if isinstance(part, ReasoningPart))
    usage = message.usage or Usage()
    counts = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
    optional = ("cached_tokens", "reasoning_tokens", "cache_write_tokens")
    counts |= {name: getattr(usage, name) for name in optional if getattr(usage, name)}
    return {
        "text": message.text,
        "finish": message.finish_reason,
        "reasoning": reasoning,
        "reasoning_like": reasoning.strip(),
        "usage": counts,
        "raw": message.raw_finish_reason,
        "extra": message.extra,
        "parts": [type(part).__name__ for part in message.parts if isinstance(part, ImagePart)],
    }


def calls(expected: list[dict[str, Any]], message: Message) -> list[str]:
    if len(expected) != len(message.tool_calls):
        return [f"the calls are {message.tool_calls}"]
    pairs = zip(expected, message.tool_calls, strict=True)
    return [f"a call is {is_}" for wanted, is_ in pairs if any(getattr(is_, key) != wanted[key] for key in wanted)]


def failure(expected: dict[str, Any], found: Message | ModelError) -> list[str]:
    if isinstance(found, Message):
        return [f"it was read as {found}"]
    kind = ContextTooLong if expected.get("type") == "ContextTooLong" else ModelError
    wrong = [] if type(found) is kind else [f"it is a {type(found).__name__}"]
    wrong += [] if expected["words"] in str(found) else [f"it says: {found}"]
    named = expected.keys() - {"words", "type"}
    return wrong + [f"{name} is {getattr(found, name)!r}" for name in named if getattr(found, name) != expected[name]]
