"""Build the sdist and the wheel, and try the wheel where nothing else is: `python -m tests.packaging.check`.

The wheel is built from the sdist, as an installer without a wheel would do it. Without a package index there is nothing
to build or install with; then a line says that this was skipped.
"""

import os
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).parents[2]
SMOKE = Path(__file__).with_name("smoke.py")
NEEDED = (
    "LICENSE",
    "README.md",
    "CHANGELOG.md",
    "Makefile",
    "pyproject.toml",
    "docs/architecture.md",
    "examples/approval.py",
    "src/adjourn/__init__.py",
    "src/adjourn/py.typed",
    "tests/conftest.py",
    "tests/packaging/check.py",
)
UNWANTED = (".pyc", ".db", ".db-wal", ".db-shm", ".coverage")


def main() -> None:
    """Check both, or say why not."""
    if not _has_index():
        print("dist: skipped, pip finds no package index to build and install with")  # noqa: T201
        return
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder)
        _run(sys.executable, "-m", "build", "--outdir", str(made), str(ROOT))
        (sdist,) = made.glob("*.tar.gz")
        (wheel,) = made.glob("*.whl")
        _check_sdist(sdist)
        _check_wheel(wheel)
        _try(wheel, made / "venv")
    print(f"dist: {sdist.name} and {wheel.name} are whole, and the wheel works")  # noqa: T201


def _has_index() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        command = ["-m", "pip", "download", "--quiet", "--no-deps", "--retries=1", "--dest", folder, "hatchling>=1.27"]
        return subprocess.run([sys.executable, *command], check=False, capture_output=True).returncode == 0


def _run(*command: str, cwd: Path | None = None) -> str:
    # Nothing of this checkout may come in from the side.
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        command, cwd=cwd, env=kept, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"dist: {' '.join(command)} failed\n{done.stdout}{done.stderr}")
    return done.stdout


def _check_sdist(path: Path) -> None:
    with tarfile.open(path) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    _check_names(path, names, NEEDED)


def _check_wheel(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        (info,) = (name.rpartition("/")[0] for name in names if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(f"{info}/METADATA").decode())
        entries = archive.read(f"{info}/entry_points.txt").decode()
    _check_names(path, names, ("adjourn/__init__.py", "adjourn/py.typed", f"{info}/licenses/LICENSE"))
    strange = [name for name in names if not name.startswith(("adjourn/", info))]
    _demand(not strange, f"{path.name} holds {strange}")
    _demand("adjourn = adjourn.cli:main" in entries, f"{path.name} has no command: {entries}")
    always = [each for each in metadata.get_all("Requires-Dist", []) if "extra ==" not in each]
    _demand([each.partition(">")[0] for each in always] == ["msgspec"], f"{path.name} requires {always}")
    written = [each for kind in ("*.py", "*.lua") for each in (ROOT / "src/adjourn").rglob(kind)]
    in_source = {str(each.relative_to(ROOT / "src")) for each in written}
    _demand(in_source <= set(names), f"{path.name} lacks {sorted(in_source - set(names))}")


def _check_names(path: Path, names: list[str], needed: tuple[str, ...]) -> None:
    missing = [name for name in needed if name not in names]
    _demand(not missing, f"{path.name} lacks {missing}")
    unwanted = [name for name in names if name.endswith(UNWANTED) or "__pycache__" in name or ".venv" in name]
    _demand(not unwanted, f"{path.name} holds {unwanted}")


def _demand(holds: bool, otherwise: str) -> None:
    if not holds:
        sys.exit(f"dist: {otherwise}")


def _try(wheel: Path, folder: Path) -> None:
    venv.create(folder, with_pip=True)
    bin_ = folder / ("Scripts" if os.name == "nt" else "bin")
    _run(str(bin_ / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel))
    work = folder / "work"
    work.mkdir()
    _run(str(bin_ / "python"), "-I", "-W", "error", str(SMOKE), cwd=work)
    said = _run(str(bin_ / "adjourn"), "--version", cwd=work)
    _demand(wheel.name.split("-")[1] in said, f"`adjourn --version` prints {said!r}")
    said = _run(str(bin_ / "adjourn"), "demo", cwd=work)
    _demand("4 of 4" in said, f"`adjourn demo` ends with:\n{said[-2000:]}")


if __name__ == "__main__":
    main()
