"""Editing: reading states of a session with its program, and changing them by hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import msgspec

from adjourn._engine.address import address_of, parse_segment, segment_text
from adjourn._engine.program import ProgramFrame
from adjourn._engine.questions import open_interrupts
from adjourn._engine.record import GraphImage, Question, Tree
from adjourn._engine.scope import Frame
from adjourn._values import codec
from adjourn._values.damage import Reading
from adjourn.errors import ApprovalSpent, Conflict, UsageError
from adjourn.events import Interrupt
from adjourn.sessions._chain import read_left
from adjourn.sessions._contents import folded, graph_fields, load
from adjourn.sessions._log import read_past
from adjourn.sessions._span import final_state, state_of
from adjourn.sessions._spent import Spent, find_spent, use_again
from adjourn.stores.types import Claimed, Loaded, SessionRef, Status
from adjourn.stores.types import Question as StoredQuestion

from ._live import LiveSession, LiveSessions, apply_answers
from ._opening import Call, Claiming, Move, SessionOpener, check_not_running
from ._summary import summary_of
from .result import plain_state


async def held_at(sessions: LiveSessions, loaded: Loaded, tree: Tree) -> tuple[Any, tuple[Interrupt, ...]]:
    """Return the state at a checkpoint in the program's types, and the questions open there; `tree` is used up.

    Raises:
        ProgramChanged: the program has changed since then, so it cannot continue from there.
    """
    live = await sessions.open(loaded, tree)
    with Reading(loaded.head.session):
        return plain_state(live.root.report()), open_interrupts(live.scope, loaded.point)


async def state_at(sessions: LiveSessions, ref: SessionRef, checkpoint_id: str | None, at: str | None) -> Any:
    """Return the state at a checkpoint, of the root or of the frame at the address `at`.

    Raises:
        ProgramChanged: as for `held_at`.
    """
    live = await sessions.load(ref, checkpoint_id)
    with Reading(ref.id):
        dormant = None if at is None else _dormant_at(live, at)
        return plain_state(frame_at(live.root, at).report()) if dormant is None else dormant


class Edited(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller changes by hand; `Runner.edit` explains each field."""

    values: Mapping[str, Any]
    checkpoint_id: str | None
    as_node: str | None
    at: str | None
    again: bool
    by: str | None

    def __post_init__(self) -> None:
        if not isinstance(self.values, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
            raise UsageError(f"edit({self.values!r}): give a mapping of fields to their new values.")


class Change(Move):
    """A move that has no run: the session is released with one record, made with the program."""

    source: str
    status: Status | None = None
    """The status in which the session is released; None if what is left to run decides."""
    metadata: Mapping[str, Any] = {}

    async def made(self, live: LiveSession, claimed: Claimed) -> None:
        header = live.header(self.source)
        left: Status = "waiting" if live.scope.questions.open else "cancelled" if header.next else "done"
        header = msgspec.structs.replace(header, metadata={**header.metadata, **self.metadata})
        try:
            await live.log.finish(header, self.status or left, summary=summary_of(live))
        finally:
            live.end()  # A record that was refused, or a caller who has left, must not leave the session locked.


class Edit(Change):
    """Change the state by hand, on a new branch.

    Raises:
        ApprovalSpent: approvals that were given before would act a second time, and are not to do so `again`.
    """

    source = "edit"

    def __init__(self, opener: SessionOpener, ref: SessionRef, edited: Edited) -> None:
        super().__init__(opener, Call(ref=ref))
        self._edited = edited
        named = {"as_node": edited.as_node, "at": edited.at}
        self.metadata = {"edited": sorted(edited.values), **{name: value for name, value in named.items() if value}}

    async def find(self) -> LiveSession:
        edited = self._edited
        live = await self.sessions.load(self.call.ref, edited.checkpoint_id)
        check_not_running(live)
        head = live.log.tail.head or ""
        self._point = edited.checkpoint_id or head
        try:
            self._past = await self._past_of(live)
        except ApprovalSpent as spent:
            if spent.asked_at is None or (self._point, edited.as_node, edited.at) != (head, None, None):
                raise
            self._point = spent.asked_at  # There, it is asked with the new values.
            live = await self.sessions.load(self.call.ref, self._point)
            if live.log.tail.head != head:
                raise Conflict(self.call.ref.id, "it has moved on, and may need no question by now") from spent
            self._past = await self._past_of(live)
        return live

    async def _past_of(self, live: LiveSession) -> tuple[StoredQuestion, ...]:
        """Return what had been asked and had ended where the edit is made."""
        store = self.settings.store
        past = await read_past(store, live.ref, self._point, live.scope)
        spent = await find_spent(store, live.ref, self._point, past)
        if spent is None or (refusal := await self._refusal(live, spent)) is None:
            return past
        if self._edited.again:
            return use_again(spent, past, live.scope)
        raise refusal

    async def make(self, live: LiveSession, *, is_kept: bool) -> Claiming:
        assert live.head is not None  # It was found.
        left, scope = await read_left(self.settings.store, live.head), live.scope
        live.log.tail.branch_off(self.settings.new_branch(), self._point, self._past, left)
        # Answers beside the log would be lost with the branch that they were given on.
        waiting = [answer for answer in live.answers if answer.id in scope.questions.open]
        apply_answers(live, waiting, self.settings.clock())
        scope.reopen_approvals()
        _edit(live, self._edited)
        scope.note_speaker(self._edited.by)
        return Claiming("edit")

    async def _refusal(self, live: LiveSession, spent: Spent) -> ApprovalSpent | None:
        """Return why approvals that have acted must not act on what the edit leads to; None if they may.

        Going on at the head is what they were given for, unless it is something else than they may have shown.
        """
        as_node, values = self._edited.as_node, self._edited.values
        if not spent.is_unfinished:
            return None if as_node is None else spent.error()
        if spent.point != live.log.tail.head:
            return spent.error()
        if as_node is not None and as_node not in _next(frame_at(live.root, self._edited.at)):
            return spent.error()  # What follows that node may have run.
        then = await self._state_at(spent.shown_at)
        with Reading(live.ref.id):
            if then is None or any(_may_have_shown(each, values, then) for each in spent.approvals):
                return spent.error(sorted(values))
        return None

    async def _state_at(self, point: str | None) -> Mapping[str, Any] | None:
        """Return the state of the graph that is edited as it was, from the records alone; None if there was none."""
        if point is None:
            return None
        tree = folded(await load(self.settings.store, self.call.ref, point))
        if (at := self._edited.at) is None:
            return final_state(tree)
        return next((state_of(tree, path) for path in tree.frames if address_of(path) == at), None)


def _may_have_shown(question: Question, names: Iterable[str], then: Mapping[str, Any]) -> bool:
    """Return whether a question may have shown one of these fields of the state that there was then.

    It has shown those that it names. If it shows anything but fields under their names, any value may have gone into
    it: nobody can tell what a text was made of.
    """
    has_named = any(msgspec.json.encode(name) + b":" in bytes(question.info) for name in names)
    return has_named or (not _shows_fields_alone(question, then) and any(name in then for name in names))


def _shows_fields_alone(question: Question, then: Mapping[str, Any]) -> bool:
    info = codec.decode(question.info, lenient=True)
    has_more = question.prompt or question.words or question.node or getattr(question, "above", None)
    if has_more or not isinstance(info, dict):
        return False
    return all(then.get(name) == value for name, value in cast("dict[str, Any]", info).items())


def _next(frame: ProgramFrame) -> set[str]:
    """Return the nodes that run next, and those whose conditions do."""
    places = [each.partition(";")[0] if ";" in each else segment_text("node", each) for each in frame.following()]
    return {parse_segment(each).id for each in places}


def frame_at(root: ProgramFrame, at: str | None) -> ProgramFrame:
    """Return the program frame at an address.

    Raises:
        UsageError: there is none.
    """
    if at is None or at == root.address:
        return root
    for frame in _programs(root):
        if frame.address == at:
            return frame
    places = ", ".join(frame.address for frame in _programs(root))
    raise UsageError(f"at='{at}': there is nothing with a state there. Places that have one: {places}.")


def _edit(live: LiveSession, edited: Edited) -> None:
    if (at := edited.at) is not None and _dormant_at(live, at) is not None:
        raise UsageError(
            f"at='{at}': only the code that runs this graph knows its reducers. Edit what its caller holds."
        )
    frame = frame_at(live.root, at)
    frame.edit(edited.values, edited.as_node)
    frame.start_over()
    above = frame.parent
    while above is not None:
        above.wake()  # What was edited runs next, so whatever waited for it runs again.
        above = above.parent


def _dormant_at(live: LiveSession, at: str) -> dict[str, Any] | None:
    """Return the state of a graph that user code runs as a child: its program is unknown until that code runs."""
    list(_programs(live.root))  # This binds those that are known.
    places = [
        (f"{parent};{segment}", image) for parent, kept in live.scope.dormant.items() for segment, image in kept.items()
    ]
    for path, image in places:
        if isinstance(image, GraphImage) and address_of(path) == at:
            return graph_fields(live.scope, path)
    return None


def _programs(frame: Frame) -> Iterator[ProgramFrame]:
    if isinstance(frame, ProgramFrame):
        yield frame
    frame.bind_dormant()
    for child in frame.live_children():
        yield from _programs(child)
