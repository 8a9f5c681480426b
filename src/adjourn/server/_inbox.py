"""The inbox: the questions of all sessions: open ones as pages and as one stream, and those that have ended."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from adjourn._documents import questions
from adjourn._hiding import logger
from adjourn._text import visible_line
from adjourn.errors import AdjournError, text_of
from adjourn.sessions import AuditEntry, InboxFilter, Notice, Page, QuestionAsked, SessionEnded, Sessions
from adjourn.sessions._watch import QuestionClosed, batches

from ._agents import Agents, agent_name
from ._api import AllShown, Asked, AuditedQuestion, Closed, Deciding, DecisionPage, Ended, Heard, QuestionPage, Wanted
from ._callers import Caller, Callers
from ._csv import to_csv, wants_csv
from ._sessions import seen_page
from ._sse import closing, frame, opening
from ._streams import Streams
from ._wire import encode, query

log = logger("adjourn.server")


class Inbox:
    """The routes about the questions of all sessions."""

    def __init__(self, sessions: Sessions, agents: Agents, streams: Streams, callers: Callers) -> None:
        self._sessions = sessions
        self._agents = agents
        self._streams = streams
        self._callers = callers

    async def list_questions(self, request: Request) -> QuestionPage:
        """List open questions."""
        caller, wanted = self._callers.of(request), query(request, Wanted)
        found = await self._sessions.pending(
            wanted.session_id,
            order=wanted.order,
            after=wanted.after,
            limit=wanted.limit,
            user_id=caller.user_id,
            programs=self._agents.programs(caller),
            **InboxFilter(**{name: getattr(wanted, name) for name in InboxFilter.__annotations__}),
        )
        return QuestionPage(questions=questions(found), next=found.next)

    async def list_decisions(self, request: Request) -> DecisionPage | Response:
        """List questions that have ended, most recent first; as CSV, the header Link names the next page."""
        caller, wanted = self._callers.of(request), query(request, Deciding)

        async def fetch(after: str | None, limit: int) -> Page[AuditEntry]:
            return await self._sessions.decisions(
                by=wanted.by,
                agent=wanted.agent,
                how=wanted.how,
                since=wanted.since,
                until=wanted.until,
                after=after,
                limit=limit,
                user_id=caller.user_id,
            )

        def may_see(entry: AuditEntry) -> bool:
            return caller.may_use(agent_name(entry.interrupt.address.partition(";")[0]))

        found = await seen_page(caller, fetch, may_see, wanted.after, wanted.limit)
        decisions = [AuditedQuestion.of_entry(each) for each in found]
        if not wants_csv(request, wanted.format):
            return DecisionPage(decisions=decisions, next=found.next)
        headers = {"content-disposition": 'attachment; filename="decisions.csv"'}
        if found.next is not None:
            headers["link"] = f'<?{urlencode({**request.query_params, "after": found.next})}>; rel="next"'
        return Response(to_csv(AuditedQuestion, decisions), headers=headers, media_type="text/csv")

    async def read_inbox(self, request: Request) -> Response:
        """Report questions over all sessions, in one stream: those that are open, if wanted, then what happens."""
        caller, wanted = self._callers.of(request), query(request, Heard)
        return self._streams.response(lambda _: self._frames(caller, wanted), {})

    async def _frames(self, caller: Caller, wanted: Heard) -> AsyncGenerator[bytes]:
        yield opening(0)
        shown = _Shown(wanted)
        has_caught_up = False
        found = batches(
            self._sessions.store, self._sessions.app_name, caller.user_id, report_open=wanted.begin == "open"
        )
        try:
            async with contextlib.aclosing(found) as reported:
                async for batch in reported:
                    for notice in batch:
                        if self._may_see(caller, notice) and (data := shown.told(notice)) is not None:
                            yield frame(encode(data))
                    if not has_caught_up:
                        has_caught_up = True
                        yield frame(encode(AllShown(count=shown.count)), event="live")
        except AdjournError as error:
            log.warning("the stream of the inbox ended early: %s", visible_line(text_of(error)))
            yield closing()

    def _may_see(self, caller: Caller, found: Notice | QuestionClosed) -> bool:
        match found:
            case QuestionAsked(interrupt=asked):
                return asked.address.partition(";")[0] in self._agents.programs(caller)
            case SessionEnded(program=program):
                return not caller.is_limited or caller.may_use(agent_name(program))
            case QuestionClosed():
                return True  # It is told only if the question was.


class _Shown:
    """The questions that a client has been shown and that are open."""

    def __init__(self, wanted: Heard) -> None:
        self._wanted = wanted
        self._open: set[tuple[str, str]] = set()

    @property
    def count(self) -> int:
        return len(self._open)

    def told(self, notice: Notice | QuestionClosed) -> Asked | Closed | Ended | None:
        """Return what a client is told; None if it is about a question that it did not want."""
        match notice:
            case QuestionAsked(interrupt=asked):
                if not self._wanted.selects(asked):
                    return None
                self._open.add((asked.session_id, asked.id))
                return Asked.of(asked)
            case QuestionClosed(session_id=session_id, id=id):
                if (session_id, id) not in self._open:
                    return None
                self._open.discard((session_id, id))
                return Closed.of(notice)
            case _:
                return Ended.of(notice)
