"""Tools that run at most once.

Once such a call has begun, nothing runs it again without a person, unless it has ended with a result. What has begun
and has no result is part of the session's records, by the digest of the call (`Scope.unsettled`): a crash, `recover`, a
retry, a middleware that calls twice and an equal call later in the turn all find it there. A pause is no end: the call
that has paused goes on.

That a call begins is also stored under a digest that all branches and forks of a session have in common, and that
outlives them. It is stored before anybody looks: of two forks that begin at once, each finds the other.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NoReturn, cast

import msgspec

from adjourn._engine.entry import entry_of, here
from adjourn._engine.frame import UserFrame
from adjourn._engine.record import Question, Unsettled
from adjourn._engine.scope import Scope
from adjourn._engine.values import decoded
from adjourn._text import visible_line
from adjourn._values import codec
from adjourn._values.frozen import is_same_json
from adjourn.errors import Pause, ProgramChanged, ReplayMismatch, ToolError
from adjourn.interrupts import interrupt
from adjourn.middleware.hooks import ToolRequest
from adjourn.tools import Approve, Edit, Reject, Respond, Tool, ToolCallInfo, approval_schema, decision
from adjourn.tools.decisions import as_decimal

from .approval import AT_MOST_ONCE as KEY
from .approval import has_other_defaults, refusal

REASON = "need_decision"

# How a call that has no result has ended. The first three are no ends; nobody reads them.
BEGUN, PAUSED, RAN = "begun", "paused", "ran"
HIDDEN = "failed, and the code around it went on"

CRASHED = "was running when its process died"
TWICE = "has run already in this call"
BESIDE = "was called with the same arguments in this turn, and has no result yet"
ELSEWHERE = "may have run before, on another branch or fork of this session"
CHANGED = "may have run before, with other defaults"


class ToolTimeout(ToolError):
    """A tool took longer than its timeout."""


@asynccontextmanager
async def begun(path: str, tool: Tool, request: ToolRequest, identity: Mapping[str, Any]) -> AsyncGenerator[str | None]:
    """Surround a run of a tool's function for the call at `path`; yield a result if a person provided one instead.

    Calls with the same `identity` are equal.
    """
    at = here("a tool")
    frame, scope = at.frame, at.frame.scope
    digest = codec.fingerprint([scope.lineage, request.tool, _by_value(_without_defaults(tool, identity))])
    before = scope.unsettled.get(digest) or _of_another_tool(scope, path, tool)
    why, asked = _why(before, path), _passed(frame, tool, request)
    waiting = next((each for each in asked if each.is_open or not _was_used(frame, each)), None)
    if why or waiting is not None:
        text = _decided(frame, tool, request, waiting, why)
        if text is not None:
            yield text
            return
    _note(scope, digest, path, tool.digest, BEGUN)
    if await scope.log.note_begin(digest) and not any(_was_used(frame, each) for each in asked):
        _note(scope, digest, path, tool.digest, ELSEWHERE)
        _ask(frame, tool, request, ELSEWHERE)
    try:
        yield None
    except BaseException as error:
        if at.entry.pausing or isinstance(error, Pause):
            _note(scope, digest, path, tool.digest, PAUSED)
        elif isinstance(error, ReplayMismatch | ProgramChanged) and (
            before is not None and (before.path, before.how) == (path, PAUSED)
        ):
            _note(scope, digest, path, tool.digest, PAUSED)  # Mended code goes on from the pause (rule R6).
        else:
            _note(scope, digest, path, tool.digest, _words(error))
        raise
    _note(scope, digest, path, tool.digest, PAUSED if at.entry.pausing else RAN)


def _without_defaults(tool: Tool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments as they are in code that has more parameters with defaults, too: the call is the same there."""
    defaults = tool.arguments.defaults
    return {
        name: value
        for name, value in arguments.items()
        if name not in defaults or not is_same_json(value, defaults[name])
    }


def _by_value(part: Any) -> Any:
    """Return arguments with each number in one form: a model that writes 5 after 5.00 makes an equal call.

    So do texts that are numbers, since a decimal is text here. At worst, a person is asked once too often.
    """
    match part:
        case Mapping():
            return {name: _by_value(each) for name, each in cast("Mapping[str, Any]", part).items()}
        case list() | tuple():
            return [_by_value(each) for each in cast("Sequence[Any]", part)]
        case bool() | None:
            return part
        case _:
            number = as_decimal(part)
            if number is None:
                return part
            sign, digits, exponent = number.as_tuple()
            text = "".join(map(str, digits))
            short = text.rstrip("0")
            return [sign, short, cast("int", exponent) + len(text) - len(short)] if short else 0


def settle(call: UserFrame) -> None:
    """Note that a call has ended with a result: an equal one may run."""
    if not entry_of(call).missing:  # Otherwise its frame fails, since the code has taken another path than before.
        _end(call, HIDDEN, drop=True)


