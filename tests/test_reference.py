"""Every public name is on the page of names; `python -m tests.reference` writes it anew."""

import re

import pytest

import adjourn
from tests.reference import GUIDES, OPTIONS, PAGE, option_rows, public_names, sentence

SECTIONS: dict[str, str] = dict(
    re.findall(r"^## adjourn\.(\w+)\n(.*?)(?=^## |\Z)", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
)


@pytest.mark.parametrize("package", GUIDES)
def test_every_public_name_is_on_the_page(package: str) -> None:
    named = re.findall(r"^\| `(\w+)`( ★)? \| (.+) \|$", SECTIONS[package], re.MULTILINE)
    assert {name for name, _, _ in named} == set(public_names(package)), "Run `python -m tests.reference`."
    assert all((name in adjourn.__all__) == bool(star) for name, star, _ in named)
    assert all(sentence(package, name) for name in public_names(package))


def test_what_is_typed_every_day_is_in_a_module() -> None:
    named = {name for package in GUIDES for name in public_names(package)}
    assert set(adjourn.__all__) - named == {"Secret", "stored"}


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_is_on_the_page_as_it_is_declared(name: str) -> None:
    _, _, after = PAGE.read_text(encoding="utf-8").partition(f"## Options of `{name}`\n\n")
    rows = after.partition("\n\n")[0].splitlines()
    assert rows == list(option_rows(OPTIONS[name])), "Run `python -m tests.reference`."
    assert not any(row.endswith("|  |") for row in rows)
