"""`adjourn webhook`, and the files of webhooks that other commands are given."""

from pathlib import Path

import pytest

from adjourn.cli import main
from adjourn.webhooks import Webhook
from tests.webhooks.receiving import SECRET, Receiver


def test_a_secret_is_one_that_a_webhook_takes(capsys: pytest.CaptureFixture[str]):  # rule V12
    assert main(["webhook", "secret"]) == 0
    Webhook("https://example.com/", secret=capsys.readouterr().out.strip())
    assert main(["webhook", "secret", "--json"]) == 0
    assert '"secret":"whsec_' in capsys.readouterr().out


def test_webhooks_can_be_tried_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):  # rule V12
    monkeypatch.setenv("WEBHOOK_SECRET", SECRET)
    file = tmp_path / "webhooks.yaml"
    with Receiver() as receiver:
        options = "secret: '${WEBHOOK_SECRET}', allow_http: true, allow_private: true"
        listed = [f"{{name: {each}, url: '{receiver.url()}', {options}}}" for each in "ab"]
        file.write_text(f"webhooks: [{', '.join(listed)}]")
        assert main(["webhook", "test", "--webhooks", str(file)]) == 0
        assert [receiver.next().type for _ in range(2)] == ["test", "test"]
        assert capsys.readouterr().out == "a: sent\nb: sent\n"
        receiver.answers = [204, 500]
        assert main(["webhook", "test", "--webhooks", str(file)]) == 1
        assert capsys.readouterr().out == "a: sent\nb: it answered 500\n"
        monkeypatch.setenv("ADJOURN_WEBHOOKS", str(file))
        assert main(["webhook", "test", "--json"]) == 0


@pytest.mark.parametrize("command", ["serve", "worker"])
def test_a_file_with_mistakes_is_refused_at_start(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):  # rule V12
    file = tmp_path / "webhooks.yaml"
    file.write_text("webhooks:\n  - url: ftp://example.com/\n    secret: abc\n")
    given = [command, "tests.server.agents:BOOKER", "--store", f"sqlite:///{tmp_path}/s.db"]
    assert main([*given, "--webhooks", str(file)]) != 0
    assert "line 3, column 13" in capsys.readouterr().err
    assert main([*given, "--public-url", "https://desk.example.com"]) != 0
    assert "--webhooks FILE" in capsys.readouterr().err


def test_a_file_has_to_be_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("ADJOURN_WEBHOOKS", raising=False)
    assert main(["webhook", "test"]) != 0
    assert "--webhooks FILE" in capsys.readouterr().err
