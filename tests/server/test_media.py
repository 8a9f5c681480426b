"""Images, audio and files by URL: what a caller can make the server of a model fetch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from adjourn import ChatModelAgent, Message, UsageError, interrupt, workflow
from adjourn.messages import ImagePart
from adjourn.models import ModelRequest
from adjourn.server import App
from adjourn.testing import FunctionModel

from .agents import refunds
from .serving import Reply, Serving


def looker() -> ChatModelAgent:
    """Says what its model was given to fetch."""

    def decide(request: ModelRequest) -> str:
        return " ".join(str(getattr(part, "url", None)) for part in request.messages[-1].parts)

    return ChatModelAgent("looker", model=FunctionModel(decide))


@workflow
async def photo(_: str) -> str:
    return str(interrupt("Which photo?", schema=ImagePart | str))


@workflow
async def relay(_: str) -> str:
    return str(interrupt("What shall I pass on?", schema=Message))


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    hosts = ["images.example.com", "CDN.example.com:8443", "203.0.113.7", "xn--mnchen-3ya.example"]
    with Serving(App([looker(), refunds(), photo, relay], media_hosts=hosts)) as serving:
        yield serving


def said(server: Serving, thread: str, url: str, kind: str = "image") -> bytes:
    """The stream of a front end's message with a URL."""
    content = [{"type": kind, "source": {"type": "url", "value": url}}]
    message = {"id": "m1", "role": "user", "content": content}
    body: dict[str, Any] = {"threadId": thread, "runId": "r1", "messages": [message]}
    return server.post("/api/v1/ag-ui/looker", body).body


REFUSED = [
    "http://169.254.169.254/latest/meta-data/",
    "https://169.254.169.254/",
    "file:///etc/passwd",
    "http://images.example.com/a.png",
    "ftp://images.example.com/a.png",
    "//images.example.com/a.png",
    "https:images.example.com/a.png",
    "https:///images.example.com/a.png",
    "https:\\\\images.example.com/a.png",
    "https://images.example.com@evil.example/a.png",
    "https://evil.example\\@images.example.com/a.png",
    "https://images.example.com\\.evil.example/a.png",
    "https://user:password@images.example.com/a.png",
    "https://images.example.com.evil.example/a.png",
    "https://evil-images.example.com/a.png",
    "https://images.example.com./a.png",
    "https://images.example.com:8443/a.png",
    "https://cdn.example.com/a.png",
    "https://images.example.com:0443/a.png",
    "https://images.example.com:/a.png",
    "https://images.example.com\u3002evil.example/a.png",
    "https://im\u00e4ges.example.com/a.png",
    "https://\uff49mages.example.com/a.png",
    "https://images\u2024example.com/a.png",
    "https://m\u00fcnchen.example/a.png",
    "https://images.example.co\u212a/a.png",
    " https://images.example.com/a.png",
    "https://images.example.com /a.png",
    "https://images.exam\tple.com/a.png",
    "https://images.example.com/a.png\r\nHost: evil.example",
    "https://images.example.com/a\x00.png",
    "https://%69mages.example.com/a.png",
    "https://[::1]/a.png",
    "https://3405803783/a.png",
    "https://0xcb.0.113.7/a.png",
    "https://203.0.28935/a.png",
    "https://",
    "",
    "images.example.com",
    "javascript:alert(1)",
    " data:image/png;base64,AAAA",
    "data:",
    "data://evil.example/a.png",
    "data://evil.example/a,b.png",
    "data:http://evil.example/a.png",
    "data:https://evil.example/a,b.png",
    "data:evil.example/a.png",
    "data:@evil.example,a",
    "data:\\\\evil.example/a,b",
    "data:image/png;base64",
    "data:image/png ;base64,AAAA",
    "data:\timage/png;base64,AAAA",
    "data:image/png;x=//evil.example,a",
]


@pytest.mark.parametrize("url", REFUSED)
def test_a_url_of_a_caller_is_refused(server: Serving, url: str):  # rule V17, attack 9
    thread = f"refused-{REFUSED.index(url)}"
    for kind in ("image", "audio", "video", "document"):
        assert b'"code":"media_not_allowed"' in said(server, thread, url, kind)
    assert server.get(f"/api/v1/sessions/{thread}").status == 404  # Nothing has begun.


def of_type(server: Serving, thread: str, media_type: str) -> bytes:
    """The stream of a front end's message with data."""
    content = [{"type": "image", "source": {"type": "data", "value": "AAAA", "mimeType": media_type}}]
    body: dict[str, Any] = {"threadId": thread, "runId": "r1", "messages": [{"role": "user", "content": content}]}
    return server.post("/api/v1/ag-ui/looker", body).body


@pytest.mark.parametrize("media_type", ["//evil.example/a,b.png", "http://evil.example/a", "a,b", "@evil.example"])
def test_a_type_of_data_makes_no_other_url_of_it(server: Serving, media_type: str):  # rule V17
    assert b'"code":"media_not_allowed"' in of_type(server, "typed", media_type)
    part = {"type": "image", "data": "AAAA", "media_type": media_type}
    chat = {"agent": "refunds", "message": {"cents": part}, "stream": False}
    assert refusal(server.post("/api/v1/chat", chat)) == (422, "media_not_allowed")


@pytest.mark.parametrize("media_type", ["image/png", "text/plain; charset=utf-8", "audio/webm;codecs=opus"])
def test_data_of_any_type_is_taken(server: Serving, media_type: str):  # rule V17
    assert b'"result":"None"' in of_type(server, media_type, media_type)


