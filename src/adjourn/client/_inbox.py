"""The inbox as one stream: questions as they are asked and closed, over as many connections as it takes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterator

from adjourn.sessions import QuestionAsked, SessionEnded

from ._following import Following
from ._http import API, Server
from ._sse import Frame
from ._wire import Asked, CaughtUp, Ended, InInbox, QuestionClosed, RemoteNotice, inbox_item


class InboxReader(Following[InInbox, RemoteNotice]):
    """Reports each question once, and what was closed while nobody was connected."""

    def __init__(self, server: Server, *, reason: str | None, tag: str | None, report_open: bool) -> None:
        super().__init__(server, inbox_item)
        self._query = {"reason": reason, "tag": tag}
        self._reports = report_open
        self._open_now: set[tuple[str, str]] = set()
        self._shown: set[tuple[str, str]] | None = set()
        """The questions that this connection has shown; None once it has shown all that were open when it began."""

    def _open(self) -> contextlib.AbstractAsyncContextManager[AsyncGenerator[Frame]]:
        self._shown = set()
        return self._server.stream("GET", f"{API}/inbox/events", query=self._query)

    def _take(self, item: InInbox | None, id: str | None) -> Iterator[RemoteNotice]:
        match item:
            case Asked():
                name = (item.session_id, item.id)
                if self._shown is not None:
                    self._shown.add(name)
                if name not in self._open_now:
                    self._open_now.add(name)
                    if self._reports:
                        yield QuestionAsked(interrupt=item.interrupt())
            case CaughtUp():
                closed = self._open_now - (self._shown or set())
                self._open_now -= closed
                self._shown, self._reports = None, True
                for session_id, name in sorted(closed):
                    yield QuestionClosed(session_id=session_id, id=name)
            case QuestionClosed():
                self._open_now.discard((item.session_id, item.id))
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
