"""`adjourn tree`: the checkpoints of a session and their branches."""

from __future__ import annotations

import argparse

from adjourn._text import visible
from adjourn.cli._stores import add_app_option, add_store_option, ref_of, with_store
from adjourn.cli.output.documents import add_json_option, checkpoint, print_json
from adjourn.errors import CheckpointNotFound
from adjourn.runner.history import Tree
from adjourn.stores import SessionRef, Store


def configure(parser: argparse.ArgumentParser) -> None:
    """Take the session."""
    parser.add_argument("session", metavar="SESSION")
    add_app_option(parser)
    add_store_option(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Print the tree."""
    tree, head = with_store(options, lambda store: _read(store, ref_of(options)))
    if options.json:
        print_json([checkpoint(point, head=head, depth=depth) for depth, point in tree])
    else:
        print(visible(str(tree)))
    return 0


async def _read(store: Store, ref: SessionRef) -> tuple[Tree, str]:
    head = await store.head(ref)
    if head is None:
        raise CheckpointNotFound(ref.id)
    return Tree(ref.id, await store.checkpoints(ref), head.checkpoint), head.checkpoint