def note_failure(call: UserFrame, error: BaseException) -> None:
    """Note that a call has ended without a result."""
    _end(call, _words(error), drop=False)


def _words(error: BaseException) -> str:
    """Return how a call has ended, in words that people may read: without the text of the error."""
    if isinstance(error, ToolTimeout):
        return "timed out"
    if isinstance(error, Exception | SystemExit):
        return f"failed with {visible_line(type(error).__name__)}"
    return "was cut off"


def _end(call: UserFrame, how: str, *, drop: bool) -> None:
    scope, path = call.scope, call.path
    for digest, each in scope.unsettled.items():
        if each.path != path or each.how not in (BEGUN, RAN):
            continue
        if drop and each.how == RAN:
            scope.unsettled = {key: other for key, other in scope.unsettled.items() if key != digest}
        else:
            _note(scope, digest, path, each.tool, how)


def _note(scope: Scope, digest: str, path: str, tool: str, how: str) -> None:
    scope.unsettled = {**scope.unsettled, digest: Unsettled(path, how, tool)}


def _of_another_tool(scope: Scope, path: str, tool: Tool) -> Unsettled | None:
    """Return how the call at a path ended with the tool as it was then: its defaults may have been others."""
    return next((each for each in scope.unsettled.values() if each.path == path and each.tool != tool.digest), None)


def _why(found: Unsettled | None, path: str) -> str:
    """Return why a person must decide whether the call at `path` runs; empty if it may run."""
    if found is None:
        return ""
    if found.how not in (BEGUN, PAUSED, RAN):
        return found.how
    return {BEGUN: CRASHED, PAUSED: "", RAN: TWICE}[found.how] if found.path == path else BESIDE


def _passed(task: UserFrame, tool: Tool, request: ToolRequest) -> list[Question]:
    """Return the questions of this kind so far, and count them as asked in this entry: the tool's own come after.

    If none of them shows these arguments, the last one is about this call if the tool had other defaults then. Only its
    refusal counts.
    """
    asked = [question for question in task.questions or () if _shown(question, request) is not None]
    mine = [question for question in asked if _shows(question, request)]
    mine = mine or [question for question in asked[-1:] if has_other_defaults(tool, question)]
    for question in mine:
        if _shows(question, request) or refusal(question) is not None or _was_used(task, question):
            entry_of(task).count_as_asked(question)
    return mine


def _shown(question: Question, request: ToolRequest) -> Mapping[str, Any] | None:
    """Return the arguments with which a question shows this call; None if it is about something else."""
    info = decoded(question.info) if question.key == KEY and question.reason == REASON else None
    return info.arguments if isinstance(info, ToolCallInfo) and info.call_id == request.call_id else None


def _shows(question: Question, request: ToolRequest) -> bool:
    # As JSON, since True equals 1 in Python: a wrapper may have called with something else than was shown.
    return _encode(_shown(question, request)) == _encode(request.arguments)


_encode = msgspec.json.Encoder(order="sorted").encode


def _was_used(task: UserFrame, question: Question) -> bool:
    """Return whether the answer that the question has on this branch was acted on."""
    return task.is_noted(_use_of(task, question))


def _use_of(task: UserFrame, question: Question) -> str:
    # On another branch or fork it is asked again, and has another answer.
    return f"used:{codec.fingerprint([task.scope.place, question.id])}"


def _decided(task: UserFrame, tool: Tool, request: ToolRequest, question: Question | None, why: str) -> str | None:
    """Return the result that a person provided, or None to run the tool again."""
    has_changed = question is not None and not _shows(question, request)
    why = why or (CHANGED if has_changed else ELSEWHERE)
    found = None if question is None else refusal(question)
    if question is None or (has_changed and found is None):
        _ask(task, tool, request, why)
    if question.is_open:
        entry_of(task).wait_for(question)
    match found or decision(decoded(question.value)):
        case Respond(text=text):
            return text
        case Reject(reason=reason):
            raise ToolError(reason or f"it {why}, and running it again was not approved")
        case Edit():
            raise ToolError(f"it {why}, and editing its arguments does not say whether it was done")
        case Approve():
            task.note(_use_of(task, question))
            return None


def _ask(task: UserFrame, tool: Tool, request: ToolRequest, why: str) -> NoReturn:
    # This entry ends here: the tool reaches its other questions and memos when it runs again.
    entry_of(task).expect_nothing()
    interrupt(
        ToolCallInfo(tool=tool.name, arguments=request.arguments, call_id=request.call_id, agent=request.agent),
        key=KEY,
        reason=REASON,
        prompt=f"'{tool.name}' {why}. Approve to run it again, or respond with its result.",
        schema=approval_schema(tool.schema),
        **tool.asking(request.arguments),
    )
    raise AssertionError("asking pauses")
