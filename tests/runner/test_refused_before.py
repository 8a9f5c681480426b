"""A resume that cannot run is refused before its answers count."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from adjourn import ChatModelAgent, Runner, UsageError, current, interrupt, tool, workflow
from adjourn.errors import ProgramChanged
from adjourn.graph import START, MessagesState, StateGraph
from adjourn.messages import ToolCall
from adjourn.sessions import Sessions, SessionStatus
from adjourn.stores import SessionRef, SQLiteStore, Store
from adjourn.stores.kit import GetHead
from adjourn.testing import FunctionModel

from .programs import asking, line, step


@workflow
async def using(input: str) -> Any:
    answer = interrupt("ok?", key="q")
    return [current().deps, answer]


async def open_keys(store: Store) -> list[Any]:
    return [asked.key for asked in await Sessions(store).pending("s")]


async def test_without_the_deps_that_the_turn_began_with(store: Store) -> None:  # rule R17
    await Runner(using, store=store).run("x", session_id="s", deps="desk")
    for runner in (Runner(using, store=store), Runner(using, store=store)):
        with pytest.raises(UsageError, match="deps"):
            await runner.resume("s", {"q": 1})
        assert await open_keys(store) == ["q"]
    assert (await Runner(using, store=store).resume("s", {"q": 1}, deps="other")).value == ["other", 1]


async def test_a_turn_without_deps_needs_none(store: Store) -> None:  # rule R17
    await Runner(using, store=store).run("x", session_id="s")
    assert (await Runner(using, store=store).resume("s", {"q": 1})).value == [None, 1]
    await Runner(using, store=store).run("x", session_id="s", deps="desk")
    with pytest.raises(UsageError, match="deps"):
        await Runner(using, store=store).resume("s", {"q": 1})


async def test_recovering_and_going_back_need_them_too(store: Store) -> None:  # rule R17
    paused = await Runner(using, store=store).run("x", session_id="s", deps="desk")
    await Sessions(store).answer("s", {"q": 1})
    runner = Runner(using, store=store)
    with pytest.raises(UsageError, match="deps"):
        await runner.recover("s")
    with pytest.raises(UsageError, match="deps"):
        await runner.run(None, session_id="s", checkpoint_id=paused.checkpoint_id)
    fork = await runner.fork("s")
    with pytest.raises(UsageError, match="deps"):
        await runner.recover(fork)
    assert (await runner.recover("s", deps=2)).value == [2, 1]
    assert (await Runner(using, store=store).recover("s")).value == [2, 1]  # it is over: nothing runs


async def test_a_runner_has_deps_for_all_of_its_sessions(store: Store) -> None:  # rule R17
    await Runner(using, store=store, deps="own").run("x", session_id="s")
    with pytest.raises(UsageError, match="deps"):
        await Runner(using, store=store).resume("s", {"q": 1})
    assert (await Runner(using, store=store, deps="own").resume("s", {"q": 1})).value == ["own", 1]
    other = Runner(using, store=store, deps="own")
    await other.run("x", session_id="t", deps="given")
    assert (await other.resume("t", {"q": 2}, deps="given")).value == ["given", 2]


@pytest.mark.parametrize("kind", ["sync", "async", "partial"])
async def test_a_runner_may_make_them_for_each_session(store: Store, kind: str) -> None:
    seen: list[SessionStatus] = []

    def made(status: SessionStatus) -> str:
        seen.append(status)
        return f"for {status.session_id} of {status.user_id}"

    async def awaited(status: SessionStatus) -> str:
        return made(status)

    deps = {"sync": made, "async": awaited, "partial": partial(made)}[kind]
    await Runner(using, store=store, deps=deps).run("x", session_id="s", user_id="ann")
    result = await Runner(using, store=store, deps=deps).resume("s", {"q": 1})
    assert result.value == ["for s of ann", 1]
    assert [(each.status, [asked.key for asked in each.interrupts]) for each in seen] == [
        ("running", []),
        ("waiting", ["q"]),
    ]


FIRST = """
import asyncio, sys
from dataclasses import dataclass
from adjourn import Runner, interrupt, once, workflow
from adjourn.graph import START, StateGraph
from typing import TypedDict

{register}

class State(TypedDict, total=False):
    done: str

@once
async def make():
    return {value}

async def ask(state: State) -> State:
    kept = await make()
    return {{"done": f"{{interrupt('ok?', key='q')}} {{type(kept).__name__}}"}}

@workflow
async def asks(input):
    kept = await make()
    return f"{{interrupt('ok?', key='q')}} {{type(kept).__name__}}"

flow = Runner(asks, store=sys.argv[1])
graph = StateGraph(State, name="g").add_node("ask", ask).add_edge(START, "ask").compile(store=sys.argv[1])

async def main():
    try:
        result = await ({call})
        print(result.status, result.state and result.state.get("done"))
    except Exception as error:
        print(type(error).__name__, error)

