"""Every command in a process of its own, as people start it; most other tests call it, which is the same."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from shutil import copy, copytree
from types import ModuleType

import pytest

from adjourn.cli import COMMANDS
from tests.cli.shell import Done, Shell

WORDS = {
    "chat": ("desk:ticket", "-m", "日本", "--session", "new"),
    "sessions": ("--json",),
    "pending": ("--json",),
    "answer": ("t1", "-", "--by", "ann", "--question", "terms"),
    "resume": ("desk:review", "s1"),
    "recover": ("desk:trip", "t1"),
    "show": ("s1", "--json"),
    "tree": ("s1", "--json"),
    "fork": ("s1", "--to", "new"),
    "cancel": ("s1",),
    "edit": ("desk:review", "s1", "approved:=true"),
    "approvals": ("ann",),
    "audit": ("s1", "--json"),
    "keys": (),
    "repair": (),
    "prune": ("s1", "--keep", "soon"),
    "delete": ("s1",),
    "draw": ("desk:review", "-o", "review.dot"),
    "check": (".",),
    "schema": (),
    "token": ("list", "--tokens", "tokens.json"),
    "webhook": ("test",),
}
"""Words after each command, of the kind that ends by itself; `demo`, `serve` and `worker` have tests of their own."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sessions that wait, one of them with an answer that was recorded."""
    shell = Shell(tmp_path_factory.mktemp("desk"))
    copy(Path(__file__).parent / "desk.py", shell.folder)
    shell.ok("chat", "desk:review", "-m", "a poem", "--session", "s1")
    shell.ok("chat", "desk:trip", "-m", "Bern", "--session", "t1")
    shell.answer("t1", "Ada")
    return shell.folder


def seen(done: Done) -> tuple[int, str, str]:
    """Return all that a command came to, apart from the time of day and from random names."""
    out, err = (re.sub(r"since .*|[0-9a-f]{8,}", "", text) for text in (done.out, done.err))
    return done.code, out, err


@pytest.mark.parametrize("command", WORDS)
def test_a_command_is_the_same_in_a_process_and_in_a_call(built: Path, tmp_path: Path, command: str):
    process, call = (Shell(copytree(built, tmp_path / name)) for name in ("process", "call"))
    started = process.run_process(command, *WORDS[command], input='{"ok": true}\n')
    assert started.out + started.err
    assert seen(started) == seen(call.run(command, *WORDS[command], input='{"ok": true}\n'))
    assert process.ledger == call.ledger


def test_every_command_has_its_process():
    assert {*WORDS, "demo", "serve", "worker"} == {*COMMANDS}


def test_a_call_finds_its_own_folder_and_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "own", other := ModuleType("own"))
    before = (Path.cwd(), dict(os.environ), list(sys.path))
    for name in ("one", "two"):
        shell = Shell(tmp_path / name)
        shell.folder.mkdir()
        source = f"from adjourn import workflow\n\n@workflow\nasync def said(input: str) -> str:\n    return {name!r}\n"
        (shell.folder / "own.py").write_text(source)
        assert name in shell.ok("chat", "own:said", "-m", "hello", EDITOR="vi").out
    assert (Path.cwd(), dict(os.environ), list(sys.path)) == before
    assert sys.modules["own"] is other
