"""AG-UI 1.0: agents as the front ends of CopilotKit, assistant-ui and others run them, and threads as they find them.

A thread is a session. Of what a front end sends, only what the user has said last and the answers count: the
conversation is ours.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from adjourn._documents import plain
from adjourn._hiding import logger
from adjourn._text import visible_line
from adjourn.errors import (
    AdjournError,
    CheckpointNotFound,
    PendingInterrupts,
    UnfinishedRun,
    text_of,
)
from adjourn.events import FINAL, Cancelled, Done, Failed, Final, Interrupt, Interrupted
from adjourn.messages import Message
from adjourn.runner import CaughtUp, Reader, Run, Runner
from adjourn.tools import ToolCallInfo

from ._agents import Agents, ServedAgent
from ._agui_data import (
    CANCELLED,
    VERSION,
    Data,
    answer,
    conversation,
    interrupt,
    new_message,
    usage,
)
from ._agui_events import Encoder
from ._api import AgUiThread, Resolved, RunInput
from ._callers import Caller, Callers
from ._chat import read_answer
from ._drafts import drafts_of
from ._errors import ApiError, api_error, code_of
from ._limits import Usage
from ._media import MediaHosts
from ._runs import Runs
from ._sse import frame
from ._streams import Streams, is_unstored_end, session_header
from ._wire import encode, failure_text, named, read, respond

log = logger("adjourn.server")

_CLOSES: Data = {
    "type": "RUN_ERROR",
    "code": "closing",
    "message": "This server stops, and the run goes on elsewhere. Load the thread.",
}

_LOST: Data = {
    "type": "RUN_ERROR",
    "code": "closing",
    "message": "What happens cannot be stored here at the moment, and the run goes on elsewhere. Load the thread.",
}


class AgUi:
    """The routes of AG-UI."""

    def __init__(
        self,
        agents: Agents,
        runs: Runs,
        streams: Streams,
        callers: Callers,
        media: MediaHosts,
        usage: Usage,
        *,
        max_body: int,
    ) -> None:
        self._agents = agents
        self._runs = runs
        self._streams = streams
        self._callers = callers
        self._media = media
        self._usage = usage
        self._max_body = max_body

    async def run_agui(self, request: Request) -> Response:
        """Begin a run of a thread, or go on with answers.

        What cannot be read is refused with a status. Everything else is told in the stream, where front ends expect it.
        """
        self._runs.check_open()
        caller = self._callers.of(request)
        agent = self._agents.named(named(request, "agent"), caller)
        given = await read(request, RunInput, self._max_body)
        # Answers are taken always.
        with contextlib.nullcontext(dict[str, str]()) if given.resume else self._usage.turn(caller) as limits:
            frames = await self._started(agent, given, caller)
        headers = {**session_header(given.thread_id), **limits}
        return self._streams.response(lambda _: frames, headers, last=frame(encode(_CLOSES)))

    async def _started(self, agent: ServedAgent, given: RunInput, caller: Caller) -> AsyncGenerator[bytes]:
        """Begin what a request asks for, and return its stream."""
        turn = _Turn(agent.runner, given, caller)
        try:
            await self._agents.check_open_to(caller, given.thread_id)
            known = await turn.messages()
            said = None if given.resume else new_message(given.messages, known)
            self._media.check([said, given.other_input, *(each.payload for each in given.resume or ())])
            started = await self._begin(turn, agent, said)
        except (AdjournError, ApiError) as error:
            return turn.refused(api_error(error))
        if started is None:
            return turn.cancelled()
        # Nothing is awaited since the run was started, so that nothing of it is missed.
        return turn.frames(started.watch(), Encoder([*known, said] if said else known))

    async def show_agui_thread(self, request: Request) -> Response:
        """Show a thread, for a front end that was reloaded."""
        caller, thread_id = self._callers.of(request), named(request, "id")
        wanted = self._agents.named(named(request, "agent"), caller)
        agent = await self._agents.of_session(thread_id, caller)
        if agent.name != wanted.name:
            raise CheckpointNotFound(thread_id)
        found = await agent.runner.status(thread_id, user_id=caller.user_id)
        asked = found.interrupts if found.status == "waiting" else ()
        thread = AgUiThread(
            thread_id=thread_id,
            status=found.status,
            messages=conversation(await agent.runner.messages(thread_id, user_id=caller.user_id)),
            interrupts=[interrupt(each) for each in asked],
            state=await _state(agent.runner, thread_id, caller),
        )
        return respond(thread, headers=session_header(thread_id))

    # Beginning

    async def _begin(self, turn: _Turn, agent: ServedAgent, said: Message | None) -> Run | None:
        """Start the run that a request asks for; None if it cancels a turn instead."""
        given, caller = turn.given, turn.caller
        if given.resume:
            answers = await _answers(turn, given.resume)
            if answers is None:
                return None
            run = agent.runner.resume(given.thread_id, answers, by=caller.name, user_id=caller.user_id)
            with self._runs.metrics.answering():
                return await self._runs.start(run, caller)
        wanted = said if given.other_input is None else given.other_input
        if wanted is None:
            told = "The run has neither a new message of the user nor answers. Add a message, or send `resume`."
            raise ApiError("nothing_to_do", told, "")
        return await self._begin_turn(turn, agent, wanted)

    async def _begin_turn(self, turn: _Turn, agent: ServedAgent, said: Message | Data) -> Run:
        try:
            return await self._start(turn, agent, said, abandons=False)
        except UnfinishedRun as unfinished:
            if unfinished.status not in ("failed", "cancelled") or unfinished.inputs:
                raise
        except PendingInterrupts as pending:
            found = await agent.runner.status(turn.given.thread_id, user_id=turn.caller.user_id)
            if found.status != "cancelled":
                return await self._answer_pending(turn, agent, said, pending)
        # Front ends know nothing of a turn that could be finished: what has failed, or was cancelled, has ended.
        return await self._start(turn, agent, said, abandons=True)

    async def _start(self, turn: _Turn, agent: ServedAgent, said: Message | Data, *, abandons: bool) -> Run:
        thread_id, user_id, served = turn.given.thread_id, turn.caller.user_id, agent.served
        on_pending = "abandon" if abandons else served.on_pending
        run = agent.runner.run(
            said,
            session_id=thread_id,
            user_id=user_id,
            # In a queue, a turn may have to wait for days, and no front end can.
            on_busy="error" if served.on_busy == "queue" else served.on_busy,
            on_pending=on_pending,
        )
        return await self._runs.start_turn(run, turn.caller, on_pending)

    async def _answer_pending(
        self, turn: _Turn, agent: ServedAgent, said: Message | Data, pending: PendingInterrupts
    ) -> Run:
        """Take a message as the answer to the only open question, if its agent wants that."""
        asked = await turn.pending()
        if not agent.takes_as_answer(asked) or not isinstance(said, Message):
            raise _open([each.token for each in asked]) from pending
        answers = {asked[0].token: read_answer(said.text, asked[0])}
        run = agent.runner.resume(turn.given.thread_id, answers, by=turn.caller.name, user_id=turn.caller.user_id)
        with self._runs.metrics.answering():
            return await self._runs.start(run, turn.caller)


async def _answers(turn: _Turn, given: Sequence[Resolved]) -> dict[str, Any] | None:
    """Return answers by token for what a front end has resolved; None if the turn was cancelled.

    Raises:
        ApiError: some open questions are not among them, and a front end has to answer all at once; or one has two
            different answers.
    """
    asked = {name: each for each in await turn.pending() for name in (each.token, each.id)}
    _check_clear(given)
    named_ = {asked[each.interrupt_id].id for each in given if each.interrupt_id in asked}
    left = sorted({each.token for each in asked.values() if each.id not in named_})
    if left:
        raise _open(left)
    answers: dict[str, Any] = {}
    for each in given:
        question = asked.get(each.interrupt_id)
        if each.status == "resolved":
            # Of a question that is not open any more, the library says why it takes no answer.
            answers[each.interrupt_id] = each.payload if question is None else answer(question, each.payload)
        elif question is not None and isinstance(question.info, ToolCallInfo):
            answers[each.interrupt_id] = CANCELLED
        elif question is not None:
            # Nothing can go on without this answer.
            await turn.runner.cancel(turn.given.thread_id, user_id=turn.caller.user_id)
            return None
    return answers or None


def _check_clear(given: Sequence[Resolved]) -> None:
    """Refuse two answers to one question: which of them counts is nothing to guess."""
    known: dict[str, Resolved] = {}
    for each in given:
        if known.setdefault(each.interrupt_id, each) != each:
            told = f"`resume` has two different answers to '{each.interrupt_id}'. Send one."
            raise ApiError("invalid_request", told, "")


class _Turn:
    """A run as its front end sees it."""

    def __init__(self, runner: Runner, given: RunInput, caller: Caller) -> None:
        self.runner = runner
        self.given = given
        self.caller = caller
        self._ids = {"threadId": given.thread_id, "runId": given.run_id}

    async def messages(self) -> Sequence[Message]:
        """Return the conversation so far."""
        try:
            return await self.runner.messages(self.given.thread_id, user_id=self.caller.user_id)
        except CheckpointNotFound:
            return ()

    async def pending(self) -> Sequence[Interrupt]:
        """Return the open questions."""
        return await self.runner.pending(self.given.thread_id, user_id=self.caller.user_id)

    async def refused(self, error: ApiError) -> AsyncGenerator[bytes]:
        """Yield the stream of a run that does not begin."""
        yield self._opening()
        yield _frame(_error(error))

    async def cancelled(self) -> AsyncGenerator[bytes]:
        """Yield the stream of a run that ends a turn."""
        yield self._opening()
        yield await self._snapshot()
        yield _frame({"type": "RUN_FINISHED", **self._ids, "outcome": {"type": "cancelled"}})

    async def frames(self, reader: Reader, encoder: Encoder) -> AsyncGenerator[bytes]:
        """Yield the stream of a run."""
        yield self._opening()
        try:
            async with contextlib.aclosing(reader.items()) as items:
                async for item in items:
                    for each in drafts_of(reader.listener) if isinstance(item, CaughtUp) else (item,):
                        for event in encoder.events(each):
                            yield _frame(event)
                    if is_unstored_end(item):
                        yield _frame(_LOST)
                        return
                    if isinstance(item, FINAL):
                        async for each in self._end(item):
                            yield each
                        return
        except AdjournError as error:
            log.warning(
                "the stream of %s ended early: %s", visible_line(self.given.thread_id), visible_line(text_of(error))
            )
            yield _frame(_error(api_error(error)))
            return
        yield _frame(_CLOSES)

    def _opening(self) -> bytes:
        return _frame({"type": "RUN_STARTED", **self._ids, "protocolVersion": VERSION})

    async def _end(self, last: Final) -> AsyncGenerator[bytes]:
        """Yield the end of a run: the conversation as it is stored, since front ends write into theirs, and why."""
        finished: Data = {"type": "RUN_FINISHED", **self._ids}
        match last:
            case Failed():
                yield _frame(
                    {
                        "type": "RUN_ERROR",
                        "message": failure_text(last.error, last.message),
                        "code": code_of(last.error),
                    }
                )
                return
            case Interrupted():
                asked = await self.pending() or last.interrupts
                finished["outcome"] = {"type": "interrupt", "interrupts": [interrupt(each) for each in asked]}
                state = await _state(self.runner, self.given.thread_id, self.caller)
            case Cancelled():
                finished["outcome"] = {"type": "cancelled"}
                state = None
            case Done():
                state = None if last.state is None else plain(dict(last.state))
                finished["outcome"] = {"type": "success"}
                if last.output:
                    finished["result"] = last.output
                if last.usage is not None and (used := usage(last.usage)):
                    finished["usage"] = used
        if state is not None:
            yield _frame({"type": "STATE_SNAPSHOT", "snapshot": state})
        yield await self._snapshot()
        yield _frame(finished)

    async def _snapshot(self) -> bytes:
        """Return the conversation as a frame; there is none if the program has no conversation."""
        found = conversation(await self.messages())
        return _frame({"type": "MESSAGES_SNAPSHOT", "messages": found}) if found else b""


async def _state(runner: Runner, thread_id: str, caller: Caller) -> Any:  # Any: JSON
    """Return the state of a graph; that of agents is their own business."""
    if runner.program.kind != "runnable":
        return None
    state = await runner.state(thread_id, user_id=caller.user_id)
    return None if state is None else plain(state)


def _frame(event: Data) -> bytes:
    return frame(encode(event))


def _error(error: ApiError) -> Data:
    return {"type": "RUN_ERROR", "message": error.told.message, "code": error.told.code}  # The hints name other routes.


def _open(left: Sequence[str]) -> ApiError:
    told = f"These questions are open: {', '.join(left)}. Send `resume` that answers or cancels all of them."
    return ApiError("pending_interrupts", told, "")
