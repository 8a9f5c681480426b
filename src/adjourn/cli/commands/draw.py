"""`adjourn draw`: a picture of a graph, or of a tree of agents."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection
from pathlib import Path

from adjourn.agents.agent import Agent
from adjourn.agents.draw import draw_agent
from adjourn.cli._programs import METAVAR, add_allow_option, program_of
from adjourn.errors import UsageError
from adjourn.graph import CompiledGraph
from adjourn.graph.draw import FORMATS
from adjourn.runner import Runner

_SUFFIXES = {".mmd": "mermaid", ".md": "mermaid", ".dot": "dot", ".gv": "dot", ".svg": "svg", ".txt": "text"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add what to draw, in which format, and where to write it."""
    help_ = "a compiled graph or an agent, such as review:graph, or agents/:NAME of YAML"
    parser.add_argument("program", metavar=METAVAR, help=help_)
    add_allow_option(parser)
    help_ = "mermaid (the default), dot, svg (needs Graphviz), or text; without it, the name of FILE decides"
    parser.add_argument("--format", choices=FORMATS, help=help_)
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="write to this file")


def run(options: argparse.Namespace) -> int:
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
