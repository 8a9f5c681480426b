"""File tools: an agent's files, in the session or in a folder, over pauses and processes."""

from __future__ import annotations

import asyncio
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from adjourn import Runner, UsageError, interrupt, tool
from adjourn.middleware import FileError, FileTools, FolderBackend, ReduceToolResults, checked_path

from .conftest import Reopen
from .scripts import call, result_of, scripted


async def used(*calls: Any, backend: Any = None) -> list[str]:
    """The results of calls that an agent makes one after the other."""
    agent, _ = scripted(*calls, "done", middleware=[FileTools(backend)])
    result = await Runner(agent).run("go")
    return [message.text for message in result.messages if message.role == "tool"]


async def test_files_are_written_read_edited_searched_listed_and_deleted() -> None:
    assert await used(
        call("write_file", path="a.md", text="one\ntwo\n"),
        call("edit_file", path="a.md", old="two", new="Three"),
        call("read_file", path="a.md"),
        call("search_files", text="THREE"),
        call("list_files"),
        call("delete_file", path="a.md"),
        call("list_files"),
        call("search_files", text="three"),
    ) == [
        "'a.md' has 8 characters now.",
        "Replaced in 1 place.",
        "one\nThree\n",
        "a.md:2: Three",
        "a.md",
        "'a.md' is deleted.",
        "There are no such files.",
        "Nothing was found.",
    ]


async def test_a_part_of_a_long_file_says_how_to_go_on() -> None:
    _, first, last, past = await used(
        call("write_file", path="a", text="x" * 30_000),
        call("read_file", path="a"),
        call("read_file", path="a", start=29_998, length=10),
        call("read_file", path="a", start=99_999),
    )
    assert first.endswith("\n[Characters 0 to 20000 of 30000. Continue with start=20000.]")
    assert len(first) < 20_100
    assert last == "xx\n[Characters 29998 to 30000 of 30000.]"
    assert past.startswith("\n[Characters 99999")


async def test_an_edit_that_is_not_clear_changes_nothing() -> None:
    *_, none, several, empty, text = await used(
        call("write_file", path="a", text="x x"),
        call("edit_file", path="a", old="y", new="z"),
        call("edit_file", path="a", old="x", new="z"),
        call("edit_file", path="a", old="", new="z"),
        call("read_file", path="a"),
    )
    assert "does not contain" in none
    assert "2 times" in several
    assert "does not contain" in empty
    assert text == "x x"
    assert (
        await used(
            call("write_file", path="a", text="x x"),
            call("edit_file", path="a", old="x", new="z", everywhere=True),
            call("read_file", path="a"),
        )
    )[1:] == ["Replaced in 2 places.", "z z"]


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a\0b", "n" * 300])
async def test_a_model_is_told_that_a_path_leads_out(tmp_path: Path, path: str) -> None:  # attack 18
    for backend in (None, FolderBackend(tmp_path)):
        told = await used(call("read_file", path=path), call("write_file", path=path, text="x"), backend=backend)
        assert all(text.startswith("Error: ") for text in told)
    assert await FolderBackend(tmp_path).list() == []


async def test_calls_of_one_answer_that_change_one_file_do_not_undo_each_other() -> None:
    agent, _ = scripted(
        call("write_file", path="a", text="one two"),
        [
            call("edit_file", "e1", path="a", old="one", new="1"),
            call("edit_file", "e2", path="./a", old="two", new="2"),
            call("write_file", "w1", path="b", text="b"),
        ],
        call("edit_file", "e2", path="a", old="two", new="2"),  # the same id again
        call("read_file", "r1", path="a"),
        "done",
        middleware=[FileTools()],
    )
    result = await Runner(agent).run("go")
    assert "Nothing was done: call again" in next(m.text for m in result.messages if m.tool_call_id == "e2")
    assert result_of(result.messages, "r1") == "1 2"


async def test_files_of_a_session_survive_a_pause_and_the_process(reopen: Reopen) -> None:
    @tool
    async def ask() -> str:
        """Ask."""
        return str(interrupt("go on?", key="ask"))

    def agent(*script: Any) -> Any:
        return scripted(*script, tools=[ask], middleware=[FileTools()])[0]

    paused = await Runner(
        agent(
            call("write_file", path="a", text="kept"), [call("ask", "c2"), call("write_file", "c3", path="b", text="b")]
        ),
        store=reopen(),
    ).run("go", session_id="s1")
    assert paused.status == "interrupted"
    runner = Runner(agent(call("read_file", "c5", path="a"), call("list_files", "c4"), "done"), store=reopen())
    result = await runner.resume("s1", {"ask": "yes"})
    assert (result.status, result_of(result.messages, "c5")) == ("done", "kept")
    assert result_of(result.messages, "c4") == "a\nb"
    other = await Runner(agent(call("list_files"), "done"), store=reopen()).run("go", session_id="s2")
    assert result_of(other.messages) == "There are no such files."


