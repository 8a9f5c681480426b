"""Small agents, tools and readers, for tests of agents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adjourn import ChatModelAgent, Message, Run, RunResult, ToolCall, interrupt, tool
from adjourn.events import Event
from adjourn.models import ModelRequest
from adjourn.testing import ScriptedModel

LIVE = {"delta", "tool_call", "node_start", "retry", "progress"}


def call(name: str, id: str = "c1", /, **arguments: Any) -> ToolCall:
    """A tool call as a model writes it."""
    return ToolCall(id=id, name=name, arguments=arguments)


def transfer(target: str, id: str = "t1") -> ToolCall:
    """A model hands over."""
    return call("transfer_to_agent", id, agent_name=target)


@tool
async def ask(question: str) -> str:
    """Ask a person."""
    return str(interrupt(question))


@tool
async def note(text: str) -> str:
    """Note something."""
    return f"noted {text}"


def chat(name: str, *script: Any, **options: Any) -> ChatModelAgent:
    """An agent whose model follows a script."""
    return ChatModelAgent(name, model=ScriptedModel(script), **options)


def model_of(agent: ChatModelAgent) -> ScriptedModel:
    """The scripted model of an agent."""
    model = agent.models[0]
    assert isinstance(model, ScriptedModel)
    return model


def seen(request: ModelRequest) -> list[str]:
    """What a model was shown, as `role: text`."""
    return [f"{message.role}: {message.text}" for message in request.messages]


def said(messages: Sequence[Message]) -> list[str]:
    """A conversation as `role: text`, without what has no text."""
    return [f"{message.role}: {message.text}" for message in messages if message.text]


def ids(result: RunResult) -> list[str]:
    """The ids of the open questions."""
    return [interrupt.id for interrupt in result.interrupts]


async def events_of(run: Run) -> list[Event]:
    """All events of a run that does not fail."""
    return [event async for event in run]


async def failing_events(run: Run) -> tuple[list[Event], Exception | None]:
    """All events of a run, and what it failed with."""
    events: list[Event] = []
    try:
        async for event in run:
            events.append(event)  # noqa: PERF401  # those before the error count
    except Exception as error:  # noqa: BLE001  # the test looks at it
        return events, error
    return events, None


def kind(event: Event) -> str:
    """The tag of an event."""
    return str(type(event).__struct_config__.tag)


def kinds(events: Sequence[Event], *, without: Sequence[str] = ("checkpoint", "delta")) -> list[str]:
    """The tags of events."""
    return [kind(event) for event in events if kind(event) not in without]
