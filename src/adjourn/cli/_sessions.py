"""`adjourn sessions`, `show`, `tree` and `audit`: looking at sessions."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec
from msgspec.structs import asdict

from adjourn._documents import Question, TreeEntry, plain, questions, session
from adjourn._engine.record import APPROVALS
from adjourn._owner import owner_name
from adjourn._screen import Card, Screen
from adjourn._text import counted, visible, visible_line
from adjourn.errors import AdjournError, UsageError
from adjourn.events import CheckpointSaved, Event, Failed, Interrupt, Interrupted, MessageEvent
from adjourn.messages import Message
from adjourn.printing import described, print_event, question_rows, tool_request
from adjourn.sessions import AuditEntry, Problem, Sessions, Verification
from adjourn.sessions._contents import Contents
from adjourn.sessions._log import read_events
from adjourn.sessions._questions import questions_of
from adjourn.sessions._status import owner_of, status_of
from adjourn.stores import Head, SessionRef, Store
from adjourn.stores.kit import Audit, GetHead, ListEvents, ListSessions
from adjourn.stores.types import Status

from ._asking import answering
from ._options import JSON, SERVER, SESSION, STORE, WHOSE, arg, takes
from ._printing import ago, at, clock, place_of, print_each, print_json, print_table
from ._stores import (
    KEY_VARIABLE,
    StoredSessions,
    check_no_server,
    check_token,
    client_of,
    closing,
    command,
    program_words,
    server_url,
    with_sessions,
    with_store,
    with_stored,
)

if TYPE_CHECKING:
    from adjourn.client import Client, SessionInfo


class _Listed(NamedTuple):
    """A session in a list, with the status that it is shown with."""

    session_id: str
    questions: int
    status: str
    updated: datetime
    user: str | None
    app: str
    document: dict[str, Any]


STATUSES = ("queued", "running", "waiting", "answered", "expired", "failed", "cancelled", "done")

# A session stored as running has failed if its process died; what waits may have been answered, or have expired.
_STORED: dict[str | None, tuple[Status, ...]] = {
    "failed": ("failed", "running"),
    "answered": ("waiting",),
    "expired": ("waiting",),
}
_PAGE = 50


def count(text: str) -> int:
    """Parse how many to list; argparse reports what is wrong with it."""
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


@takes(
    arg("--status", choices=STATUSES),
    *WHOSE,
    arg("--limit", type=count, default=50, help="at most this many, most recent first (50)"),
    STORE,
    *SERVER,
    JSON,
)
def sessions(options: argparse.Namespace) -> int:
    """List the sessions."""
    if server_url(options):
        found = asyncio.run(closing(client_of(options), lambda client: _list_served(client, options)))
    else:
        check_token(options)
        found = with_store(options, lambda store: _list_stored(store, options))
    if options.json:
        print_json([each.document for each in found])
        return 0
    if not found:
        given = {name: getattr(options, name) for name in ("status", "user", *([] if server_url(options) else ["app"]))}
        filters = [f"{name} {visible_line(value)}" for name, value in given.items() if value]
        print(f"No sessions with {' and '.join(filters)}." if filters else "No sessions.")
        if options.app is not None and not server_url(options):
            print("With --all-apps, those of other apps are listed, too.", file=sys.stderr)
        return 0
    titles = ("SESSION", "STATUS", "QUESTIONS", "LAST WRITTEN", "USER")
    rows = [
        (each.session_id, each.status, str(each.questions or ""), ago(each.updated), each.user or "") for each in found
    ]
    if options.app is None:
        titles, rows = (*titles, "APP"), [(*row, each.app) for row, each in zip(rows, found, strict=True)]
    print_table(titles, rows)
    if any(each.questions for each in found):
        print(f"\nSee the questions with: {command(options, 'pending')}", file=sys.stderr)
    return 0


async def _list_stored(store: Store, options: argparse.Namespace) -> list[_Listed]:
    found: list[_Listed] = []
    for stored in _STORED.get(options.status, (options.status,)):
        fitting = 0
        async for head in _heads(store, options, stored):
            if fitting == options.limit:
                break
            open_ = len(await questions_of(store, head))
            shown = status = status_of(head)
            if status == "waiting" and not open_:
                # Without an open question, it waits to be resumed; what nobody answered has expired.
                shown = "expired" if any(row.how is None for row in await store.read(Audit(head.ref))) else "answered"
            if options.status in (None, status, shown):
                fitting += 1
                listed = (head.session, open_, shown, at(head.updated), head.user, head.app)
                found.append(_Listed(*listed, session(head, open_)))
    return sorted(found, key=lambda each: each.updated, reverse=True)[: options.limit]


async def _heads(store: Store, options: argparse.Namespace, stored: Status | None) -> AsyncIterator[Head]:
    """Yield sessions that are stored with a status, most recent first."""
    after = None
    while True:
        page = await store.read(
            ListSessions(app=options.app, user=options.user, status=stored, after=after, limit=_PAGE)
        )
        for head in page:
            yield head
        if len(page) < _PAGE:
            return
        after = page[-1].cursor


async def _list_served(client: Client, options: argparse.Namespace) -> list[_Listed]:
    found: list[_Listed] = []
    wanted, after = ("waiting" if options.status in ("answered", "expired") else options.status), None
    while len(found) < options.limit:
        page = await client.sessions(status=wanted, after=after, limit=_PAGE)
        for each in page:
            shown = await _status_served(client, each)
            if options.status in (None, each.status, shown):
                listed = (each.session_id, len(each.interrupts), shown, each.since, each.user_id, "")
                found.append(_Listed(*listed, _document_served(each)))
        if (after := page.next) is None:
            break
    return found[: options.limit]


async def _status_served(client: Client, found: SessionInfo) -> str:
    if found.status != "waiting" or found.interrupts:
        return found.status
    return "expired" if any(each.outcome is None for each in await client.audit(found.session_id)) else "answered"


def _document_served(found: SessionInfo) -> dict[str, Any]:
    return {
        "session_id": found.session_id,
        "status": found.status,
        "questions": len(found.interrupts),
        "inputs": found.inputs,
        "agent": found.agent,
        "user_id": found.user_id,
        "checkpoint_id": found.checkpoint_id,
        "updated": found.since.isoformat(),
        "removed_after": None if found.removed_after is None else found.removed_after.isoformat(),
    }


_SIGNS = {
    "queued": ("…", "blue"),
    "running": ("▶", "blue"),
    "waiting": ("⏸", "yellow"),
    "failed": ("✘", "red"),
    "done": ("✔", "green"),
}


class _Shown(NamedTuple):
    """What there is of a session, of a store or of a server; of one in which no turn has begun, what waits for it."""

    document: dict[str, Any]
    status: str
    program: str
    updated: datetime
    checkpoint: str
    inputs: int
    user: str | None
    owner: str | None = None
    note: str = ""
    waiting: list[Any] | None = None
    questions: Sequence[Interrupt] = ()
    events: Sequence[Event] = ()
    messages: Sequence[Message] = ()
    state: Mapping[str, Any] | None = None


_GONE = "its process is gone; a worker goes on with it, or `adjourn recover`"
_EXPIRED, _ANSWERED = "expired: `recover` continues it", "answered, and waits to be resumed"


@takes(
    SESSION,
    arg("--checkpoint", metavar="ID", help="show this checkpoint instead of the latest; `adjourn tree` lists them"),
    arg("--events", action="store_true", help="also show its stored events"),
    *WHOSE,
    STORE,
    *SERVER,
    JSON,
)
def show(options: argparse.Namespace) -> int:
    """Show the session."""
    if server_url(options):
        found = asyncio.run(closing(client_of(options), lambda client: _read_served(client, options)))
    else:
        check_token(options)
        found = with_stored(options, lambda sessions: _read_stored(sessions, options))
    if options.json:
        events = [msgspec.to_builtins(each, enc_hook=repr) for each in found.events]
        print_json({**found.document, "events": events} if options.events and found.waiting is None else found.document)
        return 0
    _print_status(options.session, found)
    if found.waiting is not None:
        print(f"\nBegin with: {_recover(options)}", file=sys.stderr)
        return 0
    if options.events:
        _print_events(found.events)
    _print_contents(found)
    print_each(found.questions)
    if options.checkpoint is not None:
        line = command(options, "fork", options.session, "--checkpoint", found.checkpoint)
        print(f"\nA new session from here: {line}", file=sys.stderr)
    elif found.status == "waiting" and found.questions:
        print(f"\nAnswer with: {answering(options, options.session, found.questions)}", file=sys.stderr)
    elif found.status not in ("done", "running"):
        print(f"\nGo on with: {_recover(options)}", file=sys.stderr)
    return 0


def _recover(options: argparse.Namespace) -> str:
    return command(options, "recover", *program_words(options), options.session)


async def _read_stored(sessions: StoredSessions, options: argparse.Namespace) -> _Shown:
    status = await sessions.status(options.session)
    ref = SessionRef(options.session, status.app_name, sessions.user_id)
    head = None if status.checkpoint_id or options.checkpoint is not None else await sessions.store.read(GetHead(ref))
    if head is not None and not head.checkpoint:
        waiting = await sessions.inputs(options.session)
        inputs = [{"id": each.id, "input": plain(each.input), "user_id": each.user_id} for each in waiting]
        document = {**session(head, 0), "program": head.program, "waiting": inputs}
        return _Shown(document, "queued", head.program, at(head.updated), "", head.inputs, head.user, waiting=inputs)
    contents = await Contents.at(sessions.store, ref, options.checkpoint)
    head, is_head = contents.head, contents.checkpoint == contents.head.checkpoint
    asked: Sequence[Interrupt] = await sessions.pending(options.session) if is_head else ()
    # The last event says why a session failed, whether all are wanted or not.
    batches = await sessions.store.read(ListEvents(ref, 0 if options.events else max(head.seq - 1, 0)))
    note = ""
    if status_of(head) == "waiting" and not asked and is_head:
        note = _EXPIRED if any(contents.rows[each].how is None for each in contents.scope.questions.open) else _ANSWERED
    owner = owner_of(head)
    return _Shown(
        document={
            **session(head, len(asked)),
            "checkpoint_id": contents.checkpoint,
            "program": contents.program,
            "messages": plain(contents.messages),
            "state": {name: plain(value) for name, value in contents.fields.items()},
            "open": questions(asked),
        },
        status=status_of(head),
        program=contents.program,
        updated=at(head.updated),
        checkpoint=contents.checkpoint,
        inputs=head.inputs,
        user=head.user,
        owner=None if owner is None else owner_name(owner),
        note=note,
        questions=asked,
        events=[event for batch in batches for event in read_events(batch)],
        messages=contents.messages,
        # An agent's other fields are internal; --json includes them.
        state=None if contents.is_agent else contents.fields,
    )


async def _read_served(client: Client, options: argparse.Namespace) -> _Shown:
    found = await client.status(options.session)
    document = {**_document_served(found), "program": found.agent}
    about = (found.agent, found.since)
    if not found.checkpoint_id and options.checkpoint is None:
        inputs = [{"id": each.id, "input": each.input} for each in await client.inputs(options.session)]
        document["waiting"] = inputs
        return _Shown(document, "queued", *about, "", found.inputs, found.user_id, waiting=inputs)
    if found.status == "running" and options.events:
        recover = command(options, "recover", options.session)
        raise UsageError(f"--events: a server sends those of a session that runs as they come. `{recover}` follows it.")
    is_head = options.checkpoint in (None, found.checkpoint_id)
    # A head in the middle of a step is no checkpoint of its own, but it has a state.
    held: Any = await client.state(options.session, checkpoint_id=None if is_head else options.checkpoint)
    state = cast("dict[str, Any]", held) if isinstance(held, dict) else {"state": held}
    try:
        messages = msgspec.convert(state.get("messages", ()), tuple[Message, ...])
    except msgspec.ValidationError:
        messages = ()  # A graph may call something else so.
    asked = found.interrupts if is_head else ()
    shown = await _status_served(client, found) if is_head else ""
    kinds = {agent.name: agent.kind for agent in await client.agents()}
    checkpoint = found.checkpoint_id if is_head else options.checkpoint
    return _Shown(
        document={
            **document,
            "questions": len(asked),
            "checkpoint_id": checkpoint,
            "messages": plain(messages),
            "state": state,
            "open": questions(asked),
        },
        status=found.status,
        program=found.agent,
        updated=found.since,
        checkpoint=checkpoint,
        inputs=found.inputs,
        user=found.user_id,
        note={"expired": _EXPIRED, "answered": _ANSWERED}.get(shown, ""),
        questions=asked,
        events=await _events_served(client, options.session) if options.events or found.status == "failed" else (),
        messages=messages,
        state=None if kinds.get(found.agent) == "agent" else state,
    )


async def _events_served(client: Client, session_id: str) -> list[Event]:
    """Return the stored events of a session that nobody runs."""
    found: list[Event] = []
    try:
        async for event in client.attach(session_id):
            found.append(event)  # noqa: PERF401 - those before a failure count
    except AdjournError:
        if not found or not isinstance(found[-1], Failed):
            raise  # Else it is why the session failed, which its last event says.
    return found


def _print_status(name: str, found: _Shown) -> None:
    sign, colour = _SIGNS.get(found.status, ("■", "yellow"))
    rows = [("program", visible_line(found.program))]
    if found.waiting is None:
        rows.append(("written", f"{clock(found.updated)}, {ago(found.updated)}"))
        rows.append(("at", visible_line(found.checkpoint)))
    if found.inputs:
        rows.append(("queue", "1 input waits" if found.inputs == 1 else f"{found.inputs} inputs wait"))
    if found.user is not None:
        rows.append(("user", visible_line(found.user)))
    if found.waiting:
        rows.append(("next", described(found.waiting[0]["input"])))
    if found.owner is not None:
        rows.append(("run by", visible_line(found.owner)))
    if found.status == "failed":
        last = found.events[-1] if found.events else None
        rows.append(("error", f"{last.error}: {last.message}" if isinstance(last, Failed) else _GONE))
    Screen(sys.stdout).show(Card(sign, colour, f"{name} is {found.note or found.status}", tuple(rows)))


def _print_events(events: Sequence[Event]) -> None:
    print()
    for event in events:
        # A checkpoint is for the tree; a pause in the log has no questions, and those that are open follow.
        if not isinstance(event, CheckpointSaved | Interrupted):
            print_event(event)


def _print_contents(found: _Shown) -> None:
    if found.messages:
        print()
        for message in found.messages:
            print_event(MessageEvent(message=message))
    rest = {name: value for name, value in (found.state or {}).items() if name != "messages" or not found.messages}
    if rest:
        print()
        Screen(sys.stdout).show(Card("●", "blue", "state", (("", described(plain(rest))),)))


@takes(SESSION, *WHOSE, STORE, *SERVER, JSON)
def tree(options: argparse.Namespace) -> int:
    """Print the tree."""
    tree = with_sessions(options, lambda sessions: sessions.tree(options.session))
    if options.json:
        print_json([TreeEntry.at(depth, point, tree.head) for depth, point in tree])
    else:
        print(visible(str(tree)))
    return 0


_OUTCOMES = {
    None: ("⏸", "yellow", "is open"),
    "answered": ("✔", "green", "was answered"),
    "expired": ("✘", "red", "expired"),
    "abandoned": ("■", "dim", "was given up"),
}

_UNSIGNED = "only against changes by somebody who cannot make the digests again"
_NAMED = 5
"""How many records or questions are named that have the same problem; --json names all of them."""


@takes(
    arg("session", metavar="SESSION", nargs="?"),
    arg("--all-branches", action="store_true", help="also what was asked on branches that were left"),
    arg("--verify", action="store_true", help="check that the log is as it was written; 1 if it is not"),
    arg("--all", action="store_true", help="with --verify: all sessions"),
    arg("--head", metavar="DIGEST", help="with --verify: what an earlier --verify printed as head"),
    *WHOSE,
    STORE,
    *SERVER,
    JSON,
)
def audit(options: argparse.Namespace) -> int:
    """Print every question of the session's branch, oldest first, or the result of verifying it."""
    _check_audit(options)
    if options.verify:
        return _verify(options)
    if options.all_branches:
        entries = with_stored(options, lambda sessions: sessions.audit(options.session, all_branches=True))
    else:
        entries = with_sessions(options, lambda sessions: sessions.audit(options.session))
    if options.json:
        print_json([_entry_document(entry) for entry in entries])
        return 0
    if not entries:
        where = "in the session" if options.all_branches else "on this branch of the session"
        print(f"Nobody was asked anything {where}.")
    screen = Screen(sys.stdout)
    for entry in entries:
        screen.show(_entry_card(entry))
    return 0


