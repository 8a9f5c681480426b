"""`adjourn keys`: the keys of an encrypted store, and what is still encrypted with each."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from adjourn.cli._stores import add_store_option, with_store
from adjourn.cli.output.documents import add_json_option, print_json
from adjourn.cli.output.tables import print_table
from adjourn.errors import UsageError
from adjourn.stores import EncryptedStore, Store


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--new", action="store_true", help="print a new key with an id, as $ADJOURN_KEYS has them, and do nothing else"
    )
    add_store_option(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """List the keys, or make one; 1 if one is missing."""
    if options.new:
        print(f"{datetime.now(UTC).date().isoformat()}:{EncryptedStore.generate_key()}")
        return 0
    found = with_store(options, _read)
    if options.json:
        print_json([{"id": name, "sessions": count, "state": state} for name, count, state in found])
    else:
        print_table(["key", "sessions", "state"], [[name, str(count), state] for name, count, state in found])
    return 1 if any(state == "missing" for _, _, state in found) else 0


async def _read(store: Store) -> list[tuple[str, int, str]]:
    if not isinstance(store, EncryptedStore):
        raise UsageError("This store is not encrypted. The URL of an encrypted one begins with 'encrypted+'.")
    used, given = await store.keys_in_use(), store.key_ids
    return [(name, used.get(name, 0), _state(name, used, given)) for name in (*given, *sorted({*used} - {*given}))]


def _state(name: str, used: dict[str, int], given: tuple[str, ...]) -> str:
    if name == given[0]:
        return "encrypts"
    if name not in given:
        return "missing"
    return "needed" if name in used else "not needed any more"
