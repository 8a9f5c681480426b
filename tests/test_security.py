"""The table of attacks: every test that it names is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
NAMED = re.findall(r"`([\w/]+\.py)::(\w+)`", (TESTS.parent / "docs" / "security.md").read_text(encoding="utf-8"))


def test_attacks_are_named() -> None:
    assert len(NAMED) > 50
    assert len(set(NAMED)) == len(NAMED)


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_the_test_of_an_attack_is_there(file: str, name: str) -> None:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    found = [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert name in found
