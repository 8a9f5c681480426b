"""`adjourn check`: every mistake in a folder of YAML agents."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec

from adjourn._hiding import known
from adjourn._screen import Screen
from adjourn._text import counted
from adjourn.cli._failures import REFUSED
from adjourn.cli._programs import add_allow_option
from adjourn.spec import Loaded, load


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the folder, and how to print what was found."""
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="the folder with the YAML files of the agents")
    add_allow_option(parser)
    parser.add_argument("--json", action="store_true", help="print the agents and mistakes as JSON")


def run(options: argparse.Namespace) -> int:
    """Load the folder, and print what is wrong with it."""
    loaded = load(options.folder, allow=options.allow)
    if options.json:
        found = {"agents": sorted(loaded.agents), "mistakes": loaded.mistakes}
        print(known.hide_in_json(msgspec.json.encode(found)).decode())
    else:
        _print(loaded)
    return REFUSED if loaded.mistakes else 0


def _print(loaded: Loaded) -> None:
    screen = Screen(sys.stdout)
    for mistake in loaded.mistakes:
        screen.write(f"{screen.prose(known.hide(str(mistake)), 2)}\n")
    count = len(loaded.mistakes)
    if count:
        print(counted(count, "mistake"))
    else:
        print(f"No mistakes. Agents: {', '.join(sorted(loaded.agents)) or 'none'}")
