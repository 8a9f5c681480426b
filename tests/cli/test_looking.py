"""The commands that only look: sessions, pending, show, tree, audit."""

from __future__ import annotations

import asyncio
from pathlib import Path
from shutil import copy

import pytest

from adjourn.agents import Approval, Approvals
from tests.cli.shell import Shell


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
    asyncio.run(approvals.add("ada", Approval(tool="pay")))
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
