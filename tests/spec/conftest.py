from pathlib import Path

import pytest

from tests.spec.folder import Folder


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)
