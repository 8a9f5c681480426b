"""`adjourn sessions`, `show`, `tree` and `audit`: looking at sessions."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import asdict

from adjourn._documents import Question, TreeEntry, plain, questions, session
from adjourn._engine.record import APPROVALS
from adjourn._owner import owner_name
from adjourn._screen import Card, Screen
from adjourn._text import counted, visible, visible_line
from adjourn.errors import UsageError
from adjourn.events import CheckpointSaved, Event, Failed, Interrupt, Interrupted, MessageEvent
from adjourn.printing import described, print_event, question_rows, tool_request
from adjourn.sessions import AuditEntry, Problem, Sessions, Verification, WaitingInput
from adjourn.sessions._contents import Contents
from adjourn.sessions._log import read_events
from adjourn.sessions._questions import questions_of
from adjourn.sessions._status import owner_of, status_of
from adjourn.stores import Head, SessionRef, Store
from adjourn.stores.kit import Audit, GetHead, ListEvents, ListSessions
from adjourn.stores.types import Status

from ._asking import answering
from ._options import JSON, SESSION, STORE, WHOSE, arg, takes
from ._printing import ago, at, clock, place_of, print_each, print_json, print_table
from ._stores import KEY_VARIABLE, command, with_sessions, with_store

Key = tuple[str, str]
"""The app and the id of a session."""

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
    JSON,
)
def sessions(options: argparse.Namespace) -> int:
    """List the sessions."""
    heads, open_, statuses = with_store(options, lambda store: _read_heads(store, options))
    if options.json:
        print_json([session(head, open_[head.app, head.session]) for head in heads])
        return 0
    if not heads:
        print(
            f"No sessions with {' and '.join(_sessions_filters(options))}."
            if _sessions_filters(options)
            else "No sessions."
        )
        if options.app is not None:
            print("With --all-apps, those of other apps are listed, too.", file=sys.stderr)
        return 0
    _print_heads(heads, open_, statuses, with_app=options.app is None)
    if any(open_[head.app, head.session] for head in heads):
        print(f"\nSee the questions with: {command(options, 'pending')}", file=sys.stderr)
    return 0


async def _read_heads(store: Store, options: argparse.Namespace) -> tuple[list[Head], Counter[Key], dict[Key, str]]:
    """Return the sessions, how many questions each has open, and the status that each is shown with."""
    heads: list[Head] = []
    open_: Counter[Key] = Counter()
    statuses: dict[Key, str] = {}
    for stored in _STORED.get(options.status, (options.status,)):
        found: list[Head] = []
        async for head in _listed(store, options, stored):
            if len(found) == options.limit:
                break
            open_[_key(head)] = len(await questions_of(store, head))
            statuses[_key(head)] = shown = await _status_shown(store, head, open_)
            if options.status in (None, status_of(head), shown):
                found.append(head)
        heads += found
    heads.sort(key=lambda head: head.updated, reverse=True)
    return heads[: options.limit], open_, statuses


async def _listed(store: Store, options: argparse.Namespace, stored: Status | None) -> AsyncIterator[Head]:
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


def _key(head: Head) -> Key:
    return head.app, head.session


async def _status_shown(store: Store, head: Head, open_: Counter[Key]) -> str:
    status = status_of(head)
    if status != "waiting" or open_[_key(head)]:
        return status
    # Without an open question, it waits to be resumed; what nobody answered has expired.
    return "expired" if any(row.how is None for row in await store.read(Audit(head.ref))) else "answered"


def _sessions_filters(options: argparse.Namespace) -> list[str]:
    given = {name: getattr(options, name) for name in ("status", "user", "app")}
    return [f"{name} {visible_line(value)}" for name, value in given.items() if value]


def _print_heads(heads: list[Head], open_: Counter[Key], statuses: dict[Key, str], *, with_app: bool) -> None:
    titles = ("SESSION", "STATUS", "QUESTIONS", "LAST WRITTEN", "USER")
    rows = [_head_row(head, open_, statuses) for head in heads]
    if with_app:
        titles, rows = (*titles, "APP"), [(*row, head.app) for row, head in zip(rows, heads, strict=True)]
    print_table(titles, rows)


def _head_row(head: Head, open_: Counter[Key], statuses: dict[Key, str]) -> tuple[str, ...]:
    count = open_[_key(head)]
    return head.session, statuses[_key(head)], str(count or ""), ago(at(head.updated)), head.user or ""


_SIGNS = {
    "queued": ("…", "blue"),
    "running": ("▶", "blue"),
    "waiting": ("⏸", "yellow"),
    "failed": ("✘", "red"),
    "done": ("✔", "green"),
}


class _Queued(NamedTuple):
    """A session in which no turn has begun."""

    head: Head
    inputs: list[WaitingInput]


class _Found(NamedTuple):
    contents: Contents
    questions: list[Interrupt]
    events: list[Event]


_GONE = "its process is gone; a worker goes on with it, or `adjourn recover`"


@takes(
    SESSION,
    arg("--checkpoint", metavar="ID", help="show this checkpoint instead of the latest; `adjourn tree` lists them"),
    arg("--events", action="store_true", help="also show its stored events"),
    *WHOSE,
    STORE,
    JSON,
)
def show(options: argparse.Namespace) -> int:
    """Show the session."""
    found = with_sessions(options, lambda sessions: _read_session(sessions, options))
    if isinstance(found, _Queued):
        _show_queued(options, found)
        return 0
    if options.json:
        print_json(_session_document(found, with_events=options.events))
        return 0
    _print_status(found)
    if options.events:
        _print_events(found.events)
    _print_contents(found.contents)
    print_each(found.questions)
    _print_next(options, found)
    return 0


async def _read_session(sessions: Sessions, options: argparse.Namespace) -> _Found | _Queued:
    status = await sessions.status(options.session)
    ref = SessionRef(options.session, status.app_name, sessions.user_id)
    head = None if status.checkpoint_id or options.checkpoint is not None else await sessions.store.read(GetHead(ref))
    if head is not None and not head.checkpoint:
        return _Queued(head, await sessions.inputs(options.session))
    contents = await Contents.at(sessions.store, ref, options.checkpoint)
    is_head = contents.checkpoint == contents.head.checkpoint
    asked: list[Interrupt] = list(await sessions.pending(options.session)) if is_head else []
    # The last one says why a session failed, whether all are wanted or not.
    after = 0 if options.events else max(contents.head.seq - 1, 0)
    batches = await sessions.store.read(ListEvents(ref, after))
    events = [event for batch in batches for event in read_events(batch)]
    return _Found(contents, asked, events)


def _session_document(found: _Found, *, with_events: bool) -> dict[str, Any]:
    contents = found.contents
    document = {
        **session(contents.head, len(found.questions)),
        "checkpoint_id": contents.checkpoint,
        "program": contents.program,
        "messages": plain(contents.messages),
        "state": {name: plain(value) for name, value in contents.fields.items()},
        "open": questions(found.questions),
    }
    return (
        {**document, "events": [msgspec.to_builtins(each, enc_hook=repr) for each in found.events]}
        if with_events
        else document
    )


def _show_queued(options: argparse.Namespace, found: _Queued) -> None:
    """Show what there is of a session in which no turn has begun."""
    head, waiting = found
    if options.json:
        inputs = [{"id": each.id, "input": plain(each.input), "user_id": each.user_id} for each in waiting]
        print_json({**session(head, 0), "program": head.program, "waiting": inputs})
        return
    rows = [("program", visible_line(head.program)), *_queue(head)]
    rows += [("user", visible_line(head.user))] if head.user is not None else []
    rows += [("next", described(plain(each.input))) for each in waiting[:1]]
    Screen(sys.stdout).show(Card(*_SIGNS["queued"], f"{head.session} is queued", tuple(rows)))
    line = command(options, "recover", "MODULE:ATTRIBUTE", options.session)
    print(f"\nBegin with: {line}", file=sys.stderr)


def _queue(head: Head) -> list[tuple[str, str]]:
    if not head.inputs:
        return []
    return [("queue", "1 input waits" if head.inputs == 1 else f"{head.inputs} inputs wait")]


def _print_status(found: _Found) -> None:
    contents, head = found.contents, found.contents.head
    status = status_of(head)
    sign, colour = _SIGNS.get(status, ("■", "yellow"))
    if status == "waiting" and not found.questions and contents.checkpoint == head.checkpoint:
        has_expired = any(contents.rows[each].how is None for each in contents.scope.questions.open)
        status = "expired: `recover` continues it" if has_expired else "answered, and waits to be resumed"
    rows = [
        ("program", visible_line(contents.program)),
        ("written", f"{clock(at(head.updated))}, {ago(at(head.updated))}"),
        ("at", visible_line(contents.checkpoint)),
    ]
    rows += _queue(head)
    rows += [("user", visible_line(head.user))] if head.user is not None else []
    owner = owner_of(head)
    rows += [("run by", visible_line(owner_name(owner)))] if owner is not None else []
    Screen(sys.stdout).show(Card(sign, colour, f"{head.session} is {status}", (*rows, *_failure(found, status))))


def _failure(found: _Found, status: str) -> Iterator[tuple[str, str]]:
    last = found.events[-1] if found.events else None
    if status == "failed":
        yield (
            "error",
            f"{last.error}: {last.message}" if isinstance(last, Failed) else _GONE,
        )


def _print_events(events: list[Event]) -> None:
    print()
    for event in events:
        # A checkpoint is for the tree; a pause in the log has no questions, and those that are open follow.
        if not isinstance(event, CheckpointSaved | Interrupted):
            print_event(event)


def _print_contents(contents: Contents) -> None:
    if contents.messages:
        print()
        for message in contents.messages:
            print_event(MessageEvent(message=message))
    # An agent's other fields are internal; --json includes them.
    rest = {name: value for name, value in contents.fields.items() if name != "messages" or not contents.messages}
    if rest and not contents.is_agent:
        print()
        Screen(sys.stdout).show(Card("●", "blue", "state", (("", described(plain(rest))),)))


def _print_next(options: argparse.Namespace, found: _Found) -> None:
    if options.checkpoint is not None:
        line = command(options, "fork", options.session, "--checkpoint", found.contents.checkpoint)
        print(f"\nA new session from here: {line}", file=sys.stderr)
        return
    status = status_of(found.contents.head)
    if status == "waiting" and found.questions:
        print(f"\nAnswer with: {answering(options, options.session, found.questions)}", file=sys.stderr)
    elif status != "done" and status != "running":
        line = command(options, "recover", "MODULE:ATTRIBUTE", options.session)
        print(f"\nGo on with: {line}", file=sys.stderr)


@takes(
    SESSION,
    *WHOSE,
    STORE,
    JSON,
)
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
    JSON,
)
def audit(options: argparse.Namespace) -> int:
    """Print every question of the session's branch, oldest first, or the result of verifying it."""
    _check_audit(options)
    if options.verify:
        return _verify(options)
    entries = with_sessions(
        options, lambda sessions: sessions.audit(options.session, all_branches=options.all_branches)
    )
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

    found = with_sessions(options, verify)
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
