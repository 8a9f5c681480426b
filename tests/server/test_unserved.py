"""Sessions of agents that are not served any more: they can be read, cancelled and deleted, and nothing else.

Their questions are not in the inbox, since nobody could answer them there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adjourn.server import App, Tokens

from .agents import booker, counter
from .serving import Serving, store_url
from .test_access import Desk

READ = [
    "",
    "/messages",
    "/audit",
    "/inputs",
    "/checkpoints",
    "/checkpoints/POINT",
    "/tree",
    "/state",
    "/diff?a=POINT&b=POINT",
]


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres", "redis"])
def test_they_are_read_cancelled_and_deleted(kind: str, tmp_path: Path):  # rule V7
    file = Tokens(tmp_path / "tokens.json")
    tokens = {
        "ann": file.create("ann")[1],
        "bob": file.create("bob")[1],
        "ann for this agent": file.create("ann", agents=["book*"])[1],
        "ann for another agent": file.create("ann", agents=["count*"])[1],
    }
    app = App([booker(), counter()], store=store_url(kind, tmp_path), tokens=file)
    with Serving(app) as server:
        desk = Desk(server, tokens, file)
        paused: Any = desk.paused()
        path = f"/api/v1/sessions/{paused['session_id']}"
        reads = [f"{path}{each.replace('POINT', paused['checkpoint_id'])}" for each in READ]

        def seen(who: str) -> list[Any]:
            found = [desk.request(who, "GET", read).json for read in reads]
            return [{**each, "state": "state" in each} for each in found]  # Its types are known to the program alone.

        served = seen("ann")
        app.replace([counter()])
        for who in ("ann", "ann for this agent"):
            assert seen(who) == served
        with server.events(paused["session_id"], authorization=f"Bearer {tokens['ann']}") as stream:
            assert "interrupt" in [frame.type for frame in stream.all()]
        for who in ("bob", "ann for another agent"):
            assert {desk.request(who, "GET", read).status for read in reads} == {404}
            assert desk.request(who, "POST", f"{path}/cancel", {}).status == 404
            assert desk.request(who, "DELETE", path).status == 404
        token = paused["interrupts"][0]["token"]
        for goes_on, body in {
            f"{path}/answers": {"answers": {token: "yes"}},
            "/api/v1/chat/resume": {"session_id": paused["session_id"], "answer": "yes"},
            f"{path}/recover": {},
            f"{path}/fork": {},
        }.items():
            reply = desk.request("ann", "POST", goes_on, body)
            assert (reply.status, reply.code) == (409, "program_changed")
        assert desk.request("ann", "POST", f"{path}/cancel", {}).json["cancelled"] is True
        found = desk.request("ann", "GET", path).json
        assert (found["status"], [each["id"] for each in found["pending"]]) == ("cancelled", [token.partition("~")[0]])
        assert desk.request("ann", "POST", f"{path}/cancel", {}).json["cancelled"] is False
        app.replace([booker()])
        # The question has kept the token under which people have seen it.
        resume = {"session_id": paused["session_id"], "answers": {token: "yes"}, "stream": False}
        assert desk.request("ann", "POST", "/api/v1/chat/resume", resume).json["output"] == "Result: booked: Rome"
        app.replace([counter()])
        assert desk.request("ann", "DELETE", path).status == 204
        assert desk.request("ann", "GET", path).status == 404


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres", "redis"])
def test_their_questions_are_not_in_the_inbox(kind: str, tmp_path: Path):  # rule V7
    app = App([booker(), counter()], store=store_url(kind, tmp_path))
    with Serving(app) as server:
        booking = {"agent": "booker", "message": "book Rome", "stream": False}
        ids = [server.post("/api/v1/chat", booking).json["session_id"] for _ in range(3)]

        def listed(query: str = "") -> list[str]:
            return [each["session_id"] for each in server.get(f"/api/v1/inbox?{query}").json["questions"]]

        def streamed() -> list[str]:
            with server.open("GET", "/api/v1/inbox/events") as stream:
                return [frame.data["session_id"] for frame in stream.until("caught_up") if frame.type == "question"]

        assert (listed(), streamed(), listed("under=agent:booker")) == (ids, ids, ids)
        app.replace([counter()])
        assert (listed(), streamed(), listed(f"session_id={ids[0]}"), listed("under=agent:booker")) == ([], [], [], [])
        app.replace([booker()])
        assert listed("under=agent:booker%3Btool:book_ticket:c1&limit=2") == ids[:2]
        assert listed("under=agent:booker%3Btool:other") == []
