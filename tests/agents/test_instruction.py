"""Instructions: templates with session values in them, never stored."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from adjourn import (
    DeepAgent,
    Message,
    Middleware,
    RunContext,
    RunError,
    Runner,
    SequentialAgent,
    Supervisor,
    UsageError,
    interrupt,
    set_session_value,
    tool,
)
from adjourn.middleware import Setup
from adjourn.stores import SessionRef, Store
from adjourn.stores.kit import GetHead

from .crew import ask, call, chat, model_of, note, seen


async def instruction(template: str, **values: Any) -> str:
    agent = chat("A", "ok", instruction=template)
    await Runner(agent).run("hi", values=values)
    first = model_of(agent).requests[0].messages[0]
    return first.text if first.role == "system" else ""


@pytest.mark.parametrize(
    ("template", "values", "rendered"),
    [
        ("Hi {user}.", {"user": "Ann"}, "Hi Ann."),
        ("{a}{b}", {"a": "1", "b": 2}, "12"),
        ("{gone?}!", {}, "!"),
        ("{{user}} {user}", {"user": "x"}, "{user} x"),
        ("{a}", {"a": "{b}", "b": "never"}, "{b}"),
        ("{a}", {"a": "{{"}, "{{"),
        ("{a}", {"a": {"k": [1, None]}}, '{"k":[1,null]}'),
        ("{a}", {"a": False}, "false"),
        ("{a}", {"a": ""}, ""),
        ("{user.name}", {"user.name": "dotted"}, "dotted"),
        ("{{{user}}}", {"user": "x"}, "{x}"),
        ("", {}, ""),
    ],
)
async def test_names_are_filled_in_one_pass(template: str, values: dict[str, Any], rendered: str) -> None:  # rule A10
    assert await instruction(template, **values) == rendered


@pytest.mark.parametrize(
    "template", ["{", "}", "{}", "{a[0]}", "{a!r}", "{a:>10}", "{f()}", "{a b}", "{?}", "{0}", "x } y", "{a{b}}"]
)
def test_only_names_stand_in_braces(template: str) -> None:  # rule A10
    with pytest.raises(UsageError, match="not the name of a session value"):
        chat("A", instruction=template)


async def test_an_attribute_is_never_read() -> None:  # rule A10
    with pytest.raises(RunError, match=r"user\.__class__"):
        await instruction("{user.__class__}", user="x")


async def test_a_missing_value_is_named_and_nothing_is_stored(store: Store) -> None:  # rule A10
    runner = Runner(chat("A", "never", instruction="Hi {user}"), store=store)
    with pytest.raises(RunError, match="'user'"):
        await runner.run("hi", session_id="s")
    assert await store.read(GetHead(SessionRef("s"))) is None
    assert (await runner.run("hi", session_id="s", values={"user": "Ann"})).output == "never"


async def test_the_instruction_is_never_stored(store: Store) -> None:  # rule A10
    agent = chat("A", call("ask", question="?"), tools=[ask], instruction="Secret {word}.")
    runner = Runner(agent, store=store)
    paused = await runner.run("hi", session_id="s", values={"word": "x"})
    assert all(message.role != "system" for message in paused.messages)
    other = chat("A", "ok", tools=[ask], instruction="Other {word}.")
    await Runner(other, store=store).resume("s", {"agent:A;tool:ask:c1": "y"})
    assert seen(model_of(other).requests[0])[0] == "system: Other x."


async def test_what_a_user_or_a_model_writes_is_no_template() -> None:  # rule A10
    agent = chat("A", call("note", text="{user}"), "{user} {", tools=[note], instruction="Hi {user}")
    result = await Runner(agent).run("{user} {nothing} }", values={"user": "Ann"})
    assert result.output == "{user} {"
    assert seen(model_of(agent).requests[1])[1:] == ["user: {user} {nothing} }", "assistant: ", "tool: noted {user}"]


async def test_what_a_hook_makes_of_it_is_no_template() -> None:  # rule A9
    class Adds(Middleware):
        def before_agent(self, setup: Setup) -> Setup:
            return Setup(agent=setup.agent, instruction=setup.instruction + " {raw}", tools=setup.tools)

    agent = chat("A", "ok", instruction="Hi {user}", middleware=[Adds()])
    await Runner(agent).run("hi", values={"user": "Ann"})
    assert seen(model_of(agent).requests[0])[0] == "system: Hi Ann {raw}"


@tool
async def rename(to: str) -> str:
    """Change the user's name."""
    set_session_value("user", to)
    return "ok"


