"""Editing: reading states of a session with its program, and changing them by hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import msgspec

from adjourn._engine.address import address_of, parse_segment, segment_text
from adjourn._engine.entry import check_not_own
from adjourn._engine.program import ProgramFrame
from adjourn._engine.questions import open_interrupts
from adjourn._engine.record import GraphImage, Question, Tree
from adjourn._engine.scope import Frame
from adjourn._values import codec
from adjourn._values.damage import Reading
from adjourn.errors import ApprovalSpent, Conflict, SessionBusy, UsageError
from adjourn.events import Interrupt
from adjourn.sessions._chain import read_left
from adjourn.sessions._contents import folded, graph_fields, load
from adjourn.sessions._log import read_past
from adjourn.sessions._span import final_state, state_of
from adjourn.sessions._spent import Spent, find_spent, use_again
from adjourn.stores.types import Loaded, SessionRef, Status

from ._live import TRIES, LiveSession, LiveSessions, apply_answers
from ._summary import summary_of
from .result import plain_state


class Editor:
    """Reads and changes states of a runner's sessions with their program."""

    def __init__(self, sessions: LiveSessions) -> None:
        self._sessions = sessions
        self._settings = sessions.settings

    async def held_at(self, loaded: Loaded, tree: Tree) -> tuple[Any, tuple[Interrupt, ...]]:
        """Return the state at a checkpoint in the program's types, and the questions open there; `tree` is used up.

        Raises:
            ProgramChanged: the program has changed since then, so it cannot continue from there.
        """
        live = await self._sessions.open(loaded, tree)
        with Reading(loaded.head.session):
            return plain_state(live.root.report()), open_interrupts(live.scope, loaded.point)

    async def state(self, ref: SessionRef, checkpoint_id: str | None, at: str | None) -> Any:
        """Return the state at a checkpoint, of the root or of the frame at the address `at`.

        Raises:
            ProgramChanged: as for `held_at`.
        """
        live = await self._sessions.load(ref, checkpoint_id)
        with Reading(ref.id):
            dormant = None if at is None else _dormant_at(live, at)
            return plain_state(frame_at(live.root, at).report()) if dormant is None else dormant

    async def edit(
        self,
        ref: SessionRef,
        values: Mapping[str, Any],
        checkpoint_id: str | None,
        as_node: str | None,
        at: str | None,
        *,
        again: bool,
        by: str | None,
    ) -> str | None:
        """Write a checkpoint, on a new branch, with values changed by hand, and return its id.

        Raises:
            ApprovalSpent: approvals that were given before would act a second time, and are not to do so `again`.
        """
        if not isinstance(values, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
            raise UsageError(f"edit({values!r}): give a mapping of fields to their new values.")
        metadata = {
            "edited": sorted(values),
            **({"as_node": as_node} if as_node else {}),
            **({"at": at} if at else {}),
        }
        base, left_head = checkpoint_id, None
        for _ in range(TRIES):
            live = await self._sessions.load(ref, base)
            if live.head is None or live.is_running:
                check_not_own(ref.id, live.owner)
                raise SessionBusy(ref.id, live.owner or "")
            if left_head not in (None, live.head.checkpoint):
                base, left_head = checkpoint_id, None  # The head is another by now, and may need no question.
                continue
            live.prepare(self._sessions)
            point = base or live.head.checkpoint
            past = await read_past(self._settings.store, live.ref, point, live.scope)
            spent = await find_spent(self._settings.store, live.ref, point, past)
            if spent is not None and (refusal := await self._refusal(live, spent, values, as_node, at)):
                if again:
                    past = use_again(spent, past, live.scope)
                elif point == live.head.checkpoint and as_node is None and at is None and refusal.asked_at is not None:
                    base, left_head = refusal.asked_at, point  # There, it is asked with the new values.
                    continue
                else:
                    raise refusal
            left = await read_left(self._settings.store, live.head)
            live.log.tail.branch_off(self._settings.new_branch(), point, past, left)
            self._keep_answers(live)
            live.scope.reopen_approvals()
            _edit(live, values, as_node, at)
            live.scope.note_speaker(by)
            try:
                await self.write(live, "edit", metadata)
            except Conflict:
                continue
            self._sessions.pop(live.ref)
            return live.log.tail.head
        raise Conflict(ref.id, "others keep writing it")

    async def _refusal(
        self, live: LiveSession, spent: Spent, values: Mapping[str, Any], as_node: str | None, at: str | None
    ) -> ApprovalSpent | None:
        """Return why approvals that have acted must not act on what an edit leads to; None if they may.

        Going on at the head is what they were given for, unless it is something else than they may have shown.
        """
        if not spent.is_unfinished:
            return None if as_node is None else spent.error()
        if live.head is None or spent.point != live.head.checkpoint:
            return spent.error()
        if as_node is not None and as_node not in _next(frame_at(live.root, at)):
            return spent.error()  # What follows that node may have run.
        then = await self._state_at(live.ref, spent.shown_at, at)
        with Reading(live.ref.id):
            if then is None or any(_may_have_shown(each, values, then) for each in spent.approvals):
                return spent.error(sorted(values))
        return None

    async def _state_at(self, ref: SessionRef, point: str | None, at: str | None) -> Mapping[str, Any] | None:
        """Return the state of the graph at `at` as it was, from the records alone; None if there was none."""
        if point is None:
            return None
        tree = folded(await load(self._settings.store, ref, point))
        if at is None:
            return final_state(tree)
        return next((state_of(tree, path) for path in tree.frames if address_of(path) == at), None)

    def _keep_answers(self, live: LiveSession) -> None:
        """Keep answers beside the log from being lost with the branch that they were given on."""
        apply_answers(
            live, [answer for answer in live.answers if answer.id in live.scope.questions.open], self._settings.clock()
        )

    async def write(
        self, live: LiveSession, source: str, metadata: dict[str, Any], status: Status | None = None
    ) -> None:
        """Add one record and release the session at once."""
        header = live.header(source)
        header = msgspec.structs.replace(header, metadata={**header.metadata, **metadata})
        if status is None:
            status = "waiting" if live.scope.questions.open else "cancelled" if header.next else "done"
        await live.log.claim(header, over=live.dead_owner, write=False)
        live.note_takeover()
        await live.log.finish(header, status, summary=summary_of(live))

    async def stop(self, live: LiveSession) -> None:
        """Cancel a session that nobody runs; its questions stay open."""
        live.prepare(self._sessions)
        await self.write(live, "cancel", {}, "cancelled")


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


def _edit(live: LiveSession, values: Mapping[str, Any], as_node: str | None, at: str | None) -> None:
    if at is not None and _dormant_at(live, at) is not None:
        raise UsageError(
            f"at='{at}': only the code that runs this graph knows its reducers. Edit what its caller holds."
        )
    frame = frame_at(live.root, at)
    frame.edit(values, as_node)
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
