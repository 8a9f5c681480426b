"""`adjourn tree`: the checkpoints of a session and their branches."""

from __future__ import annotations

import argparse

from adjourn._documents import TreeEntry
from adjourn._text import visible
from adjourn.cli._stores import add_store_option, add_whose_options, with_sessions
from adjourn.cli.output.documents import add_json_option, print_json


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the session and the options."""
    parser.add_argument("session", metavar="SESSION")
    add_whose_options(parser)
    add_store_option(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Print the tree."""
    tree = with_sessions(options, lambda sessions: sessions.tree(options.session))
    if options.json:
        print_json([TreeEntry.at(depth, point, tree.head) for depth, point in tree])
    else:
        print(visible(str(tree)))
    return 0
