"""The public types as users see them: pyright checks this file with all others (`make check`); nothing runs it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, NoReturn, assert_type

import msgspec

import adjourn.middleware
import adjourn.models
import adjourn.stores
import adjourn.testing
from adjourn import (
    Address,
    Agent,
    AgentTool,
    AnswerWith,
    ChatModel,
    ChatModelAgent,
    Checkpoint,
    DeepAgent,
    Event,
    GraphAgent,
    Interrupt,
    Interrupted,
    Message,
    MessageEvent,
    OpenAIChatModel,
    PlanExecute,
    Retry,
    Run,
    RunContext,
    Runner,
    RunResult,
    SequentialAgent,
    Sessions,
    Supervisor,
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
from adjourn.agents import AgentInput
from adjourn.context import Outcome
from adjourn.events import from_json, to_json
from adjourn.graph import (
    END,
    START,
    Command,
    CompiledGraph,
    MessagesState,
    StateGraph,
    StateSchema,
    add_messages,
    append,
)
from adjourn.models import Chunk, DemoModel, ModelRequest, generate, resolve_model, stream
from adjourn.runner import SessionStatus
from adjourn.sessions import AuditEntry, Page, SessionSummary
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
    assert_type(interrupt("one of two", schema=Literal["a", "b"]), Literal["a", "b"])
    assert_type(interrupt("perhaps", schema=int | None), int | None)
    interrupt("?", schema=3)  # pyright: ignore[reportCallIssue, reportArgumentType]


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


class Shop:
    @once
    def stock(self, item: str) -> int:
        return len(item)

    @once(name="sell")
    async def sell(self, item: str, *, count: int = 1) -> str:
        return item * count


async def keep() -> None:
    assert_type(Shop().stock("tea"), int)
    assert_type(await Shop().sell("tea", count=2), str)
    Shop().stock(3)  # pyright: ignore[reportArgumentType]
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


def named(state: Review) -> Command[Literal["write", "approve"]]:
    Command[Literal["write"]](goto="aprove")  # pyright: ignore[reportArgumentType]
    return Command(goto="write" if state["drafts"] else ["approve"])


def build() -> CompiledGraph[Review]:
    graph = StateGraph(Review, name="review")
    assert_type(graph.add_node("write", write, retry=Retry(attempts=2), timeout=1.0), StateGraph[Review])
    assert_type(graph.add_node(approve).add_edge(START, "write").add_edge("write", "approve"), StateGraph[Review])
    compiled = graph.compile(store="sqlite:///review.db", durability="async", max_steps=10)
    assert_type(compiled, CompiledGraph[Review])
    assert_type(compiled.draw(), str)
    return compiled


def programs() -> None:
    _ = assert_type(trip("Rome"), Coroutine[Any, Any, dict[str, Any]])
    _ = assert_type(other(to="Rome"), Coroutine[Any, Any, str])
    flows: list[Workflow] = [trip, other]
    assert_type(flows[0].name, str)
    trip(1)  # pyright: ignore[reportArgumentType, reportUnusedCoroutine]
    Runner(trip, store=MemoryStore(), lease_ttl=1.0, clock=FakeClock(), new_id=count_ids("s"))
    Runner(build(), durability="never")  # pyright: ignore[reportArgumentType]
    Runner(build(), stores=None)  # pyright: ignore[reportCallIssue]


# Deps, values and states


class Bank:
    """What the code of a run needs."""


class Clerk(Agent[Bank]):
    name = "clerk"

    async def run(self, input: AgentInput, ctx: RunContext[Bank]) -> AsyncIterator[Event]:
        assert_type(ctx.deps, Bank)
        yield MessageEvent(message=Message.assistant(input.text))


async def typed_agents(model: ChatModel) -> None:
    assert_type(ChatModelAgent("a", model=model), ChatModelAgent[Any, Any])
    agent = ChatModelAgent("a", model=model, output_type=Decision)
    assert_type(agent, ChatModelAgent[Any, Decision])
    assert_type(ChatModelAgent("a", model=model, output_type=list[int] | None), ChatModelAgent[Any, list[int] | None])
    result = await Runner(agent).run("hi")
    assert_type(result.value, Decision)
    assert_type(result.output, str)
    given: RunResult[Decision] = result
    run: Run[Decision] = Runner(agent).run("hi")
    _ = (given, run)

    banker = ChatModelAgent[Bank, Decision]("b", model=model, output_type=Decision, sub_agents=[Clerk()])
    runner = Runner(banker, deps=Bank())
    assert_type(runner, Runner[Bank, Decision, Any])
    Runner(banker, deps=lambda status: Bank())
    assert_type(runner.run_sync("hi", deps=Bank()).value, Decision)
    Runner(banker, deps=3)  # pyright: ignore[reportArgumentType]
    runner.run("hi", deps=3)  # pyright: ignore[reportArgumentType]
    runner.resume_sync("s", deps=3)  # pyright: ignore[reportArgumentType]

    assert_type(SequentialAgent("s", agents=[banker, Clerk()]), SequentialAgent[Bank, Any])
    assert_type(
        Supervisor("s", model=model, agents=[Clerk()], output_type=Decision, max_iterations=3),
        Supervisor[Bank, Decision],
    )
    assert_type(DeepAgent("d", model=model, agents=[Clerk()]), DeepAgent[Bank, Any])
    assert_type(PlanExecute("p", planner=model, executor=Clerk(), replanner=model), PlanExecute[Bank])
    assert_type(AgentTool(agent), Tool)
    assert_type(agent.as_tool(full_history=True), Tool)
    agent.as_tool(nme="x")  # pyright: ignore[reportCallIssue]
    Supervisor("s", model=model, agents=[agent], outputs=Decision)  # pyright: ignore[reportCallIssue]
    DeepAgent("d", model=model, max_iteration=3)  # pyright: ignore[reportCallIssue]


class Account:
    cents: int = 0


async def typed_graphs(graph: CompiledGraph[Review]) -> None:
    result = await graph.run({"user_input": "x"})
    assert_type(result.state, Review)
    assert_type(result.state["drafts"], list[str])
    assert_type(result.value, None)
    assert_type(GraphAgent("g", graph).name, str)
    assert_type((await Runner(graph).run({})).state, Review)
    by_field = StateGraph(StateSchema().add_field("a", int)).compile()
    assert_type((await by_field.run({"a": 1})).state, dict[str, Any])
    by_class = StateGraph(Account).add_node("a", lambda account: {"cents": account.cents}).compile()
    assert_type((await by_class.run({})).state, Account)
    StateGraph(Review).add_node("far", lambda state, ctx: {"approved": ctx.attempt > 1})
    StateGraph(Account).add_node(write)  # pyright: ignore[reportArgumentType]
    StateGraph(Account).add_conditional_edges("a", write)  # pyright: ignore[reportArgumentType]
    StateGraph(Review).add_node("a", write, retries=3)  # pyright: ignore[reportCallIssue]
    assert_type(graph.invoke_sync({"user_input": "x"}, max_steps=3), Review)
    await graph.invoke({}, max_step=3)  # pyright: ignore[reportCallIssue]
    graph.run_sync({}, sesion_id="s")  # pyright: ignore[reportCallIssue]
    graph.status_sync("s", user=3)  # pyright: ignore[reportCallIssue]


async def children(graph: CompiledGraph[Review], agent: ChatModelAgent[Any, Decision]) -> None:
    assert_type(await current().run(trip, "Rome"), dict[str, Any])
    assert_type(await current().run(graph, {}), Review)
    assert_type(await current().run(agent, "hi"), Decision)
    await current().run(write)  # pyright: ignore[reportArgumentType]


def twins(sessions: Sessions, runner: Runner[Any, str]) -> None:
    assert_type(sessions.status_sync("s"), SessionStatus)
    assert_type(sessions.pending_sync("s"), Page[Interrupt])
    assert_type(runner.decisions_sync(by="ann", limit=3), Page[AuditEntry])
    sessions.decisions_sync(how="abandoned")  # pyright: ignore[reportArgumentType]
    assert_type(sessions.history_sync("s", limit=1), list[Checkpoint])
    assert_type(sessions.answer_sync("s", {"a": 1}, by="ann"), SessionSummary)
    assert_type(runner.recover_sync("s").value, str)
    assert_type(runner.cancel_sync("s", "now"), bool)
    assert_type(runner.edit_sync("s", {"a": 1}), Checkpoint)
    runner.run_sync("hi", on_pending="never")  # pyright: ignore[reportArgumentType]
    sessions.fork_sync("s", too="t")  # pyright: ignore[reportCallIssue]


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


async def run(runner: Runner, graph: CompiledGraph[Review]) -> None:
    assert_type(runner.run("hello", session_id="s", values={"a": 1}), Run)
    assert_type(await runner.run("hello"), RunResult)
    assert_type(await graph.run({"user_input": "x"}, session_id="s"), RunResult[None, Review])
    assert_type(await graph.resume("s", {"approval": True}, by="ann"), RunResult[None, Review])
    assert_type(await graph.resume("s", ["id"]), RunResult[None, Review])
    assert_type(await graph.recover("s"), RunResult[None, Review])
    assert_type(await graph.attach("s", after=3), RunResult[None, Review])
    assert_type(await graph.invoke({"user_input": "x"}), Review)
    assert_type(graph.run_sync({}, session_id="s"), RunResult[None, Review])
    assert_type(graph.resume_sync("s", {"a": 1}), RunResult[None, Review])
    assert_type(graph.recover_sync("s"), RunResult[None, Review])
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
    assert_type(await graph.pending(), Page[Interrupt])
    assert_type(await graph.decisions(how="expired"), Page[AuditEntry])
    assert_type(await graph.status("s"), SessionStatus)
    assert_type(
        (await graph.status("s")).status, Literal["queued", "running", "waiting", "failed", "cancelled", "done"]
    )
    assert_type(await graph.sessions(limit=3), Page[SessionStatus])
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


# Names that do not exist


def misspelt() -> None:
    _ = StateGraph(Review).add_nod  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
    _ = adjourn.Runer  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
    _ = adjourn.middleware.Sumarize  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
    _ = adjourn.models.DemoModels  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
    _ = adjourn.stores.SqliteStore  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
    _ = adjourn.testing.ScriptModel  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
