"""The commands that commands print for the reader to run next work as they are printed."""

from __future__ import annotations

import re
import shlex
from contextlib import suppress
from pathlib import Path

import pytest

from adjourn import Runner, interrupt, workflow
from adjourn.cli import main
from tests.cli.shell import Done, Shell


def hinted(done: Done, command: str, **names: str) -> list[str]:
    """Return the words of the one command of this name that was printed; `names` stand for what a reader fills in."""
    found = set(re.findall(rf"adjourn ({command} [^`\n]*)", done.out + done.err))
    assert len(found) == 1, done.out + done.err
    return [names.get(word, word) for word in shlex.split(found.pop())]


def test_from_a_question_to_its_end(shell: Shell):
    started = shell.ok("chat", "desk:ticket", "-m", "Bern", "--session", "s 1", "--user", "Ada Lovelace")
    with shell.terminal("answer", "s 1", "--user", "Ada Lovelace") as terminal:
        terminal.answer("[l]ater ?", "l")
        assert terminal.end() == 0
    shown = shell.ok("show", "s 1", "--user", "Ada Lovelace")
    assert hinted(shown, "answer") == hinted(started, "answer")  # with the token: there is no terminal to ask in

    unseen = shell.run("answer", "s 1", "--user", "Ada Lovelace", "no")
    assert unseen.code == 2
    listed = shell.ok(*hinted(unseen, "pending"))
    (token,) = re.findall(r"^  token   (.*)$", listed.out, re.MULTILINE)
    forked = shell.ok("fork", "s 1", "--to", "s2", "--user", "Ada Lovelace")
    shell.ok(*hinted(unseen, "answer"))  # with the answer that was given

    again = shell.run(*hinted(listed, "answer", SESSION="s 1", TOKEN=token, ANSWER="yes"))
    assert again.code == 1
    assert "You came second" in again.err
    assert "refused" in shell.ok(*hinted(started, "resume")).out

    copy = shell.ok(*hinted(forked, "resume", **{"MODULE:ATTRIBUTE": "desk:ticket"}))
    shell.ok(*hinted(copy, "answer", ANSWER="yes"))
    assert "booked 2 to Bern" in shell.ok(*hinted(copy, "resume")).out


def test_from_a_failure_to_its_end(shell: Shell):
    failed = shell.run("chat", "desk:falls", "-m", "down", "--session", "s1", "--store", "sqlite:///other.db")
    shown = shell.ok("show", "s1", "--store", "sqlite:///other.db")
    (shell.folder / "mended").touch()
    recover = hinted(shown, "recover", **{"MODULE:ATTRIBUTE": "desk:falls"})
    assert recover == hinted(failed, "recover")
    assert "mended" in shell.ok(*recover).out

    tree = shell.ok("tree", "s1", "--store", "sqlite:///other.db", "--json").json
    old = shell.ok("show", "s1", "--checkpoint", tree[0]["id"], "--store", "sqlite:///other.db")
    forked = shell.ok(*hinted(old, "fork"))
    assert "mended" in shell.ok(*hinted(forked, "resume", **{"MODULE:ATTRIBUTE": "desk:falls"})).out

    ended = shell.ok("fork", "s1", "--to", "s2", "--store", "sqlite:///other.db")
    again = hinted(ended, "chat", **{"MODULE:ATTRIBUTE": "desk:falls"})
    assert "mended" in shell.ok(*again, "-m", "down").out


