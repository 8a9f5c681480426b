from __future__ import annotations

import json
import shlex
import subprocess
from typing import Any

import pytest

from tests.cli.shell import Shell


@pytest.fixture
def asked(shell: Shell) -> Shell:
    """A session `s1` that asks whether a draft may be published."""
    shell.ok("chat", "desk:review", "-m", "a poem", "--session", "s1")
    return shell


@pytest.fixture
def booking(shell: Shell) -> Shell:
    """A session `t1` that asks about a tool call."""
    shell.ok("chat", "desk:ticket", "-m", "Beijing", "--session", "t1")
    return shell


def answers(shell: Shell, session: str) -> list[Any]:
    return [line["answer"] for line in shell.ok("audit", session, "--json").json]


def test_three_processes_end_as_one_uninterrupted(shell: Shell):  # rule R4, I12
    shell.run_process("chat", "desk:review", "-m", "a poem", "--session", "one")
    shell.run_process("answer", "one", "yes", "--by", "ann", *shell.shown("one"))
    shell.run_process("resume", "desk:review", "one")
    with shell.terminal("chat", "desk:review", "-m", "a poem", "--session", "twin") as terminal:
        terminal.answer("[l]ater ?", "y")
        assert terminal.end() == 0
    one, twin = (shell.ok("show", name, "--json").json for name in ("one", "twin"))
    assert one["state"] == twin["state"]
    assert one["state"]["approved"] is True
    assert (one["status"], twin["status"]) == ("done", "done")
    assert shell.ledger == ["draft 1 of a poem"] * 2


def test_an_answer_needs_no_code(asked: Shell):  # rule I12
    (asked.folder / "desk.py").unlink()
    done = asked.answer("s1", "no", "--by", "ann")
    assert (
        "Recorded: false, by ann.\nA worker takes it up by itself. Without one, go on with: adjourn resume " in done.out
    )
    assert "adjourn resume MODULE:ATTRIBUTE s1" in done.out
    assert answers(asked, "s1") == [False]


def test_who_answers_is_known_unless_told(asked: Shell):
    asked.answer("s1", "yes", ADJOURN_USER="bob@example.org")
    assert asked.ok("audit", "s1", "--json").json[0]["by"] == "bob@example.org"


def test_an_answer_that_does_not_fit_is_refused_and_the_question_stays(asked: Shell):  # rule R2
    done = asked.run("answer", "s1", "perhaps", *asked.shown("s1"))
    assert done.code == 1
    assert "it takes yes or no" in done.err
    assert len(asked.ok("pending", "--json").json) == 1


def test_the_second_answer_is_told_who_was_first(asked: Shell):  # rule R3
    asked.answer("s1", "yes", "--by", "ann")
    done = asked.run("answer", "s1", "no", "--by", "bob")
    assert done.code == 1
    assert "was resumed already" in done.err
    assert "You came second: ann answered it" in done.err
    assert asked.run("answer", "s1", "no", "--json").error["code"] == "already_resumed"
    assert answers(asked, "s1") == [True]


def test_of_two_command_lines_at_once_one_comes_second(shell: Shell):  # rule R3
    shell.ok("chat", "desk:review", "-m", "a poem", "--session", "s1")
    shown = shell.shown("s1")
    words = [("yes", "ann"), ("no", "bob")]
    both = [shell.start("answer", "s1", word, "--by", by, "--json", *shown) for word, by in words]
    ends = [ended(process) for process in both]
    assert sorted(code for code, _, _ in ends) == [0, 1]
    winner = next(json.loads(out) for code, out, _ in ends if code == 0)
    loser = next(json.loads(err)["error"] for code, _, err in ends if code == 1)
    assert loser["code"] == "already_resumed"
    assert loser["by"] == winner["by"]
    assert answers(shell, "s1") == [winner["answer"]]


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate()
    assert "Traceback" not in err
    return process.returncode, out, err


