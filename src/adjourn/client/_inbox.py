"""The inbox as one stream: questions as they are asked and closed, over as many connections as it takes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterator

from adjourn.sessions import QuestionAsked, SessionEnded

from ._http import API, Lost, Patience, Server
from ._turn import SOON
from ._wire import Asked, CaughtUp, Closing, Ended, InInbox, QuestionClosed, RemoteNotice, inbox_item


class InboxReader:
    """Reports each question once, and what was closed while nobody was connected."""

    def __init__(self, server: Server, *, reason: str | None, tag: str | None, report_open: bool) -> None:
        self._server = server
        self._query = {"reason": reason, "tag": tag}
        self._reports = report_open
        self._open: set[tuple[str, str]] = set()

    async def notices(self) -> AsyncGenerator[RemoteNotice]:
        """Yield what happens, for as long as the caller reads.

        Raises:
            ServerUnavailable: the server cannot be reached, or not for too long.
        """
        patience = Patience(self._server)
        while True:
            lost = Lost("the stream ended")
            try:
                async with contextlib.aclosing(self._connection(patience)) as found:
                    async for notice in found:
                        yield notice
            except Lost as error:
                lost = error
            await patience.wait(lost)

    async def _connection(self, patience: Patience) -> AsyncGenerator[RemoteNotice]:
        shown: set[tuple[str, str]] = set()
        has_caught_up = False
        async with self._server.stream("GET", f"{API}/inbox/events", query=self._query) as frames:
            async for frame in frames:
                if frame.data is None:
                    patience.heard()
                    continue
                item = inbox_item(frame.data, self._server.url)
                if isinstance(item, Closing):
                    raise Lost("the server closes", retry_after=SOON)
                if isinstance(item, Asked) and not has_caught_up:
                    shown.add((item.session_id, item.id))
                if isinstance(item, CaughtUp):
                    has_caught_up = True
                    for session_id, name in sorted(self._open - shown):
                        self._open.discard((session_id, name))
                        yield QuestionClosed(session_id=session_id, id=name)
                    self._reports = True
                for notice in self._notices(item):
                    patience.heard()
                    yield notice

    def _notices(self, item: InInbox | None) -> Iterator[RemoteNotice]:
        match item:
            case Asked():
                name = (item.session_id, item.id)
                if name not in self._open:
                    self._open.add(name)
                    if self._reports:
                        yield QuestionAsked(interrupt=item.interrupt())
            case QuestionClosed():
                self._open.discard((item.session_id, item.id))
                yield item
            case Ended():
                yield SessionEnded(
                    session_id=item.session_id,
                    status=item.status,
                    checkpoint_id=item.checkpoint_id,
                    user_id=item.user_id,
                    program=item.program,
                )
            case _:
                pass