@pytest.mark.parametrize("pauses", [False, True])
async def test_values_that_change_in_the_turn_are_seen_whether_it_paused_or_not(
    store: Store, pauses: bool
) -> None:  # rule A10
    script: list[Any] = [call("rename", to="Bob"), *([call("ask", "c2", question="?")] if pauses else []), "end"]
    agent = chat("A", *script, tools=[rename, ask], instruction="Hi {user}")
    runner = Runner(agent, store=store)
    result = await runner.run("go", session_id="s", values={"user": "Ann"})
    if pauses:
        last = chat("A", "end", tools=[rename, ask], instruction="Hi {user}")
        result = await Runner(last, store=store).resume("s", {"agent:A;tool:ask:c2": "y"})
        assert seen(model_of(last).requests[-1])[0] == "system: Hi Bob"
    else:
        assert seen(model_of(agent).requests[-1])[0] == "system: Hi Bob"
    assert result.output == "end"


async def test_one_agents_output_is_the_next_ones_value(store: Store) -> None:  # rule A3
    first, second = chat("First", "a plan", output_key="plan"), chat("Second", "ok", instruction="Do {plan}.")
    await Runner(SequentialAgent("Both", agents=[first, second]), store=store).run("go", session_id="s")
    assert seen(model_of(second).requests[0])[0] == "system: Do a plan."


async def test_a_missing_value_of_a_later_agent_fails_the_run_and_can_be_mended(store: Store) -> None:  # rule A10
    def team(template: str, *script: Any) -> SequentialAgent:
        return SequentialAgent("Both", agents=[chat("First", "one"), chat("Second", *script, instruction=template)])

    with pytest.raises(RunError, match="'plan'"):
        await Runner(team("{plan}"), store=store).run("go", session_id="s")
    result = await Runner(team("{plan?}", "two"), store=store).recover("s")
    assert result.output == "two"


async def test_model_input_gets_the_rendered_instruction() -> None:
    given: list[Any] = []

    async def build(instruction: str, input: Any) -> Any:
        given.append((instruction, [message.text for message in input]))
        return list(input)[-1:]

    agent = chat("A", "1", "2", instruction="Hi {user}", model_input=build)
    runner = Runner(agent)
    await runner.run("a", session_id="s", values={"user": "Ann"})
    await runner.run("b", session_id="s")
    assert given == [("Hi Ann", ["a"]), ("Hi Ann", ["a", "1", "b"])]
    assert seen(model_of(agent).requests[1]) == ["user: b"]


async def test_model_input_that_gives_no_messages_is_refused() -> None:
    def build(instruction: str, input: Any) -> Any:
        return None

    with pytest.raises(UsageError, match="model_input"):
        await Runner(chat("A", "never", model_input=build)).run("hi")


# Instructions that are functions


def literally(text: Any) -> Any:
    """An instruction that is taken as it is."""

    def instruction(_: RunContext) -> Any:
        return text

    return instruction


async def test_a_function_of_the_context_makes_the_instruction_for_each_call(store: Store) -> None:  # rule A10
    def polite(ctx: RunContext) -> str:
        return f"Be kind to {ctx.user_id}, whose mood is {ctx.values.get('mood', 'unknown')}: {{mood}}"

    @tool
    def cheer() -> str:
        """Cheer somebody up."""
        set_session_value("mood", "good")
        return "done"

    def agent(*script: Any) -> Any:
        return chat("A", *script, instruction=polite, tools=[cheer, ask])

    first = agent(call("cheer"), call("ask", "c2", question="?"))
    await Runner(first, store=store).run("hi", session_id="s", user_id="ann")
    last = agent("ok")
    await Runner(last, store=store).resume("s", {"agent:A;tool:ask:c2": "y"}, user_id="ann")
    shown = [request.messages[0].text for made in (first, last) for request in model_of(made).requests]
    assert shown == [
        "Be kind to ann, whose mood is unknown: {mood}",
        "Be kind to ann, whose mood is good: {mood}",
        "Be kind to ann, whose mood is good: {mood}",
    ]


async def test_a_function_may_be_async_and_may_ask(store: Store) -> None:  # rules A10, I6
    async def asking(ctx: RunContext) -> str:
        return f"Speak {interrupt('Which language?', key='language', schema=str)}."

    first = chat("A", "never", instruction=asking)
    paused = await Runner(first, store=store).run("hi", session_id="s")
    assert [asked.key for asked in paused.interrupts] == ["language"]
    last = chat("A", "oui", instruction=asking)
    assert (await Runner(last, store=store).resume("s", {"language": "French"})).output == "oui"
    assert seen(model_of(last).requests[0])[0] == "system: Speak French."