async def test_a_fork_has_files_of_its_own(reopen: Reopen) -> None:
    agent, _ = scripted(
        call("write_file", path="a", text="first"),
        "done",
        call("write_file", path="a", text="second"),
        "done",
        call("read_file", "c8", path="a"),
        "done",
        call("read_file", "c9", path="a"),
        "done",
        middleware=[FileTools()],
    )
    runner = Runner(agent, store=reopen())
    await runner.run("go", session_id="s1")
    fork = await runner.fork("s1")
    await runner.run("go on", session_id="s1")
    assert result_of((await runner.run("read", session_id=fork)).messages, "c8") == "first"
    assert result_of((await runner.run("read", session_id="s1")).messages, "c9") == "second"


async def test_changes_can_need_approval(tmp_path: Path, reopen: Reopen) -> None:
    def agent(*script: Any) -> Any:
        return scripted(*script, middleware=[FileTools(FolderBackend(tmp_path), approval=True)])[0]

    write = call("write_file", path="notes/a.md", text="hello")
    paused = await Runner(agent(call("list_files", "c0"), write), store=reopen()).run("go", session_id="s1")
    assert [each.address for each in paused.interrupts] == ["agent:A;tool:write_file:c1"]
    assert not (tmp_path / "notes").exists()
    result = await Runner(agent("done"), store=reopen()).resume("s1", {paused.interrupts[0].id: True})
    assert result.status == "done"
    assert (tmp_path / "notes" / "a.md").read_text() == "hello"


async def test_nobody_is_asked_about_a_call_that_is_not_done() -> None:
    def is_a(path: str) -> bool:
        return path == "a"

    calls = [call("write_file", f"c{n}", path="a", text=str(n)) for n in range(2)]
    runner = Runner(scripted(calls, "done", middleware=[FileTools(approval=is_a)])[0])
    paused = await runner.run("go", session_id="s1")
    assert [each.id for each in paused.interrupts] == ["agent:A;tool:write_file:c0"]
    result = await runner.resume("s1", {paused.interrupts[0].id: True})
    assert "Nothing was done" in result_of(result.messages, "c1")
    assert result.state["values"]["~own:files:a"] == "0"


async def test_a_backend_of_ones_own_has_four_methods() -> None:
    class Shelf:
        def __init__(self) -> None:
            self.texts: dict[str, str] = {}

        async def read(self, path: str) -> str:
            if path not in self.texts:
                raise FileError(f"The shelf has no '{path}'.")
            return self.texts[path]

        async def write(self, path: str, text: str) -> None:
            self.texts[checked_path(path)] = text

        async def delete(self, path: str) -> None:
            del self.texts[path]

        async def list(self, under: str = "") -> list[str]:
            return sorted(self.texts)

    shelf = Shelf()
    assert await used(
        call("write_file", path="./a", text="x"), call("list_files"), call("read_file", path="b"), backend=shelf
    ) == ["'./a' has 1 characters now.", "a", "Error: The shelf has no 'b'."]
    assert shelf.texts == {"a": "x"}


async def test_read_only_leaves_out_what_changes_files() -> None:
    agent, model = scripted("done", middleware=[FileTools(read_only=True)])
    await Runner(agent).run("go")
    assert [spec.name for spec in model.requests[0].tools] == ["list_files", "read_file", "search_files"]


def test_what_is_no_backend_is_refused_at_once() -> None:
    with pytest.raises(UsageError, match="was given a str as its backend"):
        FileTools("notes")  # pyright: ignore[reportArgumentType]


# What a model asks for costs no more than was agreed


class Shelf:
    """A backend without limits of its own."""

    def __init__(self, **texts: str) -> None:
        self.texts = texts

    async def read(self, path: str) -> str:
        return self.texts[path]

    async def write(self, path: str, text: str) -> None:
        self.texts[path] = text

    async def delete(self, path: str) -> None:
        del self.texts[path]

    async def list(self, under: str = "") -> list[str]:
        return sorted(self.texts)


