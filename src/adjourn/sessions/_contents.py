"""What a session holds at a checkpoint, read without the program that made it: its transcript above all.

The transcript only grows. Editing a tool call's arguments, or an agent's view of what was said, adds an entry that says
so; the original stays on record.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from adjourn._engine.address import parse_segment, segment_text
from adjourn._engine.record import NONE, GraphImage, Tree, UserImage, fold, join
from adjourn._engine.scope import Scope
from adjourn._values import codec
from adjourn._values.damage import Reading
from adjourn._values.registry import native
from adjourn.errors import CheckpointNotFound
from adjourn.events import Interrupt
from adjourn.messages import Message, ToolCall
from adjourn.stores._logging import note
from adjourn.stores.kit import Load
from adjourn.stores.protocol import Store
from adjourn.stores.types import AuditEntry, Loaded, SessionRef

from ._log import read_interrupt, read_questions
from ._settings import check_name


class Edited(Struct, frozen=True, kw_only=True, gc=False):
    """Other arguments for a tool call, given by a person."""

    call_id: str
    arguments: Mapping[str, Any]  # Any: JSON
    by: str | None = None


class TranscriptEntry(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="$t", tag="entry", gc=False):
    """One entry: a message; or edited arguments; or the messages that `author` sees from here on instead.

    `author` is an agent's name, and empty for the user. `seen_as` replaces everything that the author saw before,
    except for the first `seen_from` messages.
    """

    author: str = ""
    turn: int = 0
    path: tuple[str, ...] = ()
    message: Message | None = None
    edited: Edited | None = None
    seen_as: tuple[Message, ...] | None = None
    seen_from: int = 0


native(TranscriptEntry)


def conversation(entries: Iterable[TranscriptEntry]) -> list[Message]:
    """Return everything that was said, for people."""
    messages: list[Message] = []
    for entry in entries:
        if entry.edited is not None:
            amend(messages, entry.edited)
        elif entry.message is not None:
            messages.append(entry.message)
    return messages


def amend(messages: list[Message], edited: Edited) -> None:
    """Show a call, in the most recent message that has it, with the arguments that ran."""
    for place in range(len(messages) - 1, -1, -1):
        if has_call(messages[place], edited):
            messages[place] = with_edit(messages[place], edited)
            return


def has_call(message: Message, edited: Edited) -> bool:
    """Return whether a message makes the call that was edited."""
    return any(call.id == edited.call_id for call in message.tool_calls)


def with_edit(message: Message, edited: Edited) -> Message:
    """Return a message whose edited call has the arguments that ran."""
    return replace(message, tool_calls=tuple(_amended(call, edited) for call in message.tool_calls))


def _amended(call: ToolCall, edited: Edited) -> ToolCall:
    return call.with_arguments(edited.arguments) if call.id == edited.call_id else call


async def load(store: Store, ref: SessionRef, checkpoint_id: str | None = None) -> Loaded:
    """Return the stored records of a session, up to its head or to a checkpoint.

    Raises:
        CheckpointNotFound: there is no such session or checkpoint.
    """
    if checkpoint_id is not None:
        check_name("checkpoint_id", checkpoint_id)
    loaded = await store.read(Load(ref, checkpoint_id))
    if loaded is None:
        raise CheckpointNotFound(ref.id, checkpoint_id)
    note(logging.DEBUG, "loaded", ref.id, loaded.point)
    return loaded


def folded(loaded: Loaded) -> Tree:
    """Fold the records of a session.

    Raises:
        CheckpointCorrupt: they are damaged.
    """
    with Reading(loaded.head.session):
        return fold(loaded.rows)


class Contents:
    """A session at one of its checkpoints. Values of types unknown to this process stay readable."""

    def __init__(self, loaded: Loaded, tree: Tree, rows: Mapping[str, AuditEntry]) -> None:
        self.loaded = loaded
        self.head = loaded.head
        self.checkpoint = loaded.point
        self.scope = Scope(loaded.head.session, app=loaded.head.app, user_id=loaded.head.user, clock=time.time)
        self.scope.restore(tree)
        self.rows = rows
        self.pauses: bool = tree.pauses
        self._root, self._image = next(iter(self.scope.dormant.below("").items()), ("", None))

    @classmethod
    async def at(cls, store: Store, ref: SessionRef, checkpoint_id: str | None = None) -> Contents:
        """Read a session at a checkpoint, by default its head.

        Raises:
            CheckpointNotFound: there is no such session or checkpoint.
            CheckpointCorrupt: the stored data is damaged.
        """
        loaded = await load(store, ref, checkpoint_id)
        return await cls.of(store, loaded, folded(loaded))

    @classmethod
    async def of(cls, store: Store, loaded: Loaded, tree: Tree) -> Contents:
        """Read what goes with a folded session.

        Raises:
            CheckpointNotFound, CheckpointCorrupt: as for `at`.
        """
        rows = await read_questions(store, loaded, tree)
        with Reading(loaded.head.session):
            return cls(loaded, tree, rows)

    @property
    def program(self) -> str:
        """The name of the session's program."""
        return self._root.partition(":")[2]

    @cached_property
    def fields(self) -> dict[str, Any]:
        """The fields of a graph or agent; of a workflow, its input and output."""
        with Reading(self.head.session):
            if isinstance(self._image, UserImage):
                parts = {"input": self._image.input, "output": self._image.output}
                return {name: codec.decode(part, lenient=True) for name, part in parts.items() if part is not NONE}
            return graph_fields(self.scope, self._root)

    @property
    def state(self) -> dict[str, Any]:
        """The state of the session's graph, or of the graph of a graph agent; otherwise `fields`."""
        with Reading(self.head.session):
            return self.fields if self._inner_graph is None else graph_fields(self.scope, self._inner_graph)

    @property
    def is_agent(self) -> bool:
        """Whether the session is an agent's: it holds a transcript, and what the engine needs to go on."""
        return self.fields.keys() >= {"entries", "progress"} and isinstance(self.fields["entries"], list)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation."""
        if self.is_agent:
            entries = cast("list[Any]", self.fields["entries"])
            return tuple(conversation(each for each in entries if isinstance(each, TranscriptEntry)))
        found = self.state.get("messages")
        listed = cast("list[Any]", found) if isinstance(found, list) else []
        return tuple(each for each in listed if isinstance(each, Message))

    @property
    def interrupts(self) -> tuple[Interrupt, ...]:
        """The questions that are open at this checkpoint."""
        with Reading(self.head.session):
            bodies = [self.rows[each].body for each in self.scope.questions.open]
        ref, branch = self.head.ref, self.checkpoint.rpartition(".")[0]
        return tuple(read_interrupt(body, ref, branch, self.checkpoint) for body in bodies)

    @property
    def unfinished(self) -> tuple[str, ...]:
        """What runs next in the session's graph, or in that of a graph agent; nothing if the records do not say."""
        with Reading(self.head.session):
            if self._inner_graph is not None:
                return unfinished_in(self.scope, self._inner_graph)
            return () if self.is_agent else unfinished_in(self.scope, self._root)

    @property
    def _inner_graph(self) -> str | None:
        """The path of the graph of a graph agent, which has nothing else directly below it."""
        inside = self.scope.dormant.below(self._root).get("~")
        return f"{self._root};~" if isinstance(inside, GraphImage) else None