async def test_the_text_of_a_function_is_literal_for_hooks_and_model_input() -> None:  # rule A10
    example = '{"a": 1} and {user}'

    class Adding(Middleware):
        def before_agent(self, setup: Setup) -> Setup:
            return Setup(agent=setup.agent, instruction=f"{setup.instruction}!", tools=setup.tools)

    given: list[str] = []

    def own_input(instruction: str, messages: Any) -> list[Message]:
        given.append(instruction)
        return [Message.system(instruction), *messages]

    agent = chat("A", "ok", instruction=literally(example), middleware=[Adding()], model_input=own_input)
    await Runner(agent).run("hi")
    assert given == [f"{example}!"]
    plain = chat("A", "ok", instruction=literally(example), model_input=own_input)
    await Runner(plain).run("hi")
    assert given == [f"{example}!", example]


@pytest.mark.parametrize("made", [None, 7, Message.system("x")])
async def test_a_function_that_returns_no_text_is_named(made: Any) -> None:
    with pytest.raises(UsageError, match="instruction of agent 'A' is a function that returned"):
        await Runner(chat("A", "never", instruction=literally(made))).run("hi")


async def test_an_instruction_that_is_neither_text_nor_function_is_refused() -> None:
    with pytest.raises(UsageError, match="instruction of agent 'A' is 7"):
        chat("A", instruction=7)


async def test_supervisors_and_deep_agents_take_functions_too() -> None:
    model = model_of(chat("x", "ok", "ok"))
    await Runner(Supervisor("S", model=model, agents=[chat("B")], instruction=literally("{one}"))).run("hi")
    await Runner(DeepAgent("D", model=model, instruction=literally("{two}"))).run("hi")
    first, second = [request.messages[0].text for request in model.requests]
    assert first.startswith("{one}\n\nYou can hand")
    assert second.startswith("{two}\n\nYou do long work")


class Placed(Middleware):
    """Sets the session value `city`, and adds to the instruction."""

    def before_agent(self, setup: Setup) -> Setup:
        set_session_value("city", "Rome")
        return replace(setup, instruction=f"First. {setup.instruction} Last.")


@pytest.mark.parametrize("template", ["In {city}.", "In {city?}."])
async def test_a_value_that_a_hook_sets_is_in_the_instruction(template: str) -> None:  # rules A9, A10
    agent = chat("A", "ok", instruction=template, middleware=[Placed()])
    await Runner(agent).run("hi")
    assert seen(model_of(agent).requests[0])[0] == "system: First. In Rome. Last."


async def test_a_value_that_no_hook_sets_is_named(store: Store) -> None:  # rule A10
    agent = chat("A", "never", instruction="Hi {user}", middleware=[Placed()])
    with pytest.raises(RunError, match="'user'"):
        await Runner(agent, store=store).run("hi", session_id="s")


def greeting(ctx: RunContext) -> str:
    return f"Hi {ctx.values['user']}"


@pytest.mark.parametrize("own", ["Hi {user}", greeting])
async def test_what_hooks_add_stays_around_a_text_that_changes(store: Store, own: Any) -> None:  # rules A9, A10
    def agent(*script: Any) -> Any:
        return chat("A", *script, instruction=own, middleware=[Placed()], tools=[rename, ask])

    first = agent(call("rename", to="Bob"), call("ask", "c2", question="?"))
    await Runner(first, store=store).run("go", session_id="s", values={"user": "Ann"})
    last = agent(call("rename", "c3", to="Cy"), "end")
    await Runner(last, store=store).resume("s", {"agent:A;tool:ask:c2": "y"})
    shown = [request.messages[0].text for made in (first, last) for request in model_of(made).requests]
    assert shown == [f"First. Hi {name} Last." for name in ("Ann", "Bob", "Bob", "Cy")]


async def test_a_function_below_hooks_asks_once_for_each_call(store: Store) -> None:  # rules A9, A10
    def asking(ctx: RunContext) -> str:
        return f"Speak {interrupt('Which language?', schema=str)}."

    first = chat("A", "never", instruction=asking, middleware=[Placed()])
    paused = await Runner(first, store=store).run("hi", session_id="s")
    last = chat("A", "oui", instruction=asking, middleware=[Placed()])
    assert (await Runner(last, store=store).resume("s", {paused.interrupts[0]: "French"})).output == "oui"
    assert seen(model_of(last).requests[0])[0] == "system: First. Speak French. Last."
