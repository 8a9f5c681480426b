"""The public types as users see them: pyright checks this file with all others (`make check`); nothing runs it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, NoReturn, assert_type

import msgspec

from adjourn import (
    Address,
    AnswerWith,
    ChatModel,
    Checkpoint,
    Event,
    Interrupt,
    Interrupted,
    Message,
    OpenAIChatModel,
    Retry,
    Run,
    RunContext,
    Runner,
    RunResult,
    Tool,
    ToolCall,
    Usage,
    current,
    interrupt,
    once,
    raise_interrupt,
    session_value,
    session_values,
    tool,
    workflow,
)
from adjourn.context import Outcome
from adjourn.events import from_json, to_json
from adjourn.graph import END, START, Command, CompiledGraph, MessagesState, StateGraph, add_messages, append
from adjourn.models import Chunk, DemoModel, ModelRequest, generate, resolve_model, stream
from adjourn.runner import SessionStatus
from adjourn.stores import MemoryStore, SQLiteStore, Store, open_store
from adjourn.testing import FakeClock, FunctionModel, ScriptedModel, count_ids
from adjourn.tools import approved, follow_up, reviewed
from adjourn.workflows import Workflow


class Decision(msgspec.Struct):
    approved: bool


class Review(MessagesState):
    drafts: Annotated[list[str], append]
    approved: bool


# Asking


def ask() -> None:
    assert_type(interrupt("ok?", schema=bool), bool)
    assert_type(interrupt("how many?", key="n", schema=int, expires_in=timedelta(days=1)), int)
    assert_type(interrupt({"draft": "x"}, schema=Decision), Decision)
    assert_type(interrupt("which?", schema=list[str]), list[str])
    assert_type(interrupt("anything", on_expire=AnswerWith(1)), Any)
    assert_type(interrupt("anything", schema={"type": "string"}), Any)
    assert_type(interrupt("one of two", schema=Literal["a", "b"]), Any)


def steer() -> NoReturn:
    raise_interrupt("by hand", state={"n": 1})


# Kept calls keep their signature


@once
def add(a: int, b: int = 2) -> int:
    return a + b


@once
async def charge(card: str, *, cents: int) -> str:
    return f"{card} {cents}"


def order_of(order: str) -> str:
    return order


@once(name="pay", key=order_of)
async def pay(order: str) -> Decision:
    return Decision(approved=bool(order))


async def keep() -> None:
    assert_type(add(1), int)
    assert_type(await charge("c", cents=1), str)
    assert_type(await pay("o"), Decision)
    add("1")  # pyright: ignore[reportArgumentType]
    charge("c")  # pyright: ignore[reportCallIssue]


# Programs


@workflow
async def trip(to: str) -> dict[str, Any]:
    return {"to": to}


@workflow(name="other")
async def other(to: str) -> str:
    return to


async def write(state: Review) -> dict[str, Any]:
    return {"drafts": [state["user_input"]]}


def approve(state: Review) -> Command:
    ok = interrupt({"draft": state["drafts"][-1]}, schema=bool)
    return Command(update={"approved": ok}, goto=END if ok else "write")


def build() -> CompiledGraph:
    graph = StateGraph(Review, name="review")
    assert_type(graph.add_node("write", write, retry=Retry(attempts=2), timeout=1.0), StateGraph)
    assert_type(graph.add_node(approve).add_edge(START, "write").add_edge("write", "approve"), StateGraph)
    compiled = graph.compile(store="sqlite:///review.db", durability="async", max_steps=10)
    assert_type(compiled, CompiledGraph)
    assert_type(compiled.draw(), str)
    return compiled


def programs() -> None:
    assert_type(trip, Workflow)
    assert_type(other, Workflow)
    Runner(trip, store=MemoryStore(), lease_ttl=1.0, clock=FakeClock(), new_id=count_ids("s"))
    Runner(build(), durability="never")  # pyright: ignore[reportArgumentType]
    Runner(build(), stores=None)  # pyright: ignore[reportCallIssue]


# Models, by shape


class Whole:
    async def generate(self, request: ModelRequest) -> Message:
        return Message.assistant(request.messages[-1].text)


class Pieces:
    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        yield Chunk(text=request.messages[-1].text)


def models() -> list[ChatModel]:
    call = ToolCall(id="c1", name="book")
    scripted = ScriptedModel(["hi", call, [call], Message.assistant("hi"), ValueError("x"), lambda request: "hi"])
    resolve_model(3)  # pyright: ignore[reportArgumentType]
    return [Whole(), Pieces(), OpenAIChatModel("m"), DemoModel(), scripted, FunctionModel(lambda request: call)]


async def ask_models() -> None:
    request = ModelRequest(messages=[Message.user("hi")])
    assert_type(await generate(resolve_model("openai:gpt-5"), request), Message)
    assert_type(stream(Whole(), request), AsyncIterator[Chunk])


# Running


async def run(runner: Runner, graph: CompiledGraph) -> None:
    assert_type(runner.run("hello", session_id="s", values={"a": 1}), Run)
    assert_type(await runner.run("hello"), RunResult)
    assert_type(await graph.run({"user_input": "x"}, session_id="s"), RunResult)
    assert_type(await graph.resume("s", {"approval": True}, by="ann"), RunResult)
    assert_type(await graph.resume("s", ["id"]), RunResult)
    assert_type(await graph.recover("s"), RunResult)
    assert_type(await graph.attach("s", after=3), RunResult)
    assert_type(await graph.invoke({"user_input": "x"}), Any)
    assert_type(graph.run_sync({}, session_id="s"), RunResult)
    assert_type(graph.resume_sync("s", {"a": 1}), RunResult)
    assert_type(graph.recover_sync("s"), RunResult)
    graph.run({}, on_pending="never")  # pyright: ignore[reportArgumentType]


async def read(run: Run) -> None:
    async for event in run:
        assert_type(event, Event)
        match event:
            case Interrupted(interrupts=[asked, *_]):
                assert_type(asked, Interrupt)
                assert_type(asked.id, str)
                assert_type(asked.expires, datetime | None)
            case _:
                pass
        assert_type(to_json(event), bytes)
    for event in run:
        assert_type(event, Event)
    async for text in run.text():
        assert_type(text, str)
    async with run as same:
        assert_type(same, Run)
    assert_type(run.session_id, str)
    assert_type(run.detach(), None)
    assert_type(await run.cancel("after_step", timeout=1), None)
    assert_type(iter(run), Iterator[Event])
    assert_type(aiter(run), AsyncGenerator[Event, None])
    assert_type(from_json(b"{}"), Event)


def results(result: RunResult) -> None:
    assert_type(result.status, Literal["done", "interrupted", "cancelled"])
    assert_type(result.output, str)
    assert_type(result.value, Any)
    assert_type(result.messages, tuple[Message, ...])
    assert_type(result.message, Message | None)
    assert_type(result.interrupts, tuple[Interrupt, ...])
    assert_type(result.usage, Usage)
    assert_type(result.checkpoint_id, str | None)


async def look(graph: CompiledGraph) -> None:
    assert_type(await graph.pending(), list[Interrupt])
    assert_type(await graph.status("s"), SessionStatus)
    assert_type((await graph.status("s")).status, Literal["running", "waiting", "failed", "cancelled", "done"])
    assert_type(await graph.sessions(limit=3), list[SessionStatus])
    assert_type(await graph.messages("s"), tuple[Message, ...])
    assert_type(await graph.history("s", limit=1), list[Checkpoint])
    assert_type(await graph.checkpoint("s"), Checkpoint)
    assert_type(await graph.edit("s", {"drafts": ["x"]}, as_node="write"), Checkpoint)
    assert_type(await graph.fork("s"), str)
    assert_type(await graph.prune("s", keep=1), int)
    assert_type(await graph.delete("s"), None)
    assert_type(await graph.cancel("s", "now"), bool)
    assert_type(str(await graph.tree("s")), str)
    assert_type((await graph.diff("s", "a", "b")).added, dict[str, Any])


# Inside a run


async def inside(ctx: RunContext, graph: CompiledGraph) -> None:
    assert_type(ctx.session_id, str)
    assert_type(ctx.user_id, str | None)
    assert_type(ctx.attempt, int)
    assert_type(ctx.idempotency_key, str)
    assert_type(ctx.was_interrupted, bool)
    assert_type(await ctx.try_run(graph, {}), Outcome)
    assert_type(current().address, Address)
    assert_type(ctx.deps, Any)
    ctx.values["a"] = 1
    assert_type(session_values()["a"], Any)
    assert_type(session_value("a"), Any)


async def with_deps(ctx: RunContext[Decision]) -> None:
    assert_type(ctx.deps, Decision)


# Messages and stores


def messages() -> None:
    assert_type(Message.system("be brief"), Message)
    assert_type(Message.user("hello"), Message)
    call = ToolCall(id="c1", name="book_ticket", arguments={"to": "Rome"})
    assert_type(Message.assistant("", tool_calls=[call]), Message)
    assert_type(Message.tool("booked", tool_call_id="c1", name="book_ticket"), Message)
    assert_type(Message.user("hello").text, str)
    assert_type(Message.user("hello").tool_calls, tuple[ToolCall, ...])
    assert_type(Message.user("hello").usage, Usage | None)
    _ = add_messages


def stores() -> None:
    kept: list[Store] = [
        MemoryStore(),
        SQLiteStore("file.db", timeout=1, synchronous="NORMAL"),
        open_store("memory://"),
    ]
    assert_type(kept[0], Store)


SIGNATURES: tuple[Callable[[int, int], int], Callable[[str], Coroutine[Any, Any, Decision]]] = (add, pay)


# Tools


@tool
def price(order: str, limit: int = 3) -> int:
    return limit


@tool(approval=True, timeout=3)
async def book(to: str) -> str:
    return to


@tool(thread=False)
async def count(to: int):
    yield str(to)


async def tools() -> None:
    assert_type(price("o1"), int)
    assert_type(await book("Bonn"), str)
    assert_type(approved(price)("o1", limit=2), int)
    assert_type(await reviewed(book)(to="Bonn"), str)
    assert_type([piece async for piece in count(3)], list[str])
    several: list[Tool] = [price, book, count, approved(price), follow_up()]
    assert_type(several[0].name, str)
    price(1)  # pyright: ignore[reportArgumentType]
    await book()  # pyright: ignore[reportCallIssue]
