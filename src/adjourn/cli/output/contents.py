"""What a session holds at a checkpoint, read without the program that made it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from msgspec import Raw

from adjourn._engine.record import NONE, GraphImage, Tree, UserImage, fold, join
from adjourn._values import codec
from adjourn.errors import CheckpointNotFound
from adjourn.messages import Message
from adjourn.sessions._transcript import TranscriptEntry, conversation
from adjourn.stores.protocol import Head, Store


class Contents(NamedTuple):
    """A session at one of its checkpoints: the fields of a graph or agent, or what a workflow was given and came to."""

    head: Head
    checkpoint: str
    program: str
    fields: Mapping[str, Any]
    messages: tuple[Message, ...]


async def contents_of(store: Store, session_id: str, checkpoint_id: str | None) -> Contents:
    """What is stored there.

    Raises:
        CheckpointNotFound: there is no such session or checkpoint.
        CheckpointCorrupt: what is stored there is not what was written.
    """
    loaded = await store.load(session_id, checkpoint_id)
    if loaded is None:
        raise CheckpointNotFound(session_id, checkpoint_id)
    tree = fold(loaded.rows)
    root = next((path for path in tree.frames if ";" not in path), "")
    fields = _fields(tree, root)
    return Contents(loaded.head, loaded.point, root.partition(":")[2], fields, _messages(fields))


def _fields(tree: Tree, root: str) -> dict[str, Any]:
    match tree.frames.get(root):
        case GraphImage():
            pieces = tree.pieces.get(root, {})
            return {name: _decoded(join(parts)) for name, parts in pieces.items() if not name.startswith("^")}
        case UserImage() as image:
            parts = {"input": image.input, "output": image.output}
            return {name: _decoded(part) for name, part in parts.items() if part is not NONE}
        case _:
            return {}


def is_agent(fields: Mapping[str, Any]) -> bool:
    """Whether these are an agent's: a transcript, and what the engine needs to go on."""
    return fields.keys() >= {"entries", "progress"} and isinstance(fields["entries"], list)


def _decoded(body: bytes | Raw) -> Any:
    return codec.decode(body, lenient=True)


def _messages(fields: Mapping[str, Any]) -> tuple[Message, ...]:
    if is_agent(fields):
        return tuple(conversation(each for each in fields["entries"] if isinstance(each, TranscriptEntry)))
    found = fields.get("messages")
    listed = cast("list[Any]", found) if isinstance(found, list) else []
    return tuple(each for each in listed if isinstance(each, Message))
