"""Middleware: hooks around an agent, its model calls and its tool calls, each of which may ask."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from msgspec.structs import replace

from adjourn import (
    ChatModelAgent,
    Delta,
    Message,
    MessageEvent,
    Middleware,
    Retry,
    Retrying,
    RunContext,
    Runner,
    SequentialAgent,
    UsageError,
    interrupt,
    session_value,
    set_session_value,
    tool,
)
from adjourn.errors import ModelError
from adjourn.events import Event
from adjourn.middleware import AgentEnd, ModelState, Setup, ToolRequest
from adjourn.models import Chunk, ModelRequest
from adjourn.stores import Store
from adjourn.testing import FunctionModel

from .crew import ask, call, chat, events_of, ids, kinds, model_of, note, said, seen


class Traced(Middleware):
    """Notes each hook, under a name of its own."""

    def __init__(self, name: str, log: list[str]) -> None:
        self._name = name
        self.log = log

    @property
    def name(self) -> str:
        return self._name

    def before_agent(self, setup: Setup) -> Setup:
        self.log.append(f"{self.name} before_agent")
        return setup

    async def after_agent(self, end: AgentEnd) -> None:
        self.log.append(f"{self.name} after_agent {end.output}")

    def before_model(self, state: ModelState, ctx: RunContext) -> ModelState:
        self.log.append(f"{self.name} before_model {len(state.messages)}")
        return state

    async def after_model(self, state: ModelState, ctx: RunContext) -> ModelState:
        self.log.append(f"{self.name} after_model {len(state.messages)}")
        return state

    async def wrap_model(self, call: Any, request: ModelRequest) -> Message:
        self.log.append(f"{self.name} wrap_model")
        message = await call(request)
        self.log.append(f"{self.name} wrapped_model")
        return message

    async def wrap_tool(self, call: Any, request: ToolRequest) -> Any:
        self.log.append(
            f"{self.name} wrap_tool {request.tool} {request.call_id} {dict(request.arguments)} {request.agent}"
        )
        result = await call(request)
        self.log.append(f"{self.name} wrapped_tool {result}")
        return result


class Shortening(Middleware):
    """Asks for something else when the model has failed."""

    async def wrap_model(self, call: Any, request: ModelRequest) -> Message:
        try:
            return await call(request)
        except ModelError:
            return await call(replace(request, messages=request.messages[-1:]))


async def test_a_wrapper_may_ask_for_something_else_after_a_failure(store: Store) -> None:  # rule A9
    agent = chat("A", "1", ModelError("too much"), "2", middleware=[Shortening()])
    runner = Runner(agent, store=store)
    await runner.run("one", session_id="s")
    assert (await runner.run("two", session_id="s")).output == "2"
    assert [[m.text for m in request.messages] for request in model_of(agent).requests[1:]] == [
        ["one", "1", "two"],
        ["two"],
    ]


async def test_the_first_is_outermost_in_every_hook(store: Store) -> None:  # rule A9
    log: list[str] = []
    agent = chat("A", call("note", text="x"), "end", tools=[note], middleware=[Traced("in", log)])
    await Runner(agent, store=store, middleware=[Traced("out", log)]).run("go", session_id="s")
    turn = ["out wrap_model", "in wrap_model", "in wrapped_model", "out wrapped_model"]
    used = "note c1 {'text': 'x'} A"
    assert log == [
        *("out before_agent", "in before_agent"),
        *("out before_model 1", "in before_model 1", *turn, "in after_model 2", "out after_model 2"),
        *(f"out wrap_tool {used}", f"in wrap_tool {used}", "in wrapped_tool noted x", "out wrapped_tool noted x"),
        *("out before_model 3", "in before_model 3", *turn, "in after_model 4", "out after_model 4"),
        *("in after_agent end", "out after_agent end"),
    ]


class AskingIn(Middleware):
    """Asks in one hook, and counts all."""

    name = "Asking"  # pyright: ignore[reportAssignmentType,reportIncompatibleMethodOverride]

    def __init__(self, hook: str, log: list[str]) -> None:
        self.hook = hook
        self.log = log

    def at(self, hook: str) -> None:
        self.log.append(hook)
        if hook == self.hook:
            self.log.append(f"got {interrupt(f'{hook}?', key=hook)}")

    def before_agent(self, setup: Setup) -> Setup:
        self.at("before_agent")
        return setup

    def after_agent(self, end: AgentEnd) -> None:
        self.at("after_agent")

    def before_model(self, state: ModelState, ctx: RunContext) -> ModelState:
        self.at("before_model")
        return state

    def after_model(self, state: ModelState, ctx: RunContext) -> ModelState:
        self.at("after_model")
        return state

    async def wrap_model(self, call: Any, request: ModelRequest) -> Message:
        self.at("wrap_model")
        message = await call(request)
        self.at("wrapped_model")
        return message

    async def wrap_tool(self, call: Any, request: ToolRequest) -> Any:
        self.at("wrap_tool")
        result = await call(request)
        self.at("wrapped_tool")
        return result


HOOKS = [
    "before_agent",
    "after_agent",
    "before_model",
    "after_model",
    "wrap_model",
    "wrapped_model",
    "wrap_tool",
    "wrapped_tool",
]


@pytest.mark.parametrize("hook", HOOKS)
async def test_every_hook_may_ask_and_nothing_is_done_twice(store: Store, hook: str) -> None:  # rule A9
    log: list[str] = []
    ran: list[str] = []

    @tool
    async def effect() -> str:
        """Have an effect."""
        ran.append("tool")
        return "ok"

    script: list[Any] = [call("effect"), "end"]

    def model(request: ModelRequest) -> Any:
        ran.append("model")
        return script[sum(message.role == "tool" for message in request.messages)]

    def runner() -> Runner:
        agent = ChatModelAgent("A", model=FunctionModel(model), tools=[effect], middleware=[AskingIn(hook, log)])
        return Runner(agent, store=store)

    result = await runner().run("go", session_id="s")
    places = list[str]()
    for answer in range(4):
        if result.status == "done":
            break
        places += ids(result)
        result = await runner().resume("s", {ids(result)[0]: answer})
    assert (result.status, result.output) == ("done", "end")
    where = (
        "agent:A;tool:effect:c1;middleware:Asking"
        if hook.endswith("_tool") or hook == "wrapped_tool"
        else "agent:A;middleware:Asking"
    )
    assert {place.partition("#")[0] for place in places} == {where}
    assert len(places) == (2 if "model" in hook else 1)
    assert ran == ["model", "tool", "model"]
    assert said(result.messages) == ["user: go", "tool: ok", "assistant: end"]
    assert result.usage.calls == 2


def text_read(events: list[Event]) -> str:
    text = ""
    for event in events:
        if isinstance(event, Delta):
            text += event.text
        elif isinstance(event, Retrying):
            text = ""
    return text


class Changes(Middleware):
    def __init__(self, hook: str) -> None:
        self.hook = hook

    async def wrap_model(self, call: Any, request: ModelRequest) -> Message:
        message = await call(request)
        return replace(message, content="changed") if self.hook == "wrap_model" else message

    def after_model(self, state: ModelState, ctx: RunContext) -> ModelState:
        if self.hook != "after_model":
            return state
        return ModelState(messages=(*state.messages[:-1], replace(state.messages[-1], content="changed")))


@pytest.mark.parametrize("hook", ["wrap_model", "after_model"])
async def test_a_changed_answer_is_preceded_by_a_reset(store: Store, hook: str) -> None:  # rule A9
    agent = chat("A", "as it was", middleware=[Changes(hook)])
    events = await events_of(Runner(agent, store=store).run("go", session_id="s"))
    assert kinds(events, without=("checkpoint",)) == ["delta", "delta", "delta", "retry", "message", "done"]
    message = next(event for event in events if isinstance(event, MessageEvent))
    assert message.message.text == "changed"


async def test_an_unchanged_answer_has_no_reset(store: Store) -> None:  # rule A9
    events = await events_of(Runner(chat("A", "same", middleware=[Changes("")]), store=store).run("go", session_id="s"))
    assert kinds(events, without=("checkpoint",)) == ["delta", "message", "done"]


class Twice(Middleware):
    async def wrap_model(self, call: Any, request: ModelRequest) -> Message:
        await call(request)
        return await call(request)


class Rescue(Middleware):
    async def wrap_model(self, call: Any, request: ModelRequest) -> Message:
        try:
            return await call(request)
        except Exception:  # noqa: BLE001  # what a hook of a user may do
            return Message.assistant("rescued")


async def test_a_second_stream_is_preceded_by_a_reset(store: Store) -> None:  # rule A9
    agent = chat("A", "first try", "second try", middleware=[Twice()])
    run = Runner(agent, store=store).run("go", session_id="s")
    events = await events_of(run)
    assert text_read(events) == "second try"
    assert (await run).usage.calls == 2


async def test_a_half_stream_that_a_hook_gives_up_is_reset(store: Store) -> None:  # rule A9
    agent = chat("A", [Chunk(text="half"), ConnectionError("cut")], middleware=[Rescue()])
    events = await events_of(Runner(agent, store=store).run("go", session_id="s"))
    assert kinds(events, without=("checkpoint",)) == ["delta", "retry", "message", "done"]


class Trims(Middleware):
    def before_model(self, state: ModelState, ctx: RunContext) -> ModelState:
        return ModelState(messages=state.messages[-3:])


async def test_a_changed_view_is_kept_and_the_transcript_is_whole(store: Store) -> None:  # rule A9
    def agent(*script: Any, middleware: Any = ()) -> ChatModelAgent:
        return chat("A", *script, middleware=middleware)

    trimmed = agent("1", "2", "3", middleware=[Trims()])
    runner = Runner(trimmed, store=store)
    for number in range(3):
        await runner.run(f"q{number}", session_id="s")
    assert seen(model_of(trimmed).requests[2]) == ["user: q1", "assistant: 2", "user: q2"]
    assert len(await runner.messages("s")) == 6
    plain = agent("4")
    await Runner(plain, store=store).run("q3", session_id="s")
    assert seen(model_of(plain).requests[0]) == ["user: q1", "assistant: 2", "user: q2", "assistant: 3", "user: q3"]


class Hidden(Middleware):
    def __init__(self, extra: Any) -> None:
        self.extra = extra

    def before_agent(self, setup: Setup) -> Setup:
        return replace(setup, tools=(*setup.tools, self.extra))


async def test_tools_that_a_hook_adds_are_there_after_a_resume(store: Store) -> None:  # rule A9
    def agent(*script: Any) -> ChatModelAgent:
        return chat("A", *script, middleware=[Hidden(ask)])

    paused = await Runner(agent(call("ask", question="?")), store=store).run("go", session_id="s")
    assert ids(paused) == ["agent:A;tool:ask:c1"]
    last = agent("end")
    assert (await Runner(last, store=store).resume("s", {ids(paused)[0]: "y"})).output == "end"
    assert [spec.name for spec in model_of(last).requests[0].tools] == ["ask"]


class Wrong(Middleware):
    def __init__(self, hook: str, value: Any) -> None:
        self.hook = hook
        self.value = value

    def before_agent(self, setup: Setup) -> Any:
        return self.value if self.hook == "before_agent" else setup

    def before_model(self, state: ModelState, ctx: RunContext) -> Any:
        return self.value if self.hook == "before_model" else state

    def after_model(self, state: ModelState, ctx: RunContext) -> Any:
        return self.value if self.hook == "after_model" else state

    async def wrap_model(self, call: Any, request: ModelRequest) -> Any:
        return self.value if self.hook == "wrap_model" else await call(request)


@pytest.mark.parametrize(
    ("hook", "value"),
    [
        ("before_agent", None),
        ("before_model", None),
        ("after_model", None),
        ("wrap_model", "text"),
        ("wrap_model", Message.user("x")),
        ("after_model", ModelState(messages=())),
        ("after_model", ModelState(messages=(Message.user("only"),))),
    ],
)
async def test_a_hook_that_returns_something_else_is_told_so(store: Store, hook: str, value: Any) -> None:  # rule A9
    with pytest.raises(UsageError, match=f"Wrong.{hook}"):
        await Runner(chat("A", "x", middleware=[Wrong(hook, value)]), store=store).run("go", session_id="s")
    mended = Runner(chat("A", "x", middleware=[Wrong("", None)]), store=store)
    assert (await mended.recover("s")).output == "x"


class Answers(Middleware):
    async def wrap_model(self, call: Any, request: ModelRequest) -> Message:
        return Message.assistant("from a cache")

    async def wrap_tool(self, call: Any, request: ToolRequest) -> Any:
        return {"kept": True}


async def test_a_hook_may_answer_in_the_models_place() -> None:  # rule A9
    agent = chat("A", middleware=[Answers()])
    result = await Runner(agent).run("go")
    assert (result.output, model_of(agent).requests) == ("from a cache", [])


class Shouts(Middleware):
    async def wrap_tool(self, call: Any, request: ToolRequest) -> Any:
        return (await call(replace(request, arguments={"text": "LOUD"}))) + "!"

    async def wrap_tool_stream(self, call: Any, request: ToolRequest) -> AsyncIterator[str]:
        async for piece in call(request):
            yield piece.upper()


async def test_a_hook_may_change_arguments_and_results() -> None:  # rule A9
    agent = chat("A", call("note", text="x"), "end", tools=[note], middleware=[Shouts()])
    assert said((await Runner(agent).run("go")).messages)[1] == "tool: noted LOUD!"


async def test_the_pieces_of_a_streaming_tool_may_be_changed() -> None:  # rule A9
    @tool
    async def letters(text: str) -> AsyncIterator[str]:
        """Give letters."""
        for letter in "abc":
            yield letter

    class Upper(Middleware):
        async def wrap_tool_stream(self, call: Any, request: ToolRequest) -> AsyncIterator[str]:
            async for piece in call(request):
                yield piece.upper()

    agent = chat("A", call("letters", text="x"), "end", tools=[letters], middleware=[Upper()])
    events = await events_of(Runner(agent).run("go"))
    assert [event.text for event in events if isinstance(event, Delta) and event.call_id] == ["A", "B", "C"]


async def test_two_of_one_name_keep_apart(store: Store) -> None:  # rule I6
    log: list[str] = []

    def runner() -> Runner:
        agent = chat("A", "end", middleware=[AskingIn("before_model", log), AskingIn("before_model", log)])
        return Runner(agent, store=store)

    first = await runner().run("go", session_id="s")
    second = await runner().resume("s", {ids(first)[0]: 1})
    assert ids(second) == [f"{ids(first)[0]}#2"]
    assert (await runner().resume("s", {ids(second)[0]: 2})).output == "end"
    assert [line for line in log if line.startswith("got")] == ["got 1", "got 2"]


async def test_the_runners_middleware_reaches_nested_agents(store: Store) -> None:  # rule A9
    log: list[str] = []
    outer = chat("Outer", call("Inner", request="x"), "end", tools=[chat("Inner", "in")])
    await Runner(outer, store=store, middleware=[Traced("m", log)]).run("go", session_id="s")
    assert [line for line in log if "after_agent" in line] == ["m after_agent in", "m after_agent end"]


# What hooks can write and read


class Opening(Middleware):
    """Sets a session value when the agent begins."""

    def before_agent(self, setup: Setup) -> Setup:
        set_session_value("count", 0)
        return setup


@tool
def more() -> str:
    """Count."""
    set_session_value("count", session_value("count") + 1)
    return str(session_value("count"))


async def test_before_agent_sets_session_values_once_in_a_turn(store: Store) -> None:  # rules A9, R15
    def runner(*script: Any) -> Runner:
        agent = chat("A", *script, tools=[more, ask], middleware=[Opening()], instruction="So far: {count?}")
        return Runner(agent, store=store)

    first = runner(call("more"), call("ask", "c2", question="?"))
    paused = await first.run("hi", session_id="s")
    assert ids(paused) == ["agent:A;tool:ask:c2"]
    last = runner(call("more", "c3"), "end")
    assert (await last.resume("s", dict.fromkeys(ids(paused), "y"))).output == "end"
    assert (await last.state("s"))["values"] == {"count": 2}
    again = runner(call("more", "c4"), "end")
    await again.run("more", session_id="s")
    assert (await again.state("s"))["values"] == {"count": 1}  # A turn of its own begins anew.


async def test_what_before_agent_set_before_it_asked_is_set_when_it_was_answered(store: Store) -> None:  # rule R15
    class Asking(Middleware):
        def before_agent(self, setup: Setup) -> Setup:
            set_session_value("greeting", f"hello {interrupt('who?', key='who', schema=str)}")
            return setup

    def runner(*script: Any) -> Runner:
        return Runner(chat("A", *script, middleware=[Asking()], instruction="{greeting?}"), store=store)

    await runner().run("hi", session_id="s")
    assert (await runner().state("s"))["values"] == {}
    last = runner("end")
    await last.resume("s", {"who": "ann"})
    assert (await last.state("s"))["values"] == {"greeting": "hello ann"}


async def test_values_of_before_agent_reach_the_agents_above(store: Store) -> None:  # rule A3
    row = SequentialAgent("Row", agents=[chat("A", "a", middleware=[Opening()]), chat("B", "b", instruction="{count}")])
    await Runner(row, store=store).run("hi", session_id="s")
    assert seen(model_of(cast("ChatModelAgent", row.agents[1])).requests[0])[0] == "system: 0"


class Reading(Middleware):
    """Notes what hooks can read."""

    def __init__(self) -> None:
        self.read: list[Any] = []

    def before_agent(self, setup: Setup) -> Setup:
        self.read.append(("before_agent", [tool.name for tool in setup.tools], setup.retry))
        return setup

    def before_model(self, state: ModelState, ctx: RunContext) -> ModelState:
        self.read.append(("before_model", [tool.name for tool in state.tools], state.retry))
        return state

    def after_model(self, state: ModelState, ctx: RunContext) -> ModelState:
        self.read.append(("after_model", [tool.name for tool in state.tools], state.retry))
        return state

    def after_agent(self, end: AgentEnd) -> None:
        self.read.append(("after_agent", said(end.messages), end.output))


async def test_hooks_read_tools_retry_and_the_messages() -> None:  # rule A9
    reading, retry = Reading(), Retry(attempts=2)
    await Runner(chat("A", "ok", tools=[note], retry=retry, middleware=[reading])).run("hi")
    assert reading.read == [
        ("before_agent", ["note"], (retry,)),
        ("before_model", ["note"], (retry,)),
        ("after_model", ["note"], (retry,)),
        ("after_agent", ["user: hi", "assistant: ok"], "ok"),
    ]


@pytest.mark.parametrize("hook", ["before_agent", "before_model", "after_model"])
async def test_hooks_cannot_change_what_they_only_read(hook: str) -> None:  # rule A9
    class Changing(Middleware):
        pass

    def change(_: Any, state: Any, *rest: Any) -> Any:
        return replace(state, retry=(Retry(attempts=9),))

    setattr(Changing, hook, change)
    with pytest.raises(UsageError, match="can only read"):
        await Runner(chat("A", "ok", middleware=[Changing()])).run("hi")


async def test_a_hook_may_build_its_state_anew() -> None:  # rule A9
    class Anew(Middleware):
        def before_agent(self, setup: Setup) -> Setup:
            return Setup(agent=setup.agent, instruction=setup.instruction, tools=setup.tools)

        def before_model(self, state: ModelState, ctx: RunContext) -> ModelState:
            return ModelState(messages=state.messages)

    agent = chat("A", "ok", tools=[note], retry=Retry(attempts=2), middleware=[Anew(), Reading()])
    assert (await Runner(agent).run("hi")).output == "ok"
