"""Live sessions: a session taken out of its store, ready to run."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from itertools import count
from typing import Any

from adjourn.checkpoint.journal import ROW, Journal, Size
from adjourn.checkpoint.logbook import note
from adjourn.checkpoint.store import Answered, Head, Loaded
from adjourn.core import codec, record
from adjourn.core.address import segment_text
from adjourn.core.errors import CheckpointNotFound, ShapeChanged, UsageError
from adjourn.core.events import Event, Interrupt
from adjourn.core.interrupt import open_interrupts
from adjourn.core.owner import is_dead, process_id
from adjourn.core.program import Program, ProgramFrame
from adjourn.core.scope import TURN, Scope

from .settings import Settings

_runs = count(1)

CACHED = 24
"""Sessions that a runner keeps ready after their runs have ended."""


class Live:
    """A session in memory: its scope, its root frame, and the journal that writes it."""

    __slots__ = ("answers", "head", "is_fleeting", "is_new", "journal", "owner", "refusal", "root", "scope", "status")

    def __init__(self, settings: Settings, session_id: str, user_id: str | None, *, volatile: bool) -> None:
        self.scope = Scope(session_id, app=settings.app_name, user_id=user_id, clock=settings.clock)
        self.journal = Journal(
            self.scope,
            settings.store,
            durability=settings.durability,
            timeout=settings.store_timeout,
            sink=_nowhere,
            volatile=volatile,
        )
        self.scope.journal = self.journal
        self.journal.ttl = settings.lease_ttl
        self.root: ProgramFrame
        self.status = "done"
        self.is_new = True
        self.is_fleeting = volatile
        self.owner: str | None = None
        self.answers: tuple[Answered, ...] = ()
        self.head: Head | None = None
        self.refusal: Exception | None = None

    def prepare(self, settings: Settings, sink: Callable[[list[Event]], None]) -> None:
        """Get ready for a run on the running event loop."""
        scope = self.scope
        scope.attach_loop()
        scope.turn_ends = time.monotonic() + TURN
        scope.closed = scope.cancel_mode = None
        if not settings.interrupts:
            scope.interrupts = False
        if settings.max_concurrency is not None:
            scope.slots = asyncio.Semaphore(settings.max_concurrency)
        self.journal.sink = sink
        self.journal.owner = f"{process_id()}/{next(_runs)}"

    def detach(self) -> None:
        """Let go of the run that has ended: it may be kept for the next one, and its reader need not."""
        self.journal.sink = _nowhere
        self.scope.deps = None

    @property
    def dead_owner(self) -> str | None:
        """The owner whose lease may be taken at once, since its process is gone."""
        return self.owner if self.owner and is_dead(self.owner) else None

    def note_takeover(self) -> None:
        """Say so, if the claim just made took the session from an owner who was gone."""
        if self.dead_owner or (self.head is not None and self.status == "running"):
            owner = self.owner or "an owner whose lease was over"
            note(logging.INFO, "took over", self.scope.session_id, self.journal.head, owner=owner)

    @property
    def is_running(self) -> bool:
        """Whether somebody else runs it, as far as was known when it was loaded."""
        return self.owner is not None and self.dead_owner is None


OWN = "~approvals:"
"""Begins the ids of the sessions in which the library keeps what is its own."""


def _nowhere(_: list[Event]) -> None:
    return


def new_live(settings: Settings, program: Program, session_id: str, user_id: str | None, *, volatile: bool) -> Live:
    """A session that does not exist yet.

    Raises:
        UsageError: its id is one of those under which the library keeps what is its own.
    """
    if session_id.startswith(OWN) and not settings.app_name.startswith("~"):
        raise UsageError(f"session_id={session_id!r} begins with '{OWN}', where approvals are kept. Name it otherwise.")
    live = Live(settings, session_id, user_id, volatile=volatile)
    live.scope.branch = settings.new_branch()
    live.root = live.scope.root = program.open(live.scope, None, root_segment(program), None)
    return live


def root_segment(program: Program) -> str:
    """The first segment of every address in a run of `program`."""
    return segment_text(program.kind, program.name)


async def load_live(
    settings: Settings, program: Program, session_id: str, checkpoint_id: str | None = None
) -> Live | None:
    """A session as it is stored, at its head or at a checkpoint; None if there is none.

    Raises:
        ShapeChanged: it is the session of another program.
    """
    loaded = await settings.store.load(session_id, checkpoint_id)
    if loaded is None:
        return None
    note(logging.DEBUG, "loaded", session_id, loaded.point)
    return restore(settings, program, loaded)


async def questions_at(settings: Settings, session_id: str, checkpoint_id: str) -> tuple[Interrupt, ...]:
    """The questions open at a checkpoint, read without the program that asked them."""
    return open_interrupts(await _scope_at(settings, session_id, checkpoint_id), checkpoint_id)


async def fields_at(settings: Settings, session_id: str, checkpoint_id: str | None) -> dict[str, Any]:
    """The state at a checkpoint, read without the program that made it: its fields, without the schema's types."""
    scope = await _scope_at(settings, session_id, checkpoint_id)
    root = next(iter(scope.sleeping.get("", ())), "")
    return plain_fields(scope, _graph_inside(scope, root) or root)