def test_several_questions_are_told_apart_by_id_or_key(shell: Shell):
    shell.ok("chat", "desk:pair", "-m", "a trip", "--session", "p1")
    ids = [question["id"] for question in shell.ok("pending", "p1", "--json").json]
    refused = shell.run("answer", "p1", "yes")
    assert refused.code == 2
    assert all(each in refused.err for each in ids)
    assert "or an approval with the token that `adjourn pending p1` shows" in refused.err
    done = shell.ok("answer", "p1", "yes", "--question", "director", "--json").json
    assert [question["key"] for question in done["open"]] == ["manager"]
    assert "manager asks you something" in shell.ok("resume", "desk:pair", "p1").out.replace("pair › ", "")
    shell.ok("answer", "p1", "no", "--question", ids[0])
    assert "manager False and director True" in shell.ok("resume", "desk:pair", "p1").out


def test_what_is_left_open_is_named(shell: Shell):
    shell.ok("chat", "desk:pair", "-m", "a trip", "--session", "p1")
    (first, second) = [question["id"] for question in shell.ok("pending", "p1", "--json").json]
    assert f"Still open: {second}" in shell.ok("answer", "p1", "yes", "--question", first).out
    assert "Still open" not in shell.ok("answer", "p1", "yes", "--question", second).out


def test_an_unknown_question_lists_those_that_are_open(asked: Shell):  # rule R1
    done = asked.run("answer", "s1", "yes", "--question", "budget")
    assert done.code == 1
    assert "no open question 'budget'. Open: runnable:review;node:approve" in done.err


def test_an_unknown_session_is_said_so(asked: Shell):
    done = asked.run("answer", "s2", "yes")
    assert (done.code, "There is no session 's2'" in done.err) == (1, True)


def test_with_the_checkpoint_that_was_seen_only_that_counts(asked: Shell):  # rule R1
    seen = asked.ok("pending", "s1", "--json").json[0]["checkpoint_id"]
    asked.answer("s1", "no", "--checkpoint", seen)
    asked.ok("resume", "desk:review", "s1")
    done = asked.run("answer", "s1", "yes", "--checkpoint", seen, "--json", *asked.shown("s1"))
    assert done.error["code"] == "stale_checkpoint"
    assert done.code == 1


@pytest.mark.parametrize(
    ("words", "result"),
    [
        (("yes",), "booked 2 to Beijing for Martin"),
        (("--approve",), "booked 2 to Beijing for Martin"),
        (("no",), "refused"),
        (("--refuse", "too far"), "refused too far"),
        (("--respond", "sold out"), "answered sold out"),
        (("--edit", '{"location": "Xi\'an", "passenger_name": "Li", "seats": 1}'), "booked 1 to Xi'an for Li"),
        (("--data", '{"decision": "reject", "reason": "late"}'), "refused late"),
        (('{"decision": "respond", "text": "full"}',), "answered full"),
    ],
)
def test_a_tool_call_is_decided_in_words_or_options(booking: Shell, words: tuple[str, ...], result: str):
    booking.answer("t1", *words)
    assert result in booking.ok("resume", "desk:ticket", "t1").out


def test_an_edit_is_checked_before_it_counts(booking: Shell):  # rule R2
    shown = booking.shown("t1")
    done = booking.run("answer", "t1", "--edit", '{"location": "Bern"}', *shown)
    assert done.code == 1
    assert booking.run("answer", "t1", "--edit", "Bern", *shown).code == 2
    assert len(booking.ok("pending", "--json").json) == 1


def test_an_answer_comes_from_the_standard_input(shell: Shell):
    shell.ok("chat", "desk:trip", "-m", "Bern", "--session", "n1")
    shell.ok("answer", "n1", "-", input="Ada\n")
    assert answers(shell, "n1") == ["Ada"]


def test_text_that_looks_like_data_is_text_where_text_is_asked(shell: Shell):
    shell.ok("chat", "desk:trip", "-m", "Bern", "--session", "n1")
    shell.answer("n1", "007")
    assert answers(shell, "n1") == ["007"]


def test_without_an_answer_and_a_terminal_nothing_is_guessed(asked: Shell):
    assert asked.run("answer", "s1").code == 2
    assert asked.run("answer", "s1", "yes", "--text", "no").code == 2
    assert asked.run("answer", "s1", "--remember", "session").code == 2


def test_what_is_no_text_is_refused(asked: Shell):
    assert asked.run("answer", "s1", "--data", '"\\ud800"', *asked.shown("s1")).code == 1
    assert asked.run("answer", "s1", "\udcff").code == 2
    assert asked.run("show", "\udcff").code == 2
    assert len(asked.ok("pending", "--json").json) == 1


