"""Other systems than Linux, as far as one can play them here: macOS, which has no `/proc`, and Windows."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from adjourn._owner import is_dead, process_id
from tests.cli.shell import Shell

FOLDER = Path(__file__).parent / "elsewhere"

PROGRAM = """
import asyncio, os, signal, sys, threading, time
from adjourn import Runner, SessionBusy, workflow
from adjourn._owner import process_id
from adjourn.stores import SQLiteStore

@workflow
async def work(path: str):
    if os.path.exists(path):
        return "done"
    open(path, "w").close()
    await asyncio.sleep(60)

@workflow
async def broken(path: str):
    raise ValueError(path)

def new_runner():
    return Runner(work, store=SQLiteStore("runs.db"))

def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.005)

def files():
    return sorted(name for name in os.listdir() if "-owner-" in name)
"""


def environment(system: str) -> dict[str, str]:
    return {"ELSEWHERE": system, "PYTHONPATH": f"{FOLDER}{os.pathsep}{FOLDER.parents[1]}"}


def play(system: str, source: str, folder: Path) -> list[str]:
    """Return the lines that a program prints on another system."""
    line = [sys.executable, "-c", PROGRAM + source]
    done = subprocess.run(
        line, cwd=folder, env=os.environ | environment(system), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_demo_ends_well_on_windows(tmp_path: Path) -> None:
    done = Shell(tmp_path).run_process("demo", **environment("windows"))
    assert (done.code, done.err) == (0, "")
    assert "Done! The ticket to Beijing for Martin is booked." in done.out
    assert '$env:ADJOURN_STORE = "sqlite:///trips.db"' in done.out
    assert list(tmp_path.iterdir()) == []


def test_the_demo_ends_well_at_a_terminal_on_macos(tmp_path: Path) -> None:
    with Shell(tmp_path).terminal("demo", **environment("macos")) as terminal:
        terminal.answer("› ", "")
        terminal.answer("[l]ater ?", "a")
        assert terminal.end() == 0
    assert "Done! The ticket to Beijing for Martin is booked." in terminal.text
    assert list(tmp_path.iterdir()) == []


def test_a_command_to_paste_is_quoted_for_the_shells_of_windows(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(PROGRAM, encoding="utf-8")
    shell = Shell(tmp_path)
    failed = shell.run_process("chat", "work:broken", "--session", "a b;c", "-m", "x", **environment("windows"))
    assert 'adjourn recover work:broken "a b;c"' in failed.err


@pytest.mark.parametrize("system", ["macos", "hidden"])
def test_a_process_that_was_killed_is_noticed_at_once_and_one_that_lives_is_left_alone(
    system: str, tmp_path: Path
) -> None:  # rule C6
    seen = play(
        system,
        """
runner = new_runner()
open("warm", "w").close()
runner.run_sync("warm", session_id="before")
if (child := os.fork()) == 0:
    runner.run_sync("begun", session_id="s")
wait_for("begun")
try:
    runner.recover_sync("s")
except SessionBusy as busy:
    print(busy.owner.startswith(f"process {child}"))
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
print(runner.status_sync("s").status, runner.recover_sync("s").output)
""",
        tmp_path,
    )
    assert seen == ["True", "failed done"]


def test_a_child_does_not_keep_its_dead_parent_alive(tmp_path: Path) -> None:  # rule C6
    seen = play(
        "macos",
        """
if (parent := os.fork()) == 0:
    runner = new_runner()
    run = runner.run("begun", session_id="s")
    threading.Thread(target=lambda: list(run), daemon=True).start()
    wait_for("begun")
    reads, writes = os.pipe()
    if (child := os.fork()) == 0:
        os.close(1)
        os.close(2)
        os.write(writes, b"begun")
        time.sleep(60)
    os.read(reads, 5)
    print(child, flush=True)
    os._exit(0)
os.waitpid(parent, 0)
print(new_runner().recover_sync("s").output)
""",
        tmp_path,
    )
    os.kill(int(seen[0]), 9)
    assert seen[1:] == ["done"]


def test_the_file_of_a_process_is_its_own_and_goes_with_it(tmp_path: Path) -> None:  # rule C6
    open_, closed = play(
        "macos",
        """