def peak_of(call: Any) -> int:
    """How many bytes were allocated at once during a call that runs in this thread."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_an_edit_cannot_be_a_bomb() -> None:  # attack 16
    bomb = call("edit_file", path="a", old="x", new="y" * 20_000, everywhere=True)
    shelf = Shelf(a="x" * 20_000)
    told = list[str]()
    peak = peak_of(lambda: told.extend(asyncio.run(used(bomb, backend=shelf))))
    assert told == ["Error: 'a' would have 400000000 bytes, and 10000000 is the most. Split it into several files."]
    assert shelf.texts == {"a": "x" * 20_000}
    assert peak < 10_000_000


async def test_an_edit_that_fits_is_counted_in_bytes() -> None:
    shelf = Shelf(a="aaa")
    agent, _ = scripted(
        call("edit_file", path="a", old="a", new="ä", everywhere=True),
        call("edit_file", "c2", path="a", old="ä", new="aa", everywhere=True),
        call("write_file", "c3", path="b", text="1234567"),
        "done",
        middleware=[FileTools(shelf, max_size=6)],
    )
    result = await Runner(agent).run("go")
    assert result_of(result.messages, "c2") == "Replaced in 3 places."
    assert "would have 7 bytes" in result_of(result.messages, "c3")
    assert shelf.texts == {"a": "aaaaaa"}


async def test_no_pattern_of_a_model_stalls_the_loop(tmp_path: Path) -> None:  # attack 16
    name, evil = "a" * 200, "*a" * 100 + "*b"
    (tmp_path / name).write_text("a" * 100_000 + "!\n(A+)+$ here\n")
    listed, too_long, found, none = await used(
        call("list_files", pattern=evil),
        call("list_files", pattern="*a" * 200),
        call("search_files", text="(a+)+$"),
        call("search_files", text="(a+)+$", pattern=evil),
        backend=FolderBackend(tmp_path),
    )
    assert listed == "There are no such files."
    assert "The pattern has 400 characters. Give at most 256." in too_long
    assert found == f"{name}:2: (A+)+$ here"
    assert none == "Nothing was found."


async def test_large_files_are_compared_off_the_loop() -> None:  # attack 16
    threads = set[int]()

    class Watched(str):
        __slots__ = ()

        def count(self, *args: Any) -> int:
            threads.add(threading.get_ident())
            return super().count(*args)

    shelf = Shelf(a=Watched("one two"))
    assert await used(call("edit_file", path="a", old="two", new="2"), backend=shelf) == ["Replaced in 1 place."]
    assert threads
    assert threading.get_ident() not in threads


async def test_a_search_finds_only_so_much_in_a_file_of_many_lines() -> None:
    shelf = Shelf(a="\n" * 300_000, b="x")
    (told,) = await used(call("search_files", text=""), backend=shelf)
    assert len(told.splitlines()) == 101
    assert told.endswith("[There is more. Give a longer text or a narrower pattern.]")


async def test_time_that_is_up_is_told() -> None:
    agent, _ = scripted(call("search_files", text="x"), "done", middleware=[FileTools(Shelf(a="x"), seconds=1e-9)])
    result = await Runner(agent).run("go")
    assert "Error: There are too many files to compare" in result_of(result.messages)


@pytest.mark.parametrize("options", [{"max_size": 0}, {"max_size": 1.5}, {"seconds": 0}, {"seconds": -1.0}])
def test_budgets_are_checked_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="give numbers above 0"):
        FileTools(**options)


async def test_tools_can_be_renamed_and_left_out() -> None:
    files = FileTools(names={"read_file": "view", "write_file": "save", "delete_file": None, "search_files": None})
    save = call("save", path="a.md", text="x" * 3000)
    reduce = ReduceToolResults(max_chars=100, read_tool="view")
    agent, model = scripted(
        [save, call("save", "c2", path="a.md", text="y")],
        call("view", "c3", path="a.md"),
        "done",
        middleware=[files, reduce],
    )
    result = await Runner(agent).run("go")
    assert [spec.name for spec in model.requests[0].tools] == ["list_files", "view", "save", "edit_file"]
    assert "Another call of the same answer" in result_of(result.messages, "c2")
    assert result_of(result.messages, "c3") == "x" * 3000
    with pytest.raises(UsageError, match=r"there is no tool 'grep'\. There are: list_files, read_file"):
        FileTools(names={"grep": None})
    with pytest.raises(UsageError, match="'read_file' has an empty name"):
        FileTools(names={"read_file": ""})
