"""Instructions: templates with session values in them, never stored."""

from __future__ import annotations

from typing import Any

import pytest

from adjourn import Middleware, RunError, Runner, SequentialAgent, UsageError, set_session_value, tool
from adjourn.middleware import Setup
from adjourn.stores import SessionRef, Store

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
    assert await store.head(SessionRef("s")) is None
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
