"""Forks and edits over HTTP after an approval that a node asked: they are refused, and an admin can overrule."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict

import pytest

from adjourn import ApprovalSpent, interrupt
from adjourn.client import Client
from adjourn.graph import START, StateGraph
from adjourn.server import App, Tokens

from .serving import Reply, Serving


class Refund(TypedDict, total=False):
    amount: int
    account: str
    decision: bool


def manager(state: Refund) -> Refund:
    info = {"amount": state.get("amount")}
    return {"decision": interrupt(info, prompt="Refund it?", reason="need_approval", schema=bool)}


def pay(state: Refund) -> Refund:
    if state.get("account") != "DE1":
        raise RuntimeError("there is no such account")
    return {}


class Desk:
    """A server with a graph, a token of a user and one of an admin."""

    def __init__(self, folder: Path) -> None:
        file = Tokens(folder / "tokens.json")
        self.tokens = {"ann": file.create("ann")[1], "ada": file.create("ada", roles=["admin"])[1]}
        graph = StateGraph(Refund, name="desk").add_sequence(manager, pay).add_edge(START, "manager").compile()
        self.server = Serving(App([graph], tokens=file))

    def post(self, who: str, path: str, data: Any) -> Reply:
        return self.server.post(path, data, authorization=f"Bearer {self.tokens[who]}")

    def approved(self) -> tuple[str, str]:
        """A session of ann's in which a refund was approved and failed, and the checkpoint where it was asked."""
        paused = self.post("ann", "/api/v1/chat", {"agent": "desk", "message": {"amount": 9}, "stream": False}).json
        answer = {"session_id": paused["session_id"], "answer": True, "stream": False}
        assert self.post("ann", "/api/v1/chat/resume", answer).json["status"] == "failed"
        return f"/api/v1/sessions/{paused['session_id']}", paused["checkpoint_id"]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    made = Desk(tmp_path_factory.mktemp("desk"))
    with made.server:
        yield made


def test_a_fork_after_the_approval_is_refused(desk: Desk):  # rule R19
    session, asked_at = desk.approved()
    refused = desk.post("ann", f"{session}/fork", {})
    assert (refused.status, refused.code) == (409, "approval_spent")
    facts = refused.json["error"]
    assert (facts["asked_at"], facts["pending"]) == (asked_at, ["manager"])
    assert facts["approvals"] == ["runnable:desk;node:manager"]
    assert "recover goes on" in facts["hint"]


def test_a_checkpoint_and_again_are_for_admins(desk: Desk):  # rule R19
    session, asked_at = desk.approved()
    for body in ({"checkpoint_id": asked_at}, {"again": True}):
        refused = desk.post("ann", f"{session}/fork", body)
        assert (refused.status, refused.code) == (403, "forbidden")
        assert "It is for admins." in refused.json["error"]["hint"]
        assert desk.post("ada", f"{session}/fork", body).status == 201


def test_an_admin_edits_at_the_head_and_lets_it_count_again(desk: Desk):  # rule R19
    session, asked_at = desk.approved()
    old = desk.post("ada", f"{session}/edit", {"values": {"account": "DE2"}}).json
    assert old["next"] == ["pay"], "a repair is not asked about"
    assert desk.post("ada", f"{session}/edit", {"values": {"amount": 10}}).json["next"] == ["manager"]
    body = {"values": {"account": "DE1"}, "checkpoint_id": old["id"]}
    refused = desk.post("ada", f"{session}/edit", body)
    assert (refused.code, refused.json["error"]["asked_at"]) == ("approval_spent", asked_at)
    assert desk.post("ada", f"{session}/edit", {**body, "again": True}).json["next"] == ["pay"]
    audit = desk.server.get(f"{session}/audit", authorization=f"Bearer {desk.tokens['ada']}").json
    assert [(entry["inherited"], entry["again"]) for entry in audit["entries"]] == [(True, True)]


async def test_the_client_raises_it(desk: Desk):  # rule R19
    session, asked_at = desk.approved()
    session_id = session.rpartition("/")[2]
    url = f"http://127.0.0.1:{desk.server.server.port}"
    async with Client(url, token=desk.tokens["ada"]) as client:
        with pytest.raises(ApprovalSpent) as refused:
            await client.fork(session_id)
        assert (refused.value.asked_at, refused.value.pending) == (asked_at, ("manager",))
        point = (await client.status(session_id)).checkpoint_id
        await client.edit(session_id, {"account": "DE2"})
        with pytest.raises(ApprovalSpent):
            await client.edit(session_id, {"account": "DE1"}, checkpoint_id=point)
        await client.edit(session_id, {"account": "DE1"}, checkpoint_id=point, again=True)
        fork = await client.fork(session_id, again=True)
        (entry,) = await client.audit(fork)
        assert entry.again
