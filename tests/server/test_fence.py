"""What web pages make browsers send: to names that are not the server's, and from other origins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from adjourn import UsageError
from adjourn.server import App

from .agents import booker
from .serving import Serving

DESK = "https://desk.example.com"
CHAT = {"message": "hello", "stream": False}


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    with Serving(App([booker()], hosts=["api.example.com"], origins=[DESK])) as serving:
        yield serving


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "LOCALHOST", "[::1]:8000", "192.0.2.7", "api.example.com:443"])
def test_the_names_of_the_server_are_let_through(server: Serving, host: str):
    assert server.get("/api/v1/agents", host=host).status == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8000", "localhost.evil.example", "", "[::1"])
def test_a_name_that_was_made_to_lead_here_is_refused(server: Serving, host: str):  # attack 13: DNS rebinding
    for path in ("/api/v1/agents", "/healthz"):
        reply = server.get(path, host=host)
        assert (reply.status, reply.code) == (421, "unknown_host")


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://127.0.0.1", "https://desk.example.com.evil.example", "http://[x"]
)
def test_pages_of_other_origins_are_refused(server: Serving, origin: str):  # attacks 13 and 14
    before = len(server.get("/api/v1/sessions?limit=1000").json["sessions"])
    for method, path, data in (("GET", "/api/v1/sessions", None), ("POST", "/api/v1/chat", CHAT)):
        reply = server.request(method, path, data, origin=origin)
        assert (reply.status, reply.code) == (403, "foreign_origin")
        assert "access-control-allow-origin" not in reply.headers
    preflight = server.request("OPTIONS", "/api/v1/chat", origin=origin, access_control_request_method="POST")
    assert preflight.status == 403
    assert len(server.get("/api/v1/sessions?limit=1000").json["sessions"]) == before


def test_a_form_without_a_body_is_refused(server: Serving):  # attack 13: what takes no body has no content type either
    session_id = server.post("/api/v1/chat", {"message": "book Rome", "stream": False}).json["session_id"]
    for headers in (
        {"origin": "https://evil.example"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ):
        reply = server.request("POST", f"/api/v1/sessions/{session_id}/cancel", b"", **headers)
        assert (reply.status, reply.code) == (403, "foreign_origin")
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        assert server.request("POST", "/api/v1/chat", CHAT, content_type=kind).status == 415
    assert server.get(f"/api/v1/sessions/{session_id}").json["status"] == "waiting"


def test_pages_of_the_server_and_of_allowed_origins_may_use_it(server: Serving):  # rule V1
    own = server.post(
        "/api/v1/chat", CHAT, origin=f"http://127.0.0.1:{server.server.port}", sec_fetch_site="same-origin"
    )
    assert own.status == 200
    reply = server.post("/api/v1/chat", CHAT, origin=DESK, sec_fetch_site="cross-site")
    assert (reply.status, reply.headers["access-control-allow-origin"]) == (200, DESK)
    assert "x-session-id" in reply.headers["access-control-expose-headers"].lower()
    assert "access-control-allow-credentials" not in reply.headers
    asked: dict[str, Any] = {
        "access_control_request_method": "POST",
        "access_control_request_headers": "authorization, content-type, last-event-id, idempotency-key",
    }
    assert server.request("OPTIONS", "/api/v1/chat", origin=DESK, **asked).status == 200


def test_every_answer_tells_browsers_to_show_and_keep_nothing(server: Serving):  # rule V7
    for path, host in (("/healthz", "127.0.0.1"), ("/nowhere", "127.0.0.1"), ("/", "evil.example")):
        headers = server.get(path, host=host).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert (headers["x-frame-options"], headers["referrer-policy"]) == ("DENY", "no-referrer")
        assert (headers["cache-control"], headers["cross-origin-resource-policy"]) == ("no-store", "same-origin")
    with server.chat(message="hello") as stream:
        assert stream.headers["cache-control"] == "no-cache, no-transform"
        assert stream.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("origin", ["desk.example.com", "https://desk.example.com/", "*"])
def test_what_is_not_an_origin_is_refused(origin: str):
    with pytest.raises(UsageError, match="is not an origin"):
        App([booker()], origins=[origin])
