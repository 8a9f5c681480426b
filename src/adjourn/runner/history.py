"""Time travel: history, states, trees, differences, edits and forks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from adjourn._engine.address import address_of
from adjourn._engine.program import ProgramFrame
from adjourn._engine.questions import open_interrupts
from adjourn._engine.record import GraphImage
from adjourn._engine.scope import Frame
from adjourn._text import visible_line
from adjourn.errors import CheckpointNotFound, Conflict, ProgramChanged, SessionBusy, UsageError
from adjourn.events import Interrupt
from adjourn.stores.protocol import Header, Listed, Status

from ._answering import apply_answers
from ._live import TRIES, LiveSession, Sessions, fields_at, plain_fields, questions_at
from ._settings import check_name
from .result import plain_state


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One point of a session's history."""

    id: str
    parent_id: str | None
    source: str
    step: int
    created: datetime
    next: tuple[str, ...]
    interrupts: tuple[Interrupt, ...]
    state: Any
    metadata: Mapping[str, Any]
    address: str


class Tree:
    """The checkpoints of a session as a tree: `print` shows it, iteration gives pairs of depth and checkpoint."""

    def __init__(self, session_id: str, listed: list[Listed], head: str) -> None:
        self.session_id = session_id
        self._head = head
        self._listed = {point.id: point for point in reversed(listed)}
        self._below: dict[str | None, list[Listed]] = {}
        for point in self._listed.values():
            self._below.setdefault(self._nearest(point.parent), []).append(point)

    def _nearest(self, parent: str | None) -> str | None:
        """The listed checkpoint at or before an unlisted record: numbers of a branch have no gaps."""
        while parent is not None and parent not in self._listed:
            branch, _, number = parent.rpartition(".")
            parent = f"{branch}.{int(number) - 1}" if int(number) > 0 else None
        return parent

    def __iter__(self) -> Iterator[tuple[int, Listed]]:
        todo = [(0, point) for point in reversed(self._below.get(None, []))]
        while todo:
            depth, point = todo.pop()
            yield depth, point
            below = self._below.get(point.id, [])
            # The first child goes on in line; further ones are branches, shown one level deeper and first.
            todo += [(depth, child) for child in below[:1]]
            todo += [(depth + 1, child) for child in reversed(below[1:])]

    def __str__(self) -> str:
        return "\n".join([f"session {self.session_id}", *(self._line(depth, point) for depth, point in self)])

    def _line(self, depth: int, point: Listed) -> str:
        header = point.header
        following = visible_line(f" → {', '.join(header.next)}") if header.next else ""
        paused = "  ⏸" if header.source == "interrupt" else ""
        head = "  ← head" if point.id == self._head else ""
        return f"{'│  ' * depth}● {point.id}  {header.source} {header.step}{following}{paused}{head}"


