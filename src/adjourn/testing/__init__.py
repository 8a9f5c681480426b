"""Tools for tests: models, clocks and ids under the test's control, stores that fail, and the store test suite."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .clock import FakeClock as FakeClock
    from .clock import count_ids as count_ids
    from .faults import FaultStore as FaultStore
    from .models import FunctionModel as FunctionModel
    from .models import ScriptedModel as ScriptedModel
    from .models import ScriptItem as ScriptItem
    from .store_suite import StoreSuite as StoreSuite

_HOMES = {
    "FakeClock": "clock",
    "count_ids": "clock",
    "FaultStore": "faults",
    "FunctionModel": "models",
    "ScriptItem": "models",
    "ScriptedModel": "models",
    "StoreSuite": "store_suite",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605  # pyright: ignore[reportUnsupportedDunderAll]  # what __getattr__ binds


if not TYPE_CHECKING:  # For a type checker every name would exist.

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
