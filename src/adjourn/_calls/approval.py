"""Approval: asking a person whether a tool call may run, and remembering the decision.

Decisions that are remembered for a session are session values. Those that are remembered always are in the store, in
a separate session per user, so that no two users share them; without a user id, they are remembered for the session.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from itertools import pairwise, takewhile
from typing import Any, NamedTuple, Self

import msgspec
from msgspec import Struct

from adjourn._engine.address import parse_segment, segment_text
from adjourn._engine.entry import entry_of, here
from adjourn._engine.failures import LooseGate
from adjourn._engine.frame import UserFrame
from adjourn._engine.questions import Superseded, ask_for
from adjourn._engine.record import APPROVALS, Question
from adjourn._engine.scope import SESSION_ONLY
from adjourn._engine.values import decoded
from adjourn._schemas.answers import Checked, essence
from adjourn._text import visible_line
from adjourn._values import codec
from adjourn._values.frozen import is_part_of, is_same_json
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
    Respond,
    Tool,
    ToolCallInfo,
    approval_schema,
    decision,
    fits_pattern,
)
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


class RememberedApproval(Struct, frozen=True, kw_only=True, omit_defaults=True):
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
    def of(cls, agent: str, tool: Tool, *, pattern: Mapping[str, Any] | None = None, by: str | None = None) -> Self:
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

    async def list(self, user_id: str) -> list[RememberedApproval]:
        """Return what this user has approved permanently."""
        return [_approval_of(kept) for kept in (await self._kept(user_id)).values()]

    async def add(self, user_id: str, approval: RememberedApproval) -> None:
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


def _kept(approval: RememberedApproval) -> dict[str, Any]:
    """Return a decision as it is stored."""
    return {**msgspec.structs.asdict(approval), "pattern": approval.pattern and dict(approval.pattern)}


def _approval_of(kept: Mapping[str, Any]) -> RememberedApproval:
    # What was stored before decisions were about one agent and one digest covers nothing.
    agent, digest = kept.get("agent", ""), kept.get("digest", "")
    return RememberedApproval(agent=agent, tool=kept["tool"], digest=digest, pattern=kept["pattern"], by=kept["by"])


def in_session(caller: Caller) -> list[RememberedApproval]:
    """Return what was approved for this session; in a turn of nobody, nothing that its user approved counts."""
    if caller.scope.user_id != caller.scope.session_user:
        return []
    return [_approval_of(value) for key, value in caller.all_values().items() if key.startswith(IN_SESSION)]


async def is_remembered(task: UserFrame, caller: Caller, tool: Tool, arguments: Mapping[str, Any]) -> bool:
    """Return whether an approval that covers this call is remembered."""
    known, scope, agent = in_session(caller), caller.scope, caller.audience.name

    def counts(each: RememberedApproval) -> bool:
        return scope.may_approve(task, each.by) and each.covers(agent, tool, arguments)

    if scope.user_id is not None and not any(map(counts, known)):
        known = await Approvals(scope.log.store, app_name=scope.app).list(scope.user_id)
    return any(map(counts, known))


async def remember(caller: Caller, tool: Tool, given: Approve, by: str | None) -> None:
    """Remember a decision for as long as it says."""
    approval, scope = RememberedApproval.of(caller.audience.name, tool, pattern=given.pattern, by=by), caller.scope
    frame = here("remember").frame
    if given.remember == "session" or scope.user_id is None:
        frame.write_value(IN_SESSION + approval.id, _kept(approval))
    elif not frame.is_noted(ALWAYS):
        # Only once: when the call continues after another pause, the user may have revoked it.
        await Approvals(scope.log.store, app_name=scope.app).add(scope.user_id, approval)
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
AT_MOST_ONCE = "at_most_once"
"""The key of the question whether a call runs again."""
REVIEW = "wrap:reviewed"
"""Where below a call its reviewer is asked."""
REASON = "need_approval"


class Allowed(NamedTuple):
    """What a person let run, who it was, and the converted arguments."""

    decision: Approve | Edit
    by: str | None
    converted: dict[str, Any]


async def get_approval(
    task: UserFrame, caller: Caller, tool: Tool, call: ToolCall, converted: dict[str, Any]
) -> Allowed | None:
    """Return what a person let run of a call, or None if no one needs to be asked.

    Once a question has been asked, its answer decides; the predicate is not evaluated again.

    Raises:
        InvalidArguments: a person could not be shown everything that would run.
    """
    asked = _asked(task, call)
    if asked is None:
        if tool.approval is not True and not await needs_approval(tool, converted):
            return None
        arguments = tool.show(converted)
        if await is_remembered(task, caller, tool, arguments):
            return None
        task.make_all_optional()  # The memos of the predicate, which is not evaluated again.
        asked = _ask(task, caller, tool, call, arguments)
    question, shown = asked
    runs = None if question.is_open else _seen(task.address, tool, question, shown.arguments, converted)
    if runs is None and not question.is_open:
        # More would run than was shown: the answer does not count, and the question is superseded (rule I14).
        for each in _asked_before(task, call):
            entry_of(task).count_as_asked(each)
        if _edit_before(task, call, question) is not None:
            converted = _fit(task.address, tool, shown.arguments)  # What is superseded is the edited call.
        question, shown = _ask(task, caller, tool, call, tool.show(converted))
        runs = converted
    found = await _answer(task, caller, tool, call, dict(shown.arguments), question)
    assert not isinstance(found, Reject | Respond)  # They run nothing, and were acted on before (see `refused`).
    if isinstance(found, Edit):
        return Allowed(found, question.by, tool.validate(found.arguments))
    assert runs is not None
    if (edited := _edit_before(task, call, question)) is not None:
        task.scope.note_editors(question)
        return Allowed(Edit(shown.arguments), edited.by, runs)
    return Allowed(found, question.by, runs)


def refused(task: UserFrame, call: ToolCall) -> Reject | Respond | None:
    """Return a person's answer to an approval that runs nothing, so that it counts whatever became of the tool."""
    asked = _asked(task, call)
    found = None if asked is None else refusal(asked[0])
    if found is not None:
        _count_as_asked(task, call)
    return found


