from __future__ import annotations

import json
import signal

import pytest

from tests.cli.shell import Shell


def status(shell: Shell, session: str) -> str:
    return shell.ok("show", session, "--json").json["status"]


def test_a_conversation_with_its_pauses(shell: Shell):
    with shell.terminal("chat", "desk:trip", "--session", "c1", "--by", "ann") as terminal:
        terminal.wait_for("trip  session c1")
        terminal.answer("› ", "Bern")
        terminal.answer("Your answer, or /later:", "Ada")
        terminal.answer("ok (yes or no):", "no")
        terminal.answer("class_ (first or second, optional):", "")
        terminal.answer("note (text, optional):", "too dear")
        terminal.wait_for("1  blue")
        terminal.answer("Your answer, or /later:", "red")
        terminal.wait_for("Ada: False, second, 'too dear', red")
        terminal.answer("› ", "/help")
        terminal.answer("› ", "Rome")
        terminal.answer("Your answer, or /later:", "/later")
        assert terminal.end() == 0
        assert "adjourn resume desk:trip c1" in terminal.seen
    audit = shell.ok("audit", "c1", "--json").json
    assert [line["by"] for line in audit] == ["ann", "ann", "ann", None]
    assert status(shell, "c1") == "waiting"


@pytest.mark.parametrize("word", ["/quit", "/exit"])
def test_who_ends_the_chat_at_a_question_has_not_answered_it(shell: Shell, word: str):
    with shell.terminal("chat", "desk:trip", "--session", "c1") as terminal:
        terminal.answer("› ", "Bern")
        terminal.answer("Your answer, or /later:", word)
        assert terminal.end() == 0
        assert "adjourn resume desk:trip c1" in terminal.seen
    assert [line["by"] for line in shell.ok("audit", "c1", "--json").json] == [None]
    assert status(shell, "c1") == "waiting"


def test_it_is_taken_up_where_it_stands(shell: Shell):
    shell.ok("chat", "desk:trip", "-m", "Bern", "--session", "c1")
    with shell.terminal("chat", "desk:trip", "--session", "c1") as terminal:
        terminal.answer("Your answer, or /later:", "Ada")
        terminal.wait_for("On these terms?")
        terminal.type("\x04")
        assert terminal.end() == 0
        assert "adjourn chat desk:trip --session c1" in terminal.seen


def test_what_was_answered_elsewhere_is_taken_up(shell: Shell):
    shell.ok("chat", "desk:ticket", "-m", "Bern", "--session", "c1")
    shell.answer("c1", "yes")
    with shell.terminal("chat", "desk:ticket", "--session", "c1") as terminal:
        terminal.wait_for("booked 2 to Bern for Martin")
        terminal.answer("› ", "/quit")
        assert terminal.end() == 0


def test_ctrl_c_stops_the_answer_and_not_the_chat(shell: Shell):  # rule A12
    with shell.terminal("chat", "desk:waits", "--session", "c1") as terminal:
        terminal.answer("› ", "hello")
        terminal.wait_for("it runs")
        terminal.process.send_signal(signal.SIGINT)
        terminal.wait_for("Stopped.")
        terminal.wait_for("/continue")
        terminal.wait_for("› ")
        assert status(shell, "c1") == "cancelled"
        (shell.folder / "go").touch()
        terminal.type("/continue\n")
        terminal.wait_for("went")
        terminal.answer("› ", "/continue")
        terminal.wait_for("nothing to continue")
        terminal.wait_for("› ")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 130
        assert "The session is kept. Go on with: adjourn chat desk:waits --session c1" in terminal.seen
    assert status(shell, "c1") == "done"


def test_an_answer_that_was_stopped_is_shown_anew_and_once(shell: Shell):
    with shell.terminal("chat", "desk:tells", "--session", "c1") as terminal:
        terminal.answer("› ", "hello")
        terminal.wait_for("● Tells  once upon ")
        terminal.process.send_signal(signal.SIGINT)
        terminal.wait_for("Stopped.")
        terminal.wait_for("› ")
        (shell.folder / "go").touch()
        terminal.type("/continue\n")
        terminal.wait_for("● Tells  once upon a time")
        terminal.answer("› ", "/quit")
        assert terminal.end() == 0
        assert terminal.seen.count("a time") == 1


