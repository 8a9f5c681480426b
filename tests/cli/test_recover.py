from __future__ import annotations

from tests.cli.shell import Shell


def test_a_failed_session_goes_on_once_it_is_mended(shell: Shell):
    shell.run("chat", "desk:falls", "-m", "down", "--session", "s1")
    failed = shell.run("recover", "desk:falls", "s1")
    assert failed.code == 1
    assert "cannot go down" in failed.out
    (shell.folder / "mended").touch()
    assert "mended" in shell.ok("recover", "desk:falls", "s1").out


def test_a_killed_process_is_recovered(shell: Shell):  # rule C8
    process = shell.start("chat", "desk:waits", "-m", "hello", "--session", "s1", "--json")
    assert process.stdout
    while '"custom"' not in process.stdout.readline():
        pass
    process.kill()
    process.communicate()
    assert "its process is gone" in shell.ok("show", "s1").out
    assert [each["status"] for each in shell.ok("sessions", "--status", "failed", "--json").json] == ["failed"]
    (shell.folder / "go").touch()
    assert "went" in shell.ok("recover", "desk:waits", "s1").out


def test_what_is_done_gives_its_result_again(shell: Shell):
    shell.ok("chat", "desk:deps", "-m", "hello", "--session", "s1")
    assert "NoneType, None" in shell.ok("recover", "desk:deps", "s1").out


def test_it_never_asks(shell: Shell):
    shell.ok("chat", "desk:review", "-m", "a poem", "--session", "s1")
    with shell.terminal("recover", "desk:review", "s1") as terminal:
        assert terminal.end() == 0
        assert "adjourn resume desk:review s1" in terminal.seen


def test_a_session_that_runs_elsewhere_is_followed(shell: Shell):
    process = shell.start("chat", "desk:waits", "-m", "hello", "--session", "s1", "--json")
    assert process.stdout
    while '"custom"' not in process.stdout.readline():
        pass
    with shell.terminal("recover", "desk:waits", "s1", "--verbose") as terminal:
        terminal.wait_for("on this machine; following it.")
        (shell.folder / "go").touch()
        terminal.wait_for("went")
        assert terminal.end() == 0
    process.communicate()
    assert process.returncode == 0


def test_events_are_lines_of_json(shell: Shell):
    shell.ok("chat", "desk:ticket", "-m", "Bern", "--session", "s1")
    shell.answer("s1", "yes")
    events = shell.ok("resume", "desk:ticket", "s1", "--json").lines
    assert events[-1]["type"] == "done"
    assert events[-1]["output"] == "booked 2 to Bern for Martin"


def test_at_a_terminal_resume_asks_until_it_has_ended(shell: Shell):
    shell.ok("chat", "desk:review", "-m", "a poem", "--session", "s1")
    with shell.terminal("resume", "desk:review", "s1", "--by", "ann") as terminal:
        terminal.wait_for("draft 1 of a poem")
        terminal.answer("[l]ater ?", "n")
        terminal.wait_for("draft 2 of a poem")
        terminal.answer("[l]ater ?", "y")
        terminal.wait_for("approved: true")
        assert terminal.end() == 0
    assert shell.ledger == ["draft 1 of a poem", "draft 2 of a poem"]


def test_ctrl_c_while_resume_asks_says_how_to_go_on(shell: Shell):
    shell.ok("chat", "desk:review", "-m", "a poem", "--session", "s1")
    with shell.terminal("resume", "desk:review", "s1") as terminal:
        terminal.wait_for("[l]ater ?")
        terminal.process.send_signal(2)
        assert terminal.end() == 130
        assert "adjourn answer s1" in terminal.seen
    assert len(shell.ok("pending", "--json").json) == 1


def test_the_session_of_another_program_is_said_so(shell: Shell):  # rule R10
    shell.ok("chat", "desk:review", "-m", "a poem", "--session", "s1")
    done = shell.run("resume", "desk:trip", "s1", "--json")
    assert (done.code, done.error["code"]) == (1, "program_changed")


def test_an_unknown_session_is_said_so(shell: Shell):
    shell.ok("chat", "desk:deps", "-m", "hello", "--session", "s1")
    assert shell.run("recover", "desk:deps", "s2", "--json").error["code"] == "checkpoint_not_found"


def test_all_that_failed_go_on(shell: Shell):
    for session in ("f1", "f2"):
        shell.run("chat", "desk:falls", "-m", "down", "--session", session)
    shell.run("chat", "desk:deps", "-m", "hello", "--session", "done")
    assert shell.run("recover", "desk:falls", "--all-failed").code == 1
    assert "No session has failed." in shell.ok("recover", "desk:trip", "--all-failed").err
    assert "No session has failed." in shell.ok("recover", "desk:falls", "--all-failed", "--agent", "other").err
    (shell.folder / "mended").touch()
    events = shell.ok("recover", "desk:falls", "--all-failed", "--json").lines
    assert sorted(each["session_id"] for each in events if each["type"] == "session") == ["f1", "f2"]
    assert sum(each["type"] == "done" for each in events) == 2
    again = shell.ok("recover", "desk:falls", "--all-failed")
    assert "No session has failed." in again.err
    for words in (("s1", "--all-failed"), ("--agent", "a"), ()):
        assert shell.run("recover", "desk:falls", *words).code == 2


def test_one_that_fails_again_does_not_stop_the_others(shell: Shell):
    for session in ("f1", "f2"):
        shell.run("chat", "desk:falls", "-m", "down", "--session", session)
    done = shell.run("recover", "desk:falls", "--all-failed")
    assert (done.code, done.out.count("cannot go down")) == (1, 2)
    assert "2 sessions had failed." in done.err
