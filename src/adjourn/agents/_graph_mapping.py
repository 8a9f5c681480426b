"""Between a conversation and the state of a graph: what a graph agent's message becomes, and what it says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any, TypeAlias, cast

from msgspec.structs import replace

from adjourn._checks import takes
from adjourn._schemas.fits import misfit
from adjourn._text import a_type
from adjourn.errors import UsageError
from adjourn.graph._channels import MessagesChannel
from adjourn.graph.nodes.function import is_async
from adjourn.graph.schema import Schema
from adjourn.messages import Message, TextPart
from adjourn.tools import result_text

from ._config import AgentInput

ToState: TypeAlias = str | Callable[[AgentInput], Mapping[str, Any]]
"""The name of the field that gets the message, or a function of what the agent was given."""

FromState: TypeAlias = str | Callable[[Any], "str | Message | None"]
"""The name of the field that has the answer, or a function of the final state."""


class GraphMapping:
    """How one graph agent maps messages to the state of its graph, and the state to what it says."""

    def __init__(self, whose: str, schema: Schema, input: ToState | None, output: FromState | None) -> None:
        self._whose = whose
        self._schema = schema
        self._input = "user_input" if input is None else input
        self._output = "last_response" if output is None else output
        for option, given in (("input", input), ("output", output)):
            self._check(option, given)
        if input is None and self._lacks("user_input"):
            raise UsageError(
                f"{whose}: the state of its graph has no field 'user_input' for the user's message. Name another "
                f"field, input='{next(iter(schema.channels), 'question')}', or give a function: "
                "input=lambda given: {'question': given.text}."
            )

    def _check(self, option: str, given: object) -> None:
        if isinstance(given, str):
            if self._lacks(given):
                fields = ", ".join(self._schema.channels)
                raise UsageError(f"{self._whose}: {option}={given!r} is not a field of its graph. It has: {fields}.")
        elif given is not None and not callable(given):
            raise UsageError(f"{self._whose}: {option}={given!r}. Give the name of a field, or a function.")
        elif given is not None and is_async(given):
            raise UsageError(f"{self._whose}: {option} is async: it only maps values, so make it a plain function.")
        elif callable(given) and not takes(given, 1):
            what = "what the agent was given" if option == "input" else "the final state"
            raise UsageError(f"{self._whose}: {option} is a function that cannot be called with {what} alone.")

    def _lacks(self, field: str) -> bool:
        return field not in self._schema.channels and not self._schema.extra

    # Into the state

    def state_for(self, given: AgentInput) -> Mapping[str, Any]:
        """Return the update of the state that a turn begins with."""
        if not isinstance(self._input, str):
            update = self._input(given)
            if not isinstance(update, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  # users return anything
                raise UsageError(f"{self._whose}: its input function returned {a_type(update)}. Return a mapping.")
            return update
        field, message = self._input, given.message or Message.user("")
        channel = self._schema.channels.get(field)
        if isinstance(channel, MessagesChannel):
            return {field: [message]}
        if channel is not None and misfit(message.text, channel.type):
            return {field: [message] if misfit(message, channel.type) else message}
        return {field: message.text, **self._with_media(message)}

    def _with_media(self, message: Message) -> dict[str, Any]:
        """Return what keeps a message's images and files, which do not fit into a field of text."""
        if all(isinstance(part, TextPart) for part in message.parts):
            return {}
        if isinstance(self._schema.channels.get("messages"), MessagesChannel):
            # An LLM node that reads the same text as its input leaves the message as it is.
            return {"messages": [message]}
        kinds = ", ".join(sorted({type(part).__name__ for part in message.parts} - {"TextPart"}))
        raise UsageError(
            f"{self._whose} was given a message with {kinds}, for which the state of its graph has no place. Base it "
            "on MessagesState, or map the message with a function: input=lambda given: {'photo': given.message}."
        )

    # Out of the state

    def answer_of(self, state: Any) -> Message | None:
        """Return what the agent says at the end, or None if it says nothing."""
        if not isinstance(self._output, str):
            return self._said(self._output(state), "its output function returned")
        found: object
        if isinstance(state, Mapping):
            found = cast("Mapping[str, Any]", state).get(self._output)
        else:
            found = getattr(state, self._output, None)
        if isinstance(found, list) and isinstance(self._schema.channels.get(self._output), MessagesChannel):
            said = reversed(cast("list[Message]", found))
            return next((message for message in said if message.role == "assistant"), None)
        if not isinstance(found, str | Message | None):
            found = result_text(cast("object", found))
        return self._said(found, f"the field '{self._output}' of its state is")

    def _said(self, found: object, what: str) -> Message | None:
        if isinstance(found, str):
            return Message.assistant(found) if found else None
        if found is None or (isinstance(found, Message) and found.role == "assistant"):
            return found
        kind = f"a {found.role} message" if isinstance(found, Message) else a_type(found)
        raise UsageError(f"{self._whose}: {what} {kind}. Make it a string or an assistant message.")


def newest(messages: Sequence[Message]) -> Message | None:
    """Return what the user has said since the last answer, as one message without an id."""
    recent = list(takewhile(lambda message: message.role == "user", reversed(messages)))[::-1]
    return _merged(recent) if recent else None


def _merged(messages: list[Message]) -> Message:
    if len(messages) == 1:
        return replace(messages[0], id=None)
    text = "\n".join(message.text for message in messages)
    media = [part for part in _parts(messages) if not isinstance(part, TextPart)]
    return Message.user([text, *media] if media else text)


def _parts(messages: Iterable[Message]) -> Iterable[Any]:
    return (part for message in messages for part in message.parts)
