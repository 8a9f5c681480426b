"""Agents of YAML files on the network: how they are served, and what happens when files change."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import redis as redis_py

from adjourn.errors import SpecInvalid, UsageError
from adjourn.server import App
from adjourn.stores import MemoryStore, SQLiteStore
from tests.server.serving import Serving
from tests.servers import redis
from tests.spec.folder import Folder

CHAT = "type: chat_model_agent\nmodel: python://parts:model\n"
SECOND = "from adjourn import workflow\n\n@workflow\nasync def flow(input):\n    return 'second'\n"
EVERY = 0.01


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait until something holds; a test that waits in vain is ended by its time limit."""
    while not holds():
        time.sleep(0.005)  # What a server does in its thread has no event here.


def test_an_agent_of_a_file_asks_and_goes_on(folder: Folder):  # rules V1, V2
    folder.add(
        "booker",
        """
        type: chat_model_agent
        model: python://parts:booking
        instruction: Book for {user}.
        values: {user: Ann}
        tools: [{ref: "python://parts:book", approval: true}]
        interrupt: {enabled: true}
        """,
    )
    with Serving(App([folder.load()])) as server:
        with server.chat(message="Rome", agent="booker") as stream:
            asked = stream.all()[-1]
            session = stream.headers["x-session-id"]
        assert asked.type == "interrupt"
        with server.resume(session_id=session, answer="yes") as stream:
            assert stream.all()[-1].type == "done"
        (agent,) = server.get("/api/v1/agents").json["agents"]
        assert (agent["name"], agent["interrupts"]) == ("booker", True)


def test_values_of_a_file_are_those_of_a_new_session(folder: Folder):
    folder.write(
        "told.py",
        "from adjourn.testing import FunctionModel\nmodel = FunctionModel(lambda request: request.messages[0].text)\n",
    )
    spec = "type: chat_model_agent\nmodel: python://told:model\ninstruction: '{user}'\nvalues: {user: Ann}"
    folder.add("a", spec)

    def said(**data: object) -> str:
        return server.post("/api/v1/chat", {"message": "hi", "stream": False, **data}).json["output"]

    with Serving(App([folder.load()])) as server:
        assert said() == "Ann"
        assert said(session_id="s", values={"user": "Bob"}) == "Bob"
        assert said(session_id="s") == "Bob"
        assert said(session_id="t") == "Ann"


def test_files_that_change_are_served_and_runs_go_on_as_they_began(folder: Folder, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING, "adjourn.server")
    folder.write(
        "slow.py",
        "import threading\nfrom adjourn import workflow\nbegun, goes_on = threading.Event(), threading.Event()\n\n"
        "@workflow\nasync def flow(input):\n    begun.set()\n    import asyncio\n"
        "    await asyncio.to_thread(goes_on.wait)\n    return 'first'\n",
    )
    folder.add("flow", "type: python\nref: python://slow:flow")
    loaded = folder.load().check()
    slow = folder.module("slow")
    with Serving(App([loaded], reload=EVERY)) as server:

        def agents() -> list[str]:
            return [agent["name"] for agent in server.get("/api/v1/agents").json["agents"]]

        with server.chat(message="hi", agent="flow", session_id="s") as stream:
            slow.begun.wait()
            folder.add("bad", "type: nothing")
            wait_until(lambda: "there is no type 'nothing'" in caplog.text)
            assert agents() == ["flow"]
            (folder.path / "bad.yaml").unlink()
            folder.write(
                "slow.py", "from adjourn import workflow\n\n@workflow\nasync def flow(input):\n    return 'second'\n"
            )
            folder.add("other", CHAT)
            wait_until(lambda: agents() == ["flow", "other"])
            assert (
                server.post("/api/v1/chat", {"message": "hi", "agent": "flow", "stream": False}).json["output"]
                == "second"
            )
            slow.goes_on.set()
            assert stream.all()[-1].type == "done"
        assert server.get("/api/v1/sessions/s").json["status"] == "done"
        folder.add("other", f"{CHAT}checkpoint: {{backend: memory}}")
        wait_until(lambda: "They name another store. Restart the server to use it." in caplog.text)


def test_who_was_told_of_a_mistake_is_told_once_and_when_it_is_right(
    folder: Folder, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.WARNING, "adjourn.server")
    folder.add("a", CHAT)
    with Serving(App([folder.load()], reload=EVERY)):
        aside = folder.path.rename(tmp_path / "aside")
        wait_until(lambda: "There is no folder" in caplog.text)
        time.sleep(10 * EVERY)  # more looks, each of which finds no folder
        aside.rename(folder.path)
        folder.add("b", CHAT)
        wait_until(lambda: "served as they are now" in caplog.text)
        assert caplog.text.count("There is no folder") == 1


def test_files_name_the_store(folder: Folder, tmp_path: Path):
    folder.add("a", f"{CHAT}checkpoint: {{backend: sqlite, url: 'sqlite:///{tmp_path}/x.db'}}")
    loaded = folder.load()
    assert isinstance(App([loaded]).store, SQLiteStore)
    assert isinstance(App([loaded], store="memory://").store, MemoryStore)
    store = MemoryStore()
    assert App([loaded], store=store).store is store


def test_the_time_to_live_of_redis_is_that_of_the_file(folder: Folder):  # rule V4
    url = redis().fresh()
    folder.add("a", f"{CHAT}checkpoint: {{backend: redis, url: '{url}', ttl_seconds: 3600}}")
    with Serving(App([folder.load()])) as server:
        with server.chat(message="hi", session_id="s") as stream:
            assert stream.all()[-1].type == "done"
        with cast("Any", redis_py.Redis).from_url(url, decode_responses=True) as own:
            assert "Answer to hi" in str(json.loads(own.get("checkpoint:s"))["messages"])
            assert 3500 < own.ttl("checkpoint:s") <= 3600
            own.flushdb()  # as if it were over
        assert server.post("/api/v1/chat/resume", {"session_id": "s", "answer": "yes"}).code == "checkpoint_not_found"


def test_folders_that_cannot_be_served_are_refused(folder: Folder, tmp_path: Path):
    with pytest.raises(SpecInvalid, match="there are no files"):
        App([folder.load()])
    folder.add("a", f"{CHAT}checkpoint: {{backend: memory}}")
    (tmp_path / "more").mkdir()
    other = Folder(tmp_path / "more")
    other.add("b", f"{CHAT}checkpoint: {{backend: redis}}")
    with pytest.raises(UsageError, match="share one store, but the folders name memory and redis"):
        App([folder.load(), other.load()])
    with pytest.raises(UsageError, match="stored in redis, but not where"):
        App([other.load()])
    with pytest.raises(UsageError, match="give a number of seconds above zero"):
        App([folder.load()], reload=0)
