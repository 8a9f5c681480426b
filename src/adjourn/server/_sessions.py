"""Sessions over HTTP: what they are and hold, what they were, and what can be done with them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar

from starlette.requests import Request

from adjourn._documents import TreeEntry, plain
from adjourn.errors import UnknownInterrupt
from adjourn.runner import Submission
from adjourn.sessions import Page, Sessions, SessionStatus

from ._agents import Agents, agent_name
from ._api import (
    LONGEST,
    PAGE,
    Access,
    Answering,
    At,
    Audit,
    AuditedQuestion,
    Between,
    Cancel,
    CancelAsked,
    CheckpointEntry,
    CheckpointPage,
    CheckpointTree,
    CheckpointView,
    Conversation,
    Difference,
    Edit,
    Fork,
    Forked,
    History,
    InputList,
    Listing,
    Said,
    SessionEntry,
    SessionPage,
    SessionView,
    StateView,
    Submit,
    WaitingInput,
)
from ._callers import Caller, Callers
from ._chat import answers_of
from ._errors import ApiError
from ._guards import admitted
from ._idempotency import key_of
from ._media import MediaHosts
from ._runs import Runs
from ._wire import named, query, read

T = TypeVar("T")

Fetch: TypeAlias = Callable[[str | None, int], Awaitable[Page[T]]]
"""Reads a page of a list, from a cursor on."""


async def seen_page(
    caller: Caller, fetch: Fetch[T], may_see: Callable[[T], bool], after: str | None, limit: int
) -> Page[T]:
    """Return a page of what a caller may see; it may be shorter, and its cursor tells nothing of anything else.

    A cursor names the last item of its page, so that is one that they see, as is one that follows.
    """
    while caller.is_limited:
        page = await fetch(after, limit)
        places = [place for place, each in enumerate(page) if may_see(each)]
        seen = [page[place] for place in places]
        if page.next is None:
            return Page(seen)
        if not places:
            after = page.next
        elif places[-1] + 1 < len(page):
            limit = places[-1] + 1  # Again, to the last item that they see.
        else:
            return Page(seen, next=page.next if await _follows(fetch, may_see, page.next) else None)
    return await fetch(after, limit)


async def _follows(fetch: Fetch[T], may_see: Callable[[T], bool], after: str | None) -> bool:
    while after is not None:
        page = await fetch(after, PAGE)
        if any(map(may_see, page)):
            return True
        after = page.next
    return False


class SessionRoutes:
    """The routes about single sessions, and the list of them."""

    def __init__(
        self, agents: Agents, sessions: Sessions, runs: Runs, callers: Callers, media: MediaHosts, *, max_body: int
    ) -> None:
        self._agents = agents
        self._sessions = sessions
        self._runs = runs
        self._callers = callers
        self._media = media
        self._max_body = max_body

    def _asked(self, request: Request) -> tuple[Caller, str]:
        """Return who makes a request, and about which session."""
        return self._callers.of(request), named(request, "id")

    # Looking

    async def list_sessions(self, request: Request) -> SessionPage:
        """List sessions, most recently written first."""
        caller, wanted = self._callers.of(request), query(request, Listing)

        async def fetch(after: str | None, limit: int) -> Page[SessionStatus]:
            return await self._sessions.sessions(user_id=caller.user_id, status=wanted.status, after=after, limit=limit)

        def may_see(each: SessionStatus) -> bool:
            return caller.may_use(agent_name(each.program))

        found = await seen_page(caller, fetch, may_see, wanted.after, wanted.limit)
        return SessionPage(sessions=[SessionView.of_status(each) for each in found], next=found.next)

    async def show_session(self, request: Request) -> SessionView:
        """Show one session with its open questions."""
        caller, session_id = self._asked(request)
        return SessionView.of_status(await self._sessions.status(session_id, user_id=caller.user_id))

    async def list_messages(self, request: Request) -> Conversation:
        """List the conversation."""
        caller, session_id = self._asked(request)
        runner = await self._agents.reader_of(session_id, caller)
        found = await runner.messages(session_id, user_id=caller.user_id)
        return Conversation(session_id=session_id, messages=[Said.of_message(each) for each in found])

    async def list_audit(self, request: Request) -> Audit:
        """List every question with who answered it."""
        caller, session_id = self._asked(request)
        found = await self._sessions.audit(session_id, user_id=caller.user_id)
        return Audit(session_id=session_id, entries=[AuditedQuestion.of_entry(each) for each in found])

    async def show_question(self, request: Request) -> AuditedQuestion:
        """Show one question, by its id or token: open, or how it ended."""
        caller, session_id = self._asked(request)
        name = named(request, "question")
        entries = await self._sessions.audit(session_id, user_id=caller.user_id)
        for entry in reversed(entries):
            if name in (entry.interrupt.id, entry.interrupt.token):
                return AuditedQuestion.of_entry(entry)
        found = await self._sessions.pending(session_id, user_id=caller.user_id)
        raise UnknownInterrupt(session_id, name, [each.id for each in found])

    # Answering, without waiting for what follows

    async def answer(self, request: Request) -> SessionEntry:
        """Record answers; whoever has room goes on."""
        caller, session_id = self._asked(request)
        given = await read(request, Answering, self._max_body)
        self._media.check([given.answer, given.answers])
        agent, key = await self._agents.of_session(session_id, caller), key_of(request)
        with self._runs.metrics.answering():
            answers = await answers_of(self._sessions, session_id, given, caller, key)
            found = await agent.runner.answer(
                session_id,
                answers,
                by=agent.author(caller, given.by),
                message=given.message,
                checkpoint_id=given.checkpoint_id,
                id=key and key.name,
                user_id=caller.user_id,
            )
        return SessionEntry.of_summary(found)

    async def cancel(self, request: Request) -> CancelAsked:
        """Stop the run of a session, wherever it runs."""
        caller, session_id = self._asked(request)
        given = await read(request, Cancel, self._max_body)
        runner = await self._agents.reader_of(session_id, caller)
        was_stopped = await runner.cancel(session_id, given.mode, user_id=caller.user_id)
        return CancelAsked(session_id=session_id, cancelled=was_stopped)

    async def delete_session(self, request: Request) -> None:
        """Remove a session."""
        caller, session_id = self._asked(request)
        runner = await self._agents.reader_of(session_id, caller)
        await runner.delete(session_id, user_id=caller.user_id)

    # The queue

    async def list_inputs(self, request: Request) -> InputList:
        """List the inputs that wait for their turn."""
        caller, session_id = self._asked(request)
        found = await self._sessions.inputs(session_id, user_id=caller.user_id)
        return InputList(session_id=session_id, inputs=[WaitingInput.of(each) for each in found])

    async def submit(self, request: Request) -> Submission:
        """Store the input of a turn, which begins when those before it have ended."""
        self._runs.check_open()
        caller, session_id = self._asked(request)
        if len(session_id) > LONGEST:
            message = f"The id of a session has {LONGEST} characters at most."
            raise ApiError("invalid_request", message, "Choose a shorter one, such as a hash of it.")
        given = await read(request, Submit, self._max_body)
        self._media.check(given.message)
        agent = self._agents.named(given.agent, caller)
        agent.check_values(given.values, caller)
        await self._agents.check_open_to(caller, session_id)
        key = key_of(request)
        input_id = given.id or (key and key.name)
        await self._agents.check_room(caller, session_id, input_id)
        return await agent.runner.submit(
            given.message,
            session_id=session_id,
            id=input_id,
            user_id=caller.user_id,
            values=given.values,
            metadata=given.metadata,
            on_busy=given.on_busy,
            on_pending=given.on_pending,
        )

    async def withdraw(self, request: Request) -> None:
        """Remove an input that waits for its turn."""
        caller, session_id = self._asked(request)
        name = named(request, "input")
        if not await self._sessions.withdraw(session_id, name, user_id=caller.user_id):
            hint = "GET /api/v1/sessions/{id}/inputs lists those that wait."
            raise ApiError("input_not_found", f"No input '{name}' waits in this session.", hint)

    # History

    async def list_checkpoints(self, request: Request) -> CheckpointPage:
        """List checkpoints, most recent first, without their states."""
        caller, session_id = self._asked(request)
        wanted = query(request, History)
        found = await self._sessions.history(
            session_id,
            limit=wanted.limit,
            before=wanted.before,
            source=wanted.source,
            under=wanted.under,
            user_id=caller.user_id,
        )
        last = found[-1].id if len(found) == wanted.limit else None
        points = [CheckpointEntry.of_point(each) for each in found]
        return CheckpointPage(session_id=session_id, checkpoints=points, next=last)

    async def show_checkpoint(self, request: Request) -> CheckpointView:
        """Show one checkpoint with its state."""
        caller, session_id = self._asked(request)
        runner = await self._agents.reader_of(session_id, caller)
        found = await runner.checkpoint(session_id, named(request, "checkpoint"), user_id=caller.user_id)
        return CheckpointView.of_point(found, state=plain(found.state))

    async def show_tree(self, request: Request) -> CheckpointTree:
        """List the checkpoints as a tree: each with how many branchings lie before it."""
        caller, session_id = self._asked(request)
        found = await self._sessions.tree(session_id, user_id=caller.user_id)
        points = [TreeEntry.at(depth, point, found.head) for depth, point in found]
        return CheckpointTree(session_id=session_id, head=found.head, checkpoints=points)

    async def show_state(self, request: Request) -> StateView:
        """Show the state at a checkpoint, by default the most recent."""
        caller, session_id = self._asked(request)
        wanted = query(request, At)
        runner = await self._agents.reader_of(session_id, caller)
        found = await runner.state(session_id, checkpoint_id=wanted.checkpoint_id, at=wanted.at, user_id=caller.user_id)
        return StateView(session_id=session_id, state=plain(found))

    async def show_diff(self, request: Request) -> Difference:
        """Show what differs between two checkpoints."""
        caller, session_id = self._asked(request)
        wanted = query(request, Between)
        runner = await self._agents.reader_of(session_id, caller)
        found = await runner.diff(session_id, wanted.a, wanted.b, user_id=caller.user_id)
        return Difference.of(found, session_id=session_id)

    async def fork(self, request: Request) -> Forked:
        """Begin a new session as this one was at a checkpoint."""
        caller, session_id = self._asked(request)
        given = await read(request, Fork, self._max_body)
        if given.again or given.checkpoint_id is not None:
            admitted(caller, Access.ADMIN)
        agent = await self._agents.of_session(session_id, caller)
        await self._agents.check_open_to(caller, given.to)
        new = await agent.runner.fork(
            session_id, checkpoint_id=given.checkpoint_id, to=given.to, again=given.again, user_id=caller.user_id
        )
        return Forked(session_id=new)

    async def edit(self, request: Request) -> CheckpointView:
        """Change the state by hand, on a new branch."""
        caller, session_id = self._asked(request)
        given = await read(request, Edit, self._max_body)
        agent = await self._agents.of_session(session_id, caller)
        found = await agent.runner.edit(
            session_id,
            given.values,
            checkpoint_id=given.checkpoint_id,
            as_node=given.as_node,
            at=given.at,
            again=given.again,
            by=caller.name,
            user_id=caller.user_id,
        )
        return CheckpointView.of_point(found, state=plain(found.state))
