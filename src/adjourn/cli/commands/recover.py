"""`adjourn recover`: goes on after a crash, a failure or a cancel, or with answers that were recorded; asks nothing."""

from __future__ import annotations

import argparse

from adjourn.cli._programs import add_program_options

from .resume import add_run_options, go_on


def configure(parser: argparse.ArgumentParser) -> None:
    """Take the program and the session."""
    add_program_options(parser)
    parser.add_argument("session", metavar="SESSION")
    add_run_options(parser)
    parser.set_defaults(by=None)


def run(options: argparse.Namespace) -> int:
    """Go on as far as it goes."""
    return go_on(options, ask=False)
