"""`adjourn demo`: a program asks, two people answer at once, processes are killed and others go on."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from adjourn.cli._failures import INTERRUPTED
from adjourn.cli.demo import booking as demo_booking
from adjourn.cli.demo import refunding as demo_refunding
from adjourn.cli.demo.stage import DemoFailed
from adjourn.errors import AdjournError

_SHOWS = {"agent": demo_booking.show, "graph": demo_refunding.show}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the choice of the demo."""
    help_ = "the ticket agent, or a refund as a graph (agent)"
    parser.add_argument("what", nargs="?", choices=list(_SHOWS), default="agent", help=help_)


def run(options: argparse.Namespace) -> int:
    """Show the demo and return the exit code."""
    try:
        with tempfile.TemporaryDirectory(prefix="adjourn-demo-", ignore_cleanup_errors=True) as folder:
            _SHOWS[options.what](Path(folder))
    except EOFError:
        print("\nNo answer came, so this is the end of it. Nothing is left behind.")
        return 1
    except KeyboardInterrupt:
        print("\nStopped. Nothing is left behind.")
        return INTERRUPTED
    except BrokenPipeError:
        raise  # Nobody is there to read more.
    except (DemoFailed, AdjournError, OSError) as error:
        print(f"The demo cannot continue: {error}", file=sys.stderr)
        return 1
    return 0