# At a terminal


def test_at_a_terminal_the_question_is_shown_and_asked(asked: Shell):
    with asked.terminal("answer", "s1", "--by", "ann") as terminal:
        terminal.wait_for("Publish it?")
        terminal.answer("[l]ater ?", "hm")
        terminal.wait_for("That does not fit")
        terminal.answer("[l]ater ?", "y")
        assert terminal.end() == 0
        assert "\x1b[" in terminal.seen
    assert answers(asked, "s1") == [True]


def test_later_leaves_it_open(asked: Shell):
    with asked.terminal("answer", "s1") as terminal:
        terminal.answer("[l]ater ?", "l")
        assert terminal.end() == 0
        assert "It stays open." in terminal.seen
    assert len(asked.ok("pending", "--json").json) == 1


def test_ctrl_c_while_asked_leaves_it_open(asked: Shell):
    with asked.terminal("answer", "s1") as terminal:
        terminal.wait_for("[l]ater ?")
        terminal.process.send_signal(2)
        assert terminal.end() == 130
    assert len(asked.ok("pending", "--json").json) == 1


def test_arguments_are_edited_line_by_line(booking: Shell):
    with booking.terminal("answer", "t1") as terminal:
        terminal.answer("[l]ater ?", "e")
        terminal.answer("location [Beijing]:", "Shanghai")
        terminal.answer("passenger_name [Martin]:", "")
        terminal.answer("seats [2]:", "3")
        terminal.answer("Run it with these?", "y")
        assert terminal.end() == 0
    edited = {"location": "Shanghai", "passenger_name": "Martin", "seats": 3}
    assert answers(booking, "t1") == [{"decision": "edit", "arguments": edited}]


def test_arguments_that_the_tool_does_not_take_are_asked_again(booking: Shell):
    with booking.terminal("answer", "t1") as terminal:
        terminal.answer("[l]ater ?", "e")
        terminal.answer("location [Beijing]:", "")
        terminal.answer("passenger_name [Martin]:", "")
        terminal.answer("seats [2]:", "many")
        terminal.wait_for("The tool does not take these")
        terminal.answer("[l]ater ?", "r")
        terminal.answer("Why?", "too many")
        assert terminal.end() == 0
    assert answers(booking, "t1") == [{"decision": "reject", "reason": "too many"}]


def test_arguments_are_edited_in_the_editor(booking: Shell):
    with booking.terminal("answer", "t1", EDITOR="sed -i s/Beijing/Xian/") as terminal:
        terminal.answer("[l]ater ?", "e")
        terminal.answer("Run it with these?", "y")
        assert terminal.end() == 0
    assert answers(booking, "t1")[0]["arguments"]["location"] == "Xian"
    assert not [path for path in booking.folder.iterdir() if path.name.startswith("adjourn-")]


def test_what_the_editor_leaves_is_checked_and_nothing_is_decided_by_mistake(booking: Shell):
    reply = booking.folder / "reply.json"
    with booking.terminal("answer", "t1", EDITOR="cp reply.json") as terminal:
        terminal.answer("[l]ater ?", "x")
        terminal.wait_for("Type one of the letters a, e, r, s or l")
        terminal.answer("[l]ater ?", "e")
        terminal.wait_for("That gave no arguments")
        for text, told in (
            ("{", "That gave no arguments"),
            ("[1]", "Arguments are a JSON object"),
            ('{"location": "Beijing", "passenger_name": "Martin", "seats": 2}', "Nothing was changed."),
        ):
            reply.write_text(text)
            terminal.answer("[l]ater ?", "e")
            terminal.wait_for(told)
        terminal.answer("[l]ater ?", "s")
        terminal.answer("The result that the model gets instead:", "sold out")
        assert terminal.end() == 0
    assert answers(booking, "t1") == [{"decision": "respond", "text": "sold out"}]