async def ended_with(settings: Settings, session_id: str, checkpoint_id: str) -> dict[str, Any] | None:
    """The fields of the graph that ended at a checkpoint; None when it was no graph, or is not kept any more."""
    try:
        scope = await _scope_at(settings, session_id, checkpoint_id)
    except CheckpointNotFound:
        return None
    root, image = next(iter(scope.sleeping.get("", {}).items()), ("", None))
    is_graph = isinstance(image, record.GraphImage) and not root.startswith("agent:")
    path = root if is_graph else _graph_inside(scope, root)
    return None if path is None else plain_fields(scope, path)


def _graph_inside(scope: Scope, root: str) -> str | None:
    """Where the graph of a graph agent stands, which has nothing else directly below it."""
    inside = scope.sleeping.get(root, {}).get("~")
    return f"{root};~" if isinstance(inside, record.GraphImage) else None


def plain_fields(scope: Scope, path: str) -> dict[str, Any]:
    """The fields of a graph that sleeps at `path`."""
    pieces = scope.pieces.get(path, {})
    return {name: codec.decode(record.join(parts)) for name, parts in pieces.items() if not name.startswith("^")}


async def _scope_at(settings: Settings, session_id: str, checkpoint_id: str | None) -> Scope:
    loaded = await settings.store.load(session_id, checkpoint_id)
    if loaded is None:
        raise CheckpointNotFound(session_id, checkpoint_id)
    note(logging.DEBUG, "loaded", session_id, loaded.point)
    scope = Scope(session_id, app="", user_id=None, clock=settings.clock)
    scope.restore(record.fold(loaded.rows))
    return scope


def restore(settings: Settings, program: Program, loaded: Loaded) -> Live:
    """Build a live session from stored records."""
    head = loaded.head
    tree = record.fold(loaded.rows)
    live = Live(settings, head.session, head.user, volatile=False)
    live.is_new = False
    live.head, live.status, live.owner, live.answers = head, head.status, head.owner, loaded.answers
    size = max(
        len(loaded.rows[0]),
        sum(len(bytes(piece)) for kept in tree.pieces.values() for parts in kept.values() for piece in parts),
    )
    live.scope.restore(tree)
    live.scope.branch = loaded.point.rpartition(".")[0]
    live.journal.stand(head.checkpoint, head.seq)
    live.journal.size = Size(size, sum(len(row) + ROW for row in loaded.rows[1:]))
    live.journal.asked_ids = set(live.scope.open)
    segment = root_segment(program)
    image = live.scope.awaken("", segment)
    if image is None:
        stored = ", ".join(live.scope.sleeping.get("", {}))
        raise ShapeChanged(stored, f"the program that is to run it is '{segment}'")
    live.root = live.scope.root = program.open(live.scope, None, segment, image)
    return live


class LiveCache:
    """Sessions kept ready between runs. The first commit of the next run proves one right, or it is dropped."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Live] = OrderedDict()

    def take(self, session_id: str) -> Live | None:
        """Take a session out, for one run alone."""
        return self._kept.pop(session_id, None)

    def put(self, live: Live) -> None:
        """Keep a session whose run has ended well."""
        self._kept[live.scope.session_id] = live
        if len(self._kept) > CACHED:
            self._kept.popitem(last=False)
