"""`adjourn token`: who may use a server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from adjourn.cli import main
from adjourn.server import Tokens


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "tokens.json"
    monkeypatch.setenv("ADJOURN_TOKENS", str(path))
    return path


def test_a_token_is_made_listed_and_revoked(file: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["token", "create", "ann"]) == 0
    text = capsys.readouterr().out.strip()
    caller = Tokens(file).caller(text)
    assert caller is not None
    assert (caller.name, caller.roles, caller.agents) == ("ann", {"use"}, ("*",))
    created = [
        "token",
        "create",
        "rita",
        "--role",
        "review",
        "--role",
        "use",
        "--agent",
        "refund-*",
        "--expires",
        "90d",
    ]
    assert main([*created, "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["roles"], made["agents"], Tokens(file).caller(made["token"]) is not None) == (
        ["use", "review"],
        ["refund-*"],
        True,
    )
    assert main(["token", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in listed] == ["ann", "rita"]
    assert "token" not in listed[1]
    assert "digest" not in listed[1]
    assert main(["token", "list"]) == 0
    assert "refund-*" in capsys.readouterr().out
    assert main(["token", "revoke", made["id"]]) == 0
    assert Tokens(file).caller(made["token"]) is None
    assert main(["token", "revoke", made["id"]]) == 1


@pytest.mark.parametrize(
    "words", [["create"], ["create", " "], ["list", "ann"], ["revoke"], ["list", "--role", "use"]], ids=" ".join
)
def test_what_makes_no_sense_is_refused(file: Path, words: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(["token", *words]) == 2
    assert "✘" in capsys.readouterr().err
    assert not file.exists()


def test_the_file_has_to_be_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.delenv("ADJOURN_TOKENS", raising=False)
    assert main(["token", "list"]) == 2
    assert "ADJOURN_TOKENS" in capsys.readouterr().err


def test_a_server_without_tokens_listens_only_to_this_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):  # attack 12
    assert (
        main(["serve", "tests.server.agents:BOOKER", "--store", f"sqlite:///{tmp_path}/s.db", "--host", "0.0.0.0"]) == 2
    )
    assert "adjourn token create" in capsys.readouterr().err
