"""`adjourn repair`: make the indexes of a store again from its sessions."""

from __future__ import annotations

import argparse

from adjourn._text import counted
from adjourn.cli._stores import add_store_option, with_store
from adjourn.cli.output.documents import add_json_option, print_json
from adjourn.stores import Repairs, Store


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_store_option(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Repair the store; others may use it meanwhile."""
    sessions = with_store(options, _repair)
    if options.json:
        print_json({"sessions": sessions})
    elif sessions is None:
        print(
            "There is nothing to repair: this store has no indexes apart from its sessions. "
            "`adjourn audit --verify --all` checks the sessions."
        )
    else:
        print(f"The indexes were made again from {counted(sessions, 'session')}.")
    return 0


async def _repair(store: Store) -> int | None:
    return await store.repair() if isinstance(store, Repairs) else None
