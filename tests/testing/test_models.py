"""The models of tests: they say what they were told to, whole or word by word, and record what they were asked."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjourn import Message, ToolCall, UsageError
from adjourn.errors import ModelError
from adjourn.models import Chunk, Gathering, ModelRequest, generate, stream
from adjourn.testing import FunctionModel, ScriptedModel

BOOK = ToolCall(id="c1", name="book", arguments={"to": "Beijing"})


def asked(text: str) -> ModelRequest:
    return ModelRequest(messages=[Message.user(text)])


async def texts(model: ScriptedModel | FunctionModel, request: ModelRequest) -> list[str]:
    return [chunk.text async for chunk in stream(model, request) if chunk.text]


async def test_a_script_is_followed_in_order() -> None:
    whole = Message.assistant("done", name="desk").with_id("m1")
    model = ScriptedModel(["hi", BOOK, [BOOK, BOOK], whole])
    answers = [await generate(model, asked(str(n))) for n in range(4)]
    assert [answer.text for answer in answers] == ["hi", "", "", "done"]
    assert [answer.tool_calls for answer in answers] == [(), (BOOK,), (BOOK, BOOK), ()]
    assert [answer.finish_reason for answer in answers] == ["stop", "tool_calls", "tool_calls", None]
    assert answers[3] is whole
    assert [request.messages[0].text for request in model.requests] == ["0", "1", "2", "3"]


async def test_functions_of_a_script_get_the_request() -> None:
    async def later(request: ModelRequest) -> str:
        return request.messages[0].text + "!"

    model = ScriptedModel([lambda request: request.messages[0].text, later])
    assert (await generate(model, asked("a"))).text == "a"
    assert await texts(model, asked("b c")) == ["b", " c!"]


async def test_exceptions_of_a_script_are_raised() -> None:
    model = ScriptedModel([ModelError("busy"), KeyError])
    with pytest.raises(ModelError, match="busy"):
        await generate(model, asked("a"))
    with pytest.raises(KeyError):
        await texts(model, asked("a"))


async def test_a_stream_can_be_scripted_to_break_off() -> None:
    cut = [Chunk(text="Hel"), Chunk(text="lo"), ModelError("cut")]
    model = ScriptedModel([cut, cut, cut[:2]])
    chunks = stream(model, asked("a"))
    assert [(await anext(chunks)).text, (await anext(chunks)).text] == ["Hel", "lo"]
    with pytest.raises(ModelError, match="cut"):
        await anext(chunks)
    with pytest.raises(ModelError, match="cut"):
        await generate(model, asked("a"))
    assert (await generate(model, asked("a"))).text == "Hello"


async def test_a_script_that_is_over_says_so() -> None:
    model = ScriptedModel(["only one"])
    await generate(model, asked("a"))
    with pytest.raises(UsageError, match=r"has 1 answers, and it was asked 2 times. Add an answer to:.*"):
        await generate(model, asked("what now?"))


@pytest.mark.parametrize("item", [None, 3, [], ["text"], [BOOK, "text"], Message.user("hi")])
async def test_what_is_no_answer_is_refused(item: Any) -> None:
    with pytest.raises(UsageError, match=r"is not an answer of a model\. Give a text"):
        await generate(ScriptedModel([item]), asked("a"))
    with pytest.raises(UsageError, match=r"is not an answer of a model\. Give a text"):
        await generate(FunctionModel(lambda request: item), asked("a"))


def test_a_script_is_a_list() -> None:
    with pytest.raises(UsageError, match=r"ScriptedModel\(\[\.\.\.\]\)"):
        ScriptedModel(cast("Any", "hi"))


async def test_a_function_is_asked_each_time() -> None:
    model = FunctionModel(lambda request: BOOK if request.messages[0].text == "book" else "hi there")
    assert (await generate(model, asked("book"))).tool_calls == (BOOK,)
    assert await texts(model, asked("x")) == ["hi", " there"]
    assert len(model.requests) == 2


@given(st.text() | st.text(alphabet=" \n\tab"))
async def test_words_put_together_are_the_text(text: str) -> None:
    gathering = Gathering()
    async for chunk in stream(ScriptedModel([text]), asked("a")):
        gathering.add(chunk)
    assert gathering.message() == Message.assistant(text, finish_reason="stop")
