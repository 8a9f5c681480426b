import asyncio
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from adjourn import __version__
from adjourn.cli import main
from adjourn.cli.demo import Stage
from adjourn.cli.demo.tickets import build
from adjourn.stores import Lease, SessionRef, SQLiteStore
from adjourn.stores.kit import Claim, GetHead
from tests.cli.shell import COMMAND, Shell, Terminal


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the demo of a graph says without a terminal."""
    return played(tmp_path_factory.mktemp("graph"), "graph")


@pytest.fixture(scope="module")
def booked(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the demo of the agent says without a terminal."""
    return played(tmp_path_factory.mktemp("agent"))


def played(folder: Path, *words: str) -> str:
    done = Shell(folder).run_process("demo", *words)
    assert (done.code, done.err) == (0, "")
    assert list(folder.iterdir()) == []
    return done.out


@pytest.mark.parametrize(("show", "parts"), [("out", 3), ("booked", 4)])
def test_without_a_terminal_it_answers_by_itself_and_says_so(
    show: str, parts: int, request: pytest.FixtureRequest
) -> None:
    out = request.getfixturevalue(show)
    assert re.findall(r"^\d of \d", out, re.MULTILINE) == [f"{number} of {parts}" for number in range(1, parts + 1)]
    assert "There is no terminal to ask in" in out
    assert "\x1b" not in out


def test_the_agent_asks_is_killed_and_goes_on_in_a_new_process(booked: str) -> None:
    asking, paying, printing, back = re.findall(r"^Process (\d+):$", booked, re.MULTILINE)
    assert len({asking, paying, printing, back}) == 4
    for killed in (asking, paying):
        assert f"Killed: process {killed} ended by signal 9, and is gone." in booked
    assert "waiting, for agent:TicketBooker;tool:book_ticket:call_1" in booked
    assert booked.count("I will book a ticket to Beijing.") == 1
    book = f"  paid: 42 EUR for Martin to Beijing, by process {paying}\n  printed: the ticket of Martin to Beijing, by "
    assert booked.count(f"{book}process {printing}\n") == 2
    assert booked.count("  paid: ") == 2
    assert "Done! The ticket to Beijing for Martin is booked." in booked
    assert "I was told: A person refused this call: on second thoughts" in booked
    ends = [line for line in booked.partition("session demo\n● ")[2].splitlines() if "  end 3" in line]
    assert [line.startswith("│  ●") for line in ends] == [True, False]


def test_two_people_answer_at_once_and_one_is_told(booked: str) -> None:  # rule R3
    (first,) = re.findall(r"^✔ (you|bob) answered: it is recorded\.$", booked, re.MULTILINE)
    second = {"you": "bob", "bob": "you"}[first]
    assert f"✘ {second} came second: AlreadyResumed, answered by {first}." in booked


