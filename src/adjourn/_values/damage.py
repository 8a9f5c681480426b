"""Telling damage of stored data from everything else that can go wrong."""

from __future__ import annotations

from adjourn.errors import AdjournError, CheckpointCorrupt


class Reading:
    """A block in which the stored data of one session is read: whatever goes wrong there is damage of that session.

    An attacker who can write to a store can compute checksums, so data can be well-formed and nonsense all the same,
    and then anything can be raised. Nothing that fails for other reasons, such as I/O, may be done in the block.
    """

    __slots__ = ("_session_id",)

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if error is None:
            return
        if isinstance(error, CheckpointCorrupt):
            if error.session_id is None:
                raise type(error)(error.detail, self._session_id, remedy=error.remedy) from error
        elif isinstance(error, Exception) and not isinstance(error, AdjournError | MemoryError):
            # The message may quote the data, which may be secret: it stays in the cause.
            raise CheckpointCorrupt(
                f"it is not what was written ({type(error).__name__})",
                self._session_id,
            ) from error
