"""Blame: in which frame an error was raised, for whoever reads its traceback."""

from __future__ import annotations

from adjourn.errors import add_note

from .frame import UserFrame
from .scope import Frame


def tell_place(root: Frame, error: BaseException) -> None:
    """Note on an error that leaves a run in which frame it was raised; one that none of them raised stays as it is."""
    frame = _raised_in(root, error)
    if frame is not None:
        add_note(error, f"Raised in '{frame.address}' of session '{root.scope.session_id}'.")


def _raised_in(frame: Frame, error: BaseException) -> UserFrame | None:
    # The same error passes through the frames above: the deepest one is where it comes from.
    for child in frame.live_children():
        if (found := _raised_in(child, error)) is not None:
            return found
    return frame if isinstance(frame, UserFrame) and frame.exception is error else None
