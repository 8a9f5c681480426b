"""Approvals that have acted (rule R19): what they permitted must not happen again in a fork or on another branch.

The approval of a tool call is used up in the frame of the call. That of a node acts through the state when its frame is
gone, and so do those of conditions, hooks, custom agents and child runs. They count until the turn has ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from adjourn._engine.address import address_of
from adjourn._engine.asked import was_asked
from adjourn._engine.record import APPROVALS, GraphImage, Tree, UserImage
from adjourn._engine.record import Question as Asked
from adjourn._engine.scope import Scope
from adjourn._values.damage import Reading
from adjourn.errors import ApprovalSpent
from adjourn.stores.kit import ListCheckpoints
from adjourn.stores.protocol import Store
from adjourn.stores.types import CheckpointRow, Question, SessionRef

from ._contents import folded, load
from ._log import read_question, used_again
from ._span import Span, spans
from .history import Listed

_PROGRAMS = ("node:", "agent:", "runnable:")


class Spent(Struct, frozen=True):
    """The approvals that have acted at `point`, in a run that `is_unfinished` there, and where they are asked again.

    The state at `shown_at` has every field of which a question could show something.
    """

    session_id: str
    point: str
    approvals: Sequence[Asked]
    is_unfinished: bool
    asked_at: CheckpointRow | None
    shown_at: str | None

    def error(self, edited: Sequence[str] = ()) -> ApprovalSpent:
        """Return why nothing may begin at `point`, or why these fields may not be edited there."""
        ids = [each.id for each in self.approvals]
        if self.asked_at is None:
            return ApprovalSpent(self.session_id, self.point, ids, edited=edited)
        row = self.asked_at
        return ApprovalSpent(self.session_id, self.point, ids, row.id, row.header.next, edited=edited)


async def check_unspent(
    store: Store, ref: SessionRef, point: str, past: tuple[Question, ...], scope: Scope, *, again: bool
) -> tuple[Question, ...]:
    """Return `past`, what had been asked and had ended at `point`, for what begins there.

    With `again`, approvals that have acted may do so once more, and are marked for the audit.

    Raises:
        ApprovalSpent: without it, if there are any.
    """
    spent = await find_spent(store, ref, point, past)
    if spent is None or not spent.is_unfinished:
        return past
    if not again:
        raise spent.error()
    return use_again(spent, past, scope)


def use_again(spent: Spent, past: tuple[Question, ...], scope: Scope) -> tuple[Question, ...]:
    """Mark approvals that act once more because a caller said so, in `past` and in the frames that still have them."""
    ids = {each.id for each in spent.approvals}
    for each in ids & scope.questions.all.keys():
        scope.questions.all[each].again = True
    return tuple(used_again(each) if each.id in ids else each for each in past)


async def find_spent(store: Store, ref: SessionRef, point: str, past: Iterable[Question]) -> Spent | None:
    """Return the approvals that have acted in the turn of `point`, out of those that had ended there, if there are any.

    Raises:
        CheckpointNotFound, CheckpointCorrupt: `point` is gone, or damaged.
    """
    ended = [each for each in past if each.reason in APPROVALS and each.ended and each.ended.how != "abandoned"]
    if not ended:
        return None
    tree = folded(await load(store, ref, point))
    with Reading(ref.id):
        asked = [each for each in map(read_question, [each.body for each in ended]) if each.turn == tree.turn]
        acted = _acted(tree, asked)
        if not acted:
            return None
        is_unfinished = _is_unfinished(tree)
    asked_at, shown_at = await _asked_at(store, ref, point, acted, tree.turn)
    return Spent(ref.id, point, acted, is_unfinished, asked_at, shown_at)


def _acted(tree: Tree, asked: Iterable[Asked]) -> list[Asked]:
    """Return which approvals of a turn were given before a record, and act although their frames have ended there."""
    running = {
        path: image for path, image in tree.frames.items() if isinstance(image, UserImage) and image.status != "done"
    }
    # An open question is in the frame that asked it. So is one that a new branch asks again (rule R16).
    waiting = {name for image in running.values() for name in image.questions}
    places = {address_of(path) for path in running}
    return [
        each
        for each in asked
        if was_asked(each.id, tree.asked) and each.id not in waiting and not _was_used_up(each.address, places)
    ]


def _has_ended(tree: Tree, asked: Asked) -> bool:
    return was_asked(asked.id, tree.asked) and asked.id not in tree.open()


def _was_used_up(address: str, running: set[str]) -> bool:
    """Return whether a tool call asked here, or a program in a tool call that has ended."""
    segments = address.split(";")
    calls = [number for number, segment in enumerate(segments, 1) if segment.startswith("tool:")]
    if not calls:
        return False
    is_of_a_program = any(segment.startswith(_PROGRAMS) for segment in segments[calls[-1] :])
    return not is_of_a_program or ";".join(segments[: calls[-1]]) not in running


def _is_unfinished(tree: Tree) -> bool:
    """Return whether something is left to run at a record."""
    root, *_ = tree.frames.values()
    if isinstance(root, UserImage):
        return root.status != "done"
    return any(
        image.phase == "route" or image.targets or image.deferred
        if isinstance(image, GraphImage)
        else True  # The frames of tasks are dropped when what they led to is known.
        for image in tree.frames.values()
    )


async def _asked_at(
    store: Store, ref: SessionRef, point: str, acted: Sequence[Asked], turn: int
) -> tuple[CheckpointRow | None, str | None]:
    """Return the last checkpoint of the turn, on the way to `point`, at which none of these approvals was given yet.

    With it comes the last one at which some were not. If the session has none, that is the turn's oldest checkpoint
    here: what the state lacks there, it lacked before.
    """
    rows = {row.id: row for row in await store.read(ListCheckpoints(ref))}
    shown_at, is_known = None, False
    async for ids, span in spans(store, ref, _way_to(point, rows)):
        if not isinstance(span, Span):
            continue
        found, open_at, oldest, is_of_the_turn = None, None, None, True
        for each in ids:  # the oldest first
            with Reading(ref.id):
                tree = span.fold_to(each)
                is_of_the_turn = tree.turn == turn
                if not is_of_the_turn:
                    continue
                ended = [_has_ended(tree, asked) for asked in acted]
            oldest = oldest or each
            open_at = open_at if all(ended) else each
            found = found if any(ended) else rows[each]
        if not is_known:
            shown_at, is_known = open_at or oldest or shown_at, open_at is not None
        if found is not None or not is_of_the_turn:
            return found, shown_at
    return None, shown_at


def _way_to(point: str, rows: dict[str, CheckpointRow]) -> list[str]:
    """Return the listed checkpoints on the way to a record, most recent first, as far as they are there."""
    listed, way = Listed(rows), list[str]()
    each = listed.nearest(point)
    while each is not None:
        way.append(each)
        each = listed.nearest(rows[each].parent)
    return way
