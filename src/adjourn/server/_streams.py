"""Streams: what somebody reads of a session, from any event on, as frames. Reading drives nothing and stops nothing."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Callable
from functools import partial
from urllib.parse import quote

from starlette.requests import Request

from adjourn._documents import questions
from adjourn._hiding import logger
from adjourn._text import visible_line
from adjourn.errors import AdjournError, StoreUnavailable, text_of
from adjourn.events import FINAL, Failed
from adjourn.runner import CaughtUp, Reader, Run, Runner, RunResult, Watched
from adjourn.sessions import SessionStatus
from adjourn.stores import SessionRef
from adjourn.stores.kit import GetHead, ListEvents

from ._api import CaughtUp as CaughtUpFrame
from ._drafts import drafts_of
from ._errors import ApiError
from ._place import PLACE, Place
from ._sse import EventStream, closing, frame, opening
from ._wire import encode, event_json, only

log = logger("adjourn.server")

_SAFE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) != "%")
"""What a header can hold as it is; the rest of an id is percent-encoded there."""


class Streams:
    """Makes the streams of a server, and ends them when it closes."""

    def __init__(self, *, keep_alive: float, stall: float) -> None:
        self.closes: asyncio.Event = asyncio.Event()
        self._keep_alive = keep_alive
        self._stall = stall

    def of(self, reader: Reader, runner: Runner, session_id: str, user_id: str | None, *, is_turn: bool) -> EventStream:
        """Return the stream of a session; that of a turn ends with the turn's last event, or says that it goes on."""
        frames = partial(_frames, reader, runner, session_id, user_id, is_turn=is_turn)
        return self.response(frames, _headers(session_id), after=reader.seen)

    def of_input(self, run: Run, runner: Runner, input_id: str, after: int, user_id: str | None) -> EventStream:
        """Return the stream of a turn that may have to wait; `after` is an event before it."""
        frames = partial(_of_input, run, runner, after, user_id)
        return self.response(frames, _headers(run.session_id), after, input_id=input_id)

    def response(
        self,
        frames: Callable[[Request], AsyncGenerator[bytes]],
        headers: dict[str, str],
        after: int = 0,
        *,
        input_id: str | None = None,
        last: bytes | None = None,
    ) -> EventStream:
        """Return a stream of frames; `last` is sent when the server closes, if not what our own clients know."""
        return EventStream(
            frames,
            self.closes,
            after=after,
            input_id=input_id,
            keep_alive=self._keep_alive,
            stall=self._stall,
            last=last,
            headers=headers,
        )

    async def unless_closing(self, run: Run) -> RunResult | None:
        """Wait for the end of a run, and return its result; None if the server closes before."""
        ending = asyncio.ensure_future(_result(run))
        closing = asyncio.ensure_future(self.closes.wait())
        try:
            await asyncio.wait((ending, closing), return_when=asyncio.FIRST_COMPLETED)
            return await ending if ending.done() else None
        finally:
            ending.cancel()
            closing.cancel()
            await asyncio.wait((ending, closing))


async def _result(run: Run) -> RunResult:
    return await run


def session_header(session_id: str) -> dict[str, str]:
    """Return the header that names a session."""
    return {"x-session-id": quote(session_id, safe=_SAFE)}


def _headers(session_id: str) -> dict[str, str]:
    return {**session_header(session_id), "content-location": events_url(session_id)}


async def _of_input(
    run: Run, runner: Runner, after: int, user_id: str | None, request: Request
) -> AsyncGenerator[bytes]:
    yield opening(_place(request, after) or after)
    try:
        await run.start()
    except StoreUnavailable:
        yield closing()
        return
    except AdjournError as error:
        failed = Failed(error=type(error).__name__, message=text_of(error))
        yield frame(event_json(failed, run.session_id))
        return
    frames = _frames(run.watch(), runner, run.session_id, user_id, request, is_turn=True)
    async with contextlib.aclosing(frames):
        async for each in frames:
            yield each


def events_url(session_id: str) -> str:
    """Return where to come back to the stream of a session."""
    return f"/api/v1/sessions/{quote(session_id, safe='')}/events"