def _check_audit(options: argparse.Namespace) -> None:
    check_no_server(options, "verify", "all_branches")
    if not options.verify and (options.all or options.head):
        raise UsageError("--all and --head belong to --verify.")
    if options.all and (options.session or options.head):
        raise UsageError("--all takes neither a SESSION nor --head.")
    if not options.all and options.session is None:
        raise UsageError("Which session? Give SESSION, or --verify --all to verify all of them.")


def _verify(options: argparse.Namespace) -> int:
    async def verify(sessions: Sessions) -> list[Verification]:
        if options.all:
            return await sessions.verify_all()
        return [await sessions.verify(options.session, head=options.head)]

    found = with_stored(options, verify)
    if options.json:
        documents = [{**asdict(each), "sound": each.is_sound} for each in found]
        print_json(documents if options.all else documents[0])
    else:
        _print_verified(found, each_one=not options.all)
    return 0 if all(each.is_sound for each in found) else 1


def _print_verified(found: list[Verification], *, each_one: bool) -> None:
    screen = Screen(sys.stdout)
    for each in found:
        if each_one or not each.is_sound:
            screen.show(_verified_card(each))
    if not each_one:
        sound = sum(each.is_sound for each in found)
        print(f"{sound} of {len(found)} sessions are as they were written.")
        if sound and not any(each.signed for each in found):
            print(f"No audit key is given, so it was checked {_UNSIGNED}.")


