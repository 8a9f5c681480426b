"""What belongs to others, on every store: by any id, in any place, it is as if it were not there.

And names that try to be more than names: in streams, headers, logs and paths they stay what they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, unquote

import pytest

from adjourn.server import App, Tokens
from adjourn.server._api import ROWS, Access

from .agents import booker, counter, refunds
from .serving import Serving, store_url, types
from .test_access import Desk, filled

STORES = ["memory", "sqlite", "postgres", "redis"]
OUTSIDERS = ("bob", "reviewer of another agent", "ann for another agent")


@pytest.fixture(scope="module", params=STORES)
def desk(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    folder = tmp_path_factory.mktemp("tenants")
    file = Tokens(folder / "tokens.json")
    tokens = {
        "ann": file.create("ann")[1],
        "bob": file.create("bob")[1],
        "admin": file.create("ada", roles=["admin"])[1],
        "reviewer of another agent": file.create("carl", roles=["review"], agents=["count*"])[1],
        "ann for another agent": file.create("ann", agents=["count*"])[1],
    }
    app = App([booker(), counter(), refunds()], store=store_url(request.param, folder), tokens=file)
    with Serving(app) as server:
        yield Desk(server, tokens, file)


def test_a_session_of_others_is_as_one_that_never_was_on_any_store(desk: Desk):  # rule V7, failure 9, attack 3
    paused = desk.paused()
    missing = {**paused, "session_id": "nothing"}
    refused = 0
    for row in ROWS:
        name, access = row.route, row.access
        method, path, body = filled(name, paused)
        if paused["session_id"] not in f"{path}{body}" or access in (Access.OPEN, Access.ADMIN):
            continue
        for who in OUTSIDERS:
            reply = desk.request(who, method, path, body)
            assert reply.status in (403, 404), (who, name, reply)
            if name.startswith("POST") and path.endswith("/inputs"):
                continue  # One that was never there would begin.
            unknown = desk.request(who, *filled(name, missing))
            assert (reply.status, reply.body.replace(paused["session_id"].encode(), b"nothing")) == (
                unknown.status,
                unknown.body,
            ), (who, name)
            refused += 1
    assert refused > 50
    still = desk.request("ann", "GET", f"/api/v1/sessions/{paused['session_id']}").json
    assert (still["status"], still["checkpoint_id"]) == ("waiting", paused["checkpoint_id"])


def of_others(kind: str, other: Any, mine: Any) -> tuple[str, str, Any]:
    """A request about a session of one's own that names something of another's."""
    own, point = f"/api/v1/sessions/{mine['session_id']}", other["checkpoint_id"]
    token = other["interrupts"][0]["token"]
    resume = {"session_id": mine["session_id"], "stream": False}
    requests: dict[str, tuple[str, str, Any]] = {
        "a checkpoint": ("GET", f"{own}/checkpoints/{point}", None),
        "the state there": ("GET", f"{own}/state?checkpoint_id={point}", None),
        "a difference": ("GET", f"{own}/diff?a={mine['checkpoint_id']}&b={point}", None),
        "a place in the history": ("GET", f"{own}/checkpoints?before={point}", None),
        "a fork": ("POST", f"{own}/fork", {"checkpoint_id": point}),
        "a question": ("GET", f"{own}/questions/{quote(token, safe='')}", None),
        "an answer": ("POST", f"{own}/answers", {"answers": {token: "yes"}}),
        "a resume": ("POST", "/api/v1/chat/resume", {**resume, "answers": {token: "yes"}}),
        "a resume there": ("POST", "/api/v1/chat/resume", {**resume, "answer": "yes", "checkpoint_id": point}),
        "an input": ("DELETE", f"{own}/inputs/theirs", None),
        "an inbox": ("GET", f"/api/v1/inbox?session_id={other['session_id']}", None),
    }
    return requests[kind]


KINDS = [
    *("a checkpoint", "the state there", "a difference", "a place in the history", "a fork", "a question"),
    *("an answer", "a resume", "a resume there", "an input", "an inbox"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_an_id_of_others_in_a_session_of_ones_own_is_unknown(desk: Desk, kind: str):  # rule V7, attacks 2 and 3
    theirs, mine = desk.paused(), desk.paused_by("bob")
    queued = {"agent": "booker", "message": "later", "id": "theirs"}
    assert desk.request("ann", "POST", f"/api/v1/sessions/{theirs['session_id']}/inputs", queued).status == 202
    place, _, digest = theirs["interrupts"][0]["token"].partition("~")
    never: dict[str, Any] = {
        "session_id": "0" * len(theirs["session_id"]),
        "checkpoint_id": theirs["checkpoint_id"].translate(str.maketrans("123456789", "987654321")),
        "interrupts": [{"token": f"{place}~{'f' * len(digest)}"}],
    }
    found = desk.request("bob", *of_others(kind, theirs, mine))
    unknown = desk.request("bob", *of_others(kind, never, mine))

    def without_names(body: bytes) -> bytes:
        for one in (theirs, never):
            for text in (one["session_id"], one["checkpoint_id"], one["interrupts"][0]["token"]):
                body = body.replace(text.encode(), b"NAME")
        return body

    assert (found.status, without_names(found.body)) == (unknown.status, without_names(unknown.body))
    if kind != "an inbox":
        assert found.status in (403, 404, 409, 422)
    else:
        assert found.status == 404 or found.json["questions"] == []
    for who, one in (("ann", theirs), ("bob", mine)):
        still = desk.request(who, "GET", f"/api/v1/sessions/{one['session_id']}").json
        assert (still["status"], still["checkpoint_id"]) == ("waiting", one["checkpoint_id"])


def test_no_list_and_no_place_in_one_shows_what_others_have(desk: Desk):  # rule V7, attacks 2 and 3
    theirs = desk.paused()
    for who in ("ann", "admin"):
        assert desk.request(who, "GET", f"/api/v1/inbox?session_id={theirs['session_id']}").json["questions"]
    cursors = {
        route: desk.request("ann", "GET", f"/api/v1/{route}?limit=1").json["next"] for route in ("inbox", "sessions")
    }
    asked = theirs["interrupts"][0]
    for query in (
        f"agent=booker&reason={asked['reason']}",
        f"under={quote(asked['address'])}",
        "older_than=0",
        "reason=' OR 1=1 --",
        "tag=%25",
        "under=*",
        "agent=%00",
    ):
        reply = desk.request("bob", "GET", f"/api/v1/inbox?limit=1000&{query.replace(' ', '%20')}")
        assert reply.status in (200, 400), (query, reply)
        assert theirs["session_id"].encode() not in reply.body
    for route, cursor in cursors.items():
        if cursor is not None:
            reply = desk.request("bob", "GET", f"/api/v1/{route}?limit=1000&after={quote(cursor)}")
            assert theirs["session_id"].encode() not in reply.body


def test_the_key_of_another_caller_gives_neither_their_answer_nor_their_turn(desk: Desk):  # rule V7, attack 3
    chat = {"agent": "booker", "message": "book Rome", "session_id": "keyed", "stream": False}

    def send(who: str, path: str, data: Any) -> Any:
        headers = {"authorization": f"Bearer {desk.tokens[who]}", "idempotency-key": "the key"}
        return desk.server.post(path, data, **headers)

    first = send("ann", "/api/v1/chat", chat)
    assert send("ann", "/api/v1/chat", chat).headers["idempotent-replayed"] == "true"
    for who in ("bob", "ann for another agent"):
        reply = send(who, "/api/v1/chat", chat)
        assert (who, reply.status) == (who, 404)
        assert "idempotent-replayed" not in reply.headers
        assert first.json["checkpoint_id"].encode() not in reply.body
    cancel = "/api/v1/sessions/keyed/cancel"
    assert send("bob", cancel, {}).body == send("bob", "/api/v1/sessions/other/cancel", {}).body.replace(
        b"other", b"keyed"
    )
    assert desk.request("ann", "GET", "/api/v1/sessions/keyed").json["status"] == "waiting"


# Names that try to be more

HOSTILE = [
    "two\nlines",
    "a\r\nset-cookie: x=1\r\n\r\n<html>",
    "quotes \" and ' and \\",
    "percent %0d%0a %2e%2e%2f %",
    "../../etc/passwd",
    "/absolute//path/",
    "...",
    "a?b#c;d=e&f",
    "{hash}:tag*[x]",
    "\u2028\u2029\u0085\u202e\ufeff",
    "日本語 🙂 é",
    "nul \x00 bell \x07",
    "x" * 512,
]


@pytest.mark.parametrize("name", HOSTILE, ids=[f"name{number}" for number in range(len(HOSTILE))])
def test_a_name_stays_a_name(desk: Desk, name: str, caplog: pytest.LogCaptureFixture):  # attacks 17 and 18
    chat = {"agent": "booker", "message": "fail", "session_id": name}
    headers = {"authorization": f"Bearer {desk.tokens['ann']}"}
    with desk.server.open("POST", "/api/v1/chat", chat, **headers) as stream:
        assert stream.status == 200
        assert unquote(stream.headers["x-session-id"]) == name
        assert "set-cookie" not in stream.headers
        assert types(stream.all())[-1] == "error"
        place = stream.headers["content-location"]
    one = f"/api/v1/sessions/{quote(name, safe='')}"
    assert place == f"{one}/events"
    found = desk.request("ann", "GET", one)
    assert (found.status, found.json["session_id"], found.json["status"]) == (200, name, "failed")
    with desk.server.open("GET", place, **headers) as stream:
        assert types(stream.all())[-2:] == ["error", "caught_up"]
    assert desk.request("bob", "GET", one).status == 404
    assert desk.request("ann", "DELETE", one).status == 204
    assert desk.request("ann", "GET", one).status == 404
    assert not any("\n" in record.getMessage() for record in caplog.records)


NO_NAMES = {
    "empty": "",
    "surrogate": "\ud800",
    "longer": "x" * 513,
    "long": "x" * 10_000,
    "here": ".",  # Clients and proxies leave these two out of a path.
    "above": "..",
}


@pytest.mark.parametrize("name", NO_NAMES.values(), ids=NO_NAMES)
def test_what_is_not_a_name_is_refused(desk: Desk, name: str):  # rule C12, attacks 16 and 17
    said = [{"id": "m", "role": "user", "content": "hi"}]
    requests: list[tuple[str, Any]] = [
        ("/api/v1/chat", {"agent": "booker", "message": "hi", "session_id": name, "stream": False}),
        (f"/api/v1/sessions/{desk.paused()['session_id']}/fork", {"to": name}),
    ]
    if name not in (".", ".."):  # What can be read is refused in the stream.
        requests.append(("/api/v1/ag-ui/booker", {"threadId": name, "runId": "r", "messages": said}))
    if name.isascii() and name:
        path = f"/api/v1/sessions/{name.replace('.', '%2e')}/inputs"
        requests.append((path, {"agent": "booker", "message": "hi"}))
        requests.append(("/api/v1/sessions/dots/inputs", {"agent": "booker", "message": "hi", "id": name}))
    for path, data in requests:
        reply = desk.request("ann", "POST", path, json.dumps(data).encode())
        assert (path, reply.status) == (path, 400)
        assert reply.code in ("invalid_request", "invalid_json")
        assert len(reply.body) < 2000


TEXTS = [
    "\n\nevent: done\ndata: {}\n\n",
    "\r\rdata: {}\r\n\r\n",
    "\u2028\u2029\x85\x0b\x0c",
    "nul \x00 bell \x07",
    "id: 99\nretry: 1\n",
]


def test_what_a_model_or_a_question_says_is_data(desk: Desk):  # attack 17
    headers = {"authorization": f"Bearer {desk.tokens['ann']}"}
    for text in TEXTS:
        with desk.server.open("POST", "/api/v1/chat", {"agent": "booker", "message": f"x {text}"}, **headers) as stream:
            frames = stream.all()
        assert frames[-1].data["output"] == f"You said: x {text}"
        assert types(frames).count("done") == 1
        with desk.server.open(
            "POST", "/api/v1/chat", {"agent": "booker", "message": f"book {text}"}, **headers
        ) as stream:
            frames = stream.all()
            session_id = stream.session_id
        assert types(frames)[-1] == "interrupt"
        asked = desk.request("ann", "GET", f"/api/v1/sessions/{session_id}").json["pending"][0]
        assert asked["info"]["arguments"] == {"place": text}
        with desk.server.open("GET", "/api/v1/inbox/events", **headers) as stream:
            shown = [each.data for each in stream.until("caught_up") if each.type == "question"]
        assert [each["info"] for each in shown if each["session_id"] == session_id] == [asked["info"]]
        run = {
            "threadId": f"t{TEXTS.index(text)}",
            "runId": text,
            "messages": [{"id": "m", "role": "user", "content": text}],
        }
        with desk.server.open("POST", "/api/v1/ag-ui/booker", run, **headers) as stream:
            kinds = types(stream.all())
        assert (kinds[0], kinds[-1], kinds.count("RUN_FINISHED")) == ("RUN_STARTED", "RUN_FINISHED", 1)
