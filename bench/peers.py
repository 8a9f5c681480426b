"""The virtual environments that the peers live in, one each, made on first use and kept."""

import subprocess
import sys
import venv
from pathlib import Path

from bench.workloads import PEERS, Side

ROOT = Path(__file__).parent.parent
_FOLDER = ROOT / ".bench-venvs"
_REQUIREMENTS = Path(__file__).with_name("requirements")


class NotInstalled(Exception):
    """A peer could not be installed; the message says what to install, and where."""


def peer_python(peer: Side) -> Path:
    """The interpreter that has a peer.

    Raises:
        NotInstalled: pip could not install it.
    """
    stamp = _FOLDER / peer / "requirements.txt"
    if not stamp.exists() or stamp.read_text() != _wanted(peer):
        _install(peer)
        # Last, so that an install that was cut off is done again.
        stamp.write_text(_wanted(peer))
    return _FOLDER / peer / "bin" / "python"


def peer_versions() -> dict[Side, str]:
    """The releases that are measured."""
    return {peer: _pins(peer)[0].partition("==")[2] for peer in PEERS}


def _pins(peer: Side) -> list[str]:
    return [line for line in _file(peer).read_text().splitlines() if "==" in line]


def _file(peer: Side) -> Path:
    return _REQUIREMENTS / f"{peer}.txt"


def _wanted(peer: Side) -> str:
    # The interpreter counts, too: all sides run on the same one.
    return f"# Python {sys.version}\n{_file(peer).read_text()}"


def _install(peer: Side) -> None:
    folder = _FOLDER / peer
    print(f"Installing {_pins(peer)[0]} into {folder.relative_to(ROOT)} (once) …", file=sys.stderr)
    venv.create(folder, with_pip=True, clear=True)
    pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*pip, "-r", _file(peer)], check=False, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        what = " ".join(_pins(peer))
        raise NotInstalled(f"it needs `pip install {what}` in {folder.relative_to(ROOT)}, and pip said: {last}")