def test_an_empty_line_is_not_an_answer_and_a_form_can_wait(shell: Shell):
    shell.ok("chat", "desk:trip", "-m", "Bern", "--session", "n1")
    with shell.terminal("answer", "n1") as terminal:
        terminal.answer("Your answer, or /later:", "")
        terminal.answer("Your answer, or /later:", "Ada")
        assert terminal.end() == 0
    shell.ok("resume", "desk:trip", "n1")
    with shell.terminal("answer", "n1") as terminal:
        terminal.answer("ok (yes or no):", "yes")
        terminal.answer("class_ (first or second, optional):", "/later")
        terminal.wait_for("It stays open.")
        assert terminal.end() == 0
    with shell.terminal("answer", "n1") as terminal:
        terminal.answer("ok (yes or no):", "\x04")
        terminal.wait_for("It stays open.")
        assert terminal.end() == 0
    assert answers(shell, "n1") == ["Ada", None]


def test_an_answer_with_fields_is_filled_in(shell: Shell):
    shell.ok("chat", "desk:trip", "-m", "Bern", "--session", "n1")
    shell.answer("n1", "Ada")
    shell.ok("resume", "desk:trip", "n1")
    with shell.terminal("answer", "n1") as terminal:
        terminal.answer("ok (yes or no):", "yes")
        terminal.answer("class_ (first or second, optional):", "third")
        terminal.answer("class_ (first or second, optional):", "first")
        terminal.answer("note (text, optional):", "")
        assert terminal.end() == 0
    assert answers(shell, "n1")[1] == {"ok": True, "class_": "first"}


def test_a_choice_is_made_by_its_number(shell: Shell):
    shell.ok("chat", "desk:trip", "-m", "Bern", "--session", "n1")
    shell.answer("n1", "Ada")
    shell.ok("resume", "desk:trip", "n1")
    shell.answer("n1", '{"ok": true}')
    shell.ok("resume", "desk:trip", "n1")
    shell.answer("n1", "2")
    assert "Ada: True, second, '', red" in shell.ok("resume", "desk:trip", "n1").out


def test_what_would_deceive_the_approver_is_spelled_out(shell: Shell):  # attack 6
    shell.ok("chat", "desk:ticket", "-m", "Bei\u202ejing\x1b[2J\u200b" + "x" * 3000 + "END", "--session", "t1")
    with shell.terminal("answer", "t1") as terminal:
        terminal.answer("[l]ater ?", "l")
        assert terminal.end() == 0
        seen = terminal.text
    assert "\u202e" not in seen
    assert "\x1b" not in seen
    assert "Bei<U+202E>jing" in seen
    assert "<U+200B>" in seen
    assert seen.count("x") == 3000
    assert "END" in seen.replace("\r\n        │ ", "")


def test_an_approval_is_not_taken_unseen(booking: Shell):  # rule I13
    done = booking.run("answer", "t1", "yes")
    assert done.code == 2
    assert "token" in done.err
    assert booking.shown("t1")[1] in done.err
    assert answers(booking, "t1") == [None]


@pytest.mark.parametrize(
    "words",
    [
        ("yes", "--by", "ann"),
        ("--approve", "--by", "ann"),
        ("--refuse", "too far"),
        ("--respond", "sold out, or so", "--by", "ann"),
        ("--set", "location=Xi'an", "--set", "seats=1"),
        ("--edit", '{"location": "Bern", "passenger_name": "Li", "seats": 1}'),
        ("--data", '{"decision": "reject", "reason": "late"}'),
    ],
)
def test_the_command_that_an_approval_needs_says_all_that_was_said(booking: Shell, words: tuple[str, ...]):  # rule I13
    refused = booking.run("answer", "t1", *words)
    again = shlex.split(refused.err.strip().splitlines()[-1])
    assert again[:3] == ["adjourn", "answer", "t1"]
    assert booking.run(*again[1:]).code == 0
    booking.ok("chat", "desk:ticket", "-m", "Beijing", "--session", "t2")
    booking.answer("t2", *words)
    (one,), (other,) = (booking.ok("audit", name, "--json").json for name in ("t1", "t2"))
    assert (one["answer"], one["by"]) == (other["answer"], other["by"])


def test_the_command_that_an_approval_needs_counts_for_the_same_checkpoint(booking: Shell):  # rules I13, R1
    seen = booking.ok("pending", "t1", "--json").json[0]["checkpoint_id"]
    refused = booking.run("answer", "t1", "yes", "--checkpoint", seen, "--message", "Thank you.")
    assert refused.err.strip().endswith(f"yes --message 'Thank you.' --checkpoint {seen}")


