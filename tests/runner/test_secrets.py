"""Attack 10: a secret that programs handle with little care is in no store, event, log or output."""

# ruff: noqa: ASYNC240 - the files are small

from __future__ import annotations

import html
import io
import json
import logging
from base64 import b64encode, urlsafe_b64encode
from collections.abc import AsyncIterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from adjourn import (
    ChatModelAgent,
    Runner,
    Secret,
    ToolCall,
    current,
    interrupt,
    once,
    print_event,
    set_session_value,
    tool,
    workflow,
)
from adjourn.errors import InvalidAnswer, NotStorable, UsageError
from adjourn.events import to_json
from adjourn.graph import END, START, MessagesState, StateGraph
from adjourn.middleware import LogCalls
from adjourn.models import Chunk, ModelRequest, ToolCallChunk
from adjourn.runner import Run
from adjourn.stores import SessionRef, SQLiteStore, Store
from adjourn.stores.kit import ListInputs, ListRecords
from adjourn.testing import ScriptedModel
from adjourn.tools.decisions import Edit, Respond

CANARY = "sk-live-Zürich/42&canary?"
BASE64 = b64encode(CANARY.encode()).decode()
FORMS = (
    CANARY,
    json.dumps(CANARY)[1:-1],
    json.dumps(CANARY).replace("/", r"\/")[1:-1],
    str(CANARY.encode())[2:-1],
    ascii(CANARY)[1:-1],
    html.escape(CANARY),
    quote(CANARY, safe=""),
    BASE64,
    urlsafe_b64encode(CANARY.encode()).decode(),
    CANARY.encode().hex(),
)


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> Secret:
    monkeypatch.setenv("CANARY_KEY", CANARY)
    return Secret.from_env("CANARY_KEY")


def leaks(*texts: str | bytes) -> list[str]:
    """The forms of the canary that are in what was written."""
    all_of_it = b"\n".join(text if isinstance(text, bytes) else text.encode() for text in texts)
    return [form for form in FORMS if form.rstrip("=").encode() in all_of_it]


async def follow(run: Run[Any], seen: list[bytes]) -> None:
    """Print what happens, and keep it as it would be sent."""
    async for event in run:
        seen.append(to_json(event))
        print_event(event)


class Talkative:
    """A model that repeats the key, in text and in a call's arguments, a few characters at a time."""

    def __init__(self) -> None:
        self.calls = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        self.calls += 1
        said = f"I know {CANARY} and {BASE64}, "
        for at in range(0, len(said), 5):
            yield Chunk(text=said[at : at + 5])
        if self.calls == 1:
            written = msgspec.json.encode({"note": f"with {CANARY}"}).decode()
            yield Chunk(tool_calls=(ToolCallChunk(index=0, id="c1", name="look"),))
            for at in range(0, len(written), 7):
                yield Chunk(tool_calls=(ToolCallChunk(index=0, arguments=written[at : at + 7]),))
            yield Chunk(tool_calls=(ToolCallChunk(index=1, id="c2", name="fail", arguments="{}"),))
            yield Chunk(tool_calls=(ToolCallChunk(index=2, id="c3", name="trickle", arguments="{}"),))


@once
async def remember(key: str) -> dict[str, Any]:
    return {"key": key, "nested": [f"Bearer {key}"], "bytes": key.encode(), "deep": {"deeper": (key,)}}


@tool
async def look(note: str) -> dict[str, Any]:
    """Look something up."""
    current().emit({"header": f"Bearer {CANARY}", "raw": CANARY.encode()})
    current().progress(1, 2, f"using {CANARY}")
    with pytest.raises(NotStorable, match="holds the value of a Secret"):
        await remember(CANARY)
    set_session_value("token", CANARY)
    answer = interrupt(
        {"about": CANARY}, prompt=f"May I use {CANARY}?", reason=f"because {CANARY}", tags=[CANARY], key=CANARY
    )
    written = [json.dumps([CANARY]), json.dumps(CANARY).replace("/", r"\/"), f"{CANARY!a} {CANARY.encode()}"]
    written.append(html.escape(CANARY))
    return {
        "answer": answer,
        "written": written,
        "url": f"https://x.test/?key={quote(CANARY, safe='')}",
        "authorization": BASE64,
    }


@tool
async def fail() -> str:
    """Fail."""
    raise ConnectionError(f"cannot connect with {CANARY}: {BASE64}")


@tool
async def trickle() -> AsyncIterator[str]:
    """Return the key in pieces."""
    for at in range(0, len(CANARY), 3):
        yield CANARY[at : at + 3]


async def test_an_agent_leaks_it_nowhere(tmp_path: Path, caplog: pytest.LogCaptureFixture):  # rule K5, attack 10
    caplog.set_level(logging.DEBUG)
    path, printed = tmp_path / "store.db", io.StringIO()
    store, own = SQLiteStore(path), logging.getLogger("shop.calls")
    middleware = [LogCalls(content=True), LogCalls(own, content=True)]
    agent = ChatModelAgent("A", model=Talkative(), tools=[look, fail, trickle], middleware=middleware)
    runner, seen = Runner(agent, store=store), list[bytes]()
    with redirect_stdout(printed), redirect_stderr(printed):
        await follow(runner.run(f"use {CANARY}", session_id="s", metadata={"key": CANARY}), seen)
        (asked,) = await runner.pending("s")
        with pytest.raises(InvalidAnswer):
            await runner.resume("s", {asked.id: f"yes, {CANARY}"})
        run = runner.resume("s", {asked.id: "yes"}, by=f"ann {CANARY}", message=f"It is {CANARY}.")
        await follow(run, seen)
    result = await run
    assert "I know [secret]" in str(result.output)
    assert b'"with [secret]"' in b"".join(seen)
    audit = repr(await runner.audit("s")) + repr(await runner.history("s")) + repr(await runner.state("s"))
    stored = b"".join(each.read_bytes() for each in tmp_path.iterdir())
    await store.close()
    assert leaks(stored) == []
    assert leaks(*seen) == []
    assert leaks(printed.getvalue(), audit, asked.prompt or "", repr(asked)) == []
    formatted = [logging.Formatter().format(record) for record in caplog.records]
    assert leaks(*formatted) == []


