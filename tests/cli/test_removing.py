"""The commands that remove or copy: prune, delete, fork."""

from __future__ import annotations

import pytest

from tests.cli.shell import Shell


@pytest.fixture
def desk(shell: Shell) -> Shell:
    """A session that has asked twice and waits."""
    shell.ok("chat", "desk:review", "-m", "a poem", "--session", "s1")
    shell.answer("s1", "no", "--by", "ann")
    shell.ok("resume", "desk:review", "s1")
    return shell


def names(shell: Shell) -> set[str]:
    return {each["session_id"] for each in shell.ok("sessions", "--json").json}


def test_a_fork_goes_on_by_itself(desk: Shell):  # rule C4
    paused = next(point for point in desk.ok("tree", "s1", "--json").json if point["source"] == "interrupt")
    before = desk.ok("show", "s1", "--json").json
    new = desk.ok("fork", "s1", "--checkpoint", paused["id"], "--to", "s2", "--json").json["session_id"]
    (question,) = desk.ok("pending", "s2", "--json").json
    assert question["info"] == {"draft": "draft 1 of a poem"}
    desk.answer(new, "yes")
    desk.ok("resume", "desk:review", new)
    assert desk.ok("show", "s2", "--json").json["state"]["drafts"] == ["draft 1 of a poem"]
    assert desk.ok("show", "s1", "--json").json == before
    assert desk.ok("tree", "s2", "--json").json[0]["metadata"]["forked_from"]["session_id"] == "s1"


def test_a_fork_after_an_approval_needs_again(shell: Shell):  # rule R19
    shell.ok("chat", "desk:review", "-m", "a poem", "--session", "s1")
    shell.answer("s1", "no")
    shell.ok("resume", "desk:review", "s1")
    refused = shell.run("fork", "s1", "--json")
    assert (refused.code, refused.error["code"]) == (1, "approval_spent")
    assert "(next: approve); --again lets it count once more." in shell.run("fork", "s1").err
    shell.ok("fork", "s1", "--to", "s2", "--again")
    assert "again   it had acted before this branch began" in shell.ok("audit", "s2").out
    assert [entry["again"] for entry in shell.ok("audit", "s2", "--json").json] == [True, False]
    head = shell.ok("show", "s1", "--json").json["checkpoint_id"]
    words = ("edit", "desk:review", "s1", "user_input=ode", "--checkpoint", head)
    shell.ok(*words)
    assert "--again lets it count" in shell.run(*words).err
    shell.ok(*words, "--again")


def test_a_fork_needs_a_new_name(desk: Shell):
    assert desk.run("fork", "s1", "--to", "s1").code == 2


def test_delete_asks_first(desk: Shell):
    assert desk.run("delete", "s1").code == 2
    with desk.terminal("delete", "s1") as terminal:
        terminal.answer("[y/n] ", "n")
        assert terminal.end() == 1
    assert names(desk) == {"s1"}
    desk.ok("delete", "s1", "--yes")
    assert names(desk) == set()
    assert desk.run("delete", "s1", "--yes", "--json").error["code"] == "checkpoint_not_found"


def test_prune_keeps_what_is_pending(desk: Shell):  # rule C7
    assert desk.ok("prune", "s1", "--keep", "1", "--json").json["records"] >= 0
    assert len(desk.ok("pending", "s1", "--json").json) == 1
    desk.answer("s1", "yes")
    assert "approved: true" in desk.ok("resume", "desk:review", "s1").out


def test_prune_removes_old_sessions(desk: Shell):
    assert desk.ok("prune", "--sessions", "--older-than", "1d", "--json").json == {"sessions": []}
    assert names(desk) == {"s1"}
    spared = desk.ok("prune", "--sessions", "--older-than", "0s", "--json").json
    assert spared == {"sessions": []}, "a session that waits is removed only when that is named"
    named = ("--status", "waiting", "--status", "done")
    assert desk.ok("prune", "--sessions", "--older-than", "0s", "--dry-run").out == "Would remove 0 sessions.\n"
    would = desk.ok("prune", "--sessions", "--older-than", "0s", *named, "--dry-run")
    assert would.out == "Would remove 1 session (1 waiting).\n"
    would = desk.ok("prune", "--sessions", "--older-than", "0s", *named, "--dry-run", "--json")
    assert would.json == {"dry_run": True, "sessions": ["s1"], "statuses": {"waiting": 1}}
    assert names(desk) == {"s1"}
    assert desk.ok("prune", "--sessions", "--older-than", "0s", *named, "--json").json == {"sessions": ["s1"]}
    assert names(desk) == set()


def test_prune_removes_checkpoints_of_all_sessions(desk: Shell):  # rule C7
    desk.ok("fork", "s1", "--to", "s2", "--again")
    assert "of all sessions" in desk.ok("prune", "--all", "--keep", "1").out
    assert desk.ok("prune", "--all", "--keep", "1", "--json").json == {"records": 0}
    assert len(desk.ok("pending", "--json").json) == 2


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("s1",),
        ("--sessions",),
        ("s1", "--sessions", "--older-than", "1d"),
        ("s1", "--keep", "-1"),
        ("s1", "--all", "--keep", "1"),
        ("--all",),
        ("--all", "--sessions", "--older-than", "1d"),
        ("s1", "--keep", "1", "--status", "done"),
        ("s1", "--keep", "1", "--dry-run"),
        ("--sessions", "--older-than", "1d", "--status", "running"),
        ("--sessions", "--older-than", "1d", "--status", "old"),
        ("s1", "--older-than", "soon"),
    ],
)
def test_prune_says_what_it_needs(desk: Shell, words: tuple[str, ...]):
    assert desk.run("prune", *words).code == 2