def test_without_a_token_the_question_is_shown_and_confirmed(booking: Shell):  # rule I13
    for word, told in (("n", "It stays open."), ("y", "Recorded: true")):
        with booking.terminal("answer", "t1", "yes") as terminal:
            terminal.wait_for('location: "Beijing"')
            terminal.answer("[n]o ?", "perhaps")
            terminal.wait_for("Type y or n, then Enter.")
            terminal.answer("[n]o ?", word)
            terminal.wait_for(told)
            assert terminal.end() == 0
    assert answers(booking, "t1") == [True]


def test_a_token_of_what_was_asked_before_is_stale(asked: Shell):  # rule I13
    shown = asked.shown("s1")
    asked.answer("s1", "no")
    asked.ok("resume", "desk:review", "s1")
    done = asked.run("answer", "s1", "yes", *shown, "--json")
    assert (done.code, done.error["code"]) == (1, "already_resumed")
    forged = asked.run("answer", "s1", "yes", "--question", f"{shown[1][:-32]}{'0' * 32}", "--json")
    assert (forged.code, forged.error["code"]) == (1, "stale_checkpoint")


@pytest.mark.parametrize("odd", ["{}#", "{}#0", "{}#abc", "{}##2", "{}#²", "{}#99999999999999999999", "#2", "{}~00"])
def test_an_odd_name_of_a_question_is_unknown(asked: Shell, odd: str):  # rules I3, R1
    (question,) = asked.ok("pending", "--json").json
    done = asked.run("answer", "s1", "yes", "--question", odd.format(question["id"]))
    assert done.code == 1
    assert "has no open question" in done.err
    assert "Traceback" not in done.err


# Single arguments


def test_single_arguments_are_set(booking: Shell):
    done = booking.answer("t1", "--set", "seats=3", "--set", "passenger_name=007")
    arguments = {"location": "Beijing", "passenger_name": "007", "seats": 3}
    assert '"seats": 3' in done.out
    assert answers(booking, "t1") == [{"decision": "edit", "arguments": arguments}]


def test_an_argument_that_the_tool_does_not_take_is_refused(booking: Shell):
    done = booking.run("answer", "t1", "--set", "colour=red", *booking.shown("t1"), "--json")
    assert (done.code, done.error["code"]) == (1, "invalid_answer")
    assert booking.run("answer", "t1", "--set", "seats", *booking.shown("t1")).code == 2
    assert answers(booking, "t1") == [None]


def test_only_tool_calls_have_arguments(asked: Shell):
    done = asked.run("answer", "s1", "--set", "a=1", *asked.shown("s1"))
    assert done.code == 2
    assert "--data" in done.err


# Words in any order


@pytest.mark.parametrize("order", ["session question answer", "question session answer", "session answer question"])
def test_options_stand_anywhere(booking: Shell, order: str):
    words = {"session": ("t1",), "answer": ("no",), "question": booking.shown("t1")}
    booking.ok("answer", *(word for part in order.split() for word in words[part]))
    assert answers(booking, "t1") == [False]


def test_a_text_that_looks_like_an_option_comes_after_two_dashes(shell: Shell):
    shell.ok("chat", "desk:trip", "-m", "Bern", "--session", "s1")
    shell.ok("answer", "s1", "--question", "name", "--", "-v")
    assert answers(shell, "s1") == ["-v"]


def test_nobody_approves_a_request_of_their_own(shell: Shell):  # rule V19
    say = ("-m", "Book a ticket for Martin to Bern", "--value", "user=Ann", "--user", "ann", "--session", "s1")
    shell.ok("chat", "desk:strict", *say)
    refused = shell.run("answer", "s1", "yes", "--by", "ann", *shell.shown("s1"))
    assert refused.code == 1
    assert "somebody else than those who ask for it must approve it" in refused.err
    shell.ok("answer", "s1", "--set", "location=Oslo", "--by", "bob", *shell.shown("s1"))
    shell.ok("resume", "desk:agent", "s1")
    assert shell.run("answer", "s1", "yes", "--by", "bob", *shell.shown("s1")).code == 1
    shell.ok("answer", "s1", "yes", "--by", "cleo", *shell.shown("s1"))
    shell.ok("resume", "desk:agent", "s1")
    assert shell.ledger == ["booked Oslo for Martin"]
