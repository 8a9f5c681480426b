"""The layers: imports go one way, down; nothing in the package can run what it has stored."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import adjourn

ROOT = Path(adjourn.__file__).parent
MODULES = {
    ".".join(("adjourn", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(ROOT.rglob("*.py"))
}

# The layers, lowest first: a module may import from its own and from those named here. Whatever is not named here is a
# layer that nobody may import: then this table says where it stands.
_BASE = {"_generics", "_hiding", "_text", "_checks", "_clients", "_owner", "_temporary", "_yaml", "errors"}
_GROUND = _BASE | {"_habits", "_options", "_html", "_plain", "_values", "_schemas", "_parts", "messages", "events"}
_ENGINE = _GROUND | {"_engine", "context", "interrupts", "workflows"}
_PARTS = _ENGINE | {"models", "tools", "middleware"}
_KEEPING = _ENGINE | {"stores", "sessions"}
_RUNNING = _PARTS | _KEEPING | {"runner", "_calls"}
BELOW: dict[str, set[str]] = {
    "_text": set(),
    "_generics": set(),
    "_hiding": set(),
    "_checks": {"errors", "_text"},
    "_clients": set(),
    "_owner": set(),
    "_temporary": set(),
    "_yaml": {"errors"},
    "errors": {"_hiding", "_text", "_owner", "_temporary"},
    "_habits": {"errors", "_options", "_schemas", "_values", "_text"},
    "_options": set(),
    "_html": {"_text"},
    "_values": {"errors", "_hiding", "_text"},
    "_schemas": {"_values", "errors", "_text"},
    "_plain": {"_values"},
    "_parts": {"_plain", "_values", "_text"},
    "messages": {"_parts", "_plain", "_values", "_text"},
    "events": {"messages", "_hiding", "_html", "_plain", "_values"},
    "_engine": _GROUND,
    "context": _GROUND | {"_engine"},
    "interrupts": _GROUND | {"_engine"},
    "workflows": _GROUND | {"_engine"},
    "models": _GROUND,
    "tools": _ENGINE | {"models"},
    "middleware": _ENGINE | {"models", "tools"},
    "stores": _GROUND,
    "sessions": _GROUND | {"_engine", "stores"},
    "runner": _KEEPING,
    "_calls": _PARTS | _KEEPING | {"runner"},
    "graph": _RUNNING,
    "agents": _RUNNING | {"graph"},
    "_screen": {"_text"},
    "_bars": _GROUND | {"_screen"},
    "printing": _GROUND | {"_bars", "_engine", "_screen"},
    "_documents": _GROUND | {"printing", "sessions", "stores"},
    "webhooks": _RUNNING | {"_documents"},
    "server": _RUNNING | {"_documents", "spec", "webhooks"},
    "client": _KEEPING | {"models", "tools"},
    "testing": _GROUND | {"models", "stores"},
    "dbos": _RUNNING,
    "spec": _RUNNING | {"graph", "agents"},
    "cli": _RUNNING
    | {"adjourn", "agents", "graph", "printing", "_documents", "_screen", "server", "client", "spec", "webhooks"},
    "__main__": {"cli"},
    "adjourn": _RUNNING | {"agents", "graph", "printing"},
}

# Who may import the private modules of another package, and of which.
PRIVATE: dict[str, set[str]] = {
    "sessions": {"runner", "graph", "_calls", "agents", "cli", "dbos", "_documents", "server", "webhooks"},
    "stores": {"sessions", "runner", "dbos"},
    "runner": {"cli", "dbos", "server"},
}
# The same for single modules. Agents run on the graph engine: their frames are graph frames, their steps its nodes. A
# store that fails in tests is a store around another one.
NAMED: dict[str, set[str]] = {
    "agents": {
        "adjourn.graph._channels",
        "adjourn.graph._frame",
        "adjourn.graph._node",
        "adjourn.graph.nodes._caller",
        "adjourn.sessions._contents",
    },
    "testing": {"adjourn.stores._wrapper"},
}

DANGEROUS = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "copyreg", "yaml", "code", "codeop"}
# What splits YAML into events; what makes objects of them is not used.
SPLITTING = {f"yaml.{name}" for name in ("error", "events", "parser", "reader", "scanner")}
RUNNING = {"eval", "exec", "compile", "__import__"}
STANDARD = sys.stdlib_module_names


def layer_of(module: str) -> str:
    return module.split(".")[1] if "." in module else module


def is_private(module: str) -> bool:
    """Whether a module stands behind an underscore inside its package; packages of ours alone count as a whole."""
    return any(part.startswith("_") and part != "__main__" for part in module.split(".")[2:])


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def statements(node: ast.AST, *, in_function: bool, for_types: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports of a module; those inside functions, and those for type checkers alone, only if wanted."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test) and not for_types:
            for other in child.orelse:
                yield from statements(other, in_function=in_function, for_types=for_types)
        elif in_function or not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from statements(child, in_function=in_function, for_types=for_types)


def absolute(module: str, statement: ast.ImportFrom) -> str:
    if not statement.level:
        return statement.module or ""
    is_package = MODULES[module].name == "__init__.py"
    package = module.split(".")[: None if is_package else -1]
    base = package[: len(package) - statement.level + 1]
    return ".".join([*base, *([statement.module] if statement.module else [])])


def imported(module: str, *, in_function: bool = True, for_types: bool = True) -> set[str]:
    """The modules, ours and others, that a module imports."""
    found: set[str] = set()
    for statement in statements(tree_of(module), in_function=in_function, for_types=for_types):
        if isinstance(statement, ast.Import):
            found |= {alias.name for alias in statement.names}
            continue
        home = absolute(module, statement)
        names = {f"{home}.{alias.name}" for alias in statement.names}
        # `from package import module` is an import of that module, and of the package that holds it.
        found |= {name for name in names if name in MODULES} or {home}
    return found


def ours(names: set[str]) -> set[str]:
    return {name for name in names if name in MODULES}


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_what_is_below_it(module: str):
    layer = layer_of(module)
    assert layer in BELOW, f"say in BELOW where {layer} stands"
    others = {layer_of(name) for name in ours(imported(module))} - {layer}
    assert others <= BELOW[layer]


@pytest.mark.parametrize("module", MODULES)
def test_private_modules_are_imported_only_by_their_own_package_and_its_named_friends(module: str):
    layer = layer_of(module)
    strangers = {
        name
        for name in ours(imported(module))
        if is_private(name) and layer_of(name) != layer and layer not in PRIVATE.get(layer_of(name), ())
    }
    assert strangers - NAMED.get(layer, set()) == set()


def test_every_module_that_is_named_is_used():
    for layer, named in NAMED.items():
        used = {name for module in MODULES if layer_of(module) == layer for name in imported(module)}
        assert named <= used


@pytest.mark.parametrize("module", MODULES)
def test_a_module_names_modules_that_exist(module: str):
    named = {name for name in imported(module) if layer_of(name) in BELOW and name.split(".")[0] == "adjourn"}
    assert named <= set(MODULES)


def test_the_layers_themselves_have_no_cycle():
    def below(layer: str, path: tuple[str, ...]) -> None:
        assert layer not in path, f"{' > '.join((*path, layer))}"
        for other in BELOW[layer]:
            below(other, (*path, layer))

    for layer in BELOW:
        below(layer, ())


def test_the_picture_of_the_layers_is_that_of_the_table():
    """Whatever a layer may import stands in its own line of the picture, or below it."""
    text = (Path(__file__).parent.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    picture = text.partition("## Layers\n\n```\n")[2].partition("```")[0]
    width = picture.index("people at a terminal")  # of the column of names
    place = {name: number for number, line in enumerate(picture.splitlines()) for name in line[:width].split()}
    assert place.keys() == BELOW.keys() - {"__main__"}
    assert [(layer, below) for layer in place for below in BELOW[layer] if place[below] < place[layer]] == []


def test_there_are_no_import_cycles():
    edges = {module: ours(imported(module)) - {module} for module in MODULES}
    finished: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, f"a cycle: {' > '.join((*path[path.index(module) :], module))}"
        if module in finished:
            return
        for other in sorted(edges[module]):
            visit(other, (*path, module))
        finished.add(module)

    for module in MODULES:
        visit(module, ())


EXTRAS = {"client": {"httpx2"}, "server": {"prometheus_client", "starlette", "uvicorn"}, "webhooks": {"httpx2"}}
"""Packages that are of use only with their extra, and what they may import from it anywhere."""


def test_only_msgspec_is_needed_from_outside():
    """Whatever else a module imports at its top is Python's own; an extra is imported where it is used."""
    outside = {
        name.partition(".")[0]
        for module in MODULES
        for name in imported(module, in_function=False, for_types=False)
        if name.partition(".")[0] not in {"adjourn", *EXTRAS.get(layer_of(module), ())}
    }
    assert outside - STANDARD == {"msgspec"}


@pytest.mark.parametrize("module", MODULES)
def test_nothing_in_the_package_can_run_what_is_stored(module: str):  # rule C10, failures 54
    named = {name for name in imported(module) if name.partition(".")[0] in DANGEROUS}
    assert named <= (SPLITTING if module == "adjourn._yaml" else set())
    called = {
        node.func.id
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert called & RUNNING == set()


def test_modules_are_imported_by_name_only_from_tables():
    """Stored text can never name a module: these import from tables, what the person typed, or what files name."""
    by_name = {module for module in MODULES if {"importlib", "runpy", "pkgutil"} & imported(module)}
    assert by_name - {"adjourn", "adjourn.cli", "adjourn.middleware", "adjourn.stores", "adjourn.testing"} == {
        "adjourn.cli._programs",
        "adjourn.spec._references",
    }
