"""The service of docs/web.md, as a browser sees it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from tests.test_docs import ROOT, blocks, execute


class Answer(NamedTuple):
    status: int
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        return [json.loads(line[6:]) for line in self.body.decode().splitlines() if line.startswith("data: ")]


class Browser:
    """Calls an ASGI application, as the server would."""

    def __init__(self, app: Any, user: str) -> None:
        self._app = app
        self._user = user

    async def get(self, path: str, query: str = "") -> Answer:
        return await self._call("GET", path, b"", query)

    async def post(self, path: str, data: Any) -> Answer:
        return await self.send(path, json.dumps(data).encode())

    async def send(self, path: str, body: bytes) -> Answer:
        return await self._call("POST", path, body, "")

    async def _call(self, method: str, path: str, body: bytes, query: str) -> Answer:
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        user = [(b"x-user", self._user.encode())] if self._user else []
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "headers": user,
        }
        await self._app(scope, receive, send)
        return Answer(sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:]))


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    module = ModuleType("service")
    monkeypatch.setitem(sys.modules, "service", module)
    monkeypatch.chdir(tmp_path)
    (block,) = blocks(ROOT / "docs" / "web.md")
    execute(block, module)
    return module.app


async def test_a_question_is_asked_listed_and_answered_once(app: Any) -> None:  # rule R3
    ann = Browser(app, "ann")
    asked = await ann.post("/sessions/s1/messages", {"text": "Book a ticket for Martin to Beijing"})
    assert (asked.status, asked.events[-1]["type"]) == (200, "interrupt")
    (question,) = (await ann.get("/sessions/s1/questions")).json
    assert question["info"]["arguments"]["location"] == "Beijing"

    wrong = await ann.post("/sessions/s1/answers", {question["token"]: "perhaps"})
    assert (wrong.status, wrong.json["error"]) == (422, "InvalidAnswer")
    waiting = await ann.post("/sessions/s1/messages", {"text": "Hello?"})
    assert (waiting.status, waiting.json["error"]) == (409, "PendingInterrupts")
    stranger = await Browser(app, "eve").get("/sessions/s1/events")
    assert (stranger.status, stranger.json["error"]) == (404, "CheckpointNotFound")

    done = await ann.post("/sessions/s1/answers", {question["token"]: True})
    assert done.events[-1]["output"].startswith("Done! The ticket to Beijing for Martin is booked.")
    second = await ann.post("/sessions/s1/answers", {question["token"]: False})
    assert (second.status, second.json["error"]) == (409, "AlreadyResumed")

    durable = [event["seq"] for event in asked.events + done.events if event.get("seq")]
    again = await ann.get("/sessions/s1/events", f"after={durable[1]}")
    assert [event["seq"] for event in again.events] == durable[2:]


async def test_a_browser_that_connects_again_after_the_end_is_told_to_stop(app: Any) -> None:
    ann = Browser(app, "ann")
    said = await ann.post("/sessions/s1/messages", {"text": "Book a ticket for Martin to Beijing"})
    last = max(event.get("seq") or 0 for event in said.events)
    again = await ann.get("/sessions/s1/events", f"after={last}")
    assert (again.status, again.body) == (204, b"")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b'"yes"', b"null", b'{"text": 5}', b'{"txt": "x"}', b"\xff"])
async def test_a_message_that_is_not_one_is_a_mistake_of_the_client(app: Any, body: bytes) -> None:
    refused = await Browser(app, "ann").send("/sessions/s1/messages", body)
    assert refused.status == 400
    assert refused.json["message"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b'"yes"', b"null"])
async def test_answers_that_are_none_are_a_mistake_of_the_client(app: Any, body: bytes) -> None:
    ann = Browser(app, "ann")
    await ann.post("/sessions/s1/messages", {"text": "Book a ticket for Martin to Beijing"})
    assert (await ann.send("/sessions/s1/answers", body)).status == 400
    (question,) = (await ann.get("/sessions/s1/questions")).json  # It is still open.
    assert (await ann.post("/sessions/s1/answers", {question["token"]: True})).status == 200


async def test_events_are_followed_from_a_number(app: Any) -> None:
    ann = Browser(app, "ann")
    await ann.post("/sessions/s1/messages", {"text": "Book a ticket for Martin to Beijing"})
    assert (await ann.get("/sessions/s1/events", "after=x")).status == 400


async def test_nobody_is_asked_to_sign_in(app: Any) -> None:
    nobody = Browser(app, "")
    assert (await nobody.get("/sessions/s1/questions")).status == 401
    assert (await nobody.get("/sessions/s1/events")).status == 401
    assert (await nobody.post("/sessions/s1/messages", {"text": "hi"})).status == 401
    assert (await nobody.post("/sessions/s1/answers", {"a": True})).status == 401
