"""The examples of the API page that need no agent, as they are written there."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import pytest

from adjourn import AnswerWith, Runner, current, interrupt, once, workflow
from adjourn.graph import END, START, Command, MessagesState, StateGraph, append

charged: list[tuple[str, int]] = []


@once
async def charge(card: str, cents: int) -> str:
    charged.append((card, cents))
    return "receipt"


@workflow
async def refund(order: str) -> dict[str, Any]:
    receipt = await charge("…", 100)
    first = interrupt({"order": order}, key="manager", reason="need_approval", prompt="Manager: ok?", schema=bool)
    second = interrupt("Director: ok?", key="director", schema=bool, expires_in=timedelta(days=7))
    return {"receipt": receipt, "ok": first and second}


async def test_asking_for_anything():  # api: example 2
    charged.clear()
    runner = Runner(refund, store="memory://")
    result = await runner.run("o1", session_id="s1")
    (asked,) = result.interrupts
    assert (asked.key, asked.reason, asked.prompt, asked.info) == (
        *("manager", "need_approval", "Manager: ok?", {"order": "o1"}),
    )
    result = await runner.resume("s1", {"manager": True}, by="ann@example.org")
    assert result.interrupts[0].prompt == "Director: ok?"
    result = await runner.resume("s1", {"director": True})
    assert result.value == {"receipt": "receipt", "ok": True}
    assert charged == [("…", 100)]


class Review(MessagesState):
    drafts: Annotated[list[str], append]
    approved: bool


async def write(state: Review) -> dict[str, Any]:
    return {"drafts": [f"draft {len(state['drafts']) + 1}"]}


def approve(state: Review) -> Command:
    ok = interrupt({"draft": state["drafts"][-1]}, key="approval", schema=bool)
    return Command(update={"approved": ok}, goto=END if ok else "write")


async def test_a_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # api: example 3
    monkeypatch.chdir(tmp_path)
    graph = (
        StateGraph(Review, name="review")
        .add_node("write", write)
        .add_node("approve", approve)
        .add_edge(START, "write")
        .add_edge("write", "approve")
        .compile(store="sqlite:///review.db")
    )
    result = await graph.run({"user_input": "a poem"}, session_id="r1")
    assert [asked.info for asked in result.interrupts] == [{"draft": "draft 1"}]
    assert result.state["drafts"] == ["draft 1"]
    result = await graph.resume("r1", {"approval": True}, checkpoint_id=result.checkpoint_id)
    assert (result.status, result.state["approved"]) == ("done", True)

    history = await graph.history("r1")
    assert [point.source for point in history] == ["end", "resume", "interrupt", "step", "input"]
    point = await graph.edit("r1", {"drafts": ["better"]}, checkpoint_id=history[2].id, as_node="write")
    result = await graph.run(None, session_id="r1", checkpoint_id=point.id)
    assert [asked.info for asked in result.interrupts] == [{"draft": "better"}]
    assert result.state["drafts"] == ["draft 1", "better"]
    tree = str(await graph.tree("r1"))
    assert all(each.id in tree for each in history)
    assert point.id in tree
    assert graph.draw()
    await graph.store.close()


async def test_a_director_who_is_late():  # api: example 2, with a default
    @workflow
    async def flow() -> Any:
        return interrupt("Director: ok?", key="director", schema=bool, expires_in=60, on_expire=AnswerWith(False))

    (asked,) = (await Runner(flow).run()).interrupts
    assert asked.created is not None
    assert asked.expires == asked.created + timedelta(seconds=60)
    assert asked.choices == (True, False)


async def test_the_context_is_where_the_code_is():  # api: current()
    @workflow
    async def flow() -> Any:
        return str(current().address)

    assert (await Runner(flow).run()).output == "runnable:flow"
