"""A short run of the tests on what else people have: other Pythons, uvloop, the oldest msgspec that we claim to take.

`python -m tests.packaging.matrix` looks for Pythons on the PATH and among those of pyenv, makes an environment for each
of them, puts other packages in front of those that are installed here, and runs two columns at a time. Each runs a
quarter of the tests, and its neighbour another one: what differs between two Pythons shows in many places. It says what
it could not find, and fails when a run fails.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PYTHONS = ((3, 11), (3, 12), (3, 13), (3, 14))
PARTS = ("tests/_engine", "tests/agents", "tests/graph", "tests/runner")
EXAMPLES = "5"
"""For each property: what is looked for here is what another Python does differently, not rare cases."""
AT_ONCE = 2
SHARES = 4


class Column(NamedTuple):
    """One column of the matrix: another interpreter, or packages for this one; and options for pytest."""

    name: str
    python: str = ""
    packages: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


class Outcome(NamedTuple):
    """How the run of a column ended."""

    column: Column
    failure: str
    seconds: float


def main() -> None:
    """Run all columns that this machine has, or those that are named as arguments."""
    columns = [column for column in _columns() if column.name in (sys.argv[1:] or [column.name])]
    shares = [f"{number % SHARES + 1}/{SHARES}" for number in range(len(columns))]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(AT_ONCE) as pool:
        failed = [_report(outcome) for outcome in pool.map(partial(_run, folder=Path(folder)), columns, shares)]
    sys.exit(any(failed))


def _columns() -> Iterator[Column]:
    here = sys.version_info[:2]
    for version in PYTHONS:
        name = f"Python {version[0]}.{version[1]}"
        if version == here:
            continue  # `make test` runs all tests on it
        if python := _find(version):
            yield Column(name, python)
        else:
            _say(f"{name}: skipped, it is neither on the PATH nor among those of pyenv")
    yield Column("uvloop", packages=("uvloop",), options=("--uvloop",))
    oldest = _oldest("msgspec")
    if metadata.version("msgspec").removesuffix(".0") == oldest:
        _say(f"oldest msgspec: skipped, {oldest} is the newest, too, and all other runs have it")
    else:
        yield Column("oldest msgspec", packages=(f"msgspec=={oldest}",))


def _find(version: tuple[int, int]) -> str | None:
    name = f"python{version[0]}.{version[1]}"
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    kept = sorted(pyenv.glob(f"versions/{version[0]}.{version[1]}*/bin/{name}"))
    candidates = [*map(str, reversed(kept)), *filter(None, [shutil.which(name)])]
    return next((each for each in candidates if _fits(each, version)), None)


def _fits(python: str, version: tuple[int, int]) -> bool:
    # One of pyenv's shims is there for every version, and fails for most of them.
    code = f"import ensurepip, sqlite3, ssl, sys, venv; sys.exit(sys.version_info[:2] != {version})"
    return subprocess.run([python, "-c", code], check=False, capture_output=True).returncode == 0


def _oldest(package: str) -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (wanted,) = (each for each in project["dependencies"] if each.startswith(package))
    bound = re.search(r">=([\d.]+)", wanted)
    assert bound is not None, wanted
    return bound[1].removesuffix(".0")


def _run(column: Column, share: str, folder: Path) -> Outcome:
    began = time.monotonic()
    place = folder / re.sub(r"\W+", "-", column.name)
    options = ("-q", "--no-header", "--color=no", "-p", "no:cacheprovider", "--share", share, *column.options)
    environment = os.environ | {"ADJOURN_EXAMPLES": EXAMPLES}
    # What is not compiled here is compiled if it is used, which most is not.
    install = ("-m", "pip", "install", "--quiet", "--no-compile")
    if column.python:
        python = str(place / "bin/python")
        steps = [[column.python, "-m", "venv", str(place)], [python, *install, "--editable", f"{ROOT}[test]"]]
    else:
        python = sys.executable
        steps = [[python, *install, "--target", str(place), *column.packages]]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(place), os.environ.get("PYTHONPATH")]))
    steps.append([python, "-m", "pytest", *options, *PARTS])
    for step in steps:
        done = subprocess.run(step, cwd=ROOT, env=environment, check=False, capture_output=True, text=True)
        if done.returncode:
            return Outcome(column, f"{done.stdout[-6000:]}{done.stderr[-3000:]}", time.monotonic() - began)
    return Outcome(column, "", time.monotonic() - began)


def _report(outcome: Outcome) -> bool:
    _say(f"{outcome.column.name}: {'failed' if outcome.failure else 'passed'} after {outcome.seconds:.0f} s")
    if outcome.failure:
        _say(outcome.failure)
    return bool(outcome.failure)


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
