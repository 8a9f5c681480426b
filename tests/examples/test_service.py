"""examples/service, which `make serve` starts: the lines that it prints run as they are."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from adjourn import ApprovalSpent, Runner, RunResult
from adjourn.spec import Loaded, load
from tests.server.serving import PATIENCE
from tests.servers import free_port, postgres
from tests.test_docs import ROOT, blocks_of

FOLDER = ROOT / "examples" / "service"
CURL = shutil.which("curl")
needs_curl = pytest.mark.skipif(CURL is None, reason="curl is not installed")
ASKED = {
    "ticket-booker": ["Who is travelling?", "May ticket-booker call book_ticket with"],
    "refund-desk": ["Manager: refund this order?"],
    "research": ["Publish this report?", "Publish this report?"],
}
SAID = {
    "ticket-booker": "Booked: Ann to Rome",
    "refund-desk": "250.00 EUR for B-42 are on their way",
    "research": "Published. Report. The encyclopedia has two facts about: Night trains. A paper of 2024 has two",
}


class Served:
    """A process of examples/service/serve.py that listens, and what it has printed."""

    def __init__(self, process: subprocess.Popen[str], port: int, printed: list[str]) -> None:
        self.process = process
        self.port = port
        self.printed = printed

    @property
    def lines(self) -> list[str]:
        """What it says to type."""
        return [line for line in self.printed if line.startswith("curl ")]


@contextlib.contextmanager
def served(folder: Path, *options: str) -> Generator[Served]:
    with contextlib.ExitStack() as stack:
        for _ in range(5):
            port = free_port()
            process = stack.enter_context(_started(folder, "--port", str(port), *options))
            printed = list(_until_it_listens(process))
            if printed and printed[-1].startswith("Listening"):
                yield Served(process, port, printed)
                process.terminate()
                errors = process.communicate(timeout=PATIENCE)[1]
                assert process.returncode == 0
                assert "ERROR" not in errors
                return
            errors = process.communicate(timeout=PATIENCE)[1]
            assert "is taken" in errors, errors  # Somebody else was given the same port.
        raise AssertionError("no port is free")


@contextlib.contextmanager
def _started(folder: Path, *options: str) -> Generator[subprocess.Popen[str]]:
    command = [sys.executable, str(FOLDER / "serve.py"), *options]
    with subprocess.Popen(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _until_it_listens(process: subprocess.Popen[str]) -> Iterator[str]:
    assert process.stdout is not None
    for line in process.stdout:
        yield line.rstrip("\n")
        if line.startswith("Listening"):
            return


def typed(line: str) -> str:
    """What a line prints, typed at a terminal."""
    done = subprocess.run(["sh", "-c", line], check=True, capture_output=True, text=True, timeout=2 * PATIENCE)
    return done.stdout


def events(stream: str) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix("data: ")) for line in stream.splitlines() if line.startswith("data: ")]


def run_talks(lines: list[str]) -> None:
    """Type all lines, and check what comes: a chat, then a look and an answer for each question."""
    rest = iter(lines)
    for agent, prompts in ASKED.items():
        stream = events(typed(next(rest)))
        for prompt in prompts:
            last = stream[-1]
            assert last["type"] == "interrupt"
            assert last["prompt"].startswith(prompt)
            assert "done" not in {event["type"] for event in stream}
            (question,) = json.loads(typed(next(rest)))["questions"]
            assert (question["prompt"], question["session_id"]) == (last["prompt"], last["session_id"])
            stream = events(typed(next(rest)))
        assert stream[-1]["type"] == "done"
        assert stream[-1]["output"].startswith(SAID[agent])
    assert not list(rest)


def readme(port: int) -> list[tuple[str, str]]:
    """The `curl` lines of the README, and the beginning of what they print in the end."""
    (block,) = [each.code for each in blocks_of("console", ROOT / "README.md") if "$ curl" in each.code]
    commands = block.replace("\\\n", "").replace("localhost:8000", f"127.0.0.1:{port}").split("$ ")[1:]
    return [(command, expected) for each in commands for command, expected in [each.split("\n", 1)]]


def check_readme(port: int) -> None:
    for command, expected in readme(port):
        last = [line for line in typed(command).splitlines() if line][-1]
        for piece in expected.strip().split("…"):
            assert piece.strip() in last


@needs_curl
def test_the_printed_lines_run_and_what_waits_is_shown_at_the_next_start(tmp_path: Path):  # rules V1, V3
    with served(tmp_path) as server:
        run_talks(server.lines)
        check_readme(server.port)
        agent = next(iter(ASKED))
        typed(server.lines[0].replace(f'"{agent}-', f'"again-{agent}-'))
    with served(tmp_path) as server:
        assert server.printed[0] == "From the last time, these wait:"
        assert "Who is travelling?" in server.printed[2]


@needs_curl
@pytest.mark.proof
@pytest.mark.long
def test_the_printed_lines_run_on_four_processes(tmp_path: Path):  # rule V8
    with served(tmp_path, "--workers", "4", "--store", postgres().fresh()) as server:
        run_talks(server.lines)
        check_readme(server.port)


def test_a_port_that_is_taken_is_named_with_what_to_do(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with _started(tmp_path, "--port", str(port)) as process:
            out, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (1, "")
    assert f"Port {port} is taken by another program." in errors
    assert f"make serve PORT={port + 1}" in errors


@pytest.mark.parametrize(("store", "said"), [("nothing://x", "No store is known"), ("sqlite:///no/x.db", "no/x.db")])
def test_a_store_that_cannot_be_used_is_named_without_a_traceback(tmp_path: Path, store: str, said: str):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with _started(tmp_path, "--port", str(port), "--store", store) as process:
        out, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (1, "")
    assert said in errors
    assert "Traceback" not in errors


# The agents themselves


@pytest.fixture(scope="module")
def agents() -> Loaded:
    return load(FOLDER / "agents").check()


def talk(agents: Loaded, name: str, *words: str) -> tuple[list[str], RunResult]:
    """What was asked, and the last result, when these are said and answered."""
    runner = Runner(agents.agents[name])
    prompts: list[str] = []
    result: RunResult | None = None
    for each in words:
        if result is not None and result.status == "interrupted":
            result = runner.resume_sync("s", {result.interrupts[0].id: each})
        else:
            values = agents.served[name].values if result is None else None
            result = runner.run_sync(each, session_id="s", values=values)
        prompts += [str(asked.prompt) for asked in result.interrupts]
    assert result is not None
    return prompts, result


def test_small_refunds_need_nobody_and_large_ones_can_be_refused(agents: Loaded):
    prompts, result = talk(agents, "refund-desk", "Refund B-42", "refuse", "Then order A-17")
    assert prompts == ["Manager: refund this order?"]
    assert result.output.startswith("40.00 EUR for A-17")


def test_one_yes_of_the_manager_pays_once(agents: Loaded):  # rule R19
    runner = Runner(agents.agents["refund-desk"], store="memory://")
    paused = runner.run_sync("Refund B-42", session_id="s", values=agents.served["refund-desk"].values)
    assert runner.resume_sync("s", {paused.interrupts[0]: "refund"}).status == "done"
    point = next(each for each in runner.history_sync("s") if each.next == ("pay",))
    for _ in range(3):
        with pytest.raises(ApprovalSpent) as refused:
            runner.fork_sync("s", checkpoint_id=point.id)
        assert (refused.value.asked_at, refused.value.pending) == (paused.checkpoint_id, ("manager",))
    with pytest.raises(ApprovalSpent):
        runner.run_sync(None, session_id="s", checkpoint_id=point.id)
    assert runner.recover_sync(runner.fork_sync("s", checkpoint_id=paused.checkpoint_id)).status == "interrupted"


def test_the_refund_desk_asks_until_it_knows_the_order(agents: Loaded):
    prompts, result = talk(agents, "refund-desk", "My money back!", "the shoes", "A-17", "Again, please")
    assert prompts == ["Which order is it? (A-17 or B-42)"] * 3
    assert result.status == "interrupted"


def test_the_ticket_booker_takes_no_for_an_answer(agents: Loaded):
    prompts, result = talk(agents, "ticket-booker", "Hello", "Oslo", "Bob", "no", "To Rome for Ann", "yes")
    assert prompts[:2] == ["Where to?", "Who is travelling?"]
    assert len(prompts) == 4
    assert result.output.startswith("Booked: Ann to Rome")


def test_the_reviewer_is_asked_again_after_each_change(agents: Loaded):
    prompts, result = talk(agents, "research", "Ships", "more sails", "ok", "Night trains", "ok")
    assert len(prompts) == 3
    assert "Ships" not in result.output
