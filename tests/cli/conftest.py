from pathlib import Path
from shutil import copy

import pytest

from tests.cli.shell import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A folder with the programs of `desk.py`, and nothing else."""
    copy(Path(__file__).parent / "desk.py", tmp_path)
    return Shell(tmp_path)
