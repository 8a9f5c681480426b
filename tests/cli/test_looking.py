"""The commands that only look: sessions, pending, show, tree, audit."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import time
from pathlib import Path
from shutil import copy
from typing import Any

import pytest

from adjourn import (
    Approve,
    ChatModelAgent,
    Edit,
    InterruptExpired,
    Reject,
    Runner,
    ToolCall,
    interrupt,
    tool,
    workflow,
)
from adjourn.agents import Approvals, RememberedApproval
from adjourn.cli import main
from adjourn.testing import ScriptedModel
from tests.cli.shell import Shell
from tests.runner.programs import asking, steps


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session that has ended after two questions, and one that waits."""
    shell = Shell(tmp_path_factory.mktemp("desk"))
    copy(Path(__file__).parent / "desk.py", shell.folder)
    shell.ok("chat", "desk:review", "-m", "a poem", "--session", "s1", "--user", "ada")
    shell.answer("s1", "no", "--by", "ann")
    shell.ok("resume", "desk:review", "s1")
    shell.answer("s1", "yes", "--by", "bob")
    shell.ok("resume", "desk:review", "s1")
    shell.ok("chat", "desk:ticket", "-m", "Bern", "--session", "t1")
    return shell.folder / "sessions.db"


@pytest.fixture
def desk(built: Path, tmp_path: Path) -> Shell:
    """A copy of the store, and no code."""
    copy(built, tmp_path)
    return Shell(tmp_path)


def test_what_is_stored_is_enough_to_look_at(desk: Shell):  # rule I12
    sessions = desk.ok("sessions", "--json").json
    assert [(each["session_id"], each["status"], each["questions"]) for each in sessions] == [
        ("t1", "waiting", 1),
        ("s1", "done", 0),
    ]
    assert [each["session_id"] for each in desk.ok("sessions", "--user", "ada", "--json").json] == ["s1"]
    assert [each["session_id"] for each in desk.ok("sessions", "--status", "done", "--json").json] == ["s1"]
    assert len(desk.ok("sessions", "--limit", "1", "--json").json) == 1
    (question,) = desk.ok("pending", "--json").json
    assert question["info"]["arguments"] == {"location": "Bern", "passenger_name": "Martin", "seats": 2}
    assert question["id"] == "runnable:ticket"
    assert (question["key"], question["reason"], question["prompt"]) == ("call", "need_approval", "Run book_ticket?")
    assert question["schema"]["anyOf"][0] == {"type": "boolean"}


def test_what_the_library_keeps_for_itself_is_listed_only_by_name(desk: Shell):
    approvals = Approvals(f"sqlite:///{desk.folder / 'sessions.db'}")
    asyncio.run(approvals.add("ada", RememberedApproval(agent="A", tool="pay", digest="")))
    assert [each["session_id"] for each in desk.ok("sessions", "--json").json] == ["t1", "s1"]
    assert len(desk.ok("sessions", "--app", "~adjourn", "--json").json) == 1


def test_tables_are_in_line(desk: Shell):
    head, *rows = desk.ok("sessions").out.splitlines()
    assert head.split() == ["SESSION", "STATUS", "QUESTIONS", "LAST", "WRITTEN", "USER"]
    assert all(row[: head.index("STATUS")].strip() in ("s1", "t1") for row in rows)
    assert [row[head.index("STATUS") :].split()[0] for row in rows] == ["waiting", "done"]
    assert rows[1][head.index("USER") :] == "ada"


def test_show_tells_where_it_stands_and_what_it_holds(desk: Shell):
    shown = desk.ok("show", "s1")
    assert "s1 is done" in shown.out
    assert 'drafts: ["draft 1 of a poem", "draft 2 of a poem"]' in shown.out
    waiting = desk.ok("show", "t1")
    assert "t1 is waiting" in waiting.out
    assert "Run book_ticket?" in waiting.out
    assert "adjourn answer t1" in waiting.err


def test_show_goes_back(desk: Shell):
    first = desk.ok("tree", "s1", "--json").json[1]
    shown = desk.ok("show", "s1", "--checkpoint", first["id"], "--json").json
    assert shown["state"]["drafts"] == ["draft 1 of a poem"]
    assert shown["checkpoint_id"] == first["id"]
    assert desk.run("show", "s1", "--checkpoint", "nowhere.7", "--json").error["code"] == "checkpoint_not_found"


def test_show_has_the_events(desk: Shell):
    events = desk.ok("show", "s1", "--events", "--json").json["events"]
    assert [event["node"] for event in events if event["type"] == "node_end"] == [
        "write",
        "approve",
        "write",
        "approve",
    ]
    assert "✔ approve" in desk.ok("show", "s1", "--events").out


