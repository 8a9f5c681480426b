"""Approval: asking a person whether a tool call may run, and remembering the decision.

Decisions that are remembered for a session are session values. Those that are remembered always are in the store, in
a separate session per user, so that no two users share them; without a user id, they are remembered for the session.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from adjourn._engine.address import parse_segment, segment_text
from adjourn._engine.entry import entry_of, here
from adjourn._engine.failures import LooseGate
from adjourn._engine.frame import UserFrame
from adjourn._engine.questions import ask_for
from adjourn._engine.record import APPROVALS, Question
from adjourn._engine.scope import SESSION_ONLY
from adjourn._engine.values import decoded
from adjourn._schemas.answers import Checked
from adjourn._text import visible_line
from adjourn._values import codec
from adjourn.context import current
from adjourn.errors import (
    CheckpointCorrupt,
    CheckpointNotFound,
    Conflict,
    InvalidArguments,
    ProgramChanged,
    SessionBusy,
)
from adjourn.messages import ToolCall
from adjourn.runner import Run, Runner
from adjourn.stores import Store
from adjourn.tools import (
    Approve,
    Decision,
    Edit,
    Reject,
    Tool,
    ToolCallInfo,
    approval_schema,
    decision,
    fits_pattern,
)
from adjourn.tools.decisions import has_words
from adjourn.workflows import workflow

from .caller import Caller

IN_SESSION = f"{SESSION_ONLY}approved:"
"""Prefix of the session values that hold what was approved for the session."""

ALWAYS = "remembered"
"""The note in a call's frame that its approval was stored permanently."""

TRIES, LONGEST = 100, 0.2
"""The number of attempts while a user's approvals are being written elsewhere, and the longest delay between them."""

LEASE = 5.0
"""Seconds after which a process that died while writing them no longer blocks others; the attempts last longer."""