def _verified_card(found: Verification) -> Card:
    named = visible_line(f"Session '{found.session_id}'")
    if found.signed:
        return Card("✔", "green", f"{named} is as it was written, and signed", tuple(_verified_rows(found)))
    if found.is_sound:
        return Card("✔", "yellow", f"{named} is as it was written, but NOT signed", tuple(_verified_rows(found)))
    return Card("✘", "red", f"{named} is NOT as it was written", tuple(_verified_rows(found)))


def _verified_rows(found: Verification) -> Iterator[tuple[str, str]]:
    yield from _problem_rows(found.problems)
    yield "checked", f"{counted(found.records, 'record')}, {counted(found.answers, 'answer')}"
    if found.is_sound and not found.signed:
        yield "without", f"an audit key ({KEY_VARIABLE}): {_UNSIGNED}"
    if found.untaken:
        yield "not yet", f"{counted(found.untaken, 'answer')} that no run has taken up"
    if found.pruned:
        gone = f"records before {', '.join(found.pruned)}"
        yield "pruned", gone + (f", with the proof of {counted(found.unproved, 'answer')}" if found.unproved else "")
    if found.head is not None:
        yield "head", found.head


def _problem_rows(problems: Sequence[Problem]) -> Iterator[tuple[str, str]]:
    """Yield what was changed; what is said of many records in the same words is said once."""
    places: dict[str, list[str]] = {}
    for each in problems:
        places.setdefault(each.what, []).append(each.where)
    for what, found in places.items():
        named = [place for place in found[:_NAMED] if place]
        if len(found) > _NAMED:
            named.append(f"{len(found) - _NAMED:,} more")
        yield "changed", visible_line(f"{'; '.join(named)}: {what}" if named else what)