def test_the_tree_is_printed_and_given_as_data(desk: Shell):
    points = desk.ok("tree", "s1", "--json").json
    assert [point["source"] for point in points] == ["input", "step", "interrupt", "step", "step", "interrupt", "end"]
    assert [point["is_head"] for point in points] == [False] * 6 + [True]
    assert desk.ok("tree", "s1").out.splitlines()[-1].endswith("← head")


def test_the_audit_says_who_answered_what_and_when(desk: Shell):  # rule K6
    lines = desk.ok("audit", "s1", "--json").json
    assert [(line["answer"], line["by"], line["how"]) for line in lines] == [
        (False, "ann", "answered"),
        (True, "bob", "answered"),
    ]
    assert [line["info"]["draft"] for line in lines] == ["draft 1 of a poem", "draft 2 of a poem"]
    assert all(line["at"] for line in lines)
    printed = desk.ok("audit", "s1").out
    assert "approve was answered" in printed
    assert "by      ann" in printed
    assert "is open" in desk.ok("audit", "t1").out


def test_the_audit_is_verified(
    desk: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):  # rule K6
    printed = desk.ok("audit", "s1", "--verify").out
    assert "Session 's1' is as it was written, but NOT signed" in printed
    assert "an audit key (ADJOURN_AUDIT_KEY): only against changes by somebody who cannot" in printed
    found = desk.ok("audit", "s1", "--verify", "--json").json
    assert (found["sound"], found["signed"]) == (True, False)
    assert f"head    {found['head']}" in printed
    assert desk.ok("audit", "s1", "--verify", "--head", found["head"]).code == 0
    first, second = desk.ok("audit", "--verify", "--all").out.splitlines()
    assert first == "2 of 2 sessions are as they were written."
    assert second.startswith("No audit key is given, so it was checked only against")
    assert desk.run("audit", "t1", "--verify", "--head", found["head"]).code == 1

    url = f"sqlite:///{tmp_path / 'bank.db'}"
    runner = Runner(asking(), store=url, audit_key="a-key-as-long-as-it-must-be")
    runner.run_sync({}, session_id="s1")
    runner.resume_sync("s1", {"go": 1}, by="ann")
    runner.close_sync()
    assert main(["audit", "s1", "--verify", "--store", url]) == 1
    assert "or it was signed, and no audit key is given here" in capsys.readouterr().out
    monkeypatch.setenv("ADJOURN_AUDIT_KEY", "too short")
    assert main(["audit", "s1", "--verify", "--store", url]) == 2
    monkeypatch.setenv("ADJOURN_AUDIT_KEY", "a-newer-one-of-them a-key-as-long-as-it-must-be")
    assert main(["fork", "s1", "--to", "s2", "--store", url]) == 0, "what the command writes is signed, too"
    assert main(["audit", "s2", "--verify", "--store", url]) == 0
    assert main(["audit", "s1", "--verify", "--store", url]) == 0
    assert "Session 's1' is as it was written, and signed" in capsys.readouterr().out
    assert main(["audit", "--verify", "--all", "--store", url]) == 0
    assert capsys.readouterr().out == "2 of 2 sessions are as they were written.\n"
    with sqlite3.connect(tmp_path / "bank.db") as file:
        file.execute("UPDATE questions SET by = 'bob' WHERE by = 'ann' AND session = 1")
    file.close()
    assert main(["audit", "--verify", "--all", "--store", url]) == 1
    printed = capsys.readouterr().out
    assert "Session 's1' is NOT as it was written" in printed
    assert "its answer, or who gave it, is not what was taken up" in printed
    assert "1 of 2 sessions are as they were written." in printed


def test_what_is_wrong_with_many_records_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    url = f"sqlite:///{tmp_path / 'bank.db'}"
    graph = steps(*"abcdefgh", store=url, audit_key="a-key-as-long-as-it-must-be")
    graph.run_sync({}, session_id="s1")
    graph.close_sync()
    assert main(["audit", "s1", "--verify", "--store", url]) == 1
    changed, checked, _ = capsys.readouterr().out.splitlines()[1:]
    assert checked == "  checked 9 records, 0 answers"
    assert changed.count("record '") == 5
    assert "; 4 more: it is not what was written there" in changed