class Approval(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A remembered decision: when `agent` calls `tool` with arguments that fit `pattern`, nobody is asked.

    `digest` is that of the tool as it was approved (`Tool.digest`); `of` fills it in. When the tool's description or
    its arguments change, it covers nothing any more.
    """

    agent: str
    tool: str
    digest: str
    pattern: Mapping[str, Any] | None = None
    by: str | None = None

    @classmethod
    def of(cls, agent: str, tool: Tool, *, pattern: Mapping[str, Any] | None = None, by: str | None = None) -> Approval:
        """Return a decision about an agent's tool as it is now."""
        pattern = Approve(remember="session", pattern=pattern).pattern
        return cls(agent=agent, tool=tool.name, digest=_digest(tool), pattern=pattern, by=by)

    def covers(self, agent: str, tool: Tool, arguments: Mapping[str, Any]) -> bool:
        """Return whether it covers this call."""
        same = (self.agent, self.tool, self.digest) == (agent, tool.name, _digest(tool))
        return same and fits_pattern(arguments, self.pattern)

    @property
    def id(self) -> str:
        """An id that is equal for equal decisions."""
        return codec.fingerprint([self.agent, self.tool, self.digest, self.pattern and dict(self.pattern)])


@lru_cache(maxsize=256)
def _digest(tool: Tool) -> str:
    return tool.digest


class Approvals:
    """What users have approved permanently, in a store: `list` it and `revoke` it."""

    def __init__(self, store: Store | str, *, app_name: str = "adjourn") -> None:
        self._app = app_name
        self._book = Runner(_book, store=store, app_name=f"~{app_name}", lease_ttl=LEASE)

    async def list(self, user_id: str) -> list[Approval]:
        """Return what this user has approved permanently."""
        return [_approval_of(kept) for kept in (await self._kept(user_id)).values()]

    async def add(self, user_id: str, approval: Approval) -> None:
        """Remember a decision of this user."""
        await self._write(user_id, add={approval.id: _kept(approval)})

    async def revoke(self, user_id: str, tool: str | None = None, *, agent: str | None = None) -> int:
        """Delete what this user has approved, of one tool or agent or of all; return how many were deleted."""
        kept = {key: _approval_of(each) for key, each in (await self._kept(user_id)).items()}
        gone = [key for key, each in kept.items() if tool in (None, each.tool) and agent in (None, each.agent)]
        if gone:
            await self._write(user_id, drop=gone)
        return len(gone)

    def _session(self, user_id: str) -> str:
        # The parts are encoded, so no other app and user can produce the same name.
        return f"~{segment_text('approvals', self._app, user_id)}"

    async def _kept(self, user_id: str) -> dict[str, Any]:
        session = self._session(user_id)
        try:
            return await self._patiently(session, lambda: self._book.recover(session))
        except CheckpointNotFound:
            return {}

    async def _write(self, user_id: str, **change: Any) -> None:
        session = self._session(user_id)
        await self._patiently(
            session, lambda: self._book.run(change, session_id=session, user_id=user_id, on_pending="abandon")
        )

    async def _patiently(self, session: str, start: Callable[[], Run]) -> dict[str, Any]:
        for number in range(TRIES):
            try:
                return (await start()).value
            except (SessionBusy, Conflict):  # It is being written elsewhere.
                await asyncio.sleep(random.uniform(0, min(LONGEST, 0.005 * 2**number)))
        raise Conflict(session, "it keeps being written elsewhere")


@workflow(name="approvals")
async def _book(change: dict[str, Any]) -> dict[str, Any]:
    """Apply this change to one user's approvals, which are session values, and return them."""
    values = current().values
    kept = {**values.get("approvals", {}), **change.get("add", {})}
    values["approvals"] = {key: each for key, each in kept.items() if key not in change.get("drop", ())}
    return values["approvals"]


def _kept(approval: Approval) -> dict[str, Any]:
    """Return a decision as it is stored."""
    return {**msgspec.structs.asdict(approval), "pattern": approval.pattern and dict(approval.pattern)}


def _approval_of(kept: Mapping[str, Any]) -> Approval:
    # What was stored before decisions were about one agent and one digest covers nothing.
    agent, digest = kept.get("agent", ""), kept.get("digest", "")
    return Approval(agent=agent, tool=kept["tool"], digest=digest, pattern=kept["pattern"], by=kept["by"])


def in_session(caller: Caller) -> list[Approval]:
    """Return what was approved for this session; in a turn of nobody, nothing that its user approved counts."""
    if caller.scope.user_id != caller.scope.session_user:
        return []
    return [_approval_of(value) for key, value in caller.all_values().items() if key.startswith(IN_SESSION)]


async def is_remembered(caller: Caller, tool: Tool, arguments: Mapping[str, Any]) -> bool:
    """Return whether an approval that covers this call is remembered."""
    known, scope, agent = in_session(caller), caller.scope, caller.audience.name

    def counts(each: Approval) -> bool:
        return scope.may_approve(each.by) and each.covers(agent, tool, arguments)

    if scope.user_id is not None and not any(map(counts, known)):
        known = await Approvals(scope.journal.store, app_name=scope.app).list(scope.user_id)
    return any(map(counts, known))


async def remember(caller: Caller, tool: Tool, given: Approve, by: str | None) -> None:
    """Remember a decision for as long as it says."""
    approval, scope = Approval.of(caller.audience.name, tool, pattern=given.pattern, by=by), caller.scope
    frame = here("remember").frame
    if given.remember == "session" or scope.user_id is None:
        frame.write_value(IN_SESSION + approval.id, _kept(approval))
    elif not frame.is_noted(ALWAYS):
        # Only once: when the call continues after another pause, the user may have revoked it.
        await Approvals(scope.journal.store, app_name=scope.app).add(scope.user_id, approval)
        frame.note(ALWAYS)


def _reach(caller: Caller, tool: Tool) -> str:
    """Return in words what an approval of a call covers if it is remembered."""
    scope, calls = caller.scope, f"all calls of {tool.name} by {caller.audience.name}"
    always = (
        "nothing more, since the session has no user"
        if scope.user_id is None
        else f"those in every session of {scope.user_id} in {scope.app}, too"
    )
    return visible_line(
        f"Remembered for the session, it covers {calls} in this session; remembered always, {always}. It ends when the "
        "tool's description or arguments change."
    )


KEY = "approval"
REASON = "need_approval"


class Decided(NamedTuple):
    """A person's decision about a call, who made it, and the converted arguments with which it may run."""

    decision: Decision
    by: str | None
    converted: dict[str, Any]


async def approved(
    task: UserFrame, caller: Caller, tool: Tool, call: ToolCall, converted: dict[str, Any]
) -> Decided | None:
    """Return a person's decision about a call, or None if no one needs to be asked.

    Once a question has been asked, its answer decides; the predicate is not evaluated again.

    Raises:
        InvalidArguments: a person could not be shown everything that would run.
    """
    asked = _asked(task, call)
    if asked is None:
        if tool.approval is not True and not await needs_approval(tool, converted):
            return None
        arguments = tool.show(converted)
        if await is_remembered(caller, tool, arguments):
            return None
        task.make_all_optional()  # The memos of the predicate, which is not evaluated again.
        _ask(caller, tool, call, arguments)
        asked = _asked(task, call)
        if asked is None:
            # It was answered already, and then stored as one about another call.
            where = task.address
            raise CheckpointCorrupt(f"the question at '{where}' is not about the call there", task.scope.session_id)
    question, shown = asked
    found = await _answer(task, caller, tool, call, dict(shown.arguments), question)
    if isinstance(found, Approve):
        # Made from what the approver saw, and from nothing else.
        converted = _seen(task.address, tool, shown.arguments)
        if (edited := _edit_before(task, call, question)) is not None:
            return Decided(Edit(shown.arguments), edited.by, converted)
    elif isinstance(found, Edit):
        converted = tool.validate(found.arguments)
    return Decided(found, question.by, converted)


async def needs_approval(tool: Tool, converted: Mapping[str, Any]) -> bool:
    """Return whether a person must approve a call; if the tool does not say so clearly, the run fails (rule T9)."""
    try:
        return await tool.needs_approval(converted)
    except LooseGate as error:
        here("needs_approval").entry.failed(error)  # Code around the call must not swallow it.
        raise


def must_ask(caller: Caller, tool: Tool) -> bool:
    """Return whether a person is certainly asked about a call of a tool, without running any code to find out."""
    # Permanent approvals would have to be read from the store, and might cover the call.
    return tool.approval is True and caller.scope.user_id is None and not in_session(caller)


def _seen(address: str, tool: Tool, seen: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that the approver saw, converted.

    Raises:
        ProgramChanged: the tool can no longer be called with them.
    """
    found = _fit(address, tool, seen)
    if not _are_same(tool.lower(found), seen):
        raise ProgramChanged(address, "the tool now converts the approved arguments differently")
    return found


def _fit(address: str, tool: Tool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return tool.validate(arguments)
    except InvalidArguments as error:
        raise ProgramChanged(address, f"the arguments no longer fit the tool ({error})") from error


def _are_same(arguments: Mapping[str, Any], seen: Mapping[str, Any]) -> bool:
    """Return whether arguments are those that the approver saw; a default that was added since is a difference."""
    # As JSON, since True equals 1 in Python.
    return msgspec.json.encode(arguments, order="sorted") == msgspec.json.encode(seen, order="sorted")


def _asked(task: UserFrame, call: ToolCall) -> tuple[Question, ToolCallInfo] | None:
    """Return the approval's question and the call that it shows."""
    return next(_all_asked(task, call), None)


def _all_asked(task: UserFrame, call: ToolCall) -> Iterator[tuple[Question, ToolCallInfo]]:
    """Yield the questions about a call, the last one first; questions of the tool may have the same key."""
    for question in reversed(task.questions or ()):
        if question.key == KEY and question.reason == REASON:
            info: object = decoded(question.info)
            if isinstance(info, ToolCallInfo) and info.call_id == call.id:
                yield question, info


def _edit_before(task: UserFrame, call: ToolCall, approved: Question) -> Question | None:
    """Return the question whose answer made the arguments that were approved later, if a person edited them."""
    if approved.requesters is None:
        return None
    for (_, shown), (earlier, before) in pairwise(_all_asked(task, call)):
        # An edit that did not fit is followed by a question that shows the same as before.
        if not _are_same(shown.arguments, before.arguments) and isinstance(_decision_of(earlier), Edit):
            return earlier
    return None


def _decision_of(question: Question) -> Decision | None:
    try:
        return decision(decoded(question.value))
    except ValueError:
        return None


def _pass(task: UserFrame, question: Question) -> None:
    """Count the approval's question and those of the predicate before it as asked in this entry."""
    for each in task.questions or ():
        entry_of(task).passed(each)
        if each is question:
            return


def _ask(
    caller: Caller,
    tool: Tool,
    call: ToolCall,
    arguments: dict[str, Any],
    why: str = "",
    editor: str | None = None,
) -> None:
    """Ask for an approval; the `editor` is the person who wants these arguments."""
    shown = visible_line(msgspec.json.encode(arguments).decode())
    name, reach = caller.audience.name, _reach(caller, tool)
    ask_for(
        editor,
        ToolCallInfo(tool=tool.name, arguments=arguments, call_id=call.id, agent=name, reach=reach),
        key=KEY,
        reason=REASON,
        tags=tool.tags,
        prompt=f"{why}May {name} call {tool.name} with {shown}?",
        schema=_schema(tool),
    )


@lru_cache(maxsize=256)
def _schema(tool: Tool) -> Checked:
    return Checked(approval_schema(tool.schema))


async def _answer(
    task: UserFrame,
    caller: Caller,
    tool: Tool,
    call: ToolCall,
    arguments: dict[str, Any],
    question: Question,
) -> Decision:
    _pass(task, question)
    if question.is_open:
        entry_of(task).wait_for(question)
    if question.how == "expired":
        return Reject("no one decided in time")
    try:
        found = _read(tool, decoded(question.value))
    except (InvalidArguments, ValueError) as error:
        # It passed or bypassed the JSON Schema but cannot be used: ask again instead of failing for good.
        entry_of(task).refuse(question)
        what = "edited arguments do" if isinstance(error, InvalidArguments) else "answer does"
        _ask(caller, tool, call, arguments, f"The {what} not fit ({error}). ")
        raise  # never reached: asking raises
    if isinstance(found, Edit) and task.scope.needs_another(question):
        # It is a request of its author, which another person has to approve (rule V19).
        entry_of(task).refuse(question)
        edited, by = tool.show(tool.validate(found.arguments)), question.by or ""
        _ask(caller, tool, call, edited, f"{visible_line(by)} edited the call. ", by)
    if has_words(found):
        task.scope.note_speaker(question.by)
    if isinstance(found, Approve) and found.remember is not None:
        await remember(caller, tool, found, question.by)
    return found


def _read(tool: Tool, answer: Any) -> Decision:
    found = decision(answer)
    if isinstance(found, Edit):
        tool.show(tool.validate(found.arguments))
    return found


def check_call(
    address: str,
    question: Question,
    tools: Mapping[str, Tool],
    arguments: Mapping[str, Any] | None = None,
    *,
    handles_unknown: bool = False,
) -> None:
    """Refuse an answer about the call at `address`, or below it, that could not run any more (rule R17).

    With `handles_unknown`, a function answers calls of tools that do not exist, and may have asked the question.

    Raises:
        ProgramChanged: there is no such tool any more, or it takes something else than was shown.
    """
    name = parse_segment(address.rpartition(";")[2]).id
    tool = tools.get(name)
    if tool is None and handles_unknown and question.reason not in APPROVALS:
        return
    if tool is None:
        raise ProgramChanged(address, f"there is no tool '{name}' any more")
    info: object = decoded(question.info)
    if question.address == address and question.reason in APPROVALS and isinstance(info, ToolCallInfo):
        _seen(address, tool, info.arguments)
    elif arguments is not None:
        _fit(address, tool, arguments)
