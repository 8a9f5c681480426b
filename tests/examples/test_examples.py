"""The examples: each is killed in the middle of its work, and ends in another process as if nothing had been."""

import asyncio
import json
import os
import pty
import re
import runpy
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from adjourn import Message, Runner
from adjourn.stores import SessionRef, SQLiteStore
from adjourn.stores.kit import Audit
from tests.in_process import run_here

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a dead owner is noticed at once on Linux only")

FOLDER = Path(__file__).parents[2] / "examples"
SESSION = "s"
EXAMPLES: dict[str, list[Any]] = {
    "approval": ["yes"],
    "ask_for_clarification": ["science fiction"],
    "follow_up": ["Kyoto; 3", ["temples"]],
    "review_and_edit": ["passenger_name=Ann Lee, phone=555-0199"],
    "feedback_loop": ["a train in it", "less rain", "No need to edit."],
    "parallel_questions": ["Friday", "the red room", "soup"],
    "supervisor": ["yes", "yes"],
    "plan_execute": ["yes", "name=Heron"],
    "deep_agent": ["the board; one page"],
    "supervisor_plan_execute": ["yes"],
    "document_workflow": ["yes", "yes", "yes", "yes"],
    "graph_as_sub_agent": ["Thank you.", "yes"],
}
every_example = pytest.mark.parametrize("name", EXAMPLES)


@contextmanager
def started(
    name: str, folder: Path, *options: str, stdin: int = subprocess.DEVNULL
) -> Generator[subprocess.Popen[str]]:
    command = [sys.executable, "-W", "error", str(FOLDER / f"{name}.py"), "--session", SESSION, *options]
    with subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "ADJOURN_MODEL": ""},
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def ran(name: str, folder: Path, *options: str) -> str:
    """What an example printed on its way to an end that is no failure."""
    code, out, err = run(name, folder, *options)
    assert (code, err) == (0, ""), err
    return out


def run(name: str, folder: Path, *options: str) -> tuple[int, str, str]:
    """Run an example as a program, but in this process; those that are killed have one of their own."""
    path = str(FOLDER / f"{name}.py")
    main = partial(runpy.run_path, path, run_name="__main__")
    return run_here(main, [path, "--session", SESSION, *options], folder, {**os.environ, "ADJOURN_MODEL": ""})


def answered(name: str, folder: Path, answers: list[Any], *options: str) -> str:
    return ran(name, folder, "--answers", json.dumps(answers), *options)


class Seen:
    """What is in the store of an example."""

    def __init__(self, name: str, folder: Path) -> None:
        self.status = ""
        self.messages: list[Message] = []
        self.output = ""
        self.answered = 0
        module = runpy.run_path(str(FOLDER / f"{name}.py"))
        asyncio.run(self._look(module.get("agent") or module["graph"], folder / f"{name}.db"))

    async def _look(self, agent: Any, path: Path) -> None:
        store = SQLiteStore(path)
        runner = Runner(agent, store=store)
        self.status = (await runner.status(SESSION)).status
        self.answered = sum(decision.how == "answered" for decision in await store.read(Audit(SessionRef(SESSION))))
        if self.status in ("done", "waiting"):
            result = await runner.recover(SESSION)
            self.messages, self.output = list(result.messages), result.output
        await store.close()


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])


@pytest.fixture(scope="module")
def ends() -> dict[str, Seen]:
    return {}


@pytest.fixture
def whole(name: str, ends: dict[str, Seen], tmp_path: Path) -> Seen:
    """The uninterrupted run."""
    if name not in ends:
        folder = tmp_path / "whole"
        folder.mkdir()
        answered(name, folder, EXAMPLES[name])
        ends[name] = Seen(name, folder)
        assert ends[name].status == "done"
    return ends[name]


def check(name: str, folder: Path, whole: Seen) -> None:
    seen = Seen(name, folder)
    assert (seen.status, seen.output, seen.messages) == ("done", whole.output, whole.messages)


@every_example
def test_an_example_shows_what_happens(name: str, tmp_path: Path):
    printed = answered(name, tmp_path, EXAMPLES[name])
    top = "runnable:" if name == "document_workflow" else "agent:"
    assert f"  id      {top}" in printed
    assert f"You answer {top}" in printed
    assert "✔ done" in printed


