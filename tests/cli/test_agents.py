"""The command line with an agent that asks before it acts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.shell import Shell

WISH = "Book a ticket for Martin to Beijing"
ARGUMENTS = {"location": "Beijing", "passenger_name": "Martin", "phone": "not given"}
ID = "agent:TicketBooker;tool:book_ticket:call_1"


def said(session: str) -> tuple[str, ...]:
    return ("chat", "desk:agent", "-m", WISH, "--session", session, "--value", "user=Martin")


def say(shell: Shell, session: str) -> str:
    return shell.ok(*said(session)).out


def messages(shell: Shell, session: str) -> list[Any]:
    return shell.ok("show", session, "--json").json["messages"]


def test_three_processes_end_as_one_uninterrupted(shell: Shell):  # rule R4, R7, I12
    shell.run_process(*said("one"))
    shell.run_process("answer", "one", "yes", "--by", "ann", *shell.shown("one"))
    shell.run_process("resume", "desk:agent", "one")
    with shell.terminal(*said("twin")) as terminal:
        terminal.answer("[l]ater ?", "a")
        terminal.wait_for("The ticket to Beijing for Martin is booked.")
        assert terminal.end() == 0
    assert messages(shell, "one") == messages(shell, "twin")
    assert shell.ledger == ["booked Beijing for Martin"] * 2


def test_the_question_is_shown_without_the_code(shell: Shell):  # rule I12, attack 6
    out = say(shell, "s1")
    assert out.count("I will book a ticket to Beijing.") == 1
    (shell.folder / "desk.py").unlink()
    (question,) = shell.ok("pending", "--json").json
    assert question["id"] == ID
    assert (question["info"]["tool"], question["info"]["arguments"]) == ("book_ticket", ARGUMENTS)
    shown = shell.ok("pending", "s1").out
    assert "TicketBooker › book_ticket (call_1) asks for your approval" in shown
    assert 'passenger_name: "Martin"' in shown
    bad = shell.run("answer", "s1", "--edit", '{"location": "Rome"}', *shell.shown("s1"))
    assert (bad.code, "lacks 'passenger_name'" in bad.err) == (1, True)
    assert shell.answer("s1", "--approve", "--json").json["answer"] == {"decision": "approve"}


@pytest.mark.parametrize(
    ("words", "ledger", "said"),
    [
        (("--refuse", "too far"), [], "too far"),
        (("--respond", "The train is full."), [], "The train is full."),
        (
            ("--edit", '{"location": "Rome", "passenger_name": "Ada", "phone": "12"}'),
            ["booked Rome for Ada"],
            "The ticket to Rome for Ada is booked",
        ),
    ],
)
def test_every_decision_reaches_the_agent(
    shell: Shell, words: tuple[str, ...], ledger: list[str], said: str
):  # rule T4
    say(shell, "s1")
    shell.answer("s1", *words)
    assert said in shell.ok("resume", "desk:agent", "s1").out
    assert shell.ledger == ledger


def test_the_audit_has_the_arguments_that_ran(shell: Shell):  # rule K6
    say(shell, "s1")
    edited = '{"location": "Rome", "passenger_name": "Ada", "phone": "12"}'
    shell.answer("s1", "--edit", edited, "--by", "ann")
    shell.ok("resume", "desk:agent", "s1")
    (line,) = shell.ok("audit", "s1", "--json").json
    assert line["info"]["arguments"] == ARGUMENTS
    assert line["answer"]["arguments"]["location"] == "Rome"
    assert line["by"] == "ann"


def test_a_conversation_streams_asks_and_goes_on(shell: Shell):
    with shell.terminal("chat", "desk:agent", "--session", "s1", "--value", "user=Martin") as terminal:
        terminal.answer("› ", "Hello")
        terminal.wait_for("Where would you like to go?")
        terminal.answer("› ", "to Rome")
        terminal.wait_for("Who is travelling?")
        terminal.answer("› ", "Ada")
        terminal.wait_for("⏸ TicketBooker › book_ticket (call_1) asks for your approval")
        terminal.answer("[l]ater ?", "e")
        terminal.answer("location [Rome]:", "Oslo")
        terminal.answer("passenger_name [Ada]:", "")
        terminal.answer("phone [not given]:", "007")
        terminal.answer("Run it with these?", "y")
        terminal.wait_for('phone: "007"')
        terminal.wait_for("The ticket to Oslo for Ada is booked.")
        terminal.answer("› ", "Book a ticket for Bob to Bern")
        terminal.answer("[l]ater ?", "r")
        terminal.answer("Why?", "no budget")
        terminal.wait_for("no budget")
        terminal.answer("› ", "/quit")
        assert terminal.end() == 0
        assert terminal.text.count("Where would you like to go?") == 1
    assert shell.ledger == ["booked Oslo for Ada"]
    assert [message["role"] for message in messages(shell, "s1")].count("user") == 4


def test_a_fork_of_an_agent_is_answered_by_itself(shell: Shell):  # rule C4
    say(shell, "s1")
    shell.ok("fork", "s1", "--to", "s2")
    shell.answer("s1", "yes")
    shell.answer("s2", "--refuse", "not this one")
    shell.ok("resume", "desk:agent", "s1")
    assert "not this one" in shell.ok("resume", "desk:agent", "s2").out
    assert shell.ledger == ["booked Beijing for Martin"]


def test_a_missing_session_value_is_told_and_nothing_is_lost(shell: Shell):  # rule A10
    done = shell.run("chat", "desk:agent", "-m", WISH, "--session", "s1")
    assert done.code == 1
    assert "user" in done.out + done.err


def test_something_is_said_together_with_the_decision(shell: Shell):
    say(shell, "s1")
    shell.answer("s1", "--set", "location=Rome", "--message", "Rome is cheaper")
    shell.ok("resume", "desk:agent", "s1")
    messages = shell.ok("show", "s1", "--json").json["messages"]
    assert [each["role"] for each in messages][-3:] == ["tool", "user", "assistant"]
    assert "Rome is cheaper" in str(messages[-2])
    assert shell.ledger == ["booked Rome for Martin"]


def test_there_must_be_a_model_to_read_what_is_said(shell: Shell):
    shell.ok("chat", "desk:trip", "-m", "Bern", "--session", "s2")
    done = shell.run("answer", "s2", "Ada", "--message", "hello")
    assert done.code != 0
    assert "message" in done.err
