"""The conversation in a graph's state, as seen by the nodes that talk to models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from msgspec import Struct

from adjourn._text import a_type
from adjourn.errors import StateInvalid
from adjourn.graph._channels import ABSENT, MessagesChannel
from adjourn.graph._frame import Task
from adjourn.graph.reducers import add_messages
from adjourn.graph.schema import Schema
from adjourn.graph.state import given
from adjourn.messages import Message


class Input(Struct, frozen=True, kw_only=True):
    """The messages that a node works on, and those among them that the state does not have yet."""

    messages: list[Message]
    new: list[Message]


def field(task: Task, name: str, default: Any) -> Any:
    """Return a field of the state as a task sees it, or a default if it is not set."""
    value = given(task.graph.fields.values, task.seen, name)
    return default if value is ABSENT or value is None else value


def history(task: Task) -> list[Message]:
    """Return the conversation so far; in a fan-out, one task may have its own message or operations instead."""
    found = field(task, "messages", [])
    try:
        return add_messages([], found) if has_own_history(task) else list(found)
    except TypeError as error:
        raise StateInvalid("messages", f"node '{task.node.name}' cannot read it: {error}") from error


def has_own_history(task: Task) -> bool:
    """Return whether a fan-out gave this task its own messages."""
    return "messages" in (task.seen or ())


def with_input(task: Task, before: list[Message], key: str) -> Input:
    """Return a conversation with the user's input from the field `key` at its end.

    If the conversation already ends with a different user message, that is replaced.
    """
    said = field(task, key, "")
    if not isinstance(said, str):
        raise StateInvalid(key, f"node '{task.node.name}' expects text there, but it is {a_type(said)}.")
    tail = before[-1] if before and before[-1].role == "user" else None
    if not said or (tail is not None and tail.text == said):
        return Input(messages=before, new=[])
    user = Message.user(said).with_id(_id(task, key)) if tail is None else tail.with_text(said)
    return Input(messages=[*(before if tail is None else before[:-1]), user], new=[user])


def with_new_ids(task: Task, key: str) -> None:
    """Give the user's message in a result from the cache the id that it would have here: it is another message."""
    for number, (name, value, plain) in enumerate(task.writes):
        if name == "messages" and isinstance(value, list):
            update = [_renewed(task, key, each) for each in cast("list[object]", value)]
            task.writes[number] = (name, update, plain)


def _renewed(task: Task, key: str, each: object) -> object:
    if isinstance(each, Message) and each.id is not None and each.id.startswith(f"{key}@"):
        return each.with_id(_id(task, key))
    return each


def _id(task: Task, key: str) -> str:
    # Parallel nodes that read the same input add one message for it; the input of a fan-out belongs to one task.
    own = f":{task.index}" if key in (task.overlay or ()) else f":{task.label}" if key in (task.seen or ()) else ""
    return f"{key}@{task.graph.instance}.{task.graph.step}{own}"


def one_shot(task: Task, name: str, found: Any) -> list[Message]:
    """Return messages that are meant for a single call."""
    if isinstance(found, list) and all(isinstance(each, Message) for each in cast("list[object]", found)):
        return list(cast("list[Message]", found))
    kind = a_type(cast("object", found))
    raise StateInvalid(name, f"node '{task.node.name}' expects a list of messages there, but it is {kind}.")


def call_ids(messages: Sequence[Message]) -> set[str]:
    """Return the ids of all tool calls in messages."""
    return {call.id for message in messages for call in message.tool_calls}


def known_to(task: Task, update: Mapping[str, Any]) -> dict[str, Any]:
    """Return an update without the fields that the schema does not have."""
    schema = task.graph.plan.schema
    return {name: value for name, value in update.items() if name in schema.channels or schema.extra}


def lacks(schema: Schema, field: str) -> bool:
    """Return whether a state has no such field and does not accept extra fields."""
    return field not in schema.channels and not schema.extra


def lacks_messages(what: str, name: str, schema: Schema) -> Iterable[str]:
    """Yield a problem if a node reads and writes a conversation and the state has none."""
    # The fields of a schema with problems are not known.
    if not schema.problems and not isinstance(schema.channels.get("messages"), MessagesChannel):
        yield (
            f"{what} '{name}' needs the field 'messages' with the reducer add_messages: base the state on "
            "MessagesState, or add `messages: Annotated[list[Message], add_messages]`"
        )
