"""Chats: a turn of an agent, from a message or an answer, as a stream or as one result."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from adjourn._documents import questions
from adjourn._schemas.answers import as_meant
from adjourn.errors import (
    AdjournError,
    AlreadyResumed,
    Conflict,
    InterruptExpired,
    PendingInterrupts,
    SessionBusy,
    StoreUnavailable,
    UnfinishedRun,
)
from adjourn.events import Interrupt
from adjourn.runner import Run, Runner
from adjourn.sessions import Sessions
from adjourn.stores import Head, SessionRef
from adjourn.stores.kit import GetHead, HasInput

from ._agents import Agents, ServedAgent
from ._api import Answering, Chat, FailedTurn, Failure, Following, OnBusy, Recover, Resume, TurnResult
from ._callers import Caller, Callers
from ._errors import ApiError, api_error
from ._idempotency import Key, key_of
from ._media import MediaHosts
from ._runs import Runs
from ._streams import Streams, check_still_there, seen_by, session_header
from ._wire import failure_text, named, query, read, respond


class Chats:
    """The routes that run turns, and the one that reads what happens in a session."""

    def __init__(
        self,
        agents: Agents,
        runs: Runs,
        streams: Streams,
        callers: Callers,
        sessions: Sessions,
        media: MediaHosts,
        *,
        max_body: int,
    ) -> None:
        self._agents = agents
        self._runs = runs
        self._streams = streams
        self._callers = callers
        self._sessions = sessions
        self._media = media
        self._max_body = max_body

    async def chat(self, request: Request) -> Response:
        """Begin a turn."""
        self._runs.check_open()
        caller = self._callers.of(request)
        given = await read(request, Chat, self._max_body)
        self._media.check(given.message)
        agent = self._agents.named(given.agent, caller)
        agent.check_values(given.values, caller)
        await self._agents.check_open_to(caller, given.session_id)
        on_busy, key = given.on_busy or agent.served.on_busy, key_of(request)
        try:
            if key is not None:
                return await self._begin_once(agent, given, caller, on_busy, key)
            # In a queue, a turn may have to wait for days: then its input is stored, and the stream begins at once.
            run = await self._begin(agent, given, caller, "error" if on_busy == "queue" else on_busy)
        except PendingInterrupts as pending:
            run = await self._pending(pending, agent, given, caller, key)
        except SessionBusy:
            if on_busy != "queue" or given.session_id is None:
                raise
            return await self._submit(agent, given, caller, given.session_id, "queue", None)
        return await self._response(run, agent.runner, caller, stream=given.stream)

    async def _begin(self, agent: ServedAgent, given: Chat, caller: Caller, on_busy: OnBusy) -> Run:
        on_pending = given.on_pending or agent.served.on_pending
        run = agent.runner.run(
            given.message,
            session_id=given.session_id,
            user_id=caller.user_id,
            values=given.values,
            metadata=given.metadata,
            on_busy=on_busy,
            on_pending=on_pending,
        )
        return await self._runs.start_turn(run, caller, on_pending)

    async def _begin_once(self, agent: ServedAgent, given: Chat, caller: Caller, on_busy: OnBusy, key: Key) -> Response:
        """Begin a turn that a store takes only once, whichever process died on the way and whoever sends it again."""
        session_id, input_id = given.session_id or key.session_id, key.name
        if (asked := await key.meant()) is not None:
            # When it first came, it was the answer to a question.
            answer = await _read_anew(self._sessions, session_id, asked, given.message, caller)
            run = await self._answer(agent, session_id, {asked: answer}, caller, key)
            return await self._response(run, agent.runner, caller, stream=given.stream)
        ref = SessionRef(session_id, self._agents.app_name, caller.user_id)
        head = await self._agents.store.read(GetHead(ref))
        if head is not None and await self._agents.store.read(HasInput(ref, input_id)):
            return await self._of_input(agent, given, caller, session_id, input_id, 0)
        if head is not None and head.checkpoint and head.owner is None:
            await self._end_last_turn(agent, given, caller, head)
        return await self._submit(agent, given, caller, session_id, on_busy, input_id)

    async def _end_last_turn(self, agent: ServedAgent, given: Chat, caller: Caller, head: Head) -> None:
        """Give up a turn that waits, so that one can follow, if `on_pending` says so.

        Raises:
            PendingInterrupts, UnfinishedRun: it does not.
        """
        abandons = (given.on_pending or agent.served.on_pending) == "abandon"
        if head.status == "waiting":
            asked = await self._sessions.pending(head.session, user_id=caller.user_id)
            if asked and not abandons:
                raise PendingInterrupts(head.session, [each.id for each in asked])
            if asked:
                await agent.runner.cancel(head.session, user_id=caller.user_id)
        elif head.status in ("failed", "cancelled") and not abandons:
            raise UnfinishedRun(head.session, head.status)

    async def _submit(
        self,
        agent: ServedAgent,
        given: Chat,
        caller: Caller,
        session_id: str,
        on_busy: OnBusy,
        input_id: str | None,
    ) -> Response:
        """Store the input of a turn, and answer with that turn, which begins when those before it have ended."""
        on_pending = given.on_pending or agent.served.on_pending
        await self._agents.check_room(caller, session_id, input_id)
        head = await self._agents.store.read(GetHead(SessionRef(session_id, self._agents.app_name, caller.user_id)))
        submitted = await agent.runner.submit(
            given.message,
            session_id=session_id,
            id=input_id,
            user_id=caller.user_id,
            values=given.values,
            metadata=given.metadata,
            on_busy=on_busy,
            on_pending="abandon" if on_pending == "abandon" else "error",
        )
        after = 0 if head is None else head.seq
        if (run := await self._begin_here(agent, caller, session_id, submitted.id)) is not None:
            return await self._response(run, agent.runner, caller, stream=given.stream)
        return await self._of_input(agent, given, caller, session_id, submitted.id, after)

    async def _begin_here(self, agent: ServedAgent, caller: Caller, session_id: str, input_id: str) -> Run | None:
        """Begin the turn of an input in this process, so that its caller reads every piece of what is written.

        None if it is not its turn, or others were faster: the store has the input, and a worker sees to it.
        """
        run = agent.runner.advance(session_id, input_id=input_id, user_id=caller.user_id)
        try:
            return await self._runs.start(run, caller)
        except AdjournError:
            return None

    async def _of_input(
        self, agent: ServedAgent, given: Chat, caller: Caller, session_id: str, input_id: str, after: int
    ) -> Response:
        run = agent.runner.attach(session_id, after=after, input_id=input_id, user_id=caller.user_id)
        if given.stream:
            return self._streams.of_input(run, agent.runner, input_id, after, caller.user_id)
        return respond(await self._whole(run), headers=session_header(run.session_id))

    async def _pending(
        self, pending: PendingInterrupts, agent: ServedAgent, given: Chat, caller: Caller, key: Key | None
    ) -> Run:
        """Take a message as the answer to the only open question, if its agent wants that.

        Raises:
            ApiError: it does not, or there are several; it names them.
        """
        asked = await self._sessions.pending(pending.session_id, user_id=caller.user_id)
        if agent.takes_as_answer(asked) and not given.on_pending:
            question = asked[0].token if key is None else await key.mean(asked[0].token)
            answer = read_answer(given.message, asked[0])
            return await self._answer(agent, pending.session_id, {question: answer}, caller, key)
        refusal = api_error(pending)
        refusal.told.interrupts = questions(asked)
        raise refusal

    async def _answer(
        self, agent: ServedAgent, session_id: str, answers: dict[str, Any], caller: Caller, key: Key | None
    ) -> Run:
        run = agent.runner.resume(session_id, answers, by=caller.name, id=key and key.name, user_id=caller.user_id)
        with self._runs.metrics.answering():
            return await self._runs.start(run, caller)

    async def resume(self, request: Request) -> Response:
        """Answer and go on."""
        self._runs.check_open()
        caller = self._callers.of(request)
        given = await read(request, Resume, self._max_body)
        self._media.check([given.answer, given.answers])
        agent = await self._agents.of_session(given.session_id, caller)
        key = key_of(request)
        with self._runs.metrics.answering():
            answers = await answers_of(self._sessions, given.session_id, given, caller, key)
            run = agent.runner.resume(
                given.session_id,
                answers,
                by=agent.author(caller, given.by),
                message=given.message,
                checkpoint_id=given.checkpoint_id,
                id=key and key.name,
                user_id=caller.user_id,
            )
            await self._runs.start(run, caller)
        return await self._response(run, agent.runner, caller, stream=given.stream)

    async def recover(self, request: Request) -> Response:
        """Go on after a crash, a failure or a cancel."""
        self._runs.check_open()
        caller, session_id = self._callers.of(request), named(request, "id")
        given = await read(request, Recover, self._max_body)
        agent = await self._agents.of_session(session_id, caller)
        run = await self._runs.start(agent.runner.recover(session_id, user_id=caller.user_id), caller)
        return await self._response(run, agent.runner, caller, stream=given.stream)

    async def read_events(self, request: Request) -> Response:
        """Read a session from any event on."""
        caller, session_id, after = self._callers.of(request), named(request, "id"), seen_by(request)
        wanted = query(request, Following)
        runner = await self._agents.reader_of(session_id, caller)
        await check_still_there(runner, SessionRef(session_id, self._agents.app_name, caller.user_id), after)
        run = runner.attach(session_id, after=after, user_id=caller.user_id)
        await run.start()
        watch = run.watch(stay=wanted.follow == "session", outlast=True)
        return self._streams.of(watch, runner, session_id, caller.user_id, is_turn=False)

    async def _response(self, run: Run, runner: Runner, caller: Caller, *, stream: bool) -> Response:
        if stream:
            # Nothing is awaited since the run was started, so that nothing of it is missed.
            return self._streams.of(run.watch(), runner, run.session_id, caller.user_id, is_turn=True)
        return respond(await self._whole(run), headers=session_header(run.session_id))

    async def _whole(self, run: Run) -> TurnResult | FailedTurn:
        """Wait for the end of a turn, and return its result.

        Raises:
            ApiError: the server stops, or another one goes on with the turn.
            StoreUnavailable: nobody can say how it ends.
        """
        try:
            found = await self._streams.unless_closing(run)
        except StoreUnavailable:
            raise
        except Conflict as error:
            raise _goes_on(run) from error
        except Exception as error:  # noqa: BLE001  # protects the client: whatever the agent's code raised, its session failed
            kind = type(error).__name__
            shown = api_error(error) if isinstance(error, AdjournError) else None
            code, message = ("run_failed", "") if shown is None else (shown.told.code, shown.told.message)
            failure = Failure(code=code, message=failure_text(kind, message))
            return FailedTurn(session_id=run.session_id, status="failed", error=failure)
        if found is None or run.is_handed_over:
            raise _goes_on(run)
        return TurnResult.of_result(found)


def _goes_on(run: Run) -> ApiError:
    refusal = ApiError(
        "handed_over",
        "This server stops, or was too slow, and another one goes on with the turn.",
        "Read it with GET /api/v1/sessions/{id}/events. Under an Idempotency-Key, you can also send the request again.",
        session_id=run.session_id,
    )
    refusal.headers = session_header(run.session_id)  # And no time to try again after: without a key, that adds a turn.
    return refusal


def read_answer(given: Any, asked: Interrupt) -> Any:
    """Return an answer as its question wants it; a page that only has a field for text sends every answer as one."""
    return as_meant(given, asked.schema) if isinstance(given, str) else given


async def _read_anew(sessions: Sessions, session_id: str, name: str, given: Any, caller: Caller) -> Any:
    """Return an answer that comes again as it was read when it first came; its question may be open no more."""
    entries = await sessions.audit(session_id, user_id=caller.user_id)
    asked = next((each.interrupt for each in entries if name in (each.interrupt.id, each.interrupt.token)), None)
    return given if asked is None else read_answer(given, asked)


async def answers_of(
    sessions: Sessions, session_id: str, given: Answering, caller: Caller, key: Key | None
) -> dict[str, Any]:
    """Return which questions are answered, and how: `answer` is for the only one that is open.

    Under a key, it is for the one that was open when the request first came, although another one may be by now.

    Raises:
        ApiError: nothing is answered, or `answer` does not say which of several questions it is for.
        AlreadyResumed: no question is open any more.
        InterruptExpired: nor is one, since the last one has expired.
        CheckpointNotFound: there is no such session.
    """
    if given.answers is not UNSET and given.answer is UNSET and given.answers:
        return given.answers
    if given.answer is UNSET or given.answers is not UNSET:
        raise ApiError(
            "invalid_request",
            "The body has neither or both of `answer` and `answers`, or no answer in it.",
            'Send "answer" for the only open question, or "answers": {"<id>": ...}.',
        )
    if key is not None and (meant := await key.meant()) is not None:
        return {meant: await _read_anew(sessions, session_id, meant, given.answer, caller)}
    asked = await sessions.pending(session_id, user_id=caller.user_id)
    if len(asked) == 1:
        only = asked[0]
        return {only.id if key is None else await key.mean(only.id): read_answer(given.answer, only)}
    if not asked:
        raise await _not_open(sessions, session_id, caller)
    raise ApiError(
        "unknown_interrupt",
        f"Session '{session_id}' has {len(asked)} open questions, so `answer` does not say which one it is for.",
        'Send "answers": {"<id>": ...}, with one or several of them.',
        session_id=session_id,
        open=[each.id for each in asked],
        interrupts=questions(asked),
    )


async def _not_open(sessions: Sessions, session_id: str, caller: Caller) -> AdjournError:
    """Return what became of the question that was asked last, since none is open."""
    found = await sessions.status(session_id, user_id=caller.user_id)
    entries = await sessions.audit(session_id, user_id=caller.user_id)
    is_live = found.status == "running"
    last = next((each for each in reversed(entries) if each.outcome != "abandoned" and not each.inherited), None)
    if last is None:
        return AlreadyResumed(session_id, live=is_live)
    if last.outcome == "expired" or (last.outcome is None and last.interrupt.expires is not None):
        return InterruptExpired(session_id, last.interrupt.id)
    at = None if last.at is None else last.at.timestamp()
    return AlreadyResumed(session_id, last.interrupt.id, live=is_live, by=last.by, at=at)
