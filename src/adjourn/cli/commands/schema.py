"""`adjourn schema`: the JSON Schema of YAML agents, for editors."""

from __future__ import annotations

import argparse

import msgspec

from adjourn.spec import schema


def configure(parser: argparse.ArgumentParser) -> None:
    """Add nothing: there is one schema."""


def run(options: argparse.Namespace) -> int:
    """Print the schema."""
    print(msgspec.json.format(msgspec.json.encode(schema()), indent=2).decode())
    return 0
