"""`adjourn recover`: continues after a crash, a failure or a cancel, or with recorded answers; asks nothing."""

from __future__ import annotations

import argparse

from adjourn.cli._programs import add_program_options
from adjourn.cli._stores import add_user_option

from .resume import add_run_options, go_on


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the program and the session."""
    add_program_options(parser)
    parser.add_argument("session", metavar="SESSION")
    add_user_option(parser)
    add_run_options(parser)
    parser.set_defaults(by=None)


def run(options: argparse.Namespace) -> int:
    """Continue as far as possible."""
    return go_on(options, ask=False)
