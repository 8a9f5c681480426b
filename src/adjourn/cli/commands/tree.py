"""`adjourn tree`: the checkpoints of a session and their branches."""

from __future__ import annotations

import argparse

from adjourn._text import visible
from adjourn.cli._stores import add_store_option, with_store
from adjourn.cli.output.documents import add_json_option, checkpoint, print_json
from adjourn.errors import CheckpointNotFound
from adjourn.runner.history import Tree
from adjourn.stores import Store


def configure(parser: argparse.ArgumentParser) -> None:
    """Take the session."""
    parser.add_argument("session", metavar="SESSION")
    add_store_option(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Print the tree."""
    tree, head = with_store(options, lambda store: _read(store, options.session))
    if options.json:
        print_json([checkpoint(point, head=head, depth=depth) for depth, point in tree])
    else:
        print(visible(str(tree)))
    return 0


async def _read(store: Store, session_id: str) -> tuple[Tree, str]:
    head = await store.head(session_id)
    if head is None:
        raise CheckpointNotFound(session_id)
    return Tree(session_id, await store.list(session_id), head.checkpoint), head.checkpoint