def _entry_document(entry: AuditEntry) -> dict[str, Any]:
    return {
        **asdict(Question.of(entry.interrupt)),
        "how": entry.outcome,
        "answer": plain(entry.answer),
        "message": entry.message,
        "by": entry.by,
        "at": None if entry.at is None else entry.at.isoformat(),
        "inherited": entry.inherited,
        "again": entry.again,
        "branch": entry.branch,
    }


def _entry_card(entry: AuditEntry) -> Card:
    sign, colour, ending = _OUTCOMES[entry.outcome]
    return Card(sign, colour, f"{place_of(entry.interrupt)} {ending}", tuple(_entry_rows(entry)))


def _entry_rows(entry: AuditEntry) -> Iterator[tuple[str, str]]:
    asked, answer = entry.interrupt, plain(entry.answer)
    if asked.prompt is not None:
        yield "asked", asked.prompt
    yield from ((label, text) for label, text in question_rows(asked) if label not in ("asks", "reach"))
    if asked.created is not None:
        yield "since", clock(asked.created)
    if entry.outcome == "answered" or answer is not None:
        yield "answer", _decided(asked, answer) or described(answer)
    if entry.message is not None:
        yield "said", entry.message
    if entry.outcome == "answered":
        yield "by", visible_line(entry.by or "(nobody was named)")
    if entry.at is not None:
        yield "at", clock(entry.at) + (", before this branch began" if entry.inherited else "")
    if entry.again:
        yield "again", "it had acted before this branch began, and was let count once more"
    yield "id", visible_line(asked.id)


