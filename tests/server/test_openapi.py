"""The OpenAPI document: it describes every route and every refusal, and what the server sends fits it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis

import adjourn.server
from adjourn.server import App
from adjourn.server._api import ROWS
from adjourn.server._errors import CODES
from adjourn.server._openapi import document

from .agents import booker, counter, refunds
from .serving import Serving


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    with Serving(App([booker(), counter(), refunds()])) as serving:
        yield serving


@pytest.fixture(scope="module")
def schema(server: Serving) -> Any:
    return schemathesis.openapi.from_dict(server.get("/openapi.json").json)


def test_every_code_of_a_refusal_is_described() -> None:
    described = {code for each in ROWS for code in each.refusals}
    for path in Path(adjourn.server.__file__).parent.glob("*.py"):
        for code in re.findall(r'ApiError\(\s*"(\w+)"', path.read_text()):
            assert code in CODES, f"{path.name}: add {code} to CODES in _errors.py, and to its rows in _api.py"
    assert described <= CODES.keys()


def test_the_document_is_valid(schema: Any) -> None:
    schema.validate()


def test_a_closed_server_says_which_routes_need_a_token() -> None:
    found = document(ROWS, lambda row: row.name == "health")
    assert found["security"] == [{"bearer": []}, {"key": []}]
    assert found["paths"]["/healthz"]["get"]["security"] == []
    assert "security" not in found["paths"]["/api/v1/chat"]["post"]


@pytest.mark.parametrize(("place", "status"), [("", 200), ("0", 200), ("0~", 200), ("x", 400), ("-1", 400)])
def test_the_place_in_a_stream_is_refused_where_the_document_says_so(server: Serving, place: str, status: int) -> None:
    session_id = server.post("/api/v1/chat", {"agent": "booker", "message": "hi", "stream": False}).json["session_id"]
    described = server.get("/openapi.json").json["paths"]["/api/v1/sessions/{id}/events"]["get"]["parameters"]
    (pattern,) = [each["schema"]["pattern"] for each in described if each["name"] == "Last-Event-ID"]
    with server.events(session_id, last_event_id=place) as stream:
        assert (stream.status, bool(re.search(pattern, place))) == (status, status == 200)


def test_what_is_sent_fits_the_document(server: Serving, schema: Any) -> None:
    base = f"http://127.0.0.1:{server.server.port}"

    def send(method: str, path: str, data: Any = None, **names: str) -> Any:
        url = base + path.format(**names)
        response = requests.request(method, url, json=data, timeout=30)
        schema[path.partition("?")[0]][method].validate_response(response)
        return response

    one = "/api/v1/sessions/{id}"
    paused = send("POST", "/api/v1/chat", {"agent": "booker", "message": "book Rome"})
    name = {"id": paused.headers["x-session-id"]}
    assert b'"type":"interrupt"' in paused.content
    for path in ("", "/messages", "/audit", "/inputs", "/checkpoints", "/tree", "/state", "/events"):
        assert send("GET", one + path, **name).status_code == 200
    point = send("GET", f"{one}/checkpoints", **name).json()["checkpoints"][0]["id"]
    assert send("GET", f"{one}/checkpoints/{{checkpoint}}", **name, checkpoint=point).status_code == 200
    assert send("GET", f"{one}/diff?a={point}&b={point}", **name).status_code == 200
    question = send("GET", "/api/v1/inbox").json()["questions"][0]["id"]
    assert send("GET", f"{one}/questions/{{question}}", **name, question=question).status_code == 200
    assert (
        send("POST", "/api/v1/chat", {"agent": "booker", "message": "x", "session_id": name["id"]}).status_code == 409
    )
    assert send("POST", f"{one}/fork", {}, **name).status_code == 201
    assert send("POST", "/api/v1/chat/resume", {"session_id": name["id"], "answer": True}).status_code == 200
    assert send("POST", f"{one}/cancel", {}, **name).status_code == 202
    assert send("POST", f"{one}/inputs", {"agent": "booker", "message": "hi"}, **name).status_code == 202
    for data in ({"message": "hi"}, {"message": "fail"}, {"message": "name"}):
        answer = send("POST", "/api/v1/chat", {"agent": "booker", "stream": False, **data})
        assert answer.status_code == 200
    paused = send("POST", "/api/v1/chat", {"agent": "refunds", "message": {"cents": 5}, "stream": False}).json()
    assert send("POST", f"{one}/edit", {"values": {"cents": 7}}, id=paused["session_id"]).status_code == 200
    for path in ("/api/v1/agents", "/api/v1/sessions", "/healthz", "/readyz", "/openapi.json"):
        assert send("GET", path).status_code == 200
    assert send("GET", one, id="nowhere").status_code == 404
