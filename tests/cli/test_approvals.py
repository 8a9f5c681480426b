"""`adjourn approvals`."""

from __future__ import annotations

from tests.cli.shell import Shell

SAY = ("chat", "desk:agent", "-m", "Book a ticket for Martin to Bern", "--value", "user=Ann", "--user", "ann")


def test_what_is_approved_for_always_is_listed_and_revoked(shell: Shell):  # rule A9
    shell.ok(*SAY, "--session", "s1")
    shown = shell.shown("s1", "--user", "ann")
    shell.ok("answer", "s1", "--approve", "--remember", "always", "--by", "bob", "--user", "ann", *shown)
    shell.ok("resume", "desk:agent", "s1", "--user", "ann")
    listed = shell.ok("approvals", "ann")
    assert listed.out == "✔ TicketBooker may call book_ticket\n  by      bob\n"
    assert "Revoke with: adjourn approvals ann --revoke --tool book_ticket" in listed.err
    (kept,) = shell.ok("approvals", "ann", "--json", "--agent", "TicketBooker").json
    assert (kept["agent"], kept["tool"], kept["by"]) == ("TicketBooker", "book_ticket", "bob")
    assert shell.ok("approvals", "ann", "--tool", "other", "--json").json == []

    shell.ok(*SAY, "--session", "s2")
    assert len(shell.ledger) == 2

    assert shell.ok("approvals", "ann", "--revoke", "--tool", "book_ticket").out.startswith("Revoked 1.")
    assert "asks for your approval" in shell.ok(*SAY, "--session", "s3").out
    assert shell.run("approvals", "ann", "--revoke", "--all").code == 1
    assert "Nothing is approved" in shell.ok("approvals", "ann").out


def test_revoking_says_what(shell: Shell):
    shell.ok("chat", "desk:deps", "-m", "hello")
    done = shell.run("approvals", "ann", "--revoke")
    assert done.code == 2
    assert "--all" in done.err