def advised(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Return what a command that is refused says."""
    with suppress(SystemExit):  # argparse ends the program
        assert main(words) in (1, 2)
    return capsys.readouterr().err


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store with a session that waits for a whole number."""

    @workflow
    async def order(input: str) -> int:
        return interrupt("How many?", key="count", schema=int)

    url = f"sqlite:///{tmp_path / 'orders.db'}"
    Runner(order, store=url).run_sync("paper", session_id="order-1")
    return url


def test_advice_is_for_people_without_python(url: str, capsys: pytest.CaptureFixture[str]):
    said = advised(capsys, "show", "ordr-1", "--store", url)
    assert f"There is no session 'ordr-1' in {url}. Did you mean 'order-1'? `adjourn sessions --store" in said
    said = advised(capsys, "show", "order-1", "--checkpoint", "main.99", "--store", url)
    assert "has no checkpoint 'main.99'. `adjourn tree order-1" in said
    said = advised(capsys, "answer", "order-1", "5", "--question", "coun", "--store", url)
    assert "has no open question 'coun'" in said
    assert "`adjourn pending order-1" in said
    said = advised(capsys, "answer", "order-1", "many", "--store", url)
    assert 'does not fit: it takes a whole number, not "many". It takes:\n  whole number\n' in said
    said = advised(capsys, "answer", "order-1", "--approve", "--store", url)
    assert "is not an approval: it takes as an answer:" in said
    assert "decision" not in said


def test_what_cannot_begin_says_which_command_does(shell: Shell):
    shell.ok("chat", "desk:review", "-m", "a poem", "--session", "waits")
    pending = shell.run("chat", "desk:review", "-m", "a song", "--session", "waits")
    assert (pending.code, "Session 'waits' waits for answers." in pending.err) == (1, True)
    assert "Publish it?" in shell.ok(*hinted(pending, "pending")).out

    shell.run("chat", "desk:falls", "-m", "down", "--session", "failed")
    unfinished = shell.run("chat", "desk:falls", "-m", "down", "--session", "failed")
    assert (unfinished.code, "has not ended (failed)" in unfinished.err) == (1, True)
    (shell.folder / "mended").touch()
    assert "mended" in shell.ok(*hinted(unfinished, "recover")).out

    with shell.terminal("chat", "desk:waits", "-m", "x", "--session", "runs") as terminal:
        terminal.wait_for("it runs")
        for words in (("chat", "desk:waits", "-m", "x", "--session", "runs"), ("delete", "runs", "--yes")):
            busy = shell.run(*words)
            assert (busy.code, f"is being run by process {terminal.process.pid}" in busy.err) == (1, True)
            assert hinted(busy, "cancel") == ["cancel", "runs"]
        assert "Session 'runs' is cancelled." in shell.ok("cancel", "runs").out
        terminal.end()


def test_a_program_with_a_store_of_its_own_has_no_other_to_look_in(shell: Shell):
    code = "from adjourn import Runner, workflow\n@workflow\nasync def w(x: str) -> str:\n    return x\n"
    (shell.folder / "own.py").write_text(f"{code}own = Runner(w, store='memory://')\n")
    del shell.environment["ADJOURN_STORE"]
    missing = shell.run("resume", "own:own", "nowhere")
    assert missing.code == 1
    assert "nowhere" in missing.err


def test_sessions_of_others_are_not_suggested(tmp_path: Path, capsys: pytest.CaptureFixture[str]):  # rule C12
    @workflow
    async def order(input: str) -> int:
        return interrupt("How many?", schema=int)

    url = f"sqlite:///{tmp_path / 'orders.db'}"
    Runner(order, store=url).run_sync("paper", session_id="order-1", user_id="ann")
    said = advised(capsys, "show", "order-2", "--user", "bob", "--store", url)
    assert "There is no session 'order-2'" in said
    assert "order-1" not in said


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("shw", "s1"), "there is no command 'shw'. Did you mean 'show'?"),
        (("run", "tickets:agent"), "there is no command 'run'. Did you mean 'chat'?"),
        (("ls",), "there is no command 'ls'. Did you mean 'sessions'?"),
        (("show", "s1", "--stroe", "x"), "there is no option --stroe. Did you mean '--store'?"),
        (("answer", "s1", "yes", "--qestion=x"), "there is no option --qestion. Did you mean '--question'?"),
    ],
)
def test_misspelt_words_are_recognised(words: tuple[str, ...], meant: str, capsys: pytest.CaptureFixture[str]):
    assert meant in advised(capsys, *words)


def test_options_may_still_be_cut_short_and_be_text(url: str, capsys: pytest.CaptureFixture[str]):
    assert main(["pending", "--sto", url]) == 0
    assert "How many?" in capsys.readouterr().out
    assert "does not fit" in advised(capsys, "answer", "order-1", "--store", url, "--", "--stroe")


def test_answered_sessions_are_listed_by_what_is_shown(url: str, capsys: pytest.CaptureFixture[str]):
    assert main(["sessions", "--status", "answered", "--store", url]) == 0
    assert "order-1" not in capsys.readouterr().out
    assert main(["answer", "order-1", "5", "--store", url]) == 0
    capsys.readouterr()
    assert main(["sessions", "--status", "answered", "--store", url]) == 0
    assert re.search(r"order-1 +answered", capsys.readouterr().out)


def test_a_graph_says_which_json_it_takes(shell: Shell):
    refused = shell.run("chat", "desk:tally", "-m", "five")
    assert (refused.code, "takes a JSON object here, in braces, with some of: count." in refused.err) == (2, True)
    assert "count: 6" in shell.ok("chat", "desk:tally", "-m", '{"count": 5}').out
