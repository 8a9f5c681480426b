"""Whatever `docs/coming-from.md` says that something is called here, is called so."""

import inspect
import re
from importlib import import_module
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from adjourn.cli import COMMANDS
from tests.test_docs import ROOT

MODULES = [
    import_module(name)
    for name in (
        "adjourn",
        "adjourn.errors",
        "adjourn.interrupts",
        "adjourn.context",
        "adjourn.graph",
        "adjourn.tools",
        "adjourn.middleware",
        "adjourn.stores",
        "adjourn.models",
    )
]
NAME = re.compile(r"(?P<path>[\w.]+)(?:\((?P<option>\w+)=\))?")


def ours() -> list[str]:
    """What stands in backticks in the second column of the page's tables."""
    lines = (ROOT / "docs" / "coming-from.md").read_text(encoding="utf-8").splitlines()
    rows = [re.split(r" \| ", line.strip("| ")) for line in lines if line.startswith("| ")]
    assert all(len(row) in (2, 3) for row in rows)
    return sorted({name for row in rows for name in re.findall(r"`([^`]+)`", row[1])})


def found(path: str) -> Any:
    first, *rest = path.split(".")
    value = next(getattr(module, first) for module in MODULES if hasattr(module, first))
    for name in rest:
        hints = get_type_hints(value) if isinstance(value, type) else {}
        value = getattr(value, name) if hasattr(value, name) else hints[name]
    return value


def options(value: Any) -> set[str]:
    """What can be given by name, `**options: Unpack[...]` included."""
    parameters = inspect.signature(value).parameters.values()
    more = [each.name for each in parameters if each.kind is each.VAR_KEYWORD]
    hints = get_type_hints(value.__init__ if isinstance(value, type) else value)
    unpacked = [get_args(hints[name])[0] for name in more if get_args(hints[name])]
    unpacked = [get_origin(each) or each for each in unpacked]
    return {each.name for each in parameters} | {key for each in unpacked for key in get_type_hints(each)}


@pytest.mark.parametrize("name", ours())
def test_our_names_exist(name: str) -> None:
    if name.startswith("adjourn "):
        assert name.removeprefix("adjourn ") in COMMANDS
        return
    parts = NAME.fullmatch(name)
    assert parts is not None, f"write `Name`, `Name.method` or `Name(option=)` instead of `{name}`"
    value = found(parts["path"])
    assert parts["option"] is None or parts["option"] in options(value)


def test_there_are_many() -> None:
    assert len(ours()) > 100