async def test_a_result_of_once_that_holds_it_is_refused(key: Secret, store: Store):  # rule K5
    """Code that is rerun would go on with something else than it got the first time."""

    @once
    async def log_in() -> dict[str, str]:
        return {"token": f"Bearer {key.reveal()}"}

    @once
    def log_in_sync() -> bytes:
        return key.reveal().encode()

    @once
    async def find_key() -> Secret:
        return key

    @workflow
    async def flow(which: str) -> str:
        found = {"log_in": log_in, "find_key": find_key}
        used = log_in_sync() if which == "log_in_sync" else await found[which]()
        interrupt("go on?")
        return str(used.reveal() == CANARY) if isinstance(used, Secret) else repr(used)

    runner = Runner(flow, store=store)
    for name in ("log_in", "log_in_sync"):
        with pytest.raises(NotStorable, match="Return the Secret itself"):
            await runner.run(name, session_id=name)
    await runner.run("find_key", session_id="s")
    assert (await runner.resume("s", {"runnable:flow": None})).output == "True"


async def test_an_answer_that_holds_it_is_refused():  # rule K5
    """A tool must not run with `[secret]` in the place of what somebody gave it."""
    ran = list[str]()

    @tool(approval=True)
    def send(token: str) -> str:
        """Send it."""
        ran.append(token)
        return "sent"

    call = ToolCall(id="c", name="send", arguments={"token": "none"})
    runner = Runner(ChatModelAgent("A", model=ScriptedModel([call, "Done."]), tools=[send]))
    await runner.run("go", session_id="s")
    (asked,) = await runner.pending("s")
    for answer in (Edit({"token": CANARY}), Respond(f"use {CANARY}")):
        with pytest.raises(InvalidAnswer, match=r"Secret\.from_env"):
            await runner.resume("s", {asked: answer})
        with pytest.raises(InvalidAnswer):
            await runner.answer("s", {asked: answer})
    assert (await runner.resume("s", {asked: Edit({"token": "other"})}, message=f"not {CANARY}")).status == "done"
    assert ran == ["other"]
    (entry,) = await runner.audit("s")
    assert entry.message == "not [secret]"


async def test_a_tool_with_its_name_is_refused():  # rule K5
    key = Secret("password")

    @tool
    def reset_password() -> str:
        """Reset it."""
        return "done"

    agent = ChatModelAgent("A", model=ScriptedModel(["Hello."]), tools=[look, reset_password])
    with pytest.raises(UsageError, match="tool 2 of 'A' holds the value of a Secret"):
        await Runner(agent).run("go")
    assert key.reveal() == "password"


class State(MessagesState):
    key: str
    parts: list[Any]


async def test_a_graph_and_a_failed_run_leak_it_nowhere(tmp_path: Path, caplog: pytest.LogCaptureFixture):  # rule K5
    path = tmp_path / "store.db"
    store, seen = SQLiteStore(path), list[bytes]()

    async def use(state: State) -> dict[str, Any]:
        return {"key": CANARY, "parts": [{"k": CANARY}, BASE64]}

    async def break_down(state: State) -> None:
        assert state["key"] == "[secret]"
        raise RuntimeError(f"refused: {CANARY}")

    builder = StateGraph(State, name="desk")
    builder.add_node("use", use)
    builder.add_node("break_down", break_down)
    builder.add_edge(START, "use")
    builder.add_edge("use", "break_down")
    builder.add_edge("break_down", END)
    graph = builder.compile(store=store)
    with pytest.raises(RuntimeError):
        await follow(graph.run({"user_input": CANARY}, session_id="s"), seen)
    state = repr(await graph.state("s"))
    await store.close()
    stored = b"".join(each.read_bytes() for each in tmp_path.iterdir())
    assert leaks(stored, *seen, state) == []
    assert leaks(*[logging.Formatter().format(record) for record in caplog.records]) == []


async def test_an_input_that_waits_for_its_turn_does_not_have_it(key: Secret, store: Store):  # rule K5

    @workflow
    async def echo(text: str) -> str:
        return text

    held = {"held": [key.reveal()]}
    runner = Runner(echo, store=store)
    for _ in range(2):  # it is the same input both times
        await runner.submit(key.reveal(), session_id="s", id="i", values=held, metadata=held, model_options=held)
    (waiting,) = await store.read(ListInputs(SessionRef("s")))
    assert leaks(waiting.body) == []
    assert (await runner.inputs("s"))[0].metadata == {"held": ["[secret]"]}
    assert (await runner.advance("s")).value == "[secret]"
    assert leaks(*[record.body for record in await store.read(ListRecords(SessionRef("s")))]) == []