@pytest.mark.parametrize(
    "url",
    [
        "https://images.example.com/a.png",
        "HTTPS://Images.Example.COM/a.png?size=2#top",
        "https://images.example.com",
        "https://images.example.com:443/a@b.png",
        "https://cdn.example.com:8443/a.png",
        "https://203.0.113.7/a.png",
        "https://xn--mnchen-3ya.example/a.png",
        "data:image/png;base64,AAAA",
        "DATA:Image/SVG+xml;charset=utf-8;base64,AA+/AA==",
        "data:,hello%20there",
        "data:text/plain;charset=utf-8,a,b",
    ],
)
def test_hosts_that_the_operator_allows_and_data_reach_the_model(server: Serving, url: str):  # rule V17
    assert f'"result":"{url}"'.encode() in said(server, f"allowed-{url}", url)


def test_what_was_said_before_does_not_count_again(server: Serving):
    content = [{"type": "image", "source": {"type": "url", "value": "http://169.254.169.254/"}}]
    messages = [{"id": "m1", "role": "user", "content": content}, {"id": "m2", "role": "user", "content": "hello"}]
    body: dict[str, Any] = {"threadId": "history", "runId": "r1", "messages": messages}
    assert b'"result":"None"' in server.post("/api/v1/ag-ui/looker", body).body


PART = {"type": "image", "url": "http://169.254.169.254/"}


def refusal(reply: Reply) -> tuple[int, str]:
    return reply.status, reply.code


def test_parts_in_inputs_are_refused(server: Serving):  # rule V17
    message = {"messages": [{"role": "user", "content": [{"type": "text", "text": "look"}, PART]}]}
    chat = {"agent": "refunds", "session_id": "s1", "message": message, "stream": False}
    assert refusal(server.post("/api/v1/chat", chat)) == (422, "media_not_allowed")
    submitted = {"agent": "refunds", "message": message}
    assert refusal(server.post("/api/v1/sessions/s1/inputs", submitted)) == (422, "media_not_allowed")
    body: dict[str, Any] = {"threadId": "s1", "runId": "r1", "forwardedProps": {"input": message}}
    assert b'"code":"media_not_allowed"' in server.post("/api/v1/ag-ui/refunds", body).body
    assert server.get("/api/v1/sessions/s1").status == 404


def test_parts_in_answers_are_refused_and_the_question_stays_open(server: Serving):  # rule V17
    asked = server.post("/api/v1/chat", {"agent": "photo", "message": "go", "session_id": "s2", "stream": False}).json
    token = asked["interrupts"][0]["token"]
    body: dict[str, Any] = {"session_id": "s2", "stream": False}
    assert refusal(server.post("/api/v1/chat/resume", {**body, "answer": PART})) == (422, "media_not_allowed")
    assert refusal(server.post("/api/v1/sessions/s2/answers", {"answers": {token: PART}})) == (422, "media_not_allowed")
    resume = [{"interruptId": token, "status": "resolved", "payload": PART}]
    run: dict[str, Any] = {"threadId": "s2", "runId": "r1", "resume": resume}
    assert b'"code":"media_not_allowed"' in server.post("/api/v1/ag-ui/photo", run).body
    ended = server.post("/api/v1/chat/resume", {**body, "answer": {**PART, "url": "https://images.example.com/a.png"}})
    assert "https://images.example.com/a.png" in ended.json["output"]


OPAQUE = {"type": "opaque", "provider": "openai", "data": {"type": "image_url", "image_url": {"url": "file:///a"}}}


EXTRA = {"provider": "openai", "extra": {"role": "user", "content": [OPAQUE["data"]]}}


@pytest.mark.parametrize(
    "private",
    [
        EXTRA,
        {"tool_calls": [{"id": "c", "name": "look", **EXTRA}]},
        {"content": [{"type": "text", "text": "", **EXTRA}]},
    ],
    ids=["message", "call", "part"],
)
def test_what_goes_to_a_provider_as_it_is_may_name_anything(server: Serving, private: dict[str, Any]):  # rule V17
    body: dict[str, Any] = {"agent": "relay", "message": "go", "session_id": f"extra {private}", "stream": False}
    server.post("/api/v1/chat", body)
    answer = {"$t": "message", "role": "assistant", "content": "look", **private}
    body = {"session_id": body["session_id"], "answer": answer, "stream": False}
    assert refusal(server.post("/api/v1/chat/resume", body)) == (422, "media_not_allowed")


@pytest.mark.parametrize("part", [PART, OPAQUE], ids=["image", "opaque"])
def test_a_message_as_an_answer_is_read_as_well(server: Serving, part: dict[str, Any]):  # rule V17
    session = f"relay-{part['type']}"
    server.post("/api/v1/chat", {"agent": "relay", "message": "go", "session_id": session, "stream": False})
    answer = {"$t": "message", "role": "user", "content": [{"type": "text", "text": "look"}, part]}
    body = {"session_id": session, "answer": answer, "stream": False}
    assert refusal(server.post("/api/v1/chat/resume", body)) == (422, "media_not_allowed")
    answer["content"] = [{"type": "text", "text": "look"}]
    assert "look" in server.post("/api/v1/chat/resume", body).json["output"]


@pytest.mark.parametrize(
    "host", ["", "*", "https://images.example.com", "images.example.com/", "a b", "m\u00fcnchen.example", "[::1]", "a."]
)
def test_a_host_that_is_none_is_refused(host: str):
    with pytest.raises(UsageError, match="is not a host"):
        App([looker()], media_hosts=[host])
