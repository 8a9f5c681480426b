"""Client: a server of agents, from async code."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack, cast
from uuid import uuid4

from msgspec.structs import replace

from adjourn._values.secret import Secret
from adjourn.errors import CheckpointNotFound, UsageError
from adjourn.events import Interrupt
from adjourn.messages import Message
from adjourn.sessions import Answers, AuditEntry, Checkpoint, Diff, InboxFilter, Page, Tree
from adjourn.stores.types import Order, Source, Status

from ._errors import RequestRefused
from ._http import API, Reconnecting, Server, encoded, in_path, session_path
from ._inbox import InboxReader
from ._run import CancelMode, RemoteRun
from ._turn import Begin, Turn
from ._wire import (
    AgentInfo,
    Agents,
    Audit,
    Audited,
    Branches,
    Cancelled,
    Conversation,
    Decisions,
    Forked,
    Inputs,
    Point,
    Points,
    Questions,
    RemoteInput,
    RemoteNotice,
    SessionInfo,
    SessionPage,
    State,
    Submitted,
    read,
    with_infos,
)

T = TypeVar("T")

MOST = 1000
"""How many items a page of a server may have."""

OnBusy = Literal["error", "queue", "cancel"]
OnPending = Literal["error", "abandon", "finish"]


class Client:
    """A server of agents, with the methods of `Runner` and `Sessions`, from any event loop.

    Whatever is sent counts once, also if its connection is lost and it has to be sent again. Close it with `close`, or
    use it as `async with Client(...) as client`. `SyncClient` is the same for sync code.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | Secret | None = None,
        timeout: float = 30.0,
        silence: float = 45.0,
        reconnect: float = 120.0,
        on_reconnect: Callable[[Reconnecting], None] | None = None,
        httpx_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Use the server at a URL, such as http://localhost:8000; nothing is sent yet.

        token: what `adjourn token create` printed.
        timeout: seconds that connecting, and each request but those for streams, may take.
        silence: seconds after which a stream in which nothing is heard counts as lost; servers send something every 15.
        reconnect: seconds for which a connection that was lost is tried again, since anything was heard; 0 for never.
        on_reconnect: a function that is called each time before that.
        httpx_options: options of `httpx2.AsyncClient`, such as `verify`, `cert`, `proxy` or `headers`.

        Raises:
            UsageError: the URL is not one of a server, or something is not what it must be.
        """
        for name, value in {"timeout": timeout, "silence": silence, "reconnect": reconnect}.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
                raise UsageError(f"Client({name}={value!r}): give a number of seconds.")
        self._server = Server(
            url,
            token,
            timeout=timeout,
            silence=silence,
            patience=reconnect,
            on_reconnect=on_reconnect,
            options=httpx_options or {},
        )

    @property
    def url(self) -> str:
        """The address of the server."""
        return self._server.url

    def __repr__(self) -> str:
        return f"<Client of {self.url}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections of the running event loop."""
        await self._server.close()

    # Turns

    def chat(
        self,
        message: str | Mapping[str, Any],
        *,
        agent: str | None = None,
        session_id: str | None = None,
        values: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        on_busy: OnBusy | None = None,
        on_pending: OnPending | None = None,
    ) -> RemoteRun:
        """Begin a turn with a message, or with the fields of a graph's state, as `Runner.run` does.

        The agent may be left out if the server has only one, and the session to begin a new one. What a message does
        while a turn runs or questions are open is up to the agent, unless `on_busy` or `on_pending` says.
        """
        if not isinstance(cast("object", message), str | Mapping):
            raise UsageError(f"chat({message!r:.80}): give a text, or the fields of a graph's state.")
        session_id = _given_id(session_id) or uuid4().hex
        body = {
            "message": message,
            "agent": agent,
            "session_id": session_id,
            "values": values,
            "metadata": metadata,
            "on_busy": on_busy,
            "on_pending": on_pending,
        }
        return self._begun(session_id, f"{API}/chat", body)

    def resume(
        self,
        session_id: str,
        answers: Answers = None,
        *,
        by: str | None = None,
        message: str | None = None,
        checkpoint_id: str | None = None,
    ) -> RemoteRun:
        """Answer questions and go on, as `Runner.resume` does; None answers the only open one without data.

        Where callers have tokens, the name of the token counts in place of `by`.
        """
        body = {"session_id": _given_id(session_id), **_answering(answers, by, message, checkpoint_id)}
        return self._begun(session_id, f"{API}/chat/resume", body)

    def recover(self, session_id: str) -> RemoteRun:
        """Go on after a crash, a failure or a cancel; what has ended gives its stored result."""
        return self._begun(session_id, session_path(session_id, "/recover"), {})

    def attach(self, session_id: str, *, after: int | None = 0) -> RemoteRun:
        """Follow a session from an event on, until the turn that runs there has ended; None for from now on."""
        if isinstance(after, bool) or not isinstance(after, int | None) or (after or 0) < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"attach(after={after!r}): give the number of an event.")
        session_path(session_id)
        return self._run(Turn(self._server, session_id, after=after), is_attached=True)

    def _begun(self, session_id: str, path: str, body: Mapping[str, Any]) -> RemoteRun:
        given = {name: value for name, value in body.items() if value is not None or name == "answer"}
        return self._run(Turn(self._server, session_id, begin=Begin(path=path, body=encoded(given), key=uuid4().hex)))

    def _run(self, turn: Turn, *, is_attached: bool = False) -> RemoteRun:
        session_id = turn.session_id
        cancel: Callable[[CancelMode], Awaitable[bool]] = partial(self.cancel, session_id)
        return RemoteRun(turn, cancel=cancel, checkpoint=partial(self._point, session_id), is_attached=is_attached)

    async def _point(self, session_id: str) -> str | None:
        return (await self.status(session_id)).checkpoint_id or None

    # Answering, queueing and stopping, without waiting for what follows

    async def answer(
        self,
        session_id: str,
        answers: Answers = None,
        *,
        by: str | None = None,
        message: str | None = None,
        checkpoint_id: str | None = None,
    ) -> SessionInfo:
        """Record answers, as `resume` takes them, and return; the server goes on by itself."""
        body = _answering(answers, by, message, checkpoint_id)
        return await self._post(SessionInfo, session_id, "/answers", body)

    async def cancel(self, session_id: str, mode: CancelMode = "now") -> bool:
        """Stop the run of a session, or give up one that waits; return whether there was anything to stop."""
        return (await self._post(Cancelled, session_id, "/cancel", {"mode": mode})).cancelled

    async def submit(
        self,
        message: str | Mapping[str, Any],
        *,
        session_id: str | None = None,
        id: str | None = None,
        agent: str | None = None,
        values: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        on_busy: OnBusy = "queue",
        on_pending: Literal["error", "abandon"] = "error",
    ) -> Submitted:
        """Store the input of a turn and return; it begins when those before it have ended."""
        body = {
            "message": message,
            "id": id,
            "agent": agent,
            "values": values,
            "metadata": metadata,
            "on_busy": on_busy,
            "on_pending": on_pending,
        }
        return await self._post(Submitted, _given_id(session_id) or uuid4().hex, "/inputs", body)

    async def inputs(self, session_id: str) -> list[RemoteInput]:
        """List the inputs that wait for their turn, in order."""
        return (await self._get(Inputs, session_id, "/inputs")).inputs

    async def withdraw(self, session_id: str, id: str) -> bool:
        """Remove an input that waits for its turn; return False if none of this id does."""
        try:
            await self._server.delete(session_path(session_id, f"/inputs/{in_path(id)}"), session_id=session_id)
        except RequestRefused as refused:
            if refused.code == "input_not_found":
                return False
            raise
        return True

    # Looking

    async def agents(self) -> list[AgentInfo]:
        """List the agents of the server."""
        return read(await self._server.get(f"{API}/agents"), Agents, self.url).agents

    async def status(self, session_id: str) -> SessionInfo:
        """Return the status of a session, and what it asks.

        Raises:
            CheckpointNotFound: there is no such session, or it is not yours to see.
        """
        found = await self._get(SessionInfo, session_id)
        return _shown(found)

    async def sessions(
        self, *, status: Status | None = None, after: str | None = None, limit: int | None = None
    ) -> Page[SessionInfo]:
        """List the sessions, most recently written first; with a `limit` it is a page, as for `pending`."""

        async def page(after: str | None, limit: int) -> tuple[list[SessionInfo], str | None]:
            body = await self._server.get(f"{API}/sessions", {"status": status, "after": after, "limit": limit})
            found = read(body, SessionPage, self.url)
            return [_shown(each) for each in found.sessions], found.next

        return await _pages(page, after, limit)

    async def pending(
        self,
        session_id: str | None = None,
        *,
        order: Order = "age",
        after: str | None = None,
        limit: int | None = None,
        **filters: Unpack[InboxFilter],
    ) -> Page[Interrupt]:
        """List open questions, of one session or of all, oldest first.

        `order` and the filters are those of `Sessions.pending`. With a `limit` it is a page: the next one begins
        `after` its `next`. It may be shorter than that, since what you may not see is left out.
        """
        given = cast("dict[str, str | timedelta | float | None]", filters)
        wanted = {name: value if isinstance(value, str) else _seconds(value) for name, value in given.items()}

        async def page(after: str | None, limit: int) -> tuple[list[Interrupt], str | None]:
            body = await self._server.get(
                f"{API}/inbox", {"session_id": session_id, "order": order, **wanted, "after": after, "limit": limit}
            )
            found = read(body, Questions, self.url)
            return list(with_infos(found.questions)), found.next

        return await _pages(page, after, limit)

    async def count_pending(self, session_id: str | None = None, **filters: Unpack[InboxFilter]) -> int:
        """Return how many questions `pending` lists."""
        return len(await self.pending(session_id, **filters))

    async def decisions(
        self,
        *,
        by: str | None = None,
        agent: str | None = None,
        how: Literal["answered", "expired"] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> Page[AuditEntry]:
        """List the questions of all sessions that were answered or have expired, most recent first.

        The options are those of `Sessions.decisions`, the pages those of `pending`.
        """
        moments = {"since": since, "until": until}  # Without a zone, they are in that of this machine.
        wanted = {"by": by, "agent": agent, "how": how}
        wanted |= {name: each and each.astimezone().isoformat() for name, each in moments.items()}

        async def page(after: str | None, limit: int) -> tuple[list[AuditEntry], str | None]:
            body = await self._server.get(f"{API}/decisions", {**wanted, "after": after, "limit": limit})
            found = read(body, Decisions, self.url)
            return [each.entry() for each in found.decisions], found.next

        return await _pages(page, after, limit)

    def subscribe(
        self, *, reason: str | None = None, tag: str | None = None, report_open: bool = False
    ) -> AsyncGenerator[RemoteNotice]:
        """Report questions that are asked and closed, and turns that end, over all sessions, while the caller reads.

        With `report_open`, the questions that are open already come first. Over a lost connection, no question is
        missed or reported twice; turns that end meanwhile are not reported.
        """
        return InboxReader(self._server, reason=reason, tag=tag, report_open=report_open).items()

    async def messages(self, session_id: str) -> tuple[Message, ...]:
        """Return the conversation of a session."""
        return (await self._get(Conversation, session_id, "/messages")).messages

    async def audit(self, session_id: str) -> list[AuditEntry]:
        """List every question on the way to the session's head, oldest first: who answered what, and when."""
        return [each.entry() for each in (await self._get(Audit, session_id, "/audit")).entries]

    async def question(self, session_id: str, name: str) -> AuditEntry:
        """Return one question, by its id or token: open, or how it ended."""
        return (await self._get(Audited, session_id, f"/questions/{in_path(name)}")).entry()

    # History

    async def history(
        self,
        session_id: str,
        *,
        limit: int | None = None,
        before: str | None = None,
        source: Source | None = None,
        under: str | None = None,
    ) -> list[Checkpoint]:
        """List the checkpoints of a session, most recent first, without their states; `checkpoint` has that of one."""

        async def page(before: str | None, limit: int) -> tuple[list[Checkpoint], str | None]:
            found = await self._get(
                Points, session_id, "/checkpoints", before=before, limit=limit, source=source, under=under
            )
            return [each.checkpoint() for each in found.checkpoints], found.next

        return await _pages(page, before, limit)

    async def checkpoint(self, session_id: str, id: str | None = None) -> Checkpoint:
        """Return one checkpoint with its state, by default the most recent."""
        # The head need not be listed: a run that failed may have ended within a step.
        chosen = [each.id for each in await self.history(session_id, limit=1)] if id is None else [id]
        if not chosen:
            raise CheckpointNotFound(session_id)
        return (await self._get(Point, session_id, f"/checkpoints/{in_path(chosen[0])}")).checkpoint()

    async def state(self, session_id: str, *, checkpoint_id: str | None = None, at: str | None = None) -> Any:
        """Return the state at a checkpoint, by default the head, as JSON data."""
        return (await self._get(State, session_id, "/state", checkpoint_id=checkpoint_id, at=at)).state

    async def tree(self, session_id: str) -> Tree:
        """Return the checkpoints as a tree of branches; printing it shows it."""
        return (await self._get(Branches, session_id, "/tree")).tree()

    async def diff(self, session_id: str, a: str, b: str) -> Diff:
        """Return what differs between the states at two checkpoints."""
        return await self._get(Diff, session_id, "/diff", a=a, b=b)

    async def fork(
        self, session_id: str, *, checkpoint_id: str | None = None, to: str | None = None, again: bool = False
    ) -> str:
        """Begin a new session as this one was at a checkpoint, and return its id.

        A `checkpoint_id`, and `again`, which lets approvals that have acted count once more, are for admins to give.

        Raises:
            ApprovalSpent: an approval that a node asked before the checkpoint has acted since.
        """
        body = {"checkpoint_id": checkpoint_id, "to": to, "again": again or None}
        return (await self._post(Forked, session_id, "/fork", body)).session_id

    async def edit(
        self,
        session_id: str,
        values: Mapping[str, Any],
        *,
        checkpoint_id: str | None = None,
        as_node: str | None = None,
        at: str | None = None,
        again: bool = False,
    ) -> Checkpoint:
        """Write values into the state at a checkpoint, on a new branch, and return the new checkpoint.

        With `again`, approvals that have acted count once more.

        Raises:
            ApprovalSpent: an approval that a node asked before the checkpoint has acted since.
        """
        body = {"values": values, "checkpoint_id": checkpoint_id, "as_node": as_node, "at": at, "again": again or None}
        return (await self._post(Point, session_id, "/edit", body)).checkpoint()

    async def delete(self, session_id: str) -> None:
        """Remove a whole session.

        Raises:
            CheckpointNotFound: there is no such session.
            SessionBusy: somebody runs it.
        """
        await self._server.delete(session_path(session_id), session_id=session_id)

    # Requests

    async def _get(self, kind: type[T], session_id: str, rest: str = "", **query: Any) -> T:
        body = await self._server.get(session_path(session_id, rest), query, session_id=session_id)
        return read(body, kind, self.url)

    async def _post(self, kind: type[T], session_id: str, rest: str, body: Mapping[str, Any]) -> T:
        given = {name: value for name, value in body.items() if value is not None or name == "answer"}
        path = session_path(session_id, rest)
        found = await self._server.post(path, given, key=uuid4().hex, session_id=session_id)
        return read(found, kind, self.url)


def _given_id(session_id: str | None) -> str | None:
    if session_id is not None:
        session_path(session_id)
    return session_id


def _answering(answers: Answers, by: str | None, message: str | None, checkpoint_id: str | None) -> dict[str, Any]:
    named = {"answer": None} if answers is None else {"answers": _named(answers)}
    return {**named, "by": by, "message": message, "checkpoint_id": checkpoint_id}


def _named(answers: Mapping[Any, Any] | Sequence[Any]) -> dict[str, Any]:
    """Return answers by the names of their questions; what was shown is named by its token."""
    given: list[Any] = list(answers) if isinstance(cast("object", answers), Mapping | list | tuple) else []
    names = [(each.token or each.id) if isinstance(each, Interrupt) else each for each in given]
    if not names or not all(isinstance(name, str) for name in names):
        raise UsageError(
            f"answers={answers!r:.200}: give a mapping of questions (their tokens, ids or keys, or the interrupts "
            "themselves) to answers, or a list of them."
        )
    values = list(answers.values()) if isinstance(answers, Mapping) else [None] * len(names)
    return dict(zip(names, values, strict=True))


def _seconds(span: timedelta | float | None) -> float | None:
    return span.total_seconds() if isinstance(span, timedelta) else span


def _shown(found: SessionInfo) -> SessionInfo:
    return replace(found, interrupts=with_infos(found.interrupts))


async def _pages(
    page: Callable[[str | None, int], Awaitable[tuple[list[T], str | None]]], after: str | None, limit: int | None
) -> Page[T]:
    """Return a list that a server gives page by page: so many items, or all."""
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"limit={limit!r}: give 1 or more, or None for all.")
    found: list[T] = []
    while True:
        items, after = await page(after, MOST if limit is None else min(limit - len(found), MOST))
        found += items
        if after is None or (limit is not None and (len(found) >= limit or limit <= MOST)):
            return Page(found, next=after)