async def _frames(
    reader: Reader, runner: Runner, session_id: str, user_id: str | None, request: Request, *, is_turn: bool
) -> AsyncGenerator[bytes]:
    last, has_caught_up = None, is_turn  # The stream of a turn need not say so.
    place = _place(request, reader.seen)
    with contextlib.closing(reader):  # It may have joined a run, and its items need not be read.
        yield opening(place or reader.seen)
        try:
            async with contextlib.aclosing(reader.items()) as items:
                async for item in items:
                    if isinstance(item, CaughtUp):
                        drafts = drafts_of(reader.listener)  # At once: pieces that come from now on follow them.
                        if not has_caught_up:
                            has_caught_up = True
                            yield await _caught_up(item, runner, session_id, user_id)
                        for draft in drafts if place is None else place.caught_up(drafts):
                            yield frame(encode(draft), id=place)
                        continue
                    if is_unstored_end(item):
                        yield closing()
                        return
                    last = item
                    if place is None:
                        yield frame(event_json(item, session_id), id=item.seq)
                        continue
                    for event in place.passed(item):
                        yield frame(event_json(event, session_id), id=place)
        except AdjournError as error:
            # For example the store is away: the client comes back, here or elsewhere, and reads on.
            log.warning("the stream of %s ended early: %s", visible_line(session_id), visible_line(text_of(error)))
            yield closing()
            return
    if is_turn and not isinstance(last, FINAL):
        yield closing()  # Somebody else goes on with it.


def is_unstored_end(item: Watched) -> bool:
    """Return whether a run has failed without a record of it, because its store or its lease was lost.

    Then the session has not failed: whoever takes it up goes on with what is stored.
    """
    return isinstance(item, Failed) and item.seq is None


async def _caught_up(item: CaughtUp, runner: Runner, session_id: str, user_id: str | None) -> bytes:
    found = await runner.status(session_id, user_id=user_id)
    status = "running" if await _was_left(found, runner, user_id) else found.status
    data = CaughtUpFrame(seq=item.seq, status=status, pending=questions(found.interrupts))
    return frame(encode(data), event="live")


async def _was_left(found: SessionStatus, runner: Runner, user_id: str | None) -> bool:
    """Return whether the process of a run has died: it counts as failed until another one goes on with it, soon."""
    if found.status != "failed":
        return False
    head = await runner.store.read(GetHead(SessionRef(found.session_id, runner.app_name, user_id)))
    return head is not None and head.status == "running"


def seen_by(request: Request) -> int:
    """Return the number of the last event that a client has read: what its browser says, or else `after`.

    Raises:
        ApiError: it is not the id of an event, or there are several.
    """
    only(request, "last-event-id")
    text = _last_id(request)
    if not re.fullmatch(PLACE, text):
        raise ApiError(
            "invalid_event_id", f"{text[:50]!r} is not the id of an event.", "Send the last id that you received."
        )
    return int(text.partition("~")[0])


def _place(request: Request, seq: int) -> Place | None:
    """Return what a client has read that is to get only what it lacks; None for one that is to get drafts."""
    text = _last_id(request)
    place = Place.read(text) if re.fullmatch(PLACE, text) else None
    if place is not None:
        place.seq = seq
    return place


def _last_id(request: Request) -> str:
    return request.headers.get("last-event-id") or request.query_params.get("after") or "0"


async def check_still_there(runner: Runner, ref: SessionRef, after: int) -> None:
    """Refuse to go on after an event when those that followed it were removed.

    Raises:
        ApiError: they were; it has what is left to know.
    """
    if not after:
        return
    batches = await runner.store.read(ListEvents(ref, after, limit=1))
    if batches and batches[0].first > after + 1:
        found = await runner.status(ref.id, user_id=ref.user)
        raise ApiError(
            "events_gone",
            f"The events after {after} were removed; the first that is left is {batches[0].first}.",
            "Begin again without Last-Event-ID, or go on from what is here.",
            seq=batches[0].first - 1,
            status=found.status,
            pending=questions(found.interrupts),
        )
