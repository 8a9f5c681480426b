from __future__ import annotations

from pathlib import Path

import pytest

from adjourn import Runner
from adjourn.cli import main
from adjourn.cli._programs import program_of
from tests.cli.shell import Shell
from tests.spec.folder import Folder


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("desk", "Write the module, a colon and the name in it"),
        ("dask:trip", "Did you mean 'desk'?"),
        ("desk:tripp", "Did you mean 'trip'?"),
        ("desk:nothing", "There is: agent, review, trip"),
        ("desk.py:trip", "desk:ATTRIBUTE"),
        ("desk:draft", ".compile()"),
        ("desk:plain", "@workflow"),
        ("desk:ChatModelAgent", "It is a class"),
        ("desk:TICKET", "is a dict, which cannot be run"),
        ("broken:trip", "Importing 'broken' failed with RuntimeError: no luck"),
    ],
)
def test_a_name_that_is_wrong_is_helped_with(shell: Shell, name: str, said: str):
    (shell.folder / "broken.py").write_text("raise RuntimeError('no luck')\n")
    done = shell.run("chat", name, "-m", "hello")
    assert done.code == 2
    assert said in done.err


def test_a_runner_is_run_on_its_own_store(shell: Shell):
    source = "from adjourn import Runner\nfrom desk import review\nrunner = Runner(review, store='sqlite:///own.db')\n"
    (shell.folder / "own.py").write_text(source)
    shell.ok("chat", "own:runner", "-m", "a poem", "--session", "s1", ADJOURN_STORE="")
    store = ("--store", "sqlite:///own.db")
    shell.ok("answer", "s1", "yes", *store, *shell.shown("s1", *store))
    assert "approved: true" in shell.ok("resume", "own:runner", "s1", ADJOURN_STORE="").out
    shell.ok("chat", "own:runner", "-m", "a poem", "--session", "s1")
    assert (shell.folder / "sessions.db").exists()


def test_resuming_without_any_store_is_refused(shell: Shell):
    done = shell.run("resume", "desk:review", "s1", ADJOURN_STORE="")
    assert done.code == 2
    assert "--store" in done.err


def test_an_agent_of_a_yaml_file_is_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ADJOURN_STORE", raising=False)
    folder = Folder(tmp_path)
    folder.add(
        "booker",
        """
        type: chat_model_agent
        model: python://parts:booking
        tools: [{ref: "python://parts:book", approval: true}]
        interrupt: {enabled: true, require_token: true}
        checkpoint: {backend: sqlite, url: "sqlite:///s.db"}
        """,
    )
    assert main(["chat", "agents/:booker", "-m", "Rome", "--session", "s"]) == 0
    assert "book" in capsys.readouterr().out
    runner = program_of("./agents:booker")
    assert isinstance(runner, Runner)
    assert runner.status_sync("s").status == "waiting"
    assert runner.options.get("require_token") is True
    assert main(["chat", "agents/:boker", "-m", "Rome"]) == 2
    assert "agents/ has no agent 'boker'. Did you mean 'booker'?" in capsys.readouterr().err
