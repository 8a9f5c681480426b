"""Backends: text files by path, in a session or in a folder that no path leads out of."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from adjourn import Runner, UsageError, workflow
from adjourn.middleware import Backend, FileError, FolderBackend, MemoryBackend, checked_path

OUTSIDE = ["../x", "a/../../x", "/etc/passwd", "~/x", "a/..", "..", "~root"]
UNUSABLE = ["a\0b", "a\nb", "a\\b", "C:x", "a:b", "", ".", "a/\ud800"]


@pytest.fixture
def folder(tmp_path: Path) -> FolderBackend:
    (tmp_path / "root").mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    return FolderBackend(tmp_path / "root")


async def in_session(call: Any) -> Any:
    """The result of `call` inside a run: its files are those of the session."""

    @workflow
    async def program(_: object) -> Any:
        return await call()

    return (await Runner(program).run(None)).value


@pytest.fixture(params=["memory", "folder"])
def backend(request: pytest.FixtureRequest, folder: FolderBackend) -> Backend:
    return MemoryBackend() if request.param == "memory" else folder


async def test_what_is_written_is_read_listed_and_deleted(backend: Backend) -> None:
    async def use() -> list[Any]:
        await backend.write("./notes//a.md", "ä\r\n")
        await backend.write("b.md", "old")
        await backend.write("b.md", "new")
        seen = [await backend.read("notes/a.md"), await backend.read("b.md")]
        seen += [list(await backend.list()), list(await backend.list("notes")), list(await backend.list("not"))]
        await backend.delete("b.md")
        return [*seen, list(await backend.list("/"))]

    assert await in_session(use) == [
        "ä\r\n",
        "new",
        ["b.md", "notes/a.md"],
        ["notes/a.md"],
        [],
        ["notes/a.md"],
    ]


@pytest.mark.parametrize("path", [*OUTSIDE, *UNUSABLE, "n" * 256, "ä" * 128, "a/" * 600 + "b"])
async def test_a_path_that_is_none_is_refused_by_every_method(backend: Backend, path: str) -> None:  # attack 18
    async def use() -> int:
        refused = 0
        for call in (backend.read(path), backend.delete(path), backend.write(path, "x")):
            try:
                await call
            except FileError:
                refused += 1
        return refused

    assert await in_session(use) == 3


async def test_what_is_not_there_is_told(backend: Backend) -> None:
    async def use() -> list[str]:
        told: list[str] = []
        for call in (backend.read("a.md"), backend.delete("a.md")):
            try:
                await call
            except FileError as error:
                told.append(str(error))
        return told

    assert await in_session(use) == ["There is no file 'a.md'."] * 2


async def test_a_file_too_large_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    for small in (MemoryBackend(max_size=4), FolderBackend(tmp_path, max_size=4)):

        async def use(small: Backend = small) -> str:
            await small.write("a", "ok")
            with pytest.raises(FileError, match="would have 6 bytes, and 4 is the most"):
                await small.write("a", "äää")
            return await small.read("a")

        assert await in_session(use) == "ok"
    (tmp_path / "a").write_text("too long")
    with pytest.raises(FileError, match="8 bytes"):
        await FolderBackend(tmp_path, max_size=4).read("a")


def test_a_message_names_the_path_and_what_to_give() -> None:
    with pytest.raises(FileError, match=r"'\.\./x' leads out of the files' root. Give one inside it, such as"):
        checked_path("../x")


def test_a_folder_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no such folder"):
        FolderBackend(tmp_path / "none")


# Links


async def test_links_that_lead_out_are_not_followed(folder: FolderBackend, tmp_path: Path) -> None:  # attack 18
    (folder.root / "out.txt").symlink_to(tmp_path / "secret.txt")
    (folder.root / "up").symlink_to(tmp_path)
    (folder.root / "new.txt").symlink_to(tmp_path / "not there yet.txt")
    for path in ("out.txt", "up/secret.txt", "new.txt", "up/made/x.txt"):
        with pytest.raises(FileError, match="leads out"):
            await folder.read(path)
        with pytest.raises(FileError, match="leads out"):
            await folder.write(path, "gone")
        with pytest.raises(FileError, match="leads out"):
            await folder.delete(path)
    with pytest.raises(FileError, match="leads out"):
        await folder.list("up")
    assert await folder.list() == []
    assert (tmp_path / "secret.txt").read_text() == "secret"
    assert await FolderBackend(tmp_path).list() == ["root/out.txt", "secret.txt"]


async def test_links_inside_are_files(folder: FolderBackend) -> None:
    await folder.write("real/a.txt", "text")
    (folder.root / "link.txt").symlink_to("real/a.txt")
    assert await folder.read("link.txt") == "text"
    assert await folder.list() == ["link.txt", "real/a.txt"]
    await folder.delete("link.txt")
    assert await folder.list() == ["real/a.txt"]


async def test_a_circle_of_links_is_an_error(folder: FolderBackend) -> None:
    (folder.root / "a").symlink_to("b")
    (folder.root / "b").symlink_to("a")
    with pytest.raises(FileError):
        await folder.read("a")
    with pytest.raises(FileError):
        await folder.write("a/x", "text")
    assert await folder.list() == []


# What a folder can hold beside text


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes")
async def test_what_is_no_file_is_neither_read_nor_written(folder: FolderBackend) -> None:
    os.mkfifo(folder.root / "pipe")
    (folder.root / "sub").mkdir()
    for path in ("pipe", "sub"):
        with pytest.raises(FileError):
            await folder.read(path)
        with pytest.raises(FileError):
            await folder.write(path, "x")
    with pytest.raises(FileError):
        await folder.delete("sub")
    assert await folder.list() == []


async def test_bytes_that_are_no_text_are_told(folder: FolderBackend) -> None:
    (folder.root / "image").write_bytes(b"\xff\xd8")
    with pytest.raises(FileError, match="not UTF-8 text"):
        await folder.read("image")


async def test_a_file_as_a_folder_is_told_without_the_root(folder: FolderBackend) -> None:
    await folder.write("a", "text")
    with pytest.raises(FileError) as caught:
        await folder.write("a/b", "text")
    assert str(folder.root) not in str(caught.value)
    assert await folder.list() == ["a"]


async def test_a_write_keeps_the_modes_and_leaves_nothing_else(folder: FolderBackend) -> None:
    script = folder.root / "run.sh"
    script.write_text("old")
    script.chmod(0o755)
    await folder.write("run.sh", "new")
    assert (script.read_text(), script.stat().st_mode & 0o777) == ("new", 0o755)
    assert [path.name for path in folder.root.iterdir()] == ["run.sh"]


# Budgets


async def test_a_session_has_only_so_many_files() -> None:
    backend = MemoryBackend(max_files=2)

    async def use() -> list[str]:
        await backend.write("a", "1")
        await backend.write("b", "2")
        await backend.write("a", "3")  # not a new one
        with pytest.raises(FileError, match="There are 2 files, which is the most"):
            await backend.write("c", "4")
        await backend.delete("b")
        await backend.write("c", "4")
        return list(await backend.list())

    assert await in_session(use) == ["a", "c"]


async def test_what_lies_too_deep_is_neither_written_nor_listed(folder: FolderBackend) -> None:
    deepest = "d/" * 31 + "f"
    await folder.write(deepest, "x")
    with pytest.raises(FileError, match="has 33 levels"):
        await folder.write("d/" * 32 + "f", "x")
    (folder.root / ("d/" * 40)).mkdir(parents=True)
    (folder.root / ("d/" * 40) / "f").write_text("x")
    assert await folder.list() == [deepest]
