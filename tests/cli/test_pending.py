"""`adjourn pending` as an inbox: filters, pages, and how many there are."""

from __future__ import annotations

import asyncio
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from adjourn import ChatModelAgent, Message, Runner, ToolCall, interrupt, tool, workflow
from adjourn.cli import main
from adjourn.testing import ScriptedModel
from tests.cli.shell import Shell


@workflow
async def trip(city: str) -> str:
    tags = ["far"] if city == "Tokyo" else []
    return interrupt(f"A hotel in {city}?\nNear the station.", schema=str, tags=tags, reason="hotel", expires_in=3600)


async def travel(url: str) -> None:
    runner = Runner(trip, store=url)
    for city in ("Rome", "Tokyo", "Bern"):
        await runner.run(city, session_id=city.lower(), user_id="ann")
    await runner.close()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('trips') / 'trips.db'}"
    asyncio.run(travel(url))
    return url


Listing = tuple[list[str], str]


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> Listing:
    """Return the sessions whose questions a command lists, and what it says beside them."""
    assert main([*words, "--json"] if "--json" not in words else list(words)) == 0
    said = capsys.readouterr()
    questions: list[dict[str, Any]] = json.loads(said.out)
    return [each["session_id"] for each in questions], said.err


def test_filters(url: str, capsys: pytest.CaptureFixture[str]):  # rule I15
    def sessions(*words: str) -> list[str]:
        return listed(capsys, "pending", "--store", url, *words)[0]

    assert sessions() == ["rome", "tokyo", "bern"]
    assert sessions("--tag", "far") == ["tokyo"]
    assert sessions("--reason", "hotel", "--user", "ann", "--under", "runnable:trip") == ["rome", "tokyo", "bern"]
    assert sessions("--expires-within", "2h", "--older-than", "0s", "--tag=far", "tokyo") == ["tokyo"]
    for nothing in (["--agent", "A"], ["--older-than", "1d"], ["--expires-within", "1m"], ["--reason", "x"]):
        assert sessions(*nothing) == []


def test_pages_say_how_they_go_on(url: str, capsys: pytest.CaptureFixture[str]):  # rule I15
    found, said = listed(capsys, "pending", "--store", url, "--reason", "hotel", "--limit", "2")
    assert found == ["rome", "tokyo"]
    hint = said.partition("There are more: ")[2].strip()
    assert "--reason=hotel --limit 2 --after " in hint
    assert listed(capsys, *shlex.split(hint)[1:]) == (["bern"], "")
    assert main(["pending", "--store", url, "--limit", "1"]) == 0
    assert "1 of 3 questions. There are more: adjourn pending --limit 1 --after" in capsys.readouterr().err
    assert main(["pending", "--store", url, "--after", "nowhere"]) != 0
    assert "after='nowhere'" in capsys.readouterr().err


def test_how_many_there_are(url: str, capsys: pytest.CaptureFixture[str]):  # rule I15
    assert main(["pending", "--store", url, "--count"]) == 0
    assert capsys.readouterr().out == "3\n"
    assert main(["pending", "--store", url, "--count", "--tag", "far", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"count": 1}


def test_a_list_has_a_line_for_each_question_and_one_hint(url: str, capsys: pytest.CaptureFixture[str]):  # rule I15
    assert main(["pending", "--store", url]) == 0
    said = capsys.readouterr()
    titles, *lines = said.out.splitlines()
    assert titles.split() == ["SESSION", "OPEN", "FOR", "EXPIRES", "QUESTION"]
    ends = ["trip: A hotel in Rome? Near the station.", "trip [far]: A hotel in Tokyo? Near the station."]
    assert [line.partition(" min  ")[2] for line in lines[:2]] == ends
    assert [line.split()[0] for line in lines] == ["rome", "tokyo", "bern"]
    assert "~" not in said.out  # no token: whoever answers has seen it whole
    assert said.err.strip() == f"Read one in full, and see how to answer it: adjourn pending SESSION --store {url}"
    assert main(["pending", "--store", url, "--tag", "far"]) == 0
    hint = capsys.readouterr().err.partition(": ")[2]
    assert main(shlex.split(hint)[1:]) == 0
    said = capsys.readouterr()
    assert "  asks    A hotel in Tokyo?\n        │ Near the station.\n" in said.out
    assert "adjourn answer tokyo --question TOKEN ANSWER" in said.err
    assert main(["pending", "--store", url, "--tag", "near"]) == 0
    assert capsys.readouterr().out == "Nothing like that waits for an answer.\n"


@pytest.mark.parametrize(
    ("width", "line"),
    [(60, " min  trip [far]: A hotel in Tokyo?…"), (40, "  trip [far]: A hotel in Tokyo? Near…")],
)
def test_lines_are_cut_at_the_edge_of_a_terminal(tmp_path: Path, url: str, width: int, line: str):
    with Shell(tmp_path).terminal("pending", "--store", url, COLUMNS=str(width), NO_COLOR="1") as terminal:
        assert terminal.end() == 0
    listed = terminal.text.partition("\r\n\r\n")[0].split("\r\n")
    assert all(len(each) <= width for each in listed)
    assert line in "\n".join(listed)
    assert len(listed) == 4 * (1 if width == 60 else 2)


@pytest.mark.parametrize("limit", ["0", "-1", "few"])
def test_a_limit_that_lists_nothing_is_refused(url: str, limit: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main(["pending", "--store", url, f"--limit={limit}"])
    assert f"argument --limit: '{limit}' is not a number from 1 on" in capsys.readouterr().err


@tool(approval=True)
def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


@pytest.mark.parametrize("command", ["pending", "show"])
def test_a_session_with_many_approvals_says_once_what_they_cover(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
):
    calls = [ToolCall(id=f"c{number}", name="pay", arguments={"cents": number}) for number in range(3)]
    agent = ChatModelAgent("clerk", model=ScriptedModel([Message.assistant(tool_calls=calls)]), tools=[pay])
    url = f"sqlite:///{tmp_path / 'payments.db'}"
    Runner(agent, store=url).run_sync("Pay all.", session_id="s")
    assert main([command, "s", "--store", url]) == 0
    said = capsys.readouterr().out
    assert (said.count("it covers all calls of pay by clerk"), said.count("reach   as above\n")) == (1, 2)
    assert all(f"cents: {number}\n" in said for number in range(3))
