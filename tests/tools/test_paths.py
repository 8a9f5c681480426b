"""Patterns for paths: what surely fits, what may fit, and what cannot get around them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjourn import UsageError
from adjourn.tools import PathPattern, fits_pattern

BELOW = PathPattern("/tmp/**")

CLEAR = [
    ("/tmp/**", "/tmp/a", True),
    ("/tmp/**", "/tmp/a/b/c", True),
    ("/tmp/**", "//tmp//a", True),
    ("/tmp/**", "/./tmp/./a", True),
    ("/tmp/**", "/tmp", False),
    ("/tmp/**", "/tmp/", False),
    ("/tmp/**", "/tmpfile", False),
    ("/tmp/**", "/etc/passwd", False),
    ("/tmp/*", "/tmp/a", True),
    ("/tmp/*", "/tmp/a/b", False),
    ("/tmp/*.txt", "/tmp/a.txt", True),
    ("/tmp/*.txt", "/tmp/a.txt.sh", False),
    ("/home/*/docs/**", "/home/ann/docs/a", True),
    ("/home/*/docs/**", "/home/ann/x/docs/a", False),
    ("/**/x/**/y", "/a/x/b/y", True),
    ("/**/x/**/y", "/x/y", False),
    ("docs/**", "docs/a.md", True),
    ("docs/**", "./docs/a.md", True),
    ("docs/**", "etc/a.md", False),
    ("/tmp/...", "/tmp/...", True),
]


@pytest.mark.parametrize(("pattern", "path", "fits"), CLEAR)
def test_a_clear_path_fits_or_not(pattern: str, path: str, fits: bool):
    made = PathPattern(pattern)
    assert (made.surely_fits(path), made.may_fit(path)) == (fits, fits)


UNCLEAR: list[Any] = [
    "/tmp/../etc/passwd",
    "/tmp/a/../b",
    "/tmp/..",
    "..",
    "../tmp/a",
    "/tmp/%2e%2e/etc/passwd",
    "/tmp/%2E%2E%2fetc",
    "/tmp\\..\\etc",
    "/tmp/a\\b",
    "/tmp/a\x00.txt",
    "/tmp/a\n/etc",
    "/tmp/a\x7f",
    "tmp/a",
    "~/tmp/a",
    "~root/tmp/a",
    "C:/tmp/a",
    "file:///tmp/a",
    "/tmp/a:stream",
    "/TMP/a",
    "/Tmp/a",
    "/\uff54mp/a",
    "",
    3,
    True,
    {"path": "/tmp/a"},
]


@pytest.mark.parametrize("path", UNCLEAR, ids=repr)
def test_an_unclear_path_never_fits_for_sure_and_always_may(path: Any):
    assert (BELOW.surely_fits(path), BELOW.may_fit(path)) == (False, True)


def test_no_path_is_none():
    assert (BELOW.surely_fits(None), BELOW.may_fit(None)) == (False, False)


@pytest.mark.parametrize(
    ("paths", "surely", "may"),
    [
        (["/tmp/a", "/tmp/b"], True, True),
        (["/tmp/a", "/etc/b"], False, True),
        (["/etc/b"], False, False),
        ([], False, False),
    ],
)
def test_a_list_fits_as_a_whole_and_may_fit_by_one(paths: list[str], surely: bool, may: bool):
    assert (BELOW.surely_fits(paths), BELOW.may_fit(paths)) == (surely, may)


@given(st.lists(st.sampled_from(["tmp", "etc", "..", ".", "", "%2e%2e", "a", "\\", "~"])).map("/".join))
def test_what_surely_fits_lies_below_however_it_is_read(path: str):
    if BELOW.surely_fits(path):
        names = [name for name in path.split("/") if name not in ("", ".")]
        assert (names[0], path[0], len(names) > 1, ".." in names) == ("tmp", "/", True, False)


def test_a_long_path_takes_no_time():
    deep = "/" + "a/" * 20_000 + "b"
    assert PathPattern("/**/a/**/a/**/a/**/b").surely_fits(deep)
    assert not PathPattern("/**/a/**/a/**/a/**/c").surely_fits(deep)


@pytest.mark.parametrize("wrong", ["", "/", "/tmp/../x", "~/x", "C:/x", "a\\b", "/%2e", "/a\x00", None, 3])
def test_a_pattern_that_is_unclear_itself_is_refused(wrong: Any):
    with pytest.raises(UsageError, match="PathPattern"):
        PathPattern(wrong)


def test_arguments_fit_with_a_path_among_them():
    pattern = {"path": BELOW, "mode": "r*"}
    assert fits_pattern({"path": "/tmp/a", "mode": "read"}, pattern)
    assert not fits_pattern({"path": "/tmp/a", "mode": "write"}, pattern)
    assert not fits_pattern({"mode": "read"}, pattern)
    assert not fits_pattern({"path": "/tmp/../a", "mode": "read"}, pattern)
    assert fits_pattern({"path": "/tmp/../a", "mode": "read"}, pattern, surely=False)
