"""`adjourn worker`: one process asks, another answers, and a third goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from tests.cli.shell import Shell
from tests.servers import Redis, free_port


@contextmanager
def worker(shell: Shell, *words: str) -> Generator[subprocess.Popen[str]]:
    """A worker that has begun, and is gone when the test leaves."""
    process = shell.start("worker", *words, "--poll", "0.05")
    try:
        assert process.stdout
        while "Ctrl-C stops it" not in (line := process.stdout.readline()):
            assert line, process.communicate()
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def read_until(process: subprocess.Popen[str], text: str) -> str:
    assert process.stdout
    while text not in (line := process.stdout.readline()):
        assert line, f"it ended before {text!r} came"
    return line


def stopped(process: subprocess.Popen[str], how: signal.Signals = signal.SIGTERM) -> str:
    """Stop it, and return what it printed last."""
    os.kill(process.pid, how)
    out, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    return out


def test_a_session_goes_on_when_it_was_answered(shell: Shell):  # rules R3, R4
    shell.ok("chat", "desk:ticket", "-m", "Bern", "--session", "s1")
    with worker(shell, "desk:ticket", "desk:trip") as process:
        shell.answer("s1", "yes", "--by", "ann")
        assert "(answered)" in read_until(process, "s1: taken up")
        read_until(process, "s1: done after")
        assert "Stopped. Sessions: 1 done." in stopped(process)
    assert shell.ledger == ["booked Bern"]
    assert "done" in shell.ok("show", "s1").out


def test_an_edit_is_shown_anew_where_nobody_decides_alone(shell: Shell):  # rule V19
    say = ("-m", "Book a ticket for Martin to Bern", "--value", "user=Ann", "--session", "s1")
    shell.ok("chat", "desk:agent", *say)
    shell.answer("s1", "--set", "location=Oslo", "--by", "bob")
    with worker(shell, "desk:agent", "--no-self-approval") as process:
        read_until(process, "s1: waiting after")
    (asked,) = shell.ok("pending", "s1", "--json").json
    assert (asked["info"]["arguments"]["location"], asked["requesters"], shell.ledger) == ("Oslo", ["bob"], [])


@pytest.fixture
def shipping(shell: Shell) -> Shell:
    """A session that was answered, and has two things to do."""
    shell.ok("chat", "desk:ships", "-m", "piano", "--session", "s1")
    shell.answer("s1", "yes")
    return shell


def until_loading(shell: Shell, times: int = 1) -> None:
    while sum("loading" in line for line in shell.ledger) < times:
        time.sleep(0.01)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_what_it_cannot_finish_in_time_others_take_up_at_once(shipping: Shell, how: signal.Signals):  # failures 25
    with worker(shipping, "desk:ships", "--grace", "0.01") as first:
        until_loading(shipping)
        assert "Stopped. Sessions: 1 handed over." in stopped(first, how)
    assert "queued" in shipping.ok("show", "s1").out
    with worker(shipping, "desk:ships") as second:
        assert "(nobody runs it)" in read_until(second, "s1: taken up")
        until_loading(shipping, times=2)
        (shipping.folder / "go").touch()
        read_until(second, "s1: done after")
        stopped(second)
    packed, begun, again, loaded = shipping.ledger
    assert (packed, loaded) == ("packed piano", "loaded piano")
    assert begun == again  # with the same idempotency key


def test_a_step_that_ends_within_the_grace_is_kept(shipping: Shell):  # failures 25
    with worker(shipping, "desk:ships") as first:
        until_loading(shipping)
        os.kill(first.pid, signal.SIGTERM)
        read_until(first, "stopping (sessions running: 1")
        (shipping.folder / "go").touch()
        out, _ = first.communicate()
    assert first.returncode == 0
    assert "Stopped. Sessions: 1" in out
    assert [line for line in shipping.ledger if line.startswith("loaded")] == ["loaded piano"]


def test_a_second_signal_stops_it_at_once(shipping: Shell):
    with worker(shipping, "desk:ships", "--grace", "3600") as first:
        until_loading(shipping)
        os.kill(first.pid, signal.SIGTERM)
        read_until(first, "stopping (sessions running: 1")
        assert "1 handed over" in stopped(first)


@pytest.mark.long
def test_code_that_does_not_stop_does_not_keep_it(shell: Shell):  # failures 25
    programs = [f"desk:{name}" for name in ("deaf", "threaded")]
    for program in programs:
        shell.ok("chat", program, "-m", "piano", "--session", program)
        shell.answer(program, "yes")
    with worker(shell, *programs, "--grace", "0.01") as first:
        while shell.ledger.count("it has begun") < 2:
            time.sleep(0.01)
        assert "Sessions: 2 handed over." in stopped(first)
    with worker(shell, *programs, "--grace", "0.01") as second:
        taken = [read_until(second, ": taken up") for _ in programs]
        assert [program in "".join(taken) for program in programs] == [True, True]


def test_what_a_killed_worker_of_this_machine_ran_goes_on_at_once(shipping: Shell):  # rules C6, C8
    with worker(shipping, "desk:ships") as first:
        until_loading(shipping)
        first.kill()
        first.wait()
    with worker(shipping, "desk:ships") as second:
        read_until(second, "s1: taken up")
        until_loading(shipping, times=2)
        (shipping.folder / "go").touch()
        read_until(second, "s1: done after")
        stopped(second)
    packed, begun, again, loaded = shipping.ledger
    assert (packed, loaded) == ("packed piano", "loaded piano")
    assert begun == again


def test_it_shows_only_what_went_wrong_if_it_is_to_be_quiet(shell: Shell):
    shell.ok("chat", "desk:ticket", "-m", "Bern", "--session", "s1")
    shell.answer("s1", "yes")
    process = shell.start("worker", "desk:ticket", "--quiet")
    while not shell.ledger:
        time.sleep(0.01)
    assert stopped(process) == ""


def test_it_works_on_when_nobody_reads_what_it_prints(shipping: Shell):
    with worker(shipping, "desk:ships", "--grace", "0.01") as process:
        assert process.stdout
        process.stdout.close()
        until_loading(shipping)
        os.kill(process.pid, signal.SIGTERM)
        process.wait()
    assert "queued" in shipping.ok("show", "s1").out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["desk:nothing"], "has no 'nothing'"),
        (["nowhere:ticket"], "There is no module 'nowhere'"),
        (["agents/"], "There is no folder 'agents/'. Name a folder of YAML agents, or MODULE:ATTRIBUTE."),
        (["desk.py"], "'desk.py' is a file. Name the folder that it is in"),
        (["desk:ticket", "--store", "memory://"], "in the memory of this process"),
        (["desk:ticket", "--store", "nowhere"], "not the URL of a store"),
        (["desk:ticket", "--concurrency", "0"], "concurrency=0"),
        (["desk:ticket", "--poll", "0"], "poll=0"),
    ],
)
def test_what_it_cannot_work_with_is_explained(shell: Shell, words: list[str], told: str):
    done = shell.run("worker", *words)
    assert done.code == 2
    assert told in done.err


def test_a_store_that_refuses_is_told_before_anything_is_served(shell: Shell):
    with Redis(appendfsync=None) as server:
        done = shell.run("worker", "desk:ticket", "--store", server.url)
    assert (done.code, done.out) == (2, "")
    assert "can lose checkpoints" in done.err


def test_a_store_that_is_away_is_waited_for(shell: Shell):
    with worker(shell, "desk:ticket", "--store", f"redis://127.0.0.1:{free_port()}/0") as process:
        read_until(process, "is away")
        assert "Stopped." in stopped(process)


def test_it_needs_a_store(shell: Shell):
    done = shell.run("worker", "desk:ticket", ADJOURN_STORE="")
    assert done.code == 2
    assert "Which store?" in done.err


AGENT = """
apiVersion: adjourn/v1
kind: Agent
metadata: {name: NAME}
spec: {type: chat_model_agent, model: "demo:tickets", instruction: "Greet."}
"""


def test_all_agents_of_a_folder_are_served(shell: Shell):
    folder = shell.folder / "agents"
    folder.mkdir()
    empty = shell.run("worker", "agents/")
    assert (empty.code, "there are no files that end in .yaml" in empty.err) == (2, True)
    (folder / "both.yaml").write_text("---".join(AGENT.replace("NAME", name) for name in ("anna", "bert")))
    process = shell.start("worker", "agents/", "desk:trip")
    assert process.stdout
    lines = [read_until(process, "Serving ") for _ in range(3)]
    read_until(process, "Ctrl-C stops it")
    assert [line.split()[1] for line in lines] == ["agent:anna", "agent:bert", "runnable:trip"]
    stopped(process)
    unkept = shell.run("worker", "agents/", ADJOURN_STORE="memory://")
    assert "agents/:anna is on a store in the memory of this process" in unkept.err
    assert unkept.code == 2