def test_a_session_that_cannot_be_read_is_not_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    url = f"sqlite:///{tmp_path / 'bank.db'}"
    runner = Runner(asking(), store=url)
    for name in ("s1", "s2"):
        runner.run_sync({}, session_id=name)
    runner.close_sync()
    with sqlite3.connect(tmp_path / "bank.db") as file:
        file.execute("UPDATE sessions SET status = 'bogus' WHERE id = 's2'")
    file.close()
    assert main(["audit", "--verify", "--all", "--store", url]) == 1
    printed = capsys.readouterr().out
    assert "Session 's2' is NOT as it was written" in printed
    assert "1 of 2 sessions are as they were written." in printed


@pytest.mark.parametrize(
    "words",
    [(), ("--all",), ("s1", "--all", "--verify"), ("s1", "--head", "x"), ("s1", "--verify", "--head", "x")],
    ids=" ".join,
)
def test_what_audit_needs(desk: Shell, words: tuple[str, ...]):
    assert desk.run("audit", *words).code == 2


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        (True, "approved"),
        (Approve(remember="always"), "approved, remembered always"),
        (Approve(remember="session", pattern={"iban": "NL*"}), 'approved, remembered in this session, for iban "NL*"'),
        ("no", "refused"),
        (Reject("too much"), "refused: too much"),
        (Edit({"iban": "NL1", "cents": 900}), "edited: cents 9000 → 900"),
        ({"decision": "respond", "text": "Not today."}, "responded: Not today."),
    ],
)
def test_the_audit_says_what_was_decided_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], answer: Any, shown: str
):  # rule K6
    @tool(approval=True)
    def wire(iban: str, cents: int) -> str:
        return "wired"

    call = ToolCall(id="c1", name="wire", arguments={"iban": "NL1", "cents": 9000})
    url = f"sqlite:///{tmp_path / 'bank.db'}"
    runner = Runner(ChatModelAgent("Bank", model=ScriptedModel([call, "Done."]), tools=[wire]), store=url)
    paused = runner.run_sync("Pay", session_id="s1", user_id="ada")
    runner.resume_sync("s1", {paused.interrupts[0]: answer}, by="ann", message="Mind the gap.")
    assert main(["audit", "s1", "--store", url]) == 0
    printed = capsys.readouterr().out
    assert f"  answer  {shown}\n" in printed
    assert "  said    Mind the gap.\n" in printed
    assert main(["audit", "s1", "--store", url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["message"] == "Mind the gap."


def test_a_node_that_asks_is_called_by_its_title(shell: Shell):
    started = shell.ok("chat", "desk:titled", "-m", '{"drafts": ["one"]}', "--session", "s1")
    recovered = shell.ok("recover", "desk:titled", "s1")
    for done in (started, recovered, shell.ok("pending", "s1"), shell.ok("show", "s1")):
        assert "Sign it off asks for your approval" in done.out
    assert shell.ok("pending", "--json").json[0]["node"] == "Sign it off"
    assert "Sign it off is open" in shell.ok("audit", "s1").out
    shell.ok("fork", "s1", "--to", "s2")
    shell.answer("s2", "yes")
    shell.ok("resume", "desk:titled", "s2")
    assert "Sign it off was answered" in shell.ok("audit", "s2").out


def test_answers_that_wait_to_be_taken_up_are_seen(desk: Shell):
    desk.answer("t1", "yes")
    assert "answered" in desk.ok("sessions").out
    assert "t1 is answered, and waits to be resumed" in desk.ok("show", "t1").out
    assert "adjourn recover MODULE:ATTRIBUTE t1" in desk.ok("show", "t1").err
    assert desk.ok("pending").out == "Nothing waits for an answer.\n"


@pytest.mark.parametrize("command", ["pending", "show", "tree", "audit", "fork"])
def test_an_unknown_session_is_said_so(desk: Shell, command: str):
    done = desk.run(command, "s9", "--json")
    assert (done.code, done.error["code"]) == (1, "checkpoint_not_found")
    assert done.out == ""


def test_without_a_store_the_remedy_is_told(shell: Shell):
    done = shell.run("sessions", ADJOURN_STORE="")
    assert done.code == 2
    assert "--store sqlite:///tickets.db" in done.err
    assert "$ADJOURN_STORE" in done.err


def test_a_file_that_is_not_there_is_not_made(shell: Shell):
    done = shell.run("sessions", "--store", "sqlite:///typo.db")
    assert done.code == 2
    assert "typo.db" in done.err
    assert not (shell.folder / "typo.db").exists()


def test_a_store_that_is_none_is_said_so(shell: Shell):
    (shell.folder / "notes.db").write_text("these are notes, and no database at all " * 100)
    assert shell.run("sessions", "--store", "sqlite:///notes.db").code == 1
    assert shell.run("sessions", "--store", "notes.db").code == 2


def test_debugging_shows_where(shell: Shell):
    assert "Traceback" in shell.run("sessions", ADJOURN_STORE="", ADJOURN_DEBUG="1").err


def test_names_that_would_drive_a_terminal_are_spelled_out(shell: Shell):  # attack 6
    name = "a\x1b[31mb"
    shell.ok("chat", "desk:review", "-m", "a poem", "--session", name)
    for words in (("sessions",), ("pending",), ("show", name), ("tree", name), ("audit", name)):
        done = shell.ok(*words)
        assert "\x1b" not in done.out + done.err
    assert "a<U+001B>[31mb" in shell.ok("sessions").out


def test_no_name_forges_a_line_of_the_terminal(desk: Shell):  # attack 17
    done = desk.run("show", "s9\n✔ all is well\x1b[2K\r")
    assert done.code == 1
    assert "\x1b[2K" not in done.err
    assert not [line for line in done.err.splitlines() if line.startswith("✔")]


# On a narrow terminal


def test_nothing_is_broken_in_the_middle_of_a_word(desk: Shell):
    words = set(re.findall(r"[a-z]{4,}", " ".join(desk.ok(*each).out.lower() for each in NARROW)))
    for command in NARROW:
        with desk.terminal(*command, COLUMNS="40", NO_COLOR="1") as terminal:
            assert terminal.end() == 0
            rows = terminal.text.lower().split("\r\n")
        shown = [row for row in rows if "adjourn " not in row]
        assert all(len(row) <= 40 for row in shown)
        # An id that is longer than a row has to be broken.
        unbroken = [row for row in shown if ";" not in row and "~" not in row]
        assert set(re.findall(r"[a-z]{4,}", " ".join(unbroken))) <= words


NARROW = (("sessions",), ("pending",), ("pending", "s1"), ("show", "s1"), ("audit", "s1"))


def test_an_error_is_wrapped_and_its_command_is_not(desk: Shell):
    with desk.terminal("show", "nobody", COLUMNS="40", NO_COLOR="1") as terminal:
        assert terminal.end() == 1
        rows = terminal.text.rstrip().split("\r\n")
    assert len(rows) > 1
    assert all(len(row) <= 40 for row in rows)
    assert all(row.startswith("  ") for row in rows[1:])
    assert " ".join(row.strip() for row in rows) == desk.run("show", "nobody").err.strip()


def test_what_has_expired_is_not_called_answered(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    @workflow
    async def go() -> str:
        return interrupt("Go?", key="go", schema=str, expires_in=1)

    url = f"sqlite:///{tmp_path / 's.db'}"
    Runner(go, store=url, clock=lambda: time.time() - 60).run_sync(session_id="s1")
    assert main(["sessions", "--store", url]) == 0
    assert "expired" in capsys.readouterr().out
    assert main(["show", "s1", "--store", url]) == 0
    assert "s1 is expired: `recover` continues it" in capsys.readouterr().out
    with pytest.raises(InterruptExpired, match=r"Catch InterruptExpired .* on_expire=AnswerWith"):
        Runner(go, store=url).recover_sync("s1")


def test_a_session_that_waits_for_its_turn_is_shown(tmp_path: Path):  # rule V11
    from tests.cli.desk import ticket  # noqa: PLC0415  # registered once, and not for the other tests

    shell = Shell(tmp_path)
    copy(Path(__file__).parent / "desk.py", tmp_path)
    runner = Runner(ticket, store=f"sqlite:///{tmp_path / 'sessions.db'}")
    runner.submit_sync("Bern", session_id="q1", user_id="ann")
    runner.submit_sync("Rome", session_id="q1", user_id="ann")
    assert [each["inputs"] for each in shell.ok("sessions", "--status", "queued", "--json").json] == [2]
    shown = shell.ok("show", "q1")
    for text in ("q1 is queued", "2 inputs wait", "Bern", "ann"):
        assert text in shown.out
    document = shell.ok("show", "q1", "--json").json
    assert (document["status"], [each["input"] for each in document["waiting"]]) == ("queued", ["Bern", "Rome"])
    shell.ok("recover", "desk:ticket", "q1")
    assert "1 input waits" in shell.ok("show", "q1").out


def test_a_store_can_be_in_the_home_folder(shell: Shell):
    home = shell.folder / "home"
    home.mkdir()
    where = {"ADJOURN_STORE": "sqlite:///~/x.db", "HOME": str(home)}
    assert f"There is no file {home / 'x.db'}" in shell.run("sessions", **where).err
    shell.ok("chat", "desk:trip", "-m", "Bern", "--session", "s1", **where)
    assert (home / "x.db").exists()
    assert "s1" in shell.ok("sessions", **where).out
