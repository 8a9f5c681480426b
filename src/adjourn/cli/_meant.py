"""What somebody meant who misspelt an option."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence

from adjourn._text import did_you_mean


def check_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """End the program if one of the words is an option that the parser does not have but a similar one."""
    known = re.findall(r"--[a-z-]+", parser.format_usage())
    for word in words[: words.index("--")] if "--" in words else words:
        name = word.partition("=")[0]
        if not re.fullmatch(r"--[a-z-]+", name) or any(each.startswith(name) for each in known):
            continue  # argparse takes beginnings of options, too.
        if name in ("--server", "--token"):
            parser.error(f"{name} is for chat, pending, answer, resume, recover and cancel; here it is --store URL.")
        if meant := did_you_mean(name, known):
            parser.error(f"there is no option {name}.{meant}")
