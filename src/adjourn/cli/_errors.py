"""Errors of a command: one message with commands to try, never a traceback, and an exit code."""

from __future__ import annotations

import argparse
import os
import re
import sys
import traceback
from datetime import UTC, datetime
from functools import singledispatch
from typing import Any

import msgspec

from adjourn._hiding import known
from adjourn._screen import Screen
from adjourn._text import did_you_mean, undotted
from adjourn.errors import (
    AdjournError,
    AlreadyResumed,
    ApprovalSpent,
    CheckpointNotFound,
    InvalidAnswer,
    PendingInterrupts,
    SessionBusy,
    UnfinishedRun,
    UnknownInterrupt,
    UsageError,
)
from adjourn.stores.kit import ListSessions
from adjourn.stores.urls import shown_url, without_passwords

from ._printing import ago, form_of, in_words
from ._stores import command, server_url, store_url, with_store, with_stored

REPORTED = AdjournError
"""The errors that have a message for people."""

REFUSED, USAGE = 1, 2
"""Exit codes: the request cannot be fulfilled now; the request itself is wrong."""


INTERRUPTED = 130
"""The exit code of a program ended by Ctrl-C, as in shells."""


def report(error: AdjournError, options: argparse.Namespace) -> int:
    """Write the error to standard error and return the exit code."""
    if os.environ.get("ADJOURN_DEBUG"):
        print(without_passwords("".join(traceback.format_exception(error))), file=sys.stderr)
    if getattr(options, "json", False):
        body = known.hide_in_json(msgspec.json.encode({"error": document(error)}))
        print(without_passwords(body.decode()), file=sys.stderr)
    else:
        screen, message = Screen(sys.stderr), known.hide(without_passwords(advice(error, options)))
        # Names in it may hold any text: its further lines cannot be taken for lines of the program.
        screen.write(f"{screen.painted('✘', 'red')} {screen.prose(message, 2)}\n")
    return USAGE if isinstance(error, UsageError) else REFUSED


def document(error: AdjournError) -> dict[str, Any]:
    """Return the error as data: a code, the message, and its attributes."""
    facts = {name: value for name, value in vars(error).items() if _is_plain(value)}
    return {"code": _code(type(error).__name__), "message": str(error), **facts}


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | float | bool | tuple)


def _code(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


@singledispatch
def advice(error: AdjournError, options: argparse.Namespace) -> str:
    """Return the message of an error, for somebody who has no Python at hand."""
    if getattr(error, "code", None) == "unauthenticated":  # by the client, which is an extra
        return f"{server_url(options)}: the request has no token that is known there. {_TOKEN}"
    return str(error)


_TOKEN = "Give one as $ADJOURN_TOKEN, or with --token; whoever runs the server makes it with `adjourn token create`."


@advice.register
def _(error: AlreadyResumed, options: argparse.Namespace) -> str:
    if error.at is None:
        return str(error)
    # The person who came second wants to know whom to ask.
    when = ago(datetime.fromtimestamp(error.at, UTC))
    return f"{error}\nYou came second: {error.by or 'somebody'} answered it {when}."


_MEANT = 1000
"""Among how many sessions, the most recent ones, to look for the one that was meant."""


@advice.register
def _(error: CheckpointNotFound, options: argparse.Namespace) -> str:
    if error.checkpoint_id is not None:
        tree = command(options, "tree", error.session_id)
        return f"Session '{error.session_id}' has no checkpoint '{error.checkpoint_id}'. `{tree}` lists them."
    if (server := server_url(options)) is not None:
        return f"There is no session '{error.session_id}' on {server} that you may see."
    if (url := store_url(options)) is None:
        return str(error)  # The store is that of the program.
    app = getattr(options, "app", None)
    heads = with_store(options, lambda store: store.read(ListSessions(app=app, user=options.user, limit=_MEANT)))
    meant = did_you_mean(error.session_id, (head.session for head in heads))
    sessions = command(options, "sessions")
    return f"There is no session '{error.session_id}' in {shown_url(url)}.{meant} `{sessions}` lists them."


@advice.register
def _(error: ApprovalSpent, options: argparse.Namespace) -> str:
    return str(error).replace("again=True", "--again")


@advice.register
def _(error: UnknownInterrupt, options: argparse.Namespace) -> str:
    pending = command(options, "pending", error.session_id)
    meant = did_you_mean(error.interrupt_id, error.open)
    return (
        f"Session '{error.session_id}' has no open question '{error.interrupt_id}'.{meant} Open: "
        f"{', '.join(error.open) or 'none'}. `{pending}` shows them."
    )


@advice.register
def _(error: InvalidAnswer, options: argparse.Namespace) -> str:
    problems = undotted("; ".join(map(in_words, error.problems)))
    message = f"The answer to '{error.interrupt_id}' of session '{error.session_id}' does not fit: {problems}."
    if store_url(options) is None:
        return message
    asked = with_stored(options, lambda sessions: sessions.pending(error.session_id))
    forms = [form_of(each) for each in asked if each.id == error.interrupt_id]
    return f"{message} It takes:\n{forms[0]}" if forms else message


@advice.register
def _(error: PendingInterrupts, options: argparse.Namespace) -> str:
    pending = command(options, "pending", error.session_id)
    return f"Session '{error.session_id}' waits for answers. `{pending}` lists its questions, and how to answer them."


@advice.register
def _(error: UnfinishedRun, options: argparse.Namespace) -> str:
    program = [] if server_url(options) else [options.program]
    recover = command(options, "recover", *program, error.session_id)
    return f"The last turn of session '{error.session_id}' has not ended ({error.status}). Finish it with `{recover}`."


@advice.register
def _(error: SessionBusy, options: argparse.Namespace) -> str:
    if error.refused:
        return str(error)  # It says which of the options a live owner cannot get.
    cancel = command(options, "cancel", error.session_id)
    if server_url(options):
        return f"Session '{error.session_id}' is running. Wait for it, or stop it with `{cancel}`."
    return f"Session '{error.session_id}' is being run by {error.owner}. Wait for it, or stop it with `{cancel}`."
