"""`adjourn chat`: a conversation with any program, including its questions."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial

from adjourn._screen import Screen
from adjourn._text import visible_line
from adjourn.cli._advice import advice
from adjourn.cli._failures import INTERRUPTED
from adjourn.cli._going_on import Session, session_of
from adjourn.cli._programs import add_program_options, values_of
from adjourn.cli.ask.asking import hint, is_terminal, person, say, typed
from adjourn.cli.output.documents import print_json
from adjourn.cli.output.following import Ending
from adjourn.errors import AdjournError, UsageError

from .resume import add_run_options

_HELP = "Type a message and Enter. Ctrl-C stops an answer; /quit, Ctrl-D or Ctrl-C here ends it; the session stays."
_UNFINISHED = "The turn has not ended: /continue goes on with it, and a new message gives it up."


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the program and the options."""
    add_program_options(parser)
    parser.add_argument("--session", metavar="ID", help="continue this session, or start it (default: a new one)")
    parser.add_argument(
        "--message", "-m", metavar="TEXT", help="send this (to a graph, also a JSON object of its state), and exit"
    )
    parser.add_argument("--user", metavar="ID", help="whose session it is; that of another user is not found")
    parser.add_argument("--value", metavar="NAME=VALUE", action="append", help="a session value; may be repeated")
    parser.add_argument("--by", metavar="NAME", default=person(), help="who answers here (your login name)")
    add_run_options(parser)


def run(options: argparse.Namespace) -> int:
    """Hold the conversation and return the exit code."""
    if options.message is None and (options.json or not is_terminal()):
        raise UsageError("There is no terminal to talk in. Send one message with --message TEXT, or -m TEXT.")
    values_of(options.value)
    session = session_of(options, existing=False)
    try:
        return _say_once(session, options) if options.message is not None else _talk(session, options)
    except (EOFError, KeyboardInterrupt) as end:
        was_stopped = isinstance(end, KeyboardInterrupt)
        print("\nStopped." if was_stopped else "")
        _print_way_back(session)
        return INTERRUPTED if was_stopped else 0
    finally:
        session.close()


def _say_once(session: Session, options: argparse.Namespace) -> int:
    if options.json:
        print_json({"type": "session", "session_id": session.id})
    ending = session.settle(session.turn(options.message))
    if not options.json:
        hint(f"session {visible_line(session.id)}")
    session.print_next_steps(ending)
    return 1 if ending.status == "failed" else 0


def _talk(session: Session, options: argparse.Namespace) -> int:
    _print_heading(session)
    ending = _uncut(session, partial(_take_up, session))
    while ending.status != "interrupted":
        is_unfinished = ending.status != "done"
        if is_unfinished:
            say(f"\n{_UNFINISHED}", "dim")
        text = _message(can_continue=is_unfinished)
        if text in ("/quit", "/exit"):
            raise EOFError
        ending = _uncut(session, partial(_go_on, session, options, text, is_unfinished=is_unfinished))
    session.print_next_steps(ending)
    return 0


def _uncut(session: Session, turn: Callable[[], Ending]) -> Ending:
    """Return how a turn ended, with its questions; Ctrl-C ends the turn, and not the conversation."""
    try:
        return session.settle(turn())
    except KeyboardInterrupt:
        print("\nStopped.")
        return Ending("cancelled")


def _message(*, can_continue: bool) -> str:
    prompt = Screen(sys.stdout).painted("›", "bold") + " "
    while True:
        text = typed(f"\n{prompt}")
        if text == "/continue" and not can_continue:
            say("The last turn has ended: there is nothing to continue.", "dim")
        elif text and text != "/help":
            return text
        else:
            say(_HELP)


def _go_on(session: Session, options: argparse.Namespace, text: str, *, is_unfinished: bool) -> Ending:
    try:
        if is_unfinished and text == "/continue":
            return session.recover()
        return session.turn(text, gives_up=is_unfinished)
    except AdjournError as error:
        say(visible_line(f"✘ {advice(error, options)}"), "red")
        return Ending("failed" if is_unfinished else "done")


def _take_up(session: Session) -> Ending:
    """Continue an existing session where it is."""
    status = session.status()
    return Ending("done") if status in (None, "done") else session.recover()


def _print_heading(session: Session) -> None:
    screen = Screen(sys.stdout)
    name = visible_line(session.name)
    kept = "" if session.is_kept else ", in memory only: --store URL keeps it"
    print(f"{screen.painted(name, 'bold')}  session {visible_line(session.id)}{kept}")
    print(screen.painted(_HELP, "dim"))


def _print_way_back(session: Session) -> None:
    if session.status() is not None:
        hint(session.way_back())
