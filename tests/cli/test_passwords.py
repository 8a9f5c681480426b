"""No command shows the password of its store, whatever it prints."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest

from adjourn import Runner, interrupt, workflow
from adjourn.cli import main
from adjourn.cli._errors import USAGE
from tests.cli.shell import Shell
from tests.servers import postgres, redis

PASSWORD = "hunter2%25%2Fx"
LOOKING = [
    ("sessions",),
    ("pending",),
    ("pending", "order-1"),
    ("pending", "--limit", "1"),
    ("show", "order-1"),
    ("show", "ordr-1"),
    ("show", "order-1", "--checkpoint", "main.99"),
    ("tree", "order-1"),
    ("audit", "order-1"),
    ("audit", "nosuch", "--verify"),
    ("answer", "order-1", "5"),
    ("answer", "order-1", "many", "--question", "count"),
    ("answer", "order-1", "5", "--question", "coun"),
    ("fork", "order-1", "--to", "order-2"),
    ("cancel", "order-2"),
    ("cancel", "nosuch"),
    ("approvals", "ann"),
    ("keys",),
    ("prune", "nosuch"),
    ("delete", "nosuch"),
]


@workflow
async def order(input: str) -> int:
    for number in range(int(input)):
        interrupt("How many?", key=f"count{number or ''}", schema=int)
    return 1


@pytest.fixture(scope="module")
def url() -> str:
    """A database with two questions in it; it takes any password."""
    url = postgres().fresh().replace("adjourn@", f"adjourn:{PASSWORD}@")
    runner = Runner(order, store=url)
    runner.run_sync("2", session_id="order-1")
    runner.run_sync("2", session_id="order-3")
    return url


@pytest.mark.parametrize("words", LOOKING, ids=" ".join)
def test_commands_do_not_show_it(url: str, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]):
    for more in ((), ("--json",)):
        with suppress(SystemExit):  # argparse ends the program: not every command has --json
            main([*words, *more, "--store", url])
        said = capsys.readouterr()
        assert said.out + said.err
        assert "hunter2" not in said.out + said.err


def test_commands_that_need_a_program_do_not_show_it(shell: Shell, url: str):
    shell.environment["ADJOURN_STORE"] = "sqlite:///elsewhere.db"
    shown = url.replace(PASSWORD, "…")
    for words, hint in [
        (("chat", "desk:ticket", "-m", "Bern", "--session", "s1"), "adjourn answer s1"),
        (("chat", "desk:falls", "-m", "down", "--session", "s2"), "adjourn recover desk:falls s2"),
        (("resume", "desk:falls", "s2"), "adjourn recover desk:falls s2"),
        (("recover", "desk:ticket", "nosuch"), "There is no session 'nosuch'"),
        (("recover", "desk:ticket", "s1"), "s1"),
    ]:
        done = shell.run(*words, "--store", url)
        assert hint in done.out + done.err
        assert "hunter2" not in done.out + done.err
        assert "--store" not in done.out + done.err or f"--store '{shown}'" in done.out + done.err


def test_a_session_that_is_not_there_is_missed_in_a_place_that_can_be_told(
    url: str, capsys: pytest.CaptureFixture[str]
):
    redis().execute("ACL", "SETUSER", "ann", "on", ">hunter2%/x", "+@all", "~*", "&*")
    for each in (url, redis().fresh().replace("redis://", f"redis://ann:{PASSWORD}@")):
        main(["show", "nosuch", "--store", each])
        shown = each.replace(PASSWORD, "…")
        said = capsys.readouterr().err
        assert f"There is no session 'nosuch' in {shown}." in said
        assert f"`adjourn sessions --store '{shown}'` lists them" in said


@pytest.mark.parametrize(
    "text",
    [
        "postgresql//app:hunter2@127.0.0.1/agents",
        "postgresql:/app:hunter2@127.0.0.1/agents",
        "postgresql:app:hunter2/agents",
        "redis:/u:hunter2@host",
        "rediss//:hunter2@host",
        "redis://:12/hunter2@host/0",
        "app:hunter2@host/db",
        "encrypted+postgresql//app:hunter2@host/db",
        "encrypted+app:hunter2@host/db",
        "host=localhost password=hunter2",
        "sqlite://app:hunter2@host/db",
        "postgres//app:hunter2@host/db?listen_url=postgresql://app:hunter2@host/db",
        "postgresq://app:hunter2@host/db",
    ],
)
def test_a_mistyped_url_is_not_repeated(text: str, capsys: pytest.CaptureFixture[str]):
    for more in ((), ("--json",)):
        assert main(["sessions", "--store", text, *more]) == USAGE
        said = capsys.readouterr().err
        assert "hunter2" not in said
        assert "sqlite:///postgres" not in said


@pytest.mark.parametrize(
    "words",
    [
        ("URL",),
        ("sessions", "URL"),
        ("sessions", "--limit", "URL"),
        ("sessions", "--status", "URL"),
        ("--store", "URL", "sessions"),
        ("--store=URL",),
        ("show", "URL"),
        ("pending", "--after", "URL"),
        ("pending", "--older-than", "URL"),
        ("chat", "URL", "-m", "hi"),
        ("worker", "cli:main", "--concurrency", "URL"),
    ],
    ids=" ".join,
)
def test_a_url_in_the_wrong_place_is_repeated_without_it(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    path = tmp_path / "s.db"
    Runner(order, store=f"sqlite:///{path}").run_sync("1", session_id="s1")
    monkeypatch.setenv("ADJOURN_STORE", f"sqlite:///{path}")
    monkeypatch.setenv("ADJOURN_DEBUG", "1")
    for url in ("redis://app:hunter2@127.0.0.1:9/0", "postgresql://ann@127.0.0.1:9/db?password=hunter2"):
        with suppress(SystemExit):
            assert main([word.replace("URL", url) for word in words]) != 0
        said = capsys.readouterr()
        known = ("127.0.0.1:9", "options come after the command: adjourn sessions --store …", "no module 'postgresql'")
        assert any(each in said.err for each in known)
        assert "hunter2" not in said.out + said.err


def test_what_looks_like_a_url_with_a_password_stays_json(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    path = tmp_path / "s.db"
    Runner(order, store=f"sqlite:///{path}").run_sync("1", session_id="s1")
    assert main(["show", "redis://app:hunter2@host", "--json", "--store", f"sqlite:///{path}"]) == 1
    error = json.loads(capsys.readouterr().err)["error"]
    assert (error["code"], error["session_id"]) == ("checkpoint_not_found", "redis://app:…@host")
