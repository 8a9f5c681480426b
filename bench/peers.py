"""The virtual environment that the peers live in, made on first use and kept."""

import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
_FOLDER = ROOT / ".bench-venv"
_WANTED = Path(__file__).with_name("peers.txt")
_STAMP = _FOLDER / "peers.txt"


def peer_python() -> Path:
    """The interpreter that has the peers of `peers.txt`.

    Raises:
        RuntimeError: pip could not install them.
    """
    if not _STAMP.exists() or _STAMP.read_text() != _wanted():
        _install()
    return _FOLDER / "bin" / "python"


def peer_version() -> str:
    """The release of LangGraph that is measured."""
    wanted = dict(line.split("==") for line in _WANTED.read_text().splitlines() if "==" in line)
    return wanted["langgraph"]


def _wanted() -> str:
    # The interpreter counts, too: all sides run on the same one.
    return f"# Python {sys.version}\n{_WANTED.read_text()}"


def _install() -> None:
    print("Installing the peers into .bench-venv (once) …", file=sys.stderr)
    venv.create(_FOLDER, with_pip=True, clear=True)
    pip = [_FOLDER / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*pip, "-r", _WANTED], check=False, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise RuntimeError(f"pip could not install the peers of bench/peers.txt: {last}")
    # Last, so that an install that was cut off is done again.
    _STAMP.write_text(_wanted())