asyncio.run(main())
"""
BOX = """
from adjourn import stored
@stored("box")
@dataclass
class Box:
    n: int
"""


def run_script(url: str, **parts: str) -> str:
    code = FIRST.format(**parts)
    done = subprocess.run([sys.executable, "-c", code, url], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_without_a_class_that_is_stored(tmp_path: Path) -> None:  # rule R17
    url = f"sqlite:///{tmp_path}/s.db"
    assert run_script(url, register=BOX, value="Box(1)", call="graph.run({}, session_id='s')").startswith("interrupted")
    told = run_script(url, register="", value="1", call="graph.resume('s', {'q': 'yes'})")
    assert told.startswith("ProgramChanged")
    assert "'box'" in told
    store = SQLiteStore(tmp_path / "s.db")
    assert [asked.key for asked in Sessions(store).pending_sync("s")] == ["q"]
    assert run_script(url, register=BOX, value="Box(1)", call="graph.resume('s', {'q': 'yes'})") == "done yes Box"


@pytest.mark.parametrize("program", ["graph", "flow"])
def test_recovering_without_a_class_that_is_stored_claims_nothing(tmp_path: Path, program: str) -> None:  # rule R17
    url = f"sqlite:///{tmp_path}/s.db"
    started = run_script(url, register=BOX, value="Box(1)", call=f"{program}.run({{}}, session_id='s')")
    assert started.startswith("interrupted")
    store = SQLiteStore(tmp_path / "s.db")
    Sessions(store).answer_sync("s", {"q": "yes"})
    before = Sessions(store).status_sync("s")
    told = run_script(url, register="", value="1", call=f"{program}.recover('s')")
    assert told.startswith("ProgramChanged")
    assert "'box'" in told
    assert Sessions(store).status_sync("s") == before
    assert run_script(url, register=BOX, value="Box(1)", call=f"{program}.recover('s')").startswith("done")


async def test_recovering_without_the_node_that_asked_claims_nothing(store: Store) -> None:  # rules R10, R17
    await asking(store=store).run({}, session_id="s")
    await Sessions(store).answer("s", {"go": 1})
    before = await store.read(GetHead(SessionRef("s")))
    with pytest.raises(ProgramChanged, match="ask"):
        await line(("before", step("before")), name="asking", store=store).recover("s")
    assert await store.read(GetHead(SessionRef("s"))) == before
    assert (await asking(store=store).recover("s")).status == "done"


async def test_without_the_tool_in_a_tools_node(store: Store) -> None:  # rule R17
    @tool(approval=True)
    async def pay(cents: int) -> str:
        """Pay."""
        return "paid"

    @tool(approval=True, name="pay")
    async def pay_text(cents: str) -> str:
        """Pay."""
        return "paid"

    def made(*tools: Any) -> Any:
        model = FunctionModel(lambda _: ToolCall(id="c", name="pay", arguments={"cents": 5}))
        graph = StateGraph(MessagesState, name="g").add_llm_node("llm", model, "", tools)
        graph.add_tools_node("tools", tools).add_edge(START, "llm").add_edge("llm", "tools")
        return graph.compile(store=store)

    (asked,) = (await made(pay).run({"user_input": "pay"}, session_id="s")).interrupts
    for changed in (made(), made(pay_text)):
        with pytest.raises(ProgramChanged, match=r"pay|approved"):
            await changed.resume("s", {asked: True})
        assert [each.token for each in await Sessions(store).pending("s")] == [asked.token]
    assert (await made(pay).resume("s", {asked: True})).status == "done"


async def test_an_agent_that_is_gone_below_a_tool_of_another(store: Store) -> None:  # rule R17
    @tool(approval=True)
    async def pay(cents: int) -> str:
        """Pay."""
        return "paid"

    def made(*, with_inner: bool) -> Runner:
        def inner(request: Any) -> Any:
            last = request.messages[-1]
            return "ok" if last.role == "tool" else ToolCall(id="c", name="pay", arguments={"cents": 5})

        def outer(request: Any) -> Any:
            last = request.messages[-1]
            return "ok" if last.role == "tool" else ToolCall(id="d", name="Inner", arguments={"request": "pay"})

        agent = ChatModelAgent("Inner", model=FunctionModel(inner), tools=[pay])
        tools = [agent.as_tool()] if with_inner else []
        return Runner(ChatModelAgent("Outer", model=FunctionModel(outer), tools=tools), store=store)

    (asked,) = (await made(with_inner=True).run("pay", session_id="s")).interrupts
    with pytest.raises(ProgramChanged, match="Inner"):
        await made(with_inner=False).resume("s", {asked: True})
    assert [each.token for each in await Sessions(store).pending("s")] == [asked.token]
    assert (await made(with_inner=True).resume("s", {asked: True})).status == "done"
