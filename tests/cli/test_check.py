"""`adjourn check` and `adjourn schema`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from adjourn.cli import main
from adjourn.spec import schema
from tests.spec.folder import Folder

CHAT = "type: chat_model_agent\nmodel: python://parts:model\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.chdir(tmp_path)
    return Folder(tmp_path)


def test_agents_without_mistakes_are_listed(folder: Folder, capsys: pytest.CaptureFixture[str]):
    folder.add("b", CHAT)
    folder.add("a", CHAT)
    assert main(["check", "agents"]) == 0
    assert capsys.readouterr().out == "No mistakes. Agents: a, b\n"


def test_mistakes_are_listed_with_their_places(folder: Folder, capsys: pytest.CaptureFixture[str]):  # rule V6
    folder.add("a", f"{CHAT}tool: []")
    folder.add("b", f"{CHAT}max_iterations: 0")
    assert main(["check", "agents/"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "agents/a.yaml:7:3: there is no field 'tool' here. Did you mean 'tools'?",
        "agents/b.yaml:7:19: 'max_iterations' is 0. Give 1 or more.",
        "2 mistakes",
    ]


def test_mistakes_can_be_read_by_programs(folder: Folder, capsys: pytest.CaptureFixture[str]):
    folder.add("a", CHAT)
    folder.add("b", f"{CHAT}tools: ['python://adjourn._text:visible', 'python://adjourn._text:nothing']")
    assert main(["check", "agents", "--json", "--allow", "adjourn"]) == 1
    found = json.loads(capsys.readouterr().out)
    mistake = {
        "file": "agents/b.yaml",
        "line": 7,
        "column": 45,
        "message": "adjourn._text has no 'nothing'",
        "hint": "",
    }
    assert found == {"agents": ["a"], "mistakes": [mistake]}


def test_a_folder_that_is_missing_is_a_wrong_request(folder: Folder, capsys: pytest.CaptureFixture[str]):
    assert main(["check", "nowhere"]) == 2
    assert "There is no folder 'nowhere'" in capsys.readouterr().err


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]):
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == schema()