@every_example
def test_without_a_terminal_it_says_how_to_answer_and_waits(name: str, tmp_path: Path):
    printed = ran(name, tmp_path)
    assert "--session s --resume --answers" in printed
    assert Seen(name, tmp_path).status == "waiting"


@every_example
def test_other_processes_answer_one_question_each(name: str, tmp_path: Path, whole: Seen):
    ran(name, tmp_path)
    for answer in EXAMPLES[name]:
        answered(name, tmp_path, [answer], "--resume")
    check(name, tmp_path, whole)


@pytest.mark.parametrize("name", ["approval", "parallel_questions"])
def test_killed_while_it_waits_for_the_keyboard(name: str, tmp_path: Path, whole: Seen):  # rule C8
    keyboard, terminal = pty.openpty()
    with started(name, tmp_path, stdin=terminal) as process:
        read_until(process, "(Enter leaves it open) > ")
        process.kill()
    os.close(keyboard)
    os.close(terminal)
    answered(name, tmp_path, EXAMPLES[name], "--resume")
    check(name, tmp_path, whole)


@every_example
def test_killed_in_the_middle_of_its_work(name: str, tmp_path: Path, whole: Seen):  # rules C8, R4
    with started(name, tmp_path, "--answers", json.dumps(EXAMPLES[name])) as process:
        read_until(process, "You answer")
        read_until(process, "\n")
        read_until(process, "\n")  # Something has come of the answer.
        process.kill()
    left = EXAMPLES[name][Seen(name, tmp_path).answered :]
    answered(name, tmp_path, left, "--resume")
    check(name, tmp_path, whole)


def read_until(process: subprocess.Popen[str], sign: str) -> None:
    assert process.stdout is not None
    read = ""
    while not read.endswith(sign):
        piece = process.stdout.read(1)
        assert piece, f"it ended without {sign!r}: {read}"
        read += piece


def test_a_question_says_the_way_down_to_it(tmp_path: Path):  # rule I2
    printed = ran("supervisor_plan_execute", tmp_path)
    deep = "agent:project_manager;agent:team;agent:executor;tool:allocate_budget:budget"
    assert f"The session waits for answers to:\n  {deep}\n" in printed
    assert "Ordered: 12 signs." in answered("supervisor_plan_execute", tmp_path, ["yes"], "--resume")


def test_the_deep_agent_asks_before_it_begins(tmp_path: Path):
    printed = ran("deep_agent", tmp_path)
    assert "The session waits for answers to:\n  agent:ReportWriter;tool:follow_up:ask\n" in printed
    assert "write_todos" not in printed


def test_time_travel_leaves_both_branches(tmp_path: Path):  # rule C4
    printed = answered("document_workflow", tmp_path, EXAMPLES["document_workflow"])
    assert "--- complex document ---" in printed
    assert "--- simple document ---" in printed
    tree = printed[printed.index("session s\n") :]
    assert "→ enhance\n" in tree
    assert re.search(r"^│  ● .*→ summarise$", tree, re.MULTILINE)
    assert re.search(r"^│  ● .*end 8  ← head$", tree, re.MULTILINE)


def test_killed_on_its_way_back_in_time(tmp_path: Path):  # rule C8
    answers = EXAMPLES["document_workflow"]
    with started("document_workflow", tmp_path, "--answers", json.dumps(answers[:2])) as process:
        read_until(process, "Back to checkpoint")
        process.kill()
    printed = answered("document_workflow", tmp_path, answers[2:], "--resume")
    assert printed.count("→ summarise") == 1
    assert Seen("document_workflow", tmp_path).output.endswith("Night trains run.")


def test_answers_come_from_the_keyboard(tmp_path: Path):
    keyboard, terminal = pty.openpty()
    with started("approval", tmp_path, stdin=terminal) as process:
        read_until(process, "> ")
        os.write(keyboard, b"too expensive\n")
        printed, _ = process.communicate(timeout=600)
    os.close(keyboard)
    os.close(terminal)
    assert process.returncode == 0
    assert "I was told: A person refused this call: too expensive" in printed


def test_an_answer_that_does_not_fit_changes_nothing(tmp_path: Path):  # rule R2
    code, _, err = run("approval", tmp_path, "--answers", "[17]")
    assert (code, "InvalidAnswer" in err) == (1, True)
    assert Seen("approval", tmp_path).status == "waiting"