open("begun", "w").close()
runner = new_runner()
runner.run_sync("begun", session_id="s")
print(*(f"{name} {os.stat(name).st_mode & 0o777:o}" for name in files()))
asyncio.run(runner.close())
print(files())
""",
        tmp_path,
    )
    name, mode = open_.split()
    assert name.startswith("runs.db-owner-")
    assert (mode, closed) == ("600", "[]")


def test_what_killed_processes_leave_is_removed_when_no_session_needs_it(tmp_path: Path) -> None:
    seen = play(
        "macos",
        """
for session in ("a", "b"):
    if (child := os.fork()) == 0:
        new_runner().run_sync(session, session_id=session)
    wait_for(session)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
print(len(files()))
for session in ("a", "b"):
    runner = new_runner()
    print(runner.recover_sync(session).output)
    asyncio.run(runner.close())
    print(len(files()))
""",
        tmp_path,
    )
    assert seen == ["2", "done", "1", "done", "0"]


@pytest.mark.parametrize("planted", ["missing", "link"])
def test_without_the_file_of_an_owner_its_lease_decides(planted: str, tmp_path: Path) -> None:  # rule C6
    seen = play(
        "macos",
        f"""
if (child := os.fork()) == 0:
    new_runner().run_sync("begun", session_id="s")
wait_for("begun")
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
(name,) = files()
os.rename(name, "elsewhere")
if {planted == "link"}:
    os.symlink("elsewhere", name)
try:
    new_runner().recover_sync("s")
except SessionBusy as busy:
    print("busy")
""",
        tmp_path,
    )
    assert seen == ["busy"]


def test_a_copy_of_a_database_with_the_files_of_its_owners_kills_none_of_them(tmp_path: Path) -> None:  # rule C6
    seen = play(
        "macos",
        """
import shutil
if (child := os.fork()) == 0:
    new_runner().run_sync("begun", session_id="s")
wait_for("begun")
shutil.copytree(".", "copy")
copied = Runner(work, store=SQLiteStore("copy/runs.db"))
copied.status_sync("s")
try:
    new_runner().recover_sync("s")
except SessionBusy:
    print("busy")
os.kill(child, signal.SIGKILL)
""",
        tmp_path,
    )
    assert seen == ["busy"]


def test_a_run_that_begins_while_the_last_store_is_closed_keeps_its_session(tmp_path: Path) -> None:  # rule C6
    seen = play(
        "macos",
        """
open("warm", "w").close()
from adjourn.stores.sqlite import _presence
last, next_ = new_runner(), new_runner()
last.run_sync("warm")
needed, asked = _presence._needed, threading.Event()

def needed_slowly(*place):
    found = needed(*place)
    asked.set()
    deadline = time.monotonic() + 0.3
    while not os.path.exists("begun") and time.monotonic() < deadline:
        time.sleep(0.005)
    return found

_presence._needed = needed_slowly
closing = threading.Thread(target=lambda: asyncio.run(last.close()))
closing.start()
asked.wait()
threading.Thread(target=lambda: next_.run_sync("begun", session_id="s"), daemon=True).start()
closing.join()
wait_for("begun")
if (child := os.fork()) == 0:
    try:
        new_runner().recover_sync("s")
    except SessionBusy:
        print("busy", flush=True)
    os._exit(0)
os.waitpid(child, 0)
os._exit(0)
""",
        tmp_path,
    )
    assert seen == ["busy"]


def test_files_that_only_begin_with_the_same_name_stay(tmp_path: Path) -> None:
    (tmp_path / "runs.db-owner-notes").touch()
    play("macos", 'open("warm", "w").close()\nnew_runner().run_sync("warm")', tmp_path)
    assert (tmp_path / "runs.db-owner-notes").exists()


def test_ids_of_processes_differ_where_nothing_tells_when_they_began(tmp_path: Path) -> None:
    seen = play(
        "macos",
        """
os.getpid = lambda: 7
print(process_id(), flush=True)
if os.fork() == 0:
    print(process_id(), flush=True)
    os._exit(0)
os.wait()
""",
        tmp_path,
    )
    assert len(set(seen)) == 2
    assert all(each.startswith("//7/") for each in seen)
    assert not any(map(is_dead, seen))


def test_linux_needs_no_file(tmp_path: Path) -> None:
    if process_id().startswith("//"):
        pytest.skip("this system has no /proc")
    assert play("", 'open("begun", "w").close(); new_runner().run_sync("begun"); print(files())', tmp_path) == ["[]"]
