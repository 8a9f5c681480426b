"""What `help` says: every option of what people call every day, in a line each."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from adjourn import ChatModelAgent, Runner, tool

EXPLAINED: list[Callable[..., Any]] = [ChatModelAgent, tool, Runner.run, Runner.resume]
OPTIONS = [
    (explained, option)
    for explained in EXPLAINED
    for option in inspect.signature(explained).parameters
    if option != "self"
]


@pytest.mark.parametrize(("explained", "option"), OPTIONS, ids=lambda each: getattr(each, "__qualname__", each))
def test_help_tells_every_option(explained: Callable[..., Any], option: str):
    if (explained, option) == (tool, "fn"):
        return  # It is what the first sentence is about.
    lines = [line.strip() for line in (explained.__doc__ or "").splitlines()]
    assert sum(line.startswith(f"{option}: ") for line in lines) == 1
