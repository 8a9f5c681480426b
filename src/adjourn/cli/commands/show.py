"""`adjourn show`: the status and content of a session."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from adjourn._documents import plain, questions, session
from adjourn._owner import owner_name
from adjourn._screen import Card, Screen
from adjourn._text import visible_line
from adjourn.cli._stores import add_store_option, add_whose_options, command, with_sessions
from adjourn.cli.ask.asking import answering
from adjourn.cli.output.documents import add_json_option, print_json
from adjourn.cli.output.questions import print_each
from adjourn.cli.output.tables import ago, at, clock
from adjourn.events import CheckpointSaved, Event, Failed, Interrupt, Interrupted, MessageEvent
from adjourn.printing import described, print_event
from adjourn.sessions import Sessions, WaitingInput
from adjourn.sessions._contents import Contents
from adjourn.sessions._log import read_events
from adjourn.sessions._status import owner_of, status_of
from adjourn.stores import Head, SessionRef
from adjourn.stores.kit import GetHead, ListEvents

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


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the session and what to show of it."""
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument(
        "--checkpoint", metavar="ID", help="show this checkpoint instead of the latest; `adjourn tree` lists them"
    )
    parser.add_argument("--events", action="store_true", help="also show its stored events")
    add_whose_options(parser)
    add_store_option(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Show the session."""
    found = with_sessions(options, lambda sessions: _read(sessions, options))
    if isinstance(found, _Queued):
        _show_queued(options, found)
        return 0
    if options.json:
        print_json(_document(found, with_events=options.events))
        return 0
    _print_status(found)
    if options.events:
        _print_events(found.events)
    _print_contents(found.contents)
    print_each(found.questions)
    _print_next(options, found)
    return 0


async def _read(sessions: Sessions, options: argparse.Namespace) -> _Found | _Queued:
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


def _document(found: _Found, *, with_events: bool) -> dict[str, Any]:
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
