"""What `--json` prints: one JSON document, or for events one on each line. The names of fields stay as they are."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import msgspec

_encoder = msgspec.json.Encoder(enc_hook=repr)


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Add the option `--json`."""
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def print_json(data: Any) -> None:  # Any: JSON data
    """Print one document on one line."""
    sys.stdout.write(_encoder.encode(data).decode() + "\n")
    sys.stdout.flush()