def graph_fields(scope: Scope, path: str) -> dict[str, Any]:
    """Return the fields of a graph that is dormant at `path`."""
    pieces: Mapping[str, list[Any]] = scope.dormant.pieces.get(path, {})
    return {name: codec.decode(join(parts), lenient=True) for name, parts in pieces.items() if not name.startswith("^")}


def unfinished_in(scope: Scope, path: str) -> tuple[str, ...]:
    """Return what runs next in a graph that is dormant at `path`: its tasks, or conditions and where others lead."""
    image = scope.dormant.at(path)
    if not isinstance(image, GraphImage):
        return ()
    if tasks := [parse_segment(segment).id for segment in _not_done(scope, path, "node:")]:
        return tuple(dict.fromkeys(tasks))
    nodes = [segment_text("node", name) for name in image.finished or ()]
    undecided = [f"{node};{segment}" for node in nodes for segment in _not_done(scope, f"{path};{node}", "branch:")]
    return tuple(dict.fromkeys([*undecided, *(name for name, _ in image.targets or ())]))


def _not_done(scope: Scope, path: str, kind: str) -> list[str]:
    """Return the segments of this kind right below `path` whose code has not ended."""
    return [
        segment
        for segment, image in scope.dormant.below(path).items()
        if segment.startswith(kind) and isinstance(image, UserImage) and image.status != "done"
    ]
