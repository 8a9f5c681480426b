"""`adjourn cancel`."""

from __future__ import annotations

from tests.cli.shell import Shell


def test_a_session_is_stopped_from_another_process(shell: Shell):
    running = shell.start("chat", "desk:waits", "-m", "hello", "--session", "c1")
    try:
        assert running.stdout
        assert "it runs" in running.stdout.readline()
        done = shell.ok("cancel", "--mode", "now", "c1")
        assert done.out == "Session 'c1' is cancelled.\n"
        assert "Go on with: adjourn recover MODULE:ATTRIBUTE c1" in done.err
    finally:
        running.kill()
        running.communicate()
    (shell.folder / "go").touch()
    assert "went" in shell.ok("recover", "desk:waits", "c1").out


def test_what_nobody_runs_cannot_be_stopped(shell: Shell):
    shell.ok("chat", "desk:ticket", "-m", "Bern", "--session", "t1")
    done = shell.run("cancel", "t1")
    assert (done.code, done.out) == (1, "Nobody runs session 't1': it is waiting. There is nothing to stop.\n")
    assert shell.run("cancel", "t1", "--json").json == {"session_id": "t1", "status": "waiting", "stopped": False}
    missing = shell.run("cancel", "t2", "--json")
    assert (missing.code, missing.error["code"]) == (1, "checkpoint_not_found")
