"""What is sent to servers that speak OpenAI's protocol: every kind of conversation, option and client."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator
from typing import Any, cast

import openai
import pytest

from adjourn import ChatModelAgent, LoopAgent, Message, OpenAIChatModel, Runner, ToolCall, UsageError, tool
from adjourn.messages import AudioPart, FilePart, ImagePart, ReasoningPart
from adjourn.models import Abilities, ModelRequest, ToolSpec
from adjourn.stores import Store
from tests.models.openai_server import Json, Server, answers, delta, said, serving, streams

PNG = ImagePart(data=b"\x89PNG", media_type="image/png")
PNG_SENT = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}}
CALLED = {"id": "c1", "type": "function", "function": {"name": "shoot", "arguments": "{}"}}
CONTINUE = {"role": "user", "content": "Continue."}
SHOOT = ToolCall(id="c1", name="shoot")


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as running:
        yield running


def model_at(server: Server, **options: Any) -> OpenAIChatModel:
    return OpenAIChatModel("m", base_url=server.url, timeout=10, **options)


async def sent(server: Server, model: OpenAIChatModel, *messages: Message, **request: Any) -> Json:
    """The body that a request becomes."""
    server.replies.append(answers(said(content="ok")))
    await model.generate(ModelRequest(messages=messages, **request))
    await model.close()
    return server.asked[-1].body


async def sent_messages(server: Server, *messages: Message, **abilities: Any) -> list[Json]:
    given = {"abilities": Abilities(**abilities)} if abilities else {}
    return (await sent(server, model_at(server, **given), *messages))["messages"]


# Conversations


def text(words: str) -> list[Json]:
    return [{"type": "text", "text": words}]


async def test_neighbouring_messages_of_users_are_joined(server: Server) -> None:
    messages = await sent_messages(
        server,
        Message.system("Be kind."),
        Message.system("Be brief."),
        Message.user("a"),
        Message.user("b"),
        Message.assistant("c"),
        Message.user("d"),
        Message.user([PNG]),
        Message.user("e", name="Ann"),
    )
    assert messages == [
        {"role": "system", "content": "Be kind.\n\nBe brief."},
        {"role": "user", "content": "a\n\nb"},
        {"role": "assistant", "content": "c"},
        {"role": "user", "content": [*text("d"), PNG_SENT, *text("Ann: e")]},
    ]


async def test_an_answer_that_says_nothing_is_left_out(server: Server) -> None:
    # Mistral, Anthropic and Gemini refuse it, and would refuse every later turn of the session.
    thought = Message.assistant([ReasoningPart(text="hm")])
    messages = await sent_messages(server, Message.user("a"), Message.assistant(""), thought, Message.user("b"))
    assert messages == [{"role": "user", "content": "a\n\nb"}]
    calling = Message.assistant("", tool_calls=[SHOOT])
    messages = await sent_messages(server, calling, Message.tool("shot", tool_call_id="c1"), Message.assistant(""))
    assert [message["role"] for message in messages] == ["assistant", "tool"]


async def test_neighbouring_answers_are_joined_if_they_are_only_text(server: Server) -> None:
    calling = Message.assistant("c", tool_calls=[SHOOT])
    result = Message.tool("shot", tool_call_id="c1")
    said_before = [Message.assistant("a"), Message.assistant("b"), calling, result]
    messages = await sent_messages(server, Message.user("go"), *said_before, Message.user("d"))
    assert messages == [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "a\n\nb"},
        {"role": "assistant", "content": "c", "tool_calls": [CALLED]},
        {"role": "tool", "tool_call_id": "c1", "content": "shot"},
        {"role": "user", "content": "d"},
    ]


async def test_a_request_does_not_end_with_what_the_model_said(server: Server) -> None:
    # An agent in a loop speaks again; servers refuse that, or take it for the beginning of the answer.
    agent = ChatModelAgent("Writer", model=model_at(server))
    server.replies += [answers(said(content="one")), answers(said(content="two")), answers(said(content="three"))]
    await Runner(LoopAgent("Loop", agents=[agent], max_iterations=3), streaming=False).run("go")
    assert [asked.body["messages"] for asked in server.asked[1:]] == [
        [{"role": "user", "content": "go"}, {"role": "assistant", "content": said_so_far}, CONTINUE]
        for said_so_far in ("one", "one\n\ntwo")
    ]
    begun = [Message.user("go"), Message.assistant("It be")]
    body = await sent(server, model_at(server), *begun, options={"extra_body": {"continue_final_message": True}})
    assert body["messages"][-1] == {"role": "assistant", "content": "It be"}


MISTRAL = "api.mistral.ai"
LONG = "call_" + "x" * 60


@pytest.mark.parametrize(
    ("call_id", "made_by", "provider", "pattern"),
    [
        ("call_1", "other", "here", r"call_1"),
        (LONG, "other", "here", r"call_[0-9a-f]{24}"),
        ("call_1~2", "here", "here", r"call_[0-9a-f]{24}"),
        ("functions.book:0", "other", "here", r"call_[0-9a-f]{24}"),
        ("functions.book:0", "here", "here", r"functions\.book:0"),  # Moonshot wants its own form back
        (LONG, "here", "here", LONG),
        ("call_1", "other", MISTRAL, r"[0-9a-f]{9}"),
        ("D681PevKs", MISTRAL, MISTRAL, r"D681PevKs"),
        ("D681PevKs~2", MISTRAL, MISTRAL, r"[0-9a-f]{9}"),
        ("null", MISTRAL, MISTRAL, r"[0-9a-f]{9}"),
    ],
)
async def test_ids_of_calls_are_such_as_the_server_accepts(
    server: Server, call_id: str, made_by: str, provider: str, pattern: str
) -> None:
    call = ToolCall(id=call_id, name="shoot")
    answer = Message(role="assistant", content="", tool_calls=(call, SHOOT), provider=made_by)
    results = [Message.tool("shot", tool_call_id=each.id) for each in answer.tool_calls]
    body = await sent(server, model_at(server, provider=provider), Message.user("go"), answer, *results)
    _, calling, *answered = body["messages"]
    ids = [each["id"] for each in calling["tool_calls"]]
    assert re.fullmatch(pattern, ids[0])
    assert [each["tool_call_id"] for each in answered] == ids
    assert len(set(ids)) == 2


async def test_names_go_into_the_text_where_messages_of_different_people_are_joined(server: Server) -> None:
    said_by = [Message.user("a", name="bob"), Message.user("b", name="bob")]
    assert await sent_messages(server, *said_by) == [{"role": "user", "content": "a\n\nb", "name": "bob"}]
    [message] = await sent_messages(
        server, Message.system("Be kind."), *said_by, Message.user([PNG], name="al"), system_role="user"
    )
    assert message["content"] == [*text("Be kind.\n\nbob: a\n\nbob: b"), *text("al:"), PNG_SENT]
    assert "name" not in message


async def test_media_of_tool_results_follow_all_results(server: Server) -> None:
    messages = await sent_messages(
        server,
        Message.assistant(tool_calls=[SHOOT, ToolCall(id="c2", name="count")]),
        Message.tool(["two of them", PNG], tool_call_id="c1", name="shoot"),
        Message.tool("2", tool_call_id="c2", name="count"),
        Message.user("and?"),
    )
    assert [message["role"] for message in messages] == ["assistant", "tool", "tool", "user"]
    assert messages[1]["content"] == "two of them\n[image: see the next message of the user]"
    assert messages[3]["content"] == [
        {"type": "text", "text": "From the result of shoot (c1):"},
        PNG_SENT,
        {"type": "text", "text": "and?"},
    ]


async def test_a_server_that_takes_images_in_tool_results_gets_them_there(server: Server) -> None:
    result = Message.tool(["look", PNG], tool_call_id="c1", name="shoot")
    [message] = await sent_messages(server, result, images_in_tool_results=True)
    assert message["content"] == [{"type": "text", "text": "look"}, PNG_SENT]


UNSENDABLE = [
    (AudioPart(data=b"x", media_type="audio/flac"), "[audio: left out, since it cannot be sent to this model]"),
    (FilePart(url="https://x.test/a.pdf"), "[file: https://x.test/a.pdf]"),
]


@pytest.mark.parametrize(("part", "words"), UNSENDABLE, ids=["flac", "url"])
async def test_a_tool_result_that_cannot_be_sent_does_not_fail_the_session(
    server: Server, part: Any, words: str
) -> None:
    result = Message.tool([part], tool_call_id="c1")
    [message] = await sent_messages(server, result)
    assert message == {"role": "tool", "tool_call_id": "c1", "content": words}
    [message] = await sent_messages(server, result, images_in_tool_results=True)
    assert message == {"role": "tool", "tool_call_id": "c1", "content": text(words)}


async def test_what_cannot_be_sent_fails_its_own_turn_and_no_later_one(server: Server, store: Store) -> None:
    agent = ChatModelAgent("A", model=model_at(server, abilities=Abilities(images=False)))
    runner = Runner(agent, store=store, streaming=False)
    with pytest.raises(UsageError, match=r"Abilities\(images=False\)"):
        await runner.run(Message.user(["look", PNG]), session_id="s")
    server.replies += [answers(said(content="ok")), answers(said(content="yes"))]
    await runner.run("hello", session_id="s", on_pending="abandon")
    await runner.run("again", session_id="s")
    note = "[image: left out, since it cannot be sent to this model]"
    assert [message["content"] for message in server.asked[-1].body["messages"]] == [
        f"look\n{note}\n\nhello",  # as one text, since servers without images refuse lists
        "ok",
        "again",
    ]


async def test_what_a_server_signed_goes_back_to_it_alone(server: Server) -> None:
    signed: dict[str, Any] = {"provider": model_at(server).provider, "extra": {"signature": "abc"}}
    call = ToolCall(id="c1", name="shoot", **signed)
    said_before = Message(role="assistant", content="hm", tool_calls=(call,), **signed)
    function = {"name": "shoot", "arguments": "{}"}
    assert await sent_messages(server, said_before) == [
        {
            "role": "assistant",
            "content": "hm",
            "tool_calls": [{"id": "c1", "type": "function", "function": function, "signature": "abc"}],
            "signature": "abc",
        }
    ]
    async with serving() as neighbour:  # on the same host, at another port
        other = OpenAIChatModel("m", client=lambda: openai.AsyncOpenAI(api_key="sk", base_url=server.url))
        for [message] in (
            (await sent(server, other, said_before))["messages"],
            await sent_messages(neighbour, said_before),
        ):
            assert message == {
                "role": "assistant",
                "content": "hm",
                "tool_calls": [{"id": "c1", "type": "function", "function": function}],
            }


async def test_an_image_that_a_model_made_does_not_fail_the_session(server: Server) -> None:
    assert (await sent_messages(server, Message.assistant(["look: ", PNG])))[0]["content"] == "look: [image]"


async def test_an_image_for_a_model_that_is_blind(server: Server) -> None:
    result, words = Message.tool([PNG], tool_call_id="c1"), "[image: left out, since it cannot be sent to this model]"
    [message] = await sent_messages(server, result, images=False)
    assert message["content"] == words
    [message] = await sent_messages(server, result, images=False, images_in_tool_results=True)
    assert message["content"] == text(words)
    with pytest.raises(UsageError, match=r"Abilities\(images=False\)"):
        await sent_messages(server, Message.user([PNG]), images=False)


async def test_what_else_abilities_change(server: Server) -> None:
    calls = Message.assistant(tool_calls=[SHOOT])
    assert (await sent_messages(server, calls, null_content=True))[0]["content"] is None
    assert (await sent_messages(server, calls, null_content=False))[0]["content"] == ""
    both = (Message.system("Be kind."), Message.user("hi"))
    assert await sent_messages(server, *both, system_role="user") == [{"role": "user", "content": "Be kind.\n\nhi"}]
    assert (await sent_messages(server, *both, system_role="developer"))[0]["role"] == "developer"
    spec = ToolSpec(name="shoot", schema={"type": "object"})
    with pytest.raises(UsageError, match=r"Abilities\(tools=False\).*shoot"):
        await sent(server, model_at(server, abilities=Abilities(tools=False)), *both, tools=[spec])


@pytest.mark.parametrize(
    ("name", "url", "native", "null"),
    [
        ("gpt-5", "https://api.openai.com/v1", True, True),
        ("gpt-4o", "https://x.openai.azure.com/openai", True, True),
        ("gpt-4", "https://api.openai.com/v1", False, True),
        ("gpt-4-0613", "https://api.openai.com/v1", False, True),
        ("gpt-3.5-turbo", "https://api.openai.com/v1", False, True),
        ("gpt-4.1", "https://api.openai.com/v1", True, True),
        ("deepseek-chat", "https://api.deepseek.com", False, False),
        ("qwen3", "http://127.0.0.1:8000/v1", True, False),
        ("gpt-5", "https://api.openai.com.evil.test/v1", True, False),
    ],
)
def test_abilities_are_guessed(name: str, url: str, native: bool, null: bool) -> None:
    abilities = OpenAIChatModel(name, api_key="sk", base_url=url).abilities
    assert (abilities.json_schema, abilities.null_content) == (native, null)


@pytest.mark.parametrize("wrong", [{"tools": 1}, {"system_role": "boss"}], ids=["type", "role"])
def test_wrong_abilities_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"Abilities\\({next(iter(wrong))}="):
        Abilities(**wrong)


@tool
async def shoot() -> list[Any]:
    """Take a picture."""
    return ["done", PNG]


async def test_an_image_from_a_tool_reaches_the_model_in_every_turn(server: Server, store: Store) -> None:
    server.replies += [
        answers(said("tool_calls", tool_calls=[CALLED])),
        answers(said(content="a cat")),
        answers(said(content="bye")),
    ]
    model = model_at(server)
    runner = Runner(ChatModelAgent("A", model=model, tools=[shoot]), store=store)
    assert (await runner.run("look", session_id="s")).output == "a cat"
    assert (await runner.run("thanks", session_id="s")).output == "bye"
    assert [m["role"] for m in server.asked[1].body["messages"]] == ["user", "assistant", "tool", "user"]
    assert PNG_SENT in server.asked[1].body["messages"][3]["content"]
    assert PNG_SENT in server.asked[2].body["messages"][3]["content"]
    await model.close()


# Options


@pytest.mark.parametrize(
    "forced", ["required", {"type": "function", "function": {"name": "shoot"}}], ids=["any", "one"]
)
async def test_a_forced_tool_choice_does_not_loop(server: Server, forced: Any) -> None:
    server.replies += [answers(said("tool_calls", tool_calls=[CALLED])), answers(said(content="a cat"))] * 2
    model = model_at(server, options={"tool_choice": forced, "parallel_tool_calls": False})
    runner = Runner(ChatModelAgent("A", model=model, tools=[shoot]))
    for _ in range(2):
        assert (await runner.run("look", session_id="s")).output == "a cat"
    assert [asked.body.get("tool_choice") for asked in server.asked] == [forced, None, forced, None]
    assert all(asked.body["parallel_tool_calls"] is False for asked in server.asked)
    await model.close()


async def test_an_answer_that_does_not_fit_is_part_of_the_same_turn(server: Server) -> None:
    server.replies += [
        answers(said("tool_calls", tool_calls=[CALLED], reasoning_content="I look.")),
        answers(said(content="a cat", reasoning_content="I see.")),
        answers(said(content='{"value": 1}')),
    ]
    model = model_at(server, options={"tool_choice": "required"})
    agent = ChatModelAgent("A", model=model, tools=[shoot], output_type=int, output_mode="prompt")
    assert (await Runner(agent).run("look")).value == 1
    assert [asked.body.get("tool_choice") for asked in server.asked] == ["required", None, None], "not forced again"
    said_before = [message for message in server.asked[-1].body["messages"] if message["role"] == "assistant"]
    assert [message["reasoning_content"] for message in said_before] == ["I look.", "I see."]
    await model.close()


async def test_options_about_tools_are_not_sent_without_tools(server: Server) -> None:
    model = model_at(server, options={"tool_choice": "none", "parallel_tool_calls": False, "seed": 1})
    assert await sent(server, model, Message.user("hi")) == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "seed": 1,
    }


async def test_options_go_where_they_belong(server: Server) -> None:
    model = model_at(server, options={"extra_query": {"api-version": "1"}, "extra_body": {"top_k": 3}})
    options = {"extra_headers": {"x-a": 1}, "timeout": 5.0, "chat_template_kwargs": {"enable_thinking": False}}
    body = await sent(server, model, Message.user("hi"), options=options)
    assert server.asked[0].path == "/v1/chat/completions?api-version=1"
    assert server.asked[0].headers["x-a"] == "1"
    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "top_k": 3,
        "chat_template_kwargs": {"enable_thinking": False},
    }


async def test_a_header_of_none_is_not_sent(server: Server) -> None:
    model = model_at(server, headers={"x-a": "1", "x-b": "2"})
    await sent(server, model, Message.user("hi"), options={"extra_headers": {"x-a": None, "x-c": None}})
    assert {name for name in server.asked[0].headers if name in ("x-a", "x-b", "x-c")} == {"x-b"}


async def test_the_timeout_of_a_request_counts(server: Server) -> None:
    async def never(connection: Any) -> None:
        await connection.until_left()

    server.replies.append(never)
    model = model_at(server)
    with pytest.raises(Exception, match="did not respond in time"):
        await model.generate(ModelRequest(messages=[Message.user("hi")], options={"timeout": 0.05}))
    await model.close()


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"temperature": "hot"}, "option temperature='hot'. Give a number"),
    ({"max_tokens": 1.5}, "option max_tokens=1.5. Give an int"),
    ({"parallel_tool_calls": "no"}, "Give True or False"),
    ({"timeout": 0}, "option timeout=0. Give a number of seconds above 0"),
    ({"extra_headers": "Bearer secret"}, "option extra_headers=a str. Give a mapping"),
    ({"max_retries": 3}, "'max_retries', which is not sent to a model. .*retry=Retry"),
]


@pytest.mark.parametrize(("options", "error"), WRONG, ids=[next(iter(each)) for each, _ in WRONG])
async def test_options_of_a_wrong_type_are_named_where_they_are_made(
    server: Server, options: dict[str, Any], error: str
) -> None:
    with pytest.raises(UsageError, match=rf"OpenAIChatModel\('m'\).*{error}"):
        model_at(server, options=options)
    with pytest.raises(UsageError, match="Give keys and headers" if "extra_headers" in options else error):
        await Runner(ChatModelAgent("A", model=model_at(server))).run("hi", model_options=options)
    assert server.asked == []


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"model": None}, "give the name of a model"),
    ({"headers": "x"}, "headers is a str"),
    ({"options": ["x"]}, r"options=\['x'\]"),
    ({"abilities": {"tools": True}}, r"Give Abilities\(\.\.\.\)"),
    ({"client": openai.OpenAI(api_key="sk")}, "client=an OpenAI.*not a sync client"),
]


@pytest.mark.parametrize(("arguments", "error"), MISTAKES, ids=[next(iter(each)) for each, _ in MISTAKES])
def test_arguments_of_a_wrong_type_are_named(arguments: dict[str, Any], error: str) -> None:
    with pytest.raises(UsageError, match=error):
        OpenAIChatModel(**cast("Any", {"model": "m", "api_key": "sk", **arguments}))


# Clients


def client_at(server: Server, **options: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(api_key="sk-own", base_url=server.url, default_headers={"x-own": "1"}, **options)


@pytest.mark.parametrize("kind", ["client", "with its own HTTP client", "function"])
@pytest.mark.parametrize("streaming", [True, False])
async def test_a_client_serves_every_loop_and_sync_code(server: Server, kind: str, streaming: bool) -> None:
    made = client_at(server, http_client=openai.DefaultAsyncHttpxClient() if kind.startswith("with") else None)
    model = OpenAIChatModel("m", client=(lambda: client_at(server)) if kind == "function" else made)
    runner = Runner(ChatModelAgent("A", model=model), streaming=streaming)
    whole, streamed = answers(said(content="hi")), streams(delta(content="hi"), delta("stop"))
    outputs = list[Any]()

    def in_a_thread() -> None:
        outputs.extend(runner.run_sync("hi").output for _ in range(2))

    async def here() -> None:
        if streaming:
            outputs.append("".join([text async for text in runner.run("hi").text()]))
        else:
            outputs.append((await runner.run("hi")).output)

    for _ in range(2):
        server.replies += [streamed if streaming else whole, whole, whole]
        await here()
        await asyncio.to_thread(in_a_thread)
    server.replies += [whole] * 4
    threads = [threading.Thread(target=in_a_thread) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert outputs == ["hi"] * 10
    assert {asked.headers["x-own"] for asked in server.asked} == {"1"}
    await model.close()
    assert not made.is_closed()
    await made.close()