def refusal(question: Question) -> Reject | Respond | None:
    """Return the answer of a question about a call if it runs nothing."""
    if question.how == "expired":
        return Reject("no one decided in time")
    found = None if question.is_open else _decision_of(question)
    return found if isinstance(found, Reject | Respond) else None


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


def _seen(
    address: str, tool: Tool, question: Question, seen: Mapping[str, Any], converted: dict[str, Any]
) -> dict[str, Any] | None:
    """Return the arguments that the approver saw, converted; None if the tool would get more, or has other defaults.

    `converted` is what the model wrote. A call that may run only once is shown as far as JSON says it.

    Raises:
        ProgramChanged: the tool can no longer be called with them.
    """
    show = tool.lower if question.key == AT_MOST_ONCE else partial(_show, address, tool)
    written = show(converted)
    if is_same_json(written, seen):
        return converted
    found = _fit(address, tool, seen)
    now = show(found)
    if is_same_json(now, seen):
        # A factory may make another default each time: that alone is no change.
        return None if has_other_defaults(tool, question) else found
    if is_part_of(seen, now) or is_part_of(seen, written):
        return None
    if is_same_json(now, written) and has_other_defaults(tool, question):
        return None  # A default that no argument replaces, such as that of a field with init=False.
    raise ProgramChanged(address, "the tool now converts the approved arguments differently")


def has_other_defaults(tool: Tool, question: Question) -> bool:
    """Return whether the tool has other defaults than when the question was asked, at any depth."""
    asked, now = (essence(dict(schema), keep="default") for schema in (question.schema or {}, _schema(tool)))
    return not is_same_json(asked, msgspec.to_builtins(now))