def test_a_stopped_turn_is_given_up_for_a_new_message(shell: Shell):
    with shell.terminal("chat", "desk:trip", "--session", "c1") as terminal:
        terminal.answer("› ", "Bern")
        terminal.wait_for("Your answer, or /later:")
        terminal.process.send_signal(signal.SIGINT)
        terminal.answer("› ", "Rome")
        terminal.answer("Your answer, or /later:", "Ada")
        terminal.wait_for('where: "Rome"')
        terminal.process.send_signal(signal.SIGINT)
        terminal.answer("› ", "/continue")
        terminal.wait_for('where: "Rome"')
        terminal.wait_for("ok (yes or no):")
        terminal.type("\x04")
        assert terminal.end() == 0
    audit = shell.ok("audit", "c1", "--json").json
    assert [(entry["key"], entry["how"]) for entry in audit] == [
        ("name", "abandoned"),
        ("name", "answered"),
        ("terms", None),
    ]


def test_ctrl_c_at_the_prompt_ends_it(shell: Shell):
    with shell.terminal("chat", "desk:trip") as terminal:
        terminal.wait_for("› ")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 130


def test_a_failure_is_shown_and_can_be_tried_again(shell: Shell):
    with shell.terminal("chat", "desk:falls", "--session", "c1") as terminal:
        terminal.answer("› ", "down")
        terminal.wait_for("failed with ValueError")
        terminal.wait_for("cannot go down")
        (shell.folder / "mended").touch()
        terminal.answer("› ", "/continue")
        terminal.wait_for("mended")
        terminal.answer("› ", "/quit")
        assert terminal.end() == 0


def test_somebody_else_who_answers_first_is_no_end(shell: Shell):  # rule R3
    with shell.terminal("chat", "desk:ticket", "--session", "c1") as terminal:
        terminal.answer("› ", "Bern")
        terminal.wait_for("[l]ater ?")
        shell.answer("c1", "--respond", "sold out", "--by", "bob")
        terminal.type("a\n")
        terminal.wait_for("was resumed already")
        terminal.wait_for("answered sold out")
        terminal.answer("› ", "/quit")
        assert terminal.end() == 0
    assert shell.ledger == []


def test_without_a_store_the_session_is_in_memory_and_said_so(shell: Shell):
    with shell.terminal("chat", "desk:trip", ADJOURN_STORE="") as terminal:
        terminal.wait_for("in memory only")
        terminal.answer("› ", "Bern")
        terminal.answer("/later:", "/later")
        assert terminal.end() == 0
        assert "With --store URL it outlives this command" in terminal.seen
    assert not (shell.folder / "sessions.db").exists()


def test_no_color_is_respected(shell: Shell):
    with shell.terminal("chat", "desk:trip", "-m", "Bern", NO_COLOR="1") as terminal:
        terminal.answer("/later:", "/later")
        assert terminal.end() == 0
        assert "\x1b" not in terminal.seen


# One message


def test_one_message_ends_with_its_question(shell: Shell):
    done = shell.ok("chat", "desk:ticket", "-m", "Bern", "--session", "c1")
    assert "ticket asks for your approval" in done.out
    assert 'location: "Bern"' in done.out
    assert "adjourn answer c1" in done.err


def test_one_message_as_lines_of_json(shell: Shell):
    first, *events = shell.ok("chat", "desk:ticket", "-m", "Bern", "--json").lines
    assert first["type"] == "session"
    assert [event["type"] for event in events][-1] == "interrupt"
    assert events[-1]["interrupts"][0]["session_id"] == first["session_id"]


def test_a_graph_takes_its_state_as_json(shell: Shell):
    state = json.dumps({"user_input": "a song", "drafts": ["mine"]})
    shell.ok("chat", "desk:review", "-m", state, "--session", "c1")
    assert shell.ok("show", "c1", "--json").json["state"]["drafts"] == ["mine", "draft 2 of a song"]


def test_values_and_dependencies_are_given(shell: Shell):
    words = ("--value", "user=Ada", "--deps", "desk:Desk")
    assert "Desk, Ada" in shell.ok("chat", "desk:deps", "-m", "hello", *words).out
    assert shell.run("chat", "desk:deps", "-m", "hello", "--value", "Ada").code == 2


def test_a_message_to_a_session_that_waits_is_refused(shell: Shell):  # rule R12
    shell.ok("chat", "desk:ticket", "-m", "Bern", "--session", "c1")
    done = shell.run("chat", "desk:ticket", "-m", "Rome", "--session", "c1", "--json")
    assert (done.code, done.error["code"]) == (1, "pending_interrupts")


def test_a_failure_is_an_exit_code(shell: Shell):
    done = shell.run("chat", "desk:falls", "-m", "down", "--session", "c1")
    assert done.code == 1
    assert "failed with ValueError" in done.out
    assert "adjourn recover desk:falls c1" in done.err


def test_there_is_nobody_to_talk_to_in_a_pipe(shell: Shell):
    done = shell.run("chat", "desk:trip")
    assert done.code == 2
    assert "--message" in done.err
