"""Whose session a command means: the app `adjourn` unless another one is named, and one user's if one is named."""

from __future__ import annotations

import re

import pytest

from tests.cli.shell import Shell

TRAVEL = """
from adjourn import Runner
from desk import trip

runner = Runner(trip, app_name="travel")
strict = Runner(trip, app_name="travel", may_answer=lambda asked, by, user_id: by != user_id or "ask a colleague")
bound = runner.for_user("ann")
"""

NAMING = ["answer", "show", "tree", "audit", "fork", "prune", "delete", "pending"]
MORE = {"answer": ["Bob"], "prune": ["--keep", "1"], "delete": ["--yes"]}


@pytest.fixture
def travel(shell: Shell) -> Shell:
    """`s1` of ann in the app `travel`, waiting, and nothing in the app `adjourn`."""
    (shell.folder / "travel.py").write_text(TRAVEL)
    shell.ok("chat", "travel:runner", "-m", "Bern", "--session", "s1", "--user", "ann")
    return shell


def test_a_command_means_the_sessions_of_the_default_app(travel: Shell):  # rule C12
    assert travel.ok("sessions", "--json").json == travel.ok("pending", "--json").json == []
    nothing = travel.ok("sessions")
    assert "No sessions with app adjourn." in nothing.out
    assert "--all-apps" in nothing.err
    for every in (["--all-apps"], ["--app", "travel"]):
        assert [each["app"] for each in travel.ok("sessions", *every, "--json").json] == ["travel"]
        assert [each["key"] for each in travel.ok("pending", *every, "--json").json] == ["name"]
    assert "travel" in travel.ok("sessions", "--all-apps").out
    assert travel.run("sessions", "--all-apps", "--app", "travel").code == 2


@pytest.mark.parametrize("name", NAMING)
def test_a_session_of_another_app_is_not_found_unless_it_is_named(travel: Shell, name: str):  # rule C12
    words = [name, "s1", *MORE.get(name, [])]
    assert travel.run(*words, "--json").error["code"] == "checkpoint_not_found"
    travel.ok(*words, "--all-apps", "--json")


@pytest.mark.parametrize("name", NAMING)
def test_a_session_of_several_apps_must_be_named_with_its_app(travel: Shell, name: str):  # rule C12
    travel.ok("chat", "desk:trip", "-m", "Bern", "--session", "s1")
    refused = travel.run(name, "s1", *MORE.get(name, []), "--all-apps")
    assert (refused.code, "adjourn, travel" in refused.err, "--app NAME" in refused.err) == (2, True, True)
    travel.ok(name, "s1", *MORE.get(name, []), "--app", "travel")


@pytest.mark.parametrize("name", NAMING)
def test_a_session_of_another_user_is_as_one_that_does_not_exist(travel: Shell, name: str):  # rule C12
    def error(session: str) -> str:
        words = [name, session, *MORE.get(name, [])]
        refused = travel.run(*words, "--app", "travel", "--user", "bob")
        assert refused.code == 1
        return refused.err.replace(session, "SESSION")

    assert error("s1") == error("s2")
    travel.ok(name, "s1", *MORE.get(name, []), "--app", "travel", "--user", "ann")


@pytest.mark.parametrize("name", ["chat", "resume", "recover"])
def test_another_user_does_not_go_on_with_it(travel: Shell, name: str):  # rule C12
    travel.ok("answer", "s1", "Ann", "--app", "travel")
    words = ["--session", "s1"] if name == "chat" else ["s1"]
    if name == "chat":
        with travel.terminal(name, "travel:runner", *words, "--user", "bob") as terminal:
            terminal.answer("›", "hello")
            terminal.wait_for("There is no session")
            terminal.answer("›", "/quit")
            assert terminal.end() == 0
    else:
        assert "There is no session" in travel.run(name, "travel:runner", *words, "--user", "bob").err
    (shown,) = travel.ok("sessions", "--app", "travel", "--json").json
    assert (shown["status"], shown["questions"]) == ("waiting", 0), "the answer has not been taken up"
    assert "On these terms?" in travel.ok("recover", "travel:runner", "s1", "--user", "ann").out


def test_a_runner_that_is_bound_stays_bound(travel: Shell):  # rule C12
    travel.ok("chat", "travel:runner", "-m", "Bern", "--session", "s2", "--user", "bob")
    assert travel.run("recover", "travel:bound", "s2").code == 1
    travel.ok("recover", "travel:bound", "s1")


def test_the_commands_that_are_printed_name_the_app_and_the_user(travel: Shell):
    printed = travel.ok("recover", "travel:runner", "s1", "--user", "ann").err
    assert re.search(r"adjourn answer s1 --question '.*' ANSWER --app travel --user ann\n", printed)
    assert "adjourn resume travel:runner s1 --user ann" in printed
    answered = travel.ok("answer", "s1", "Ann", "--app", "travel").out
    assert "adjourn resume MODULE:ATTRIBUTE s1\n" in answered


def test_old_sessions_are_removed_by_app_and_user(travel: Shell):  # rule C12
    old = ["prune", "--sessions", "--older-than", "0s", "--status", "waiting", "--json"]
    assert travel.ok(*old).json["sessions"] == []
    assert travel.ok(*old, "--all-apps", "--user", "bob").json["sessions"] == []
    assert travel.ok(*old, "--all-apps").json["sessions"] == ["s1"]


def test_the_rule_of_a_runner_holds_at_a_terminal(travel: Shell):
    with travel.terminal("resume", "travel:strict", "s1", "--by", "ann") as terminal:
        terminal.answer("What is your name?", "Ann")
        assert terminal.end() == 1
        assert "ask a colleague" in " ".join(terminal.text.split())
    with travel.terminal("resume", "travel:strict", "s1", "--by", "bob") as terminal:
        terminal.answer("What is your name?", "Ann")
        terminal.wait_for("On these terms?")
