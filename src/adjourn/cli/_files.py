"""`adjourn check`, `schema` and `draw`: YAML agents, and pictures of programs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection
from pathlib import Path

import msgspec

from adjourn import spec
from adjourn._hiding import known
from adjourn._screen import Screen
from adjourn._text import counted
from adjourn.agents.agent import Agent
from adjourn.agents.draw import draw_agent
from adjourn.errors import UsageError
from adjourn.graph import CompiledGraph
from adjourn.graph.draw import FORMATS
from adjourn.runner import Runner
from adjourn.spec import Loaded, load

from ._errors import REFUSED
from ._options import ALLOW, PROGRAM_NAME, arg, takes
from ._programs import program_of


@takes(
    arg("folder", metavar="FOLDER", type=Path, help="the folder with the YAML files of the agents"),
    ALLOW,
    arg("--json", action="store_true", help="print the agents and mistakes as JSON"),
)
def check(options: argparse.Namespace) -> int:
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


@takes()
def schema(options: argparse.Namespace) -> int:
    """Print the schema."""
    print(msgspec.json.format(msgspec.json.encode(spec.schema()), indent=2).decode())
    return 0


_SUFFIXES = {".mmd": "mermaid", ".md": "mermaid", ".dot": "dot", ".gv": "dot", ".svg": "svg", ".txt": "text"}


@takes(
    arg(
        "program",
        metavar=PROGRAM_NAME,
        help="a compiled graph or an agent, such as review:graph, or agents/:NAME of YAML",
    ),
    ALLOW,
    arg(
        "--format",
        choices=FORMATS,
        help="mermaid (the default), dot, svg (needs Graphviz), or text; without it, the name of FILE decides",
    ),
    arg("-o", "--output", metavar="FILE", type=Path, help="write to this file"),
)
def draw(options: argparse.Namespace) -> int:
    """Draw the program."""
    file: Path | None = options.output
    drawn = _drawn(options.program, options.allow, options.format or _format_of(file))
    if file is None:
        print(drawn)
        return 0
    try:
        file.write_text(drawn + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}. Name another file with -o.") from error
    print(f"Drawn in {file}", file=sys.stderr)
    return 0


def _format_of(file: Path | None) -> str:
    if file is None:
        return "mermaid"
    if (known := _SUFFIXES.get(file.suffix.lower())) is None:
        raise UsageError(
            f"{file}: the file name does not say which format to use. "
            f"Use a name that ends in {', '.join(_SUFFIXES)}, or choose a --format."
        )
    return known


def _drawn(name: str, allow: Collection[str], format: str) -> str:
    program = program_of(name, allow)
    # A compiled graph is also a runner, of itself.
    held = program.program if isinstance(program, Runner) else program
    match held:
        case CompiledGraph():
            return held.draw(format)
        case Agent():
            return draw_agent(held, format)
        case _:
            raise UsageError(f"{name} is a function, which cannot be drawn. Name a compiled graph or an agent.")