_REMEMBERED = {None: "", "session": ", remembered in this session", "always": ", remembered always"}


def _decided(asked: Interrupt, answer: Any) -> str | None:  # Any: JSON data
    """Return what was decided, in words; None if the question is not an approval, or the answer is not a decision."""
    from adjourn.tools.decisions import Approve, Edit, Reject, Respond, decision  # noqa: PLC0415 - models come with it

    try:
        given = decision(answer) if asked.reason in APPROVALS else None
    except ValueError:
        return None
    match given:
        case Approve():
            limits = " and ".join(f"{name} {_json(wanted)}" for name, wanted in (given.pattern or {}).items())
            return f"approved{_REMEMBERED[given.remember]}{limits and f', for {limits}'}"
        case Reject():
            return f"refused: {given.reason}" if given.reason else "refused"
        case Edit():
            return f"edited: {', '.join(_changes(asked, given.arguments)) or 'as it was'}"
        case Respond():
            return f"responded: {given.text}"
        case None:
            return None


def _changes(asked: Interrupt, arguments: Mapping[str, Any]) -> Iterator[str]:
    request = tool_request(asked.info)
    before: Mapping[str, Any] = {} if request is None else request.arguments
    for name in {**before, **arguments}:
        old, new = (_json(each[name]) if name in each else "nothing" for each in (before, arguments))
        if old != new:
            yield f"{name} {old} → {new}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