class Diff(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between two states: values before and after by field, absent ones left out."""

    added: dict[str, Any] = {}
    removed: dict[str, Any] = {}
    changed: dict[str, tuple[Any, Any]] = {}


class History:
    """Looks at and changes the history of one runner's sessions."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._settings = sessions.settings

    async def history(
        self,
        session_id: str,
        limit: int | None,
        before: str | None,
        source: str | None,
        under: str | None,
        metadata: Mapping[str, Any] | None,
    ) -> list[Checkpoint]:
        """Checkpoints, newest first."""
        page = None if metadata else limit
        listed = await self._settings.store.list(session_id, limit=page, before=before, source=source, under=under)
        if metadata:
            listed = [point for point in listed if metadata.items() <= point.header.metadata.items()][:limit]
        return [await self.checkpoint_of(session_id, point) for point in listed]

    async def checkpoint(self, session_id: str, checkpoint_id: str | None) -> Checkpoint:
        """One checkpoint, by default the newest."""
        listed = await self._settings.store.list(session_id, limit=1 if checkpoint_id is None else None)
        for point in listed:
            if checkpoint_id in (None, point.id):
                return await self.checkpoint_of(session_id, point)
        raise CheckpointNotFound(session_id, checkpoint_id)

    async def checkpoint_of(self, session_id: str, point: Listed) -> Checkpoint:
        """A listed checkpoint with its state."""
        state, interrupts = await self._seen(session_id, point.id)
        header = point.header
        return Checkpoint(
            id=point.id,
            parent_id=point.parent,
            source=header.source or "",
            step=header.step,
            created=datetime.fromtimestamp(point.created, UTC),
            next=header.next,
            interrupts=interrupts,
            state=state,
            metadata=header.metadata,
            address=header.address,
        )

    async def _seen(self, session_id: str, checkpoint_id: str) -> tuple[Any, tuple[Interrupt, ...]]:
        try:
            live = await self._sessions.load(session_id, checkpoint_id)
            return plain_state(live.root.report()), open_interrupts(live.scope, checkpoint_id)
        except ProgramChanged:
            # The program has changed since then, so nobody can go on from there; it can be looked at all the same.
            fields = await fields_at(self._settings, session_id, checkpoint_id)
            return fields, await questions_at(self._settings, session_id, checkpoint_id)

    async def state(self, session_id: str, checkpoint_id: str | None, at: str | None) -> Any:
        """The state at a checkpoint, of the root or of the frame at the address `at`."""
        try:
            live = await self._sessions.load(session_id, checkpoint_id)
        except ProgramChanged:
            if at is not None:
                raise
            return await fields_at(self._settings, session_id, checkpoint_id)
        asleep = None if at is None else _dormant_at(live, at)
        return plain_state(frame_at(live.root, at).report()) if asleep is None else asleep

    async def tree(self, session_id: str) -> Tree:
        """All checkpoints with their branches."""
        store = self._settings.store
        head = await store.head(session_id)
        if head is None:
            raise CheckpointNotFound(session_id)
        return Tree(session_id, await store.list(session_id), head.checkpoint)

    async def diff(self, session_id: str, a: str, b: str) -> Diff:
        """What differs between the states at two checkpoints."""
        one, two = dict(await self._mapping(session_id, a)), dict(await self._mapping(session_id, b))
        return Diff(
            added={key: value for key, value in two.items() if key not in one},
            removed={key: value for key, value in one.items() if key not in two},
            changed={key: (one[key], two[key]) for key in one if key in two and one[key] != two[key]},
        )

    async def _mapping(self, session_id: str, checkpoint_id: str) -> Mapping[str, Any]:
        state = await self.state(session_id, checkpoint_id, None)
        if isinstance(state, Mapping):
            return state  # pyright: ignore[reportUnknownVariableType]  # of whatever the schema has
        fields = getattr(state, "__struct_fields__", None) or getattr(state, "__dict__", {})
        return {name: getattr(state, name) for name in fields}

    async def edit(
        self, session_id: str, values: Mapping[str, Any], checkpoint_id: str | None, as_node: str | None, at: str | None
    ) -> Checkpoint:
        """A new checkpoint, on a branch of its own, with values changed by hand."""
        metadata = {
            "edited": sorted(values),
            **({"as_node": as_node} if as_node else {}),
            **({"at": at} if at else {}),
        }
        edit = partial(_edit, values=values, as_node=as_node, at=at)
        return await self.checkpoint(session_id, await self._branch(session_id, checkpoint_id, "edit", metadata, edit))

    async def _branch(
        self,
        session_id: str,
        checkpoint_id: str | None,
        source: str,
        metadata: dict[str, Any],
        change: Callable[[LiveSession], None],
    ) -> str | None:
        """Begin a branch after a checkpoint, with a change made to it; returns its first checkpoint."""
        for _ in range(TRIES):
            live = await self._sessions.load(session_id, checkpoint_id)
            if live.head is None or live.is_running:
                raise SessionBusy(session_id, live.owner or "")
            live.prepare(self._sessions)
            live.journal.branch_off(self._settings.new_branch(), checkpoint_id or live.head.checkpoint)
            self._keep_answers(live)
            change(live)
            try:
                await self._write(live, source, metadata)
            except Conflict:
                continue
            self._sessions.take(session_id)
            return live.journal.head
        raise Conflict(session_id, "others keep writing it")

    def _keep_answers(self, live: LiveSession) -> None:
        """Answers that stand beside the log are not lost with the branch that they were given on."""
        apply_answers(
            live, [answer for answer in live.answers if answer.id in live.scope.questions.open], self._settings.clock()
        )

    async def _write(
        self, live: LiveSession, source: str, metadata: dict[str, Any], status: Status | None = None
    ) -> None:
        """Add one record and let go again at once."""
        header = msgspec.structs.replace(live.header(source), metadata=metadata)
        if status is None:
            status = "waiting" if live.scope.questions.open else "cancelled" if live.root.has_more() else "done"
        is_new = live.journal.head is None
        await live.journal.claim(header, over=live.dead_owner, write=is_new)
        if not is_new:
            live.note_takeover()
        await live.journal.finish(Header() if is_new else header, status)

    async def stop(self, live: LiveSession) -> None:
        """Cancel a session that nobody runs; its questions stay open."""
        live.prepare(self._sessions)
        await self._write(live, "cancel", {}, "cancelled")

    async def fork(self, session_id: str, checkpoint_id: str | None, to: str | None) -> str:
        """A new session that begins as this one was at a checkpoint, or a branch of this one; returns its id."""
        target = self._settings.new_id() if to is None else to
        check_name("session_id", target)
        live = await self._sessions.load(session_id, checkpoint_id)
        base = checkpoint_id or (live.journal.head or "")
        if target == session_id:
            origin = {"session_id": session_id, "checkpoint_id": base}
            await self._branch(session_id, base, "fork", {"forked_from": origin}, lambda _: None)
            return target
        copy = self._sessions.new(target, live.scope.user_id, volatile=False)
        live.scope.session_id = target
        live.scope.branch = copy.scope.branch
        live.prepare(self._sessions)
        live.journal.stand(None, 0)
        live.journal.branch_off(copy.scope.branch, "")
        live.journal.parent = None
        live.owner = None
        self._keep_answers(live)
        await self._write(live, "fork", {"forked_from": {"session_id": session_id, "checkpoint_id": base}})
        return target


def frame_at(root: ProgramFrame, at: str | None) -> ProgramFrame:
    """The program frame at an address.

    Raises:
        UsageError: there is none.
    """
    if at is None or at == root.address:
        return root
    for frame in _programs(root):
        if frame.address == at:
            return frame
    places = ", ".join(frame.address for frame in _programs(root))
    raise UsageError(f"at='{at}': nothing with a state of its own stands there. There is: {places}.")


def _edit(live: LiveSession, values: Mapping[str, Any], as_node: str | None, at: str | None) -> None:
    if at is not None and _dormant_at(live, at) is not None:
        raise UsageError(
            f"at='{at}': only the code that runs this graph knows its reducers. Edit what its caller holds."
        )
    frame = frame_at(live.root, at)
    frame.edit(values, as_node)
    above = frame.parent if as_node is not None else None
    while above is not None:
        above.wake()  # What follows on the node runs next, so what waited for it runs again.
        above = above.parent


def _dormant_at(live: LiveSession, at: str) -> dict[str, Any] | None:
    """The state of a graph that user code runs as a child: its program is not known before that code runs."""
    list(_programs(live.root))  # Those that are known are bound by this.
    for path, image in live.scope.dormant.everything():
        if isinstance(image, GraphImage) and address_of(path) == at:
            return plain_fields(live.scope, path)
    return None


def _programs(frame: Frame) -> Iterator[ProgramFrame]:
    if isinstance(frame, ProgramFrame):
        yield frame
    frame.bind_dormant()
    for child in frame.live_children():
        yield from _programs(child)
