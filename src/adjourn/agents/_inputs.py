"""What an agent of one's own is given."""

from __future__ import annotations

from typing import Any, cast

from msgspec import Struct

from adjourn._values.frozen import shorten
from adjourn.errors import UsageError
from adjourn.messages import Message


class AgentInput(Struct, frozen=True, kw_only=True):
    """What an agent of one's own is given: the conversation as it sees it, and what it was told last."""

    messages: tuple[Message, ...]
    text: str = ""


class ResumeInfo(Struct, frozen=True, kw_only=True):
    """What an agent of one's own is told when it goes on after a pause that it raised with `raise_interrupt`."""

    input: AgentInput
    state: Any = None
    is_target: bool = False
    has_data: bool = False
    data: Any = None


def input_messages(input: object, agent: str) -> list[Message]:
    """What an agent is given, as messages.

    Raises:
        UsageError: it is something else than text and messages.
    """
    match input:
        case None:
            return []
        case str():
            return [Message.user(input)]
        case Message():
            return [input]
        case list() | tuple() if all(isinstance(each, Message | str) for each in cast("list[object]", input)):
            given = cast("list[str | Message]", input)
            return [Message.user(each) if isinstance(each, str) else each for each in given]
        case _:
            raise UsageError(
                f"Agent '{agent}' takes a text, a Message or a list of them as input, not {shorten(input)}."
            )
