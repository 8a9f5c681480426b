"""`python://module:attribute`: found in the folder of agents, or in packages that the operator allows."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from importlib import import_module, invalidate_caches
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from threading import RLock
from types import ModuleType
from typing import Any

from adjourn._text import did_you_mean
from adjourn.errors import text_of

from ._declared import PYTHON

_importing = RLock()
"""Modules belong to the process: one folder is loaded at a time."""
_folders: list[Path] = []
"""The folders that were loaded in this process."""


class ReferenceWrong(Exception):
    """A reference leads nowhere; `hint` says what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class References:
    """Finds what files name. Only modules that a file names are imported, and those that they import themselves.

    The folder is the last place where Python looks, so its modules never take the place of others. A process has one
    such folder at a time: when another one is loaded, its modules come in place of those with the same names.
    """

    def __init__(self, folder: Path, allow: Collection[str]) -> None:
        self.folder = folder.resolve()
        self._allow = frozenset(allow)
        self._found: dict[str, Any] = {}

    def forget_modules(self) -> None:
        """Let the modules of the folder be imported anew; objects that exist stay as they are."""
        with _importing:
            for name, module in list(sys.modules.items()):
                if self._is_inside(module):
                    del sys.modules[name]
            self._found.clear()
            invalidate_caches()

    def get(self, reference: str) -> Any:
        """Return what a reference names.

        Raises:
            ReferenceWrong: there is nothing, it may not be used, or importing it failed.
        """
        if reference not in self._found:
            with _importing:
                self._enter()
                module, _, attribute = reference.removeprefix(PYTHON).partition(":")
                self._found[reference] = _attribute(self._module(module), attribute)
        return self._found[reference]

    def _enter(self) -> None:
        for other in _folders:
            if other != self.folder and str(other) in sys.path:
                sys.path.remove(str(other))
        if self.folder not in _folders:
            _folders.append(self.folder)
        if str(self.folder) not in sys.path:
            sys.path.append(str(self.folder))

    def _module(self, name: str) -> ModuleType:
        top = name.partition(".")[0]
        if top not in self._allow:
            self._check_inside(name, top)
        try:
            return self._imported(name)
        except ModuleNotFoundError as error:
            if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
                raise ReferenceWrong(f"there is no module {name}", self._near(name)) from error
            raise ReferenceWrong(f"importing {name} failed: {text_of(error)}", "Install what it imports.") from error
        except Exception as error:  # protects the reader: whatever their code raises, all mistakes are listed
            raise ReferenceWrong(f"importing {name} failed with {type(error).__name__}: {text_of(error)}") from error
        except SystemExit as error:
            raise ReferenceWrong(f"importing {name} ends the process", "Let it only define what it has.") from error

    def _imported(self, name: str) -> ModuleType:
        # A module that was changed twice in a second would be taken from its bytecode.
        before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        try:
            return import_module(name)
        finally:
            sys.dont_write_bytecode = before

    def _check_inside(self, name: str, top: str) -> None:
        """Refuse a module outside of the folder, before anything of it runs."""
        place = self.folder.joinpath(*name.split("."))
        files = [file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()]
        if not files and not (place.is_dir() and top != name):
            allow = f"If you mean an installed package, allow it: --allow {top}."
            raise ReferenceWrong(f"there is no module {name} in the folder of agents", self._near(name) or allow)
        if not all(file.resolve().is_relative_to(self.folder) for file in files):
            raise ReferenceWrong(f"{name} is a link that leads out of the folder of agents", "Put the file there.")
        known = sys.modules.get(top)
        if known is not None and not self._is_inside(known) and _comes_from_agents(known):
            self._forget(top)
            known = None
        if (known is not None and not self._is_inside(known)) or (known is None and not self._comes_first(top)):
            raise ReferenceWrong(
                f"another module is called {top}, too", "Rename yours; Python can only have one of that name."
            )

    def _comes_first(self, top: str) -> bool:
        """Return whether Python finds this module in the folder, which is the last place where it looks."""
        spec = find_spec(top)
        if spec is None:
            return True  # An empty folder, or one that was just made.
        places = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
        return all(Path(place).resolve().is_relative_to(self.folder) for place in places)

    def _forget(self, top: str) -> None:
        for name in [name for name in sys.modules if name == top or name.startswith(f"{top}.")]:
            del sys.modules[name]

    def _is_inside(self, module: ModuleType) -> bool:
        return any(Path(place).resolve().is_relative_to(self.folder) for place in _places(module))

    def _near(self, name: str) -> str:
        return did_you_mean(name, self._modules()).strip()

    def _modules(self) -> Iterator[str]:
        for path in islice(self.folder.rglob("*.py"), 1000):
            parts = path.relative_to(self.folder).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _attribute(module: ModuleType, name: str) -> Any:
    found: Any = module
    for part in name.split("."):
        try:
            # Through another module, everything that it imports could be named.
            found = None if part.startswith("__") or found is None else getattr(found, part, None)
        except Exception as error:  # protects the reader, as above
            raise ReferenceWrong(
                f"{module.__name__}:{name} failed with {type(error).__name__}: {text_of(error)}"
            ) from error
        if found is None or isinstance(found, ModuleType):
            known = [each for each in vars(module) if not each.startswith("_")]
            raise ReferenceWrong(f"{module.__name__} has no '{name}'", did_you_mean(name, known).strip())
    return found


def _comes_from_agents(module: ModuleType) -> bool:
    return any(Path(place).resolve().is_relative_to(folder) for place in _places(module) for folder in _folders)


def _places(module: ModuleType) -> list[str]:
    file = getattr(module, "__file__", None)
    return [file] if isinstance(file, str) else [str(place) for place in getattr(module, "__path__", ())]