def test_what_to_try_next_can_be_tried(booked: str, tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    chat, pending, answer, resume, *_ = re.findall(r"^  adjourn (.*?)(?: +#.*)?$", booked, re.MULTILINE)
    shell.ok(*chat.split(), "-m", "Book a ticket for Ada to Rome", "--session", "SESSION")
    assert "TicketBooker › book_ticket: location: " in shell.ok(*pending.split()).out
    with shell.terminal(*answer.split()) as terminal:
        terminal.answer("[l]ater ?", "a")
        assert terminal.end() == 0
    assert "The ticket to Rome for Ada is booked." in shell.ok(*resume.split()).out
    assert "printed: the ticket of Ada to Rome" in (tmp_path / "book.txt").read_text(encoding="utf-8")


def test_the_process_that_asked_is_killed_and_others_go_on(out: str) -> None:
    first, second, third = re.findall(r"^Process (\d+):$", out, re.MULTILINE)
    assert len({first, second, third}) == 3
    assert f"Killed: process {first} ended by signal 9, and is gone." in out
    assert f"  reserved 120.00 EUR, by process {first}\n  paid 120.00 EUR to Ada, by process {second}\n" in out
    assert out.count("▶ look_up\n") == 1


def test_the_tree_has_both_branches(out: str) -> None:
    tree = out.partition("session demo\n")[2]
    ends = [line for line in tree.splitlines() if "  end 3" in line]
    assert [line.startswith("│  ●") for line in ends] == [True, False]


def test_no_input_at_all_is_no_terminal(tmp_path: Path) -> None:
    line = f'exec "{sys.executable}" -m adjourn demo graph <&-'
    environment = Shell(tmp_path).environment
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert "There is no terminal to ask in" in done.stdout


def test_a_reader_who_leaves_is_no_crash(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "demo"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=Shell(tmp_path).environment,
    ) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_where_no_death_is_seen_it_waits_for_the_lease_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # rule C6
    build(tmp_path).run_sync("Book a ticket for Ada to Rome", session_id="demo")
    store, ref = SQLiteStore(tmp_path / "demo.db"), SessionRef(app="adjourn", id="demo")
    lease = asyncio.run(_claimed(store, ref))
    waiting = threading.Thread(target=Stage("tickets", tmp_path, parts=4).wait_until_free)
    waiting.start()
    while "so its lease has to end" not in capsys.readouterr().out:
        assert waiting.is_alive()
    asyncio.run(store.renew([replace(lease, ttl=0.0)]))
    waiting.join()


async def _claimed(store: SQLiteStore, ref: SessionRef) -> Lease:
    head = await store.read(GetHead(ref))
    assert head is not None
    lease = (await store.write(Claim(ref=ref, owner="somewhere else", ttl=60.0, after=head.checkpoint))).lease
    assert lease is not None
    return lease


# At a terminal


def test_no_line_is_broken_in_the_middle_of_a_word(booked: str, tmp_path: Path) -> None:
    with Shell(tmp_path).terminal("demo", COLUMNS="60", NO_COLOR="1") as terminal:
        terminal.answer("› ", "")
        terminal.answer("[l]ater ?", "a")
        assert terminal.end() == 0
    rows = terminal.text.split("\r\n")
    commands = [row for row in rows if row.startswith("  adjourn ")]
    typed_at = ("› ", "[a]pprove")
    assert [row for row in rows if len(row) > 60 and row not in commands and not row.startswith(typed_at)] == []
    assert all(len(row) < 80 for row in commands)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    with Shell(tmp_path).terminal("demo", "graph", COLUMNS="200") as terminal:
        yield terminal


@pytest.fixture
def booking(tmp_path: Path) -> Iterator[Terminal]:
    with Shell(tmp_path).terminal("demo", COLUMNS="200") as terminal:
        yield terminal


def test_a_person_is_asked_until_the_answer_is_one(terminal: Terminal) -> None:
    terminal.answer("[y/n] ", "perhaps")
    terminal.wait_for("Please type y or n")
    terminal.answer("[y/n] ", "No")
    terminal.answer("Why?", "too late")
    assert terminal.end() == 0
    assert "Dear Ada, no refund for A-17. too late" in terminal.seen
    assert "what if it had been yes?" in terminal.seen
    assert "\x1b[1m1 of 3" in terminal.seen


def test_a_person_talks_with_the_agent_and_edits_what_it_does(booking: Terminal, tmp_path: Path) -> None:
    booking.answer("› ", "I want to travel to Rome")
    booking.wait_for("Who is travelling?")
    booking.answer("› ", "Ada")
    booking.answer("[l]ater ?", "e")
    booking.answer("location [Rome]:", "")
    booking.answer("passenger_name [Ada]:", "Ada Lovelace")
    booking.answer("phone [not given]:", "")
    booking.answer("Run it with these?", "y")
    booking.wait_for("printed: the ticket of Ada Lovelace to Rome, by process")
    assert booking.end() == 0
    assert "what if it had been no?" in booking.text
    assert list(tmp_path.iterdir()) == []


def test_a_refusal_with_its_reason_reaches_the_model(booking: Terminal) -> None:
    booking.answer("› ", "")
    booking.answer("[l]ater ?", "r")
    booking.answer("Why?", "the budget is spent")
    booking.wait_for("A person refused this call: the budget is spent")
    assert booking.end() == 0
    assert "what if it had been yes?" in booking.text
    assert "paid: 42 EUR for Martin to Beijing" in booking.text


def test_a_question_left_for_later_ends_the_demo(booking: Terminal) -> None:
    booking.answer("› ", "")
    booking.answer("[l]ater ?", "l")
    assert booking.end() == 0
    assert "nothing is left behind" in booking.text


@pytest.mark.parametrize("words", [("demo",), ("demo", "graph")])
def test_ctrl_c_ends_it_politely(words: tuple[str, ...], tmp_path: Path) -> None:
    with Shell(tmp_path).terminal(*words) as terminal:
        terminal.wait_for("› " if len(words) == 1 else "[y/n] ")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 130
        assert terminal.seen.endswith("Stopped. Nothing is left behind.\r\n")
    assert list(tmp_path.iterdir()) == []


def test_the_end_of_input_ends_it_politely(terminal: Terminal, tmp_path: Path) -> None:
    terminal.wait_for("[y/n] ")
    terminal.type("\x04")
    assert terminal.end() == 1
    assert "No answer came" in terminal.seen
    assert list(tmp_path.iterdir()) == []


# The command


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ending:
        main(["--version"])
    assert ending.value.code == 0
    assert capsys.readouterr().out == f"adjourn {__version__}\n"


def test_without_a_command_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "demo" in capsys.readouterr().out


def test_an_unknown_command_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ending:
        main(["dance"])
    assert ending.value.code == 2
    assert "there is no command 'dance'" in capsys.readouterr().err
