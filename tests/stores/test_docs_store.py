"""The example of docs/stores.md is a store: it passes the whole suite, with other callers between its trips."""

import ast
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from adjourn.stores import Store
from adjourn.testing import FakeClock, StoreSuite

PAGE = Path(__file__).parents[2] / "docs" / "stores.md"


def example() -> ModuleType:
    """The first block of the page, as a module."""
    code = PAGE.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    module = ModuleType("docs_store")
    sys.modules[module.__name__] = module
    exec(compile(ast.parse(code), str(PAGE), "exec"), module.__dict__)  # noqa: S102 - our own page, and only in tests
    return module


EXAMPLE: Any = example()  # Any: made from a page
DictStore: Callable[[dict[Any, Any], Callable[[], float]], Store] = EXAMPLE.DictStore


class TestDictStore(StoreSuite):
    shared = True
    sessions: dict[Any, Any]

    async def make_store(self, clock: FakeClock) -> Store:
        self.sessions = {}
        return DictStore(self.sessions, clock)

    async def reopen(self, clock: FakeClock) -> Store:
        return DictStore(self.sessions, clock)
