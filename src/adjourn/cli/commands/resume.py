"""`adjourn resume`: continues a session, and asks the person at the terminal its questions."""

from __future__ import annotations

import argparse

from adjourn.cli._failures import INTERRUPTED
from adjourn.cli._going_on import session_of
from adjourn.cli._programs import add_program_options
from adjourn.cli._stores import add_user_option
from adjourn.cli.ask.asking import person
from adjourn.cli.output.documents import add_json_option
from adjourn.cli.output.following import Ending


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the program and the session."""
    add_program_options(parser)
    parser.add_argument("session", metavar="SESSION")
    add_user_option(parser)
    parser.add_argument("--by", metavar="NAME", default=person(), help="who answers here (your login name)")
    add_run_options(parser)


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for what a run shows."""
    parser.add_argument("--verbose", "-v", action="store_true", help="show every event")
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Continue with recorded answers, then with those of the person at the terminal."""
    return go_on(options, ask=True)


def go_on(options: argparse.Namespace, *, ask: bool) -> int:
    """Continue a session and return the exit code."""
    session = session_of(options, existing=True)
    ending = Ending("interrupted")
    try:
        ending = session.recover()
        ending = session.settle(ending) if ask else ending
        session.print_next_steps(ending)
    except EOFError:
        session.print_next_steps(ending)
    except KeyboardInterrupt:
        print("\nStopped.")
        session.print_next_steps(Ending("interrupted" if session.pending() else "cancelled"))
        return INTERRUPTED
    finally:
        session.close()
    return 1 if ending.status == "failed" else 0
