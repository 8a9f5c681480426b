"""Commands that ask a server in place of a store."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from adjourn.server import App, Tokens
from tests.cli.shell import Shell
from tests.client.cutting import Proxy
from tests.server.agents import GATES, booker, counter, refunds
from tests.server.serving import Serving


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    with Serving(App([booker(), counter(), refunds()])) as serving:
        yield serving


@pytest.fixture
def at(server: Serving) -> tuple[str, str]:
    return ("--server", f"http://127.0.0.1:{server.server.port}")


def test_a_conversation_with_its_question(shell: Shell, at: tuple[str, str]):
    with shell.terminal("chat", "booker", *at, "--session", "talk", "--by", "ann") as terminal:
        terminal.wait_for("booker  session talk")
        terminal.answer("› ", "book Rome")
        terminal.wait_for("asks for your approval")
        terminal.answer("[l]ater ?", "a")
        terminal.wait_for("Result: booked: Rome")
        terminal.answer("› ", "hello")
        terminal.wait_for("You said: hello")
        terminal.answer("› ", "name")
        terminal.answer("Your answer, or /later:", "/later")
        assert terminal.end() == 0
        assert f"adjourn resume talk {' '.join(at)}" in terminal.text.replace("\r\n", "\n")
    with shell.terminal("resume", "talk", *at, "--by", "bob") as terminal:
        terminal.answer("Your answer, or /later:", "Ada")
        terminal.wait_for("Result: Ada")
        assert terminal.end() == 0
    assert shell.ok("pending", "talk", *at, "--json").json == []


def test_ctrl_c_stops_the_answer_and_not_the_chat(shell: Shell, at: tuple[str, str]):  # rule A12
    with shell.terminal("chat", "counter", *at, "--session", "stopped") as terminal:
        terminal.answer("› ", "count ctrl-c")
        terminal.wait_for("three")
        terminal.process.send_signal(signal.SIGINT)
        terminal.wait_for("Stopped.")
        terminal.wait_for("/continue")
        GATES.open("ctrl-c")
        terminal.answer("› ", "/continue")
        terminal.wait_for("four five")
        terminal.answer("› ", "/quit")
        assert terminal.end() == 0
        assert f"adjourn chat --session stopped {' '.join(at)}" in terminal.text


def test_a_lost_connection_is_said_and_the_answer_goes_on(shell: Shell, server: Serving):
    with Proxy(server.server.port) as proxy, shell.terminal("chat", "counter", "--server", proxy.url) as terminal:
        terminal.answer("› ", "count lost-here")
        terminal.wait_for("three")
        proxy.cut()
        terminal.wait_for("The connection was lost")
        GATES.open("lost-here")
        terminal.wait_for("five")
        terminal.answer("› ", "/quit")
        assert terminal.end() == 0


def test_questions_are_listed_as_those_of_a_store(shell: Shell, at: tuple[str, str]):
    shell.ok("chat", "booker", *at, "-m", "book Rome", "--session", "q1")
    local = Shell(shell.folder)
    local.ok("chat", "desk:ticket", "-m", "Bern", "--session", "c1")
    (asked,) = shell.ok("pending", "q1", *at, "--json").json
    assert asked.keys() == local.ok("pending", "c1", "--json").json[0].keys()
    assert (asked["info"]["arguments"], asked["reason"]) == ({"place": "Rome"}, "need_approval")
    listed = shell.ok("pending", *at, "--agent", "booker", "--reason", "need_approval")
    assert "booker › book_ticket" in listed.out
    assert int(shell.ok("pending", *at, "--count").out) >= 1
    shown = shell.ok("pending", "q1", *at)
    assert f"adjourn answer q1 --question TOKEN ANSWER {' '.join(at)}" in shown.err
    answered = shell.ok("answer", "q1", "yes", "--question", asked["token"], *at, "--by", "ann")
    assert "The server picks it up now." in answered.out
    refused = shell.run("answer", "q1", "yes", "--question", asked["token"], *at)
    assert refused.code == 1
    assert "ann" in refused.err


def test_a_message_can_be_sent_and_its_events_read_as_json(shell: Shell, at: tuple[str, str]):
    lines = shell.ok("chat", "booker", *at, "-m", "hello", "--json").lines
    assert [lines[0]["type"], lines[-1]["type"], lines[-1]["output"]] == ["session", "done", "You said: hello"]
    lines = shell.ok("chat", "refunds", *at, "-m", '{"cents": 5}', "--json").lines
    assert lines[-1]["type"] == "interrupt"


def test_a_session_is_cancelled_and_recovered(shell: Shell, at: tuple[str, str], server: Serving):
    with shell.terminal("chat", "counter", *at, "--session", "cut", "-m", "count cut-here") as terminal:
        terminal.wait_for("three")
        assert "is cancelled" in shell.ok("cancel", "cut", *at).out
        assert terminal.end() == 0
    assert "There is nothing to stop" in shell.run("cancel", "cut", *at).out
    GATES.open("cut-here")
    assert "four five" in shell.ok("recover", "cut", *at).out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["chat", "nobody", "-m", "x"], 2, "There is no agent 'nobody'"),
        (["chat", "bokker", "-m", "x"], 2, "booker"),
        (["chat", "-m", "x"], 2, "Which agent? "),
        (["pending", "nowhere"], 1, "There is no session 'nowhere' on http://127.0.0.1:"),
        (["resume", "nowhere"], 1, "There is no session 'nowhere' on http://127.0.0.1:"),
        (["pending", "--store", "sqlite:///x.db"], 2, "--store does not go with --server"),
        (["pending", "--user", "ann"], 2, "--user does not go with --server"),
        (["pending", "--all-apps"], 2, "--all-apps go with a store"),
    ],
)
def test_mistakes_are_one_line(shell: Shell, at: tuple[str, str], words: list[str], code: int, said: str):
    done = shell.run(*words, *at)
    assert done.code == code
    assert said in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_what_cannot_begin_says_which_command_does(shell: Shell, at: tuple[str, str]):
    at_server = " ".join(at)
    shell.ok("chat", "booker", *at, "-m", "book Rome", "--session", "waits")
    shell.run("chat", "booker", *at, "-m", "fail", "--session", "failed")
    with shell.terminal("chat", "counter", *at, "--session", "runs", "-m", "count runs-now") as terminal:
        terminal.wait_for("three")
        for session, said in (
            ("waits", f"Session 'waits' waits for answers. `adjourn pending waits {at_server}` lists its questions"),
            ("failed", f"has not ended (failed). Finish it with `adjourn recover failed {at_server}`."),
            ("runs", f"Session 'runs' is running. Wait for it, or stop it with `adjourn cancel runs {at_server}`."),
        ):
            agent = "counter" if session == "runs" else "booker"
            refused = shell.run("chat", agent, *at, "-m", "hello", "--session", session)
            assert (refused.code, said in refused.err) == (1, True), refused.err
        GATES.open("runs-now")
        assert terminal.end() == 0
    wrong = shell.run("answer", "waits", "7", *at, *shell.shown("waits", *at))
    assert "does not fit: it takes yes or no" in wrong.err
    assert len(shell.ok("pending", "waits", *at, "--json").json) == 1


def test_of_two_questions_the_other_is_left(shell: Shell, at: tuple[str, str]):
    shell.ok("chat", "booker", *at, "-m", "two", "--session", "both")
    first, second = shell.ok("pending", "both", *at, "--json").json
    done = shell.ok("answer", "both", "yes", *at, "--question", first["token"])
    assert f"Still open: {second['id']}" in done.out
    assert "A worker" not in done.out
    done = shell.ok("answer", "both", "no", *at, "--question", second["token"])
    assert "The server picks it up now." in done.out


def test_no_server_or_no_address_is_one_line(shell: Shell):
    for address, code, said in (("http://127.0.0.1:1", 1, "cannot be reached"), ("localhost", 2, "not the URL")):
        for words in (["pending"], ["chat", "booker", "-m", "x"]):
            done = shell.run(*words, "--server", address)
            assert (done.code, said in done.err) == (code, True)
    assert "--token goes with --server" in shell.run("pending", "--token", "x").err
    assert "Which program?" in shell.run("chat", "-m", "x").err


def test_commands_without_a_route_say_so(shell: Shell, at: tuple[str, str]):
    for words in (("prune", "--all", "--keep", "1"), ("approvals", "ann"), ("keys",), ("repair",)):
        done = shell.run(*words, *at)
        said = f"--server: the API of a server has no route for `adjourn {words[0]}`. Give --store URL."
        assert (done.code, said in done.err) == (2, True), done.err
    for option in ("--verify", "--all-branches"):
        done = shell.run("audit", "any", option, *at)
        assert (done.code, f"{option}: the API of a server has no route for it." in done.err) == (2, True)


def test_sessions_are_listed_and_shown(shell: Shell, at: tuple[str, str]):
    shell.ok("chat", "booker", *at, "-m", "book Rome", "--session", "look")
    shell.run("chat", "booker", *at, "-m", "fail", "--session", "fell")
    listed = {each["session_id"]: each for each in shell.ok("sessions", *at, "--json").json}
    assert (listed["look"]["status"], listed["look"]["questions"], listed["look"]["agent"]) == ("waiting", 1, "booker")
    table = shell.ok("sessions", *at, "--status", "failed", "--limit", "1000")
    assert [row.split()[1] for row in table.out.splitlines()[1:]] == ["failed"] * (len(table.out.splitlines()) - 1)
    assert "\nfell " in table.out
    assert len(shell.ok("sessions", *at, "--limit", "1", "--json").json) == 1

    shown = shell.ok("show", "look", *at)
    for text in ("look is waiting", "program booker", "user  book Rome", "asks for your approval"):
        assert text in shown.out
    assert "adjourn answer look --question" in shown.err
    failed = shell.ok("show", "fell", *at, "--events")
    assert "error   RuntimeError: The agent failed." in failed.out
    assert f"adjourn recover fell {' '.join(at)}" in failed.err
    assert shell.ok("show", "look", *at, "--json").json["messages"][0]["content"] == "book Rome"
    assert shell.ok("show", "fell", *at, "--events", "--json").json["events"][-1]["type"] == "error"

    first, last = shell.ok("tree", "look", *at, "--json").json
    assert (first["source"], last["is_head"]) == ("input", True)
    assert "← head" in shell.ok("tree", "look", *at).out
    old = shell.ok("show", "look", *at, "--checkpoint", first["id"])
    assert ("user  book Rome" in old.out, "asks for your approval" in old.out) == (True, False)
    assert "book_ticket (c1) is open" in shell.ok("audit", "look", *at).out
    assert shell.ok("audit", "look", *at, "--json").json[0]["how"] is None


def test_events_of_a_session_that_runs_are_followed_elsewhere(shell: Shell, at: tuple[str, str]):
    with shell.terminal("chat", "counter", *at, "--session", "busy", "-m", "count busy-here") as terminal:
        terminal.wait_for("three")
        assert "busy is running" in shell.ok("show", "busy", *at).out
        refused = shell.run("show", "busy", "--events", *at)
        assert (refused.code, f"`adjourn recover busy {' '.join(at)}` follows it" in refused.err) == (2, True)
        GATES.open("busy-here")
        assert terminal.end() == 0


def test_a_session_is_forked_edited_and_deleted(shell: Shell, at: tuple[str, str]):
    shell.ok("chat", "refunds", *at, "-m", '{"cents": 5}', "--session", "pay")
    forked = shell.ok("fork", "pay", "--to", "copy", *at)
    assert f"adjourn resume copy {' '.join(at)}" in forked.out
    edited = shell.ok("edit", "copy", "cents:=7", *at, "--json").json
    assert (edited["session_id"], edited["next"]) == ("copy", ["pay"])
    assert f"adjourn recover copy {' '.join(at)}" in shell.ok("edit", "copy", "cents:=8", *at).err
    assert shell.ok("show", "copy", *at, "--json").json["state"] == {"cents": 8}
    assert shell.ok("show", "pay", *at, "--json").json["state"] == {"cents": 5}
    refused = shell.run("edit", "copy", "cents:=9", "--by", "zed", *at)
    assert (refused.code, "the server knows who edits" in refused.err) == (2, True)
    named = shell.run("edit", "refunds", "copy", "cents:=9", *at)
    assert (named.code, "'copy': write NAME=VALUE" in named.err) == (2, True)
    assert shell.ok("delete", "copy", "--yes", *at, "--json").json == {"session_id": "copy", "deleted": True}
    assert shell.run("show", "copy", *at).code == 1


def test_a_token_is_needed_where_there_are_tokens(shell: Shell, tmp_path: Path):  # rule V7
    tokens = Tokens(tmp_path / "tokens.json")
    _, secret = tokens.create("ann")
    with Serving(App([booker()], tokens=tokens)) as server:
        at = ("--server", f"http://127.0.0.1:{server.server.port}")
        for words in (["pending"], ["chat", "-m", "hello"]):
            refused = shell.run(*words, *at)
            assert refused.code == 1
            assert "no token that is known" in refused.err
            assert "Give one as $ADJOURN_TOKEN, or with --token" in refused.err
            assert shell.ok(*words, *at, "--token", secret).code == 0
            assert shell.ok(*words, *at, ADJOURN_TOKEN=secret).code == 0
        shell.ok("chat", *at, "-m", "book Rome", "--session", "mine", "--token", secret)
        shown = shell.ok("pending", "mine", *at, "--token", secret)
        assert secret not in shown.out + shown.err
        named = shell.shown("mine", *at, "--token", secret)
        answered = shell.ok("answer", "mine", "yes", *named, *at, "--token", secret, "--by", "zed")
        assert "✔ Recorded: true, by ann." in answered.out, "it is the name of the token that counts"


def test_all_that_failed_on_a_server_go_on(shell: Shell):
    with Serving(App([booker(), counter()])) as server:
        at = ("--server", f"http://127.0.0.1:{server.server.port}")
        for session in ("f1", "f2"):
            shell.run("chat", "booker", *at, "-m", "fail", "--session", session)
        assert "No session has failed." in shell.ok("recover", "--all-failed", "--agent", "counter", *at).err
        done = shell.run("recover", "--all-failed", *at)
        assert (done.code, done.out.count("Session f")) == (1, 2)
        assert f"adjourn recover f1 {' '.join(at)}" in done.err
