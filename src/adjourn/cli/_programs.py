"""The program that a command runs, named as `module:attribute`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Collection
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from msgspec.structs import replace

from adjourn._engine.program import Program
from adjourn._text import did_you_mean
from adjourn.errors import UsageError
from adjourn.runner import Options, Runner
from adjourn.stores import MemoryStore, open_store

from ._asking import pairs_of, parse_data
from ._options import PROGRAM_NAME
from ._stores import T, existing_store, store_url

if TYPE_CHECKING:
    from adjourn.spec import Served


def load(name: str) -> Any:  # Any: whatever the module has there
    """Return the attribute that `module:attribute` names; the current folder is searched too.

    Raises:
        UsageError: there is no such module or attribute, or importing the module failed.
    """
    module_name, colon, attribute = name.partition(":")
    if not colon or not attribute or not module_name or module_name.startswith("."):
        raise UsageError(
            f"{name!r} is not a {PROGRAM_NAME}. Write the module, a colon and the name in it: tickets:agent."
        )
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, folder)
    module = _module(module_name)
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise UsageError(_no_attribute(module, attribute))
        found = getattr(found, part)
    return found


def _module(name: str) -> ModuleType:
    if "/" in name or name.endswith(".py"):
        dotted = ".".join(Path(name).with_suffix("").parts)
        raise UsageError(f"{name!r} is a file. Name the module instead, as in an import: {dotted}:ATTRIBUTE.")
    if not _exists(name):
        raise UsageError(_no_module(name))
    return _attempt(partial(import_module, name), f"Importing {name!r}")


def _exists(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _no_module(name: str) -> str:
    here = Path.cwd()
    known = [path.stem for path in here.glob("*.py")] + [path.parent.name for path in here.glob("*/__init__.py")]
    return f"There is no module {name!r} in {here}, nor on Python's path.{did_you_mean(name, known)}"


def _no_attribute(module: ModuleType, attribute: str) -> str:
    programs = [name for name, value in vars(module).items() if _is_program(value)]
    there = f" There is: {', '.join(programs)}." if programs else ""
    return f"Module {module.__name__!r} has no {attribute!r}.{did_you_mean(attribute, list(vars(module)))}{there}"


class Named(NamedTuple):
    """What a command names: a program, and how its file says that it is served, if it is in one."""

    program: Program | Runner
    served: Served | None = None


def program_of(name: str, allow: Collection[str] = ()) -> Program | Runner:
    """Return the program that `module:attribute` names, or the YAML agent that `folder/:agent` names.

    Raises:
        UsageError: there is none.
    """
    return named(name, allow).program


def named(name: str, allow: Collection[str] = ()) -> Named:
    """Return the program that `module:attribute` names, or the YAML agent that `folder/:agent` names.

    Raises:
        UsageError: there is none.
    """
    place, _, attribute = name.rpartition(":")
    if "/" in place and Path(place).is_dir():
        found = _in_folder(place, allow)
        if attribute not in found:
            meant = did_you_mean(attribute, found)
            raise UsageError(f"{place} has no agent {attribute!r}.{meant} There is: {', '.join(found) or 'none'}.")
        return found[attribute]
    _check_no_yaml(name, place, attribute)
    program = load(name)
    if not _is_program(program):
        raise UsageError(_no_program(name, program))
    return Named(program)


def _check_no_yaml(name: str, place: str, attribute: str) -> None:
    """Refuse what names a file or a folder of YAML in another way than it has to be named."""
    found = Path(place or name)
    is_file = found.suffix in (".yaml", ".yml")
    is_package = (found / "__init__.py").is_file()  # It may have files of YAML for other purposes.
    if is_file or (not is_package and any(found.glob("*.y*ml"))):
        folder, agent = (found.parent if is_file else found), (attribute if place else "NAME")
        raise UsageError(f"'{name}' does not name an agent. Name the folder and its agent: {folder}/:{agent}.")


def _in_folder(folder: str, allow: Collection[str]) -> dict[str, Named]:
    """Return runners of the YAML agents of a folder, as their files say, on one store."""
    from adjourn.spec import load as load_folder  # noqa: PLC0415 - for an extra, which not everybody needs

    loaded = load_folder(folder, allow=allow).check()
    shared: Options = {}
    if (store := loaded.checkpoint) is not None and (store.url is not None or store.backend == "memory"):
        shared["store"] = open_store(store.store_url())
    found: dict[str, Named] = {}
    for name, served in loaded.served.items():
        given: Options = {
            "interrupts": served.interrupts,
            "require_token": served.require_token,
            "values": served.values,
        }
        if not served.self_approval:
            given["self_approval"] = False
        given.update(shared)
        runner = with_options(loaded.agents[name], given)
        found[name] = Named(runner, replace(served, program=runner))
    return found


def named_in(options: argparse.Namespace) -> Named:
    """Return what a command names.

    Raises:
        UsageError: there is no such program.
    """
    if options.program is None:
        raise UsageError(
            f"Which program? Give {PROGRAM_NAME}, such as tickets:agent; or --server URL for one on a server."
        )
    return named(options.program, options.allow)


def runner_of(program: Program | Runner, options: argparse.Namespace, given: Options, *, existing: bool) -> Runner:
    """Return a runner for the program, with these options, and the store from the command line or else its own.

    Raises:
        UsageError: no store is named anywhere, and the session must be in one.
    """
    url = store_url(options)
    if url is not None:
        return with_options(program, {**given, "store": existing_store(options) if existing else open_store(url)})
    runner = with_options(program, given)
    if existing and not runner.has_store:
        existing_store(options)  # Raises, since no store was named.
    return runner


def check_no_path(name: str) -> None:
    """Refuse what is no folder, and cannot be the name of a program either.

    Raises:
        UsageError: it says what to name instead.
    """
    if Path(name).is_file():
        raise UsageError(f"'{name}' is a file. Name the folder that it is in: {Path(name).parent}.")
    if ":" not in name:
        raise UsageError(f"There is no folder '{name}'. Name a folder of YAML agents, or {PROGRAM_NAME}.")


def runners_of(options: argparse.Namespace) -> list[Runner]:
    """Return runners for several programs and folders of YAML agents, on the store from the command line or their own.

    Raises:
        UsageError: there is no such program, or one has no store that other processes could share.
    """
    url, deps = store_url(options), deps_of(options)
    given: Options = {} if deps is None else {"deps": deps}
    if url is not None:
        given["store"] = open_store(url)
    programs: dict[str, Program | Runner] = {}
    for name in options.programs:
        if Path(name).is_dir():
            inside = _in_folder(name, options.allow)
            if not inside:
                raise UsageError(f"Folder {name} has no agents. `adjourn check {name}` says what it has.")
            programs |= {f"{name}:{agent}": each.program for agent, each in inside.items()}
        else:
            check_no_path(name)
            programs[name] = program_of(name, options.allow)
    runners = [with_options(program, given) for program in programs.values()]
    for runner, name in zip(runners, programs, strict=True):
        if not runner.has_store:
            existing_store(options)  # Raises, since no store was named.
        if isinstance(runner.store, MemoryStore):
            raise UsageError(
                f"{name} is on a store in the memory of this process, which others cannot reach. "
                "Give --store URL, such as --store sqlite:///tickets.db."
            )
    return runners


def _is_program(value: object) -> TypeGuard[Program | Runner]:
    # A class has the same attributes as its objects, so it would pass for a program.
    return isinstance(value, Program | Runner) and not isinstance(value, type)


def with_options(program: Program | Runner, given: Options) -> Runner:
    """Return a runner of a program with these options instead of its own."""
    if not isinstance(program, Runner):
        return Runner(program, **given)
    if not given:
        return program
    options = program.options
    options.update(given)
    runner = Runner(program.program, **options)
    return runner if program.user_id is None else runner.for_user(program.user_id)


def _no_program(name: str, value: object) -> str:
    remedy = "Name an agent, a compiled graph, a @workflow function or a Runner."
    if hasattr(value, "compile"):
        remedy = "It is a graph that is not compiled: name what .compile() returned."
    elif isinstance(value, type):
        remedy = "It is a class: name an instance of it."
    elif callable(value):
        remedy = "It is a function: mark it with @workflow, or name what it returns."
    return f"{name} is a {type(value).__name__}, which cannot be run. {remedy}"


def deps_of(options: argparse.Namespace) -> Any:  # Any: whatever the user brings
    """Return what `--deps` names; a function or class is called."""
    if options.deps is None:
        return None
    found = load(options.deps)
    return _attempt(found, f"Calling {options.deps}") if callable(found) else found


def _attempt(call: Callable[[], T], what: str) -> T:
    try:
        return call()
    except Exception as error:  # protects the reader: whatever their code raises, they get one message
        if os.environ.get("ADJOURN_DEBUG"):
            raise
        message = f"{what} failed with {type(error).__name__}: {error}. ADJOURN_DEBUG=1 shows where."
        raise UsageError(message) from error


def values_of(pairs: list[str] | None) -> dict[str, Any] | None:
    """Return the session values from `--value NAME=VALUE`.

    Raises:
        UsageError: as `pairs_of`.
    """
    return {name: parse_data(text) for name, text in pairs_of("--value", pairs).items()} if pairs else None