def _fit(address: str, tool: Tool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return tool.validate(arguments)
    except InvalidArguments as error:
        raise ProgramChanged(address, f"the arguments no longer fit the tool ({error})") from error


def _show(address: str, tool: Tool, converted: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return tool.show(converted)
    except InvalidArguments as error:
        raise ProgramChanged(address, f"the arguments can no longer be shown ({error})") from error


def _asked(task: UserFrame, call: ToolCall) -> tuple[Question, ToolCallInfo] | None:
    """Return the approval's question and the call that it shows."""
    return next(_all_asked(task, call), None)


def _all_asked(task: UserFrame, call: ToolCall) -> Iterator[tuple[Question, ToolCallInfo]]:
    """Yield the questions about a call, the last one first; questions of the tool may have the same key."""
    for question in reversed(task.questions or ()):
        if (info := _shown(question, call)) is not None:
            yield question, info


def _shown(question: Question, call: ToolCall) -> ToolCallInfo | None:
    if question.key != KEY or question.reason != REASON:
        return None
    info: object = decoded(question.info)
    return info if isinstance(info, ToolCallInfo) and info.call_id == call.id else None


def _edit_before(task: UserFrame, call: ToolCall, approved: Question) -> Question | None:
    """Return the question whose answer made the arguments that were approved later, if a person edited them."""
    if approved.requesters is None:
        return None
    for (_, shown), (earlier, before) in pairwise(_all_asked(task, call)):
        # An edit that did not fit is followed by a question that shows the same as before.
        if not is_same_json(shown.arguments, before.arguments) and isinstance(_decision_of(earlier), Edit):
            return earlier
    return None


def _decision_of(question: Question) -> Decision | None:
    try:
        return decision(decoded(question.value))
    except ValueError:
        return None


def _asked_before(task: UserFrame, call: ToolCall) -> Iterable[Question]:
    """Return what the predicate asked; the function's own questions come after the approval."""
    return takewhile(lambda question: _shown(question, call) is None, task.questions or ())


def _count_as_asked(task: UserFrame, call: ToolCall) -> None:
    """Count the approval's questions and those of the predicate before it as asked in this entry."""
    is_asked = False
    for question in task.questions or ():
        is_approval = _shown(question, call) is not None
        is_asked = is_asked or is_approval
        if is_approval or not is_asked:
            entry_of(task).count_as_asked(question)


def _ask(
    task: UserFrame,
    caller: Caller,
    tool: Tool,
    call: ToolCall,
    arguments: dict[str, Any],
    why: str = "",
    editor: str | None = None,
) -> tuple[Question, ToolCallInfo]:
    """Ask, and pause; if the same was asked before and answered, return that question, with the call that it shows.

    The `editor` is the person who wants these arguments.
    """
    shown = visible_line(msgspec.json.encode(arguments).decode())
    name, reach = caller.audience.name, _reach(caller, tool)
    _, question = ask_for(
        editor,
        ToolCallInfo(tool=tool.name, arguments=arguments, call_id=call.id, agent=name, reach=reach),
        key=KEY,
        reason=REASON,
        prompt=f"{why}May {name} call {tool.name} with {shown}?",
        schema=_schema(tool),
        **tool.asking(arguments),
    )
    if (found := _shown(question, call)) is None:
        # It was stored as one about another call.
        raise CheckpointCorrupt(f"the question at '{task.address}' is not about the call there", task.scope.session_id)
    return question, found


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
    _count_as_asked(task, call)  # So none of them is given back below: whatever is asked there is new, and pauses.
    if question.is_open:
        entry_of(task).wait_for(question)
    try:
        found = _read(tool, question, arguments)
    except (InvalidArguments, ValueError) as error:
        # It passed or bypassed the JSON Schema but cannot be used: ask again instead of failing for good.
        entry_of(task).refuse(question)
        what = "edited arguments do" if isinstance(error, InvalidArguments) else "answer does"
        _ask(task, caller, tool, call, arguments, f"The {what} not fit ({error}). ")
        raise  # never reached
    if isinstance(found, Edit) and task.scope.needs_another(question):
        # It is a request of its author, which another person has to approve (rule V19).
        entry_of(task).refuse(question)
        by = question.by or ""
        _ask(task, caller, tool, call, dict(found.arguments), f"{visible_line(by)} edited the call. ", by)
    if isinstance(found, Approve) and found.remember is not None:
        await remember(caller, tool, found, question.by)
    return found


def _read(tool: Tool, question: Question, shown: Mapping[str, Any]) -> Decision:
    """Return the decision that a person has made; an edit has all arguments."""
    found = decision(decoded(question.value))
    return Edit(tool.edit(found.arguments, shown)) if isinstance(found, Edit) else found


def check_call(
    address: str,
    question: Question,
    tools: Mapping[str, Tool],
    arguments: Mapping[str, Any],
    *,
    handles_unknown: bool = False,
) -> None:
    """Refuse the answer of a question about the call at `address`, or below it, that could not run any more (rule R17).

    `arguments` are those that the model wrote. With `handles_unknown`, a function answers calls of tools that do not
    exist, and may have asked the question.

    Raises:
        ProgramChanged: there is no such tool any more, or it takes something else than was shown.
        Superseded: it would get more than was shown, or has other defaults.
    """
    info: object = decoded(question.info)
    is_own = question.address == address and question.reason in APPROVALS
    shown = info.arguments if is_own and isinstance(info, ToolCallInfo) else None
    asks_anew = question.key in (KEY, AT_MOST_ONCE)
    is_refusal = shown is not None and asks_anew and refusal(question) is not None
    if is_refusal and question.key == KEY:
        return
    name = parse_segment(address.rpartition(";")[2]).id
    tool = tools.get(name)
    if tool is None and handles_unknown and question.reason not in APPROVALS:
        return
    if tool is None:
        raise ProgramChanged(address, f"there is no tool '{name}' any more")
    if question.address == f"{address};{REVIEW}" and tool.review is None:
        raise ProgramChanged(address, f"'{name}' is not reviewed any more")
    converted = _fit(address, tool, arguments)
    if shown is not None and not is_refusal and _seen(address, tool, question, shown, converted) is None:
        if asks_anew:
            raise Superseded
        raise ProgramChanged(address, "the tool now gets more than was shown, or has other defaults")
