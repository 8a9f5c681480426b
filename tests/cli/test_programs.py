from __future__ import annotations

import sys
from pathlib import Path

import pytest

from adjourn import Runner
from adjourn.cli import main
from adjourn.cli._programs import named, program_of
from adjourn.server import App
from tests.cli.shell import Shell
from tests.spec.folder import Folder


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("desk", "Write the module, a colon and the name in it"),
        ("dask:trip", "Did you mean 'desk'?"),
        ("desk:tripp", "Did you mean 'trip'?"),
        ("desk:nothing", "There is: agent, strict, review, trip"),
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


TOLD = """
from adjourn.testing import FunctionModel

model = FunctionModel(lambda request: request.messages[0].text)
"""
GREETING = "type: chat_model_agent\nmodel: python://{}:model\ninstruction: Hi {{user}}.\nvalues: {{user: our guest}}\n"


def test_a_new_session_of_a_yaml_agent_begins_with_the_values_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    folder = Folder(tmp_path)
    folder.write("told.py", TOLD)
    folder.add("greeter", GREETING.format("told"))

    def said(*words: str) -> str:
        assert main(["chat", "agents/:greeter", "-m", "x", "--store", "sqlite:///s.db", *words]) == 0
        return capsys.readouterr().out

    assert "Hi our guest." in said("--session", "s")
    assert "Hi Ann." in said("--session", "s", "--value", "user=Ann")
    assert "Hi Ann." in said("--session", "s")  # and not the guest again


def test_files_of_agents_may_name_a_package_that_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "installed")])
    (tmp_path / "installed").mkdir()
    (tmp_path / "installed" / "of_a_company.py").write_text(TOLD)
    folder = Folder(tmp_path)
    folder.add("greeter", GREETING.format("of_a_company"))
    words = ["chat", "agents/:greeter", "-m", "x", "--store", "sqlite:///s.db"]
    assert main(words) == 2
    assert "allow it: --allow of_a_company" in capsys.readouterr().err
    assert main([*words, "--allow", "of_a_company"]) == 0
    assert "Hi our guest." in capsys.readouterr().out
    assert main(["draw", "agents/:greeter", "--allow", "of_a_company"]) == 0
    assert main([*words[:4], "--server", "http://localhost:1", "--allow", "of_a_company"]) == 2
    assert "--allow is for files here" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["agents:greeter", "agents/greeter.yaml:greeter", "agents", "agents/greeter.yaml"])
def test_an_agent_of_a_yaml_file_that_is_named_in_another_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
):
    monkeypatch.chdir(tmp_path)
    Folder(tmp_path).add("greeter", GREETING.format("parts"))
    assert main(["chat", name, "-m", "x"]) == 2
    agent = "greeter" if ":" in name else "NAME"
    assert f"Name the folder and its agent: agents/:{agent}." in capsys.readouterr().err


def test_a_package_may_have_files_of_yaml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "a_package").mkdir()
    (tmp_path / "a_package" / "data.yaml").write_text("a: 1")
    source = "from adjourn import workflow\n\n@workflow\nasync def flow(input):\n    return f'flow of {input}'\n"
    (tmp_path / "a_package" / "__init__.py").write_text(source)
    assert main(["chat", "a_package:flow", "-m", "x"]) == 0
    assert "flow of x" in capsys.readouterr().out


def test_a_file_cannot_be_served_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    Folder(tmp_path).add("greeter", GREETING.format("parts"))
    assert main(["serve", "agents/greeter.yaml"]) == 2
    assert "is a file. Name the folder that it is in: agents." in capsys.readouterr().err


def test_one_agent_of_a_folder_is_served_as_its_file_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Folder(tmp_path).add("greeter", f"{GREETING.format('parts')}on_busy: queue\nanswer_pending: true\n")
    served = named("agents/:greeter").served
    assert served is not None
    assert (served.values, served.on_busy, served.answer_pending) == ({"user": "our guest"}, "queue", True)
    app = App([served])
    assert [agent.name for agent in app.agents] == ["greeter"]
