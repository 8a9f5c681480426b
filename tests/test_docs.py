"""Every `python` block of the README and of docs/ runs as it is written."""

import ast
import asyncio
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]


class Block(NamedTuple):
    page: Path
    line: int
    """Of the fence, counted from one."""
    code: str

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    return blocks_of("python", page)


def blocks_of(language: str, page: Path) -> Iterator[Block]:
    fence, opened, lines = "", 0, list[str]()
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        if not fence and line.startswith("```"):
            fence, opened, lines = line, number, []
        elif fence and line.rstrip() == "```":
            if fence.split()[0] == f"```{language}":
                yield Block(page, opened, "\n".join(lines))
            fence = ""
        else:
            lines.append(line)
    assert not fence, f"{page.name}:{opened}: this block is never closed."


def execute(block: Block, module: ModuleType) -> None:
    # The empty lines make a traceback name the page's own line.
    code = compile(
        "\n" * block.line + block.code,
        str(block.page),
        "exec",
        flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
        dont_inherit=True,
    )
    outcome = eval(code, module.__dict__)  # noqa: S307 - our own pages, and only in tests
    # A block without `await` is left without a running loop, as in a reader's script.
    if inspect.iscoroutine(outcome):
        asyncio.run(outcome)


@pytest.mark.parametrize("block", [block for page in PAGES for block in blocks(page)], ids=lambda block: block.name)
def test_block_runs(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As a reader's script, so that what stands below `if __name__ == "__main__"` runs; and a real module, because
    # libraries look annotations up in the module that a class says it is from.
    module = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.chdir(tmp_path)
    execute(block, module)
