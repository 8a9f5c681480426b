"""`docs/rules.md` and the tests agree: what a test names is described, and every rule has a test."""

import re
from collections.abc import Iterator

import pytest

from tests.test_docs import ROOT

RULE = r"[A-Z]\d+"
NAMED = re.compile(rf"#.*?\brules? ({RULE}(?:-{RULE})?(?:, (?:{RULE}(?:-{RULE})?))*)")
DESCRIBED = re.compile(rf'^<a id="(\w+)"></a>\*\*({RULE})\. ', re.MULTILINE)


def described() -> list[str]:
    return [number for _, number in DESCRIBED.findall((ROOT / "docs" / "rules.md").read_text(encoding="utf-8"))]


def expanded(listing: str) -> Iterator[str]:
    """The numbers of a listing such as `R5-R9, C8`."""
    for part in listing.split(", "):
        first, _, last = part.partition("-")
        for number in range(int(first[1:]), int((last or first)[1:]) + 1):
            yield f"{first[0]}{number}"


def comments() -> str:
    """The text of all tests, those of the suite for stores included."""
    pages = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "src" / "adjourn" / "testing").rglob("*.py")]
    return "\n".join(page.read_text(encoding="utf-8") for page in pages)


def named() -> set[str]:
    """The rules that tests name in their comments."""
    return {number for listing in NAMED.findall(comments()) for number in expanded(listing)}


@pytest.mark.parametrize("kind", ["Failure", "Attack"])
def test_every_failure_and_attack_that_a_test_names_is_described(kind: str):
    page = (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")
    _, _, table = page.partition(f"| {kind} |")
    rows = re.findall(r"^\| ([\d, ]+) \|", table.partition("\n\n")[0], re.MULTILINE)
    listed = set(re.findall(r"\d+", " ".join(rows)))
    named_as = re.compile(rf"#.*?\b{kind.lower()}s? ([A-Z]?\d+(?:(?:, | and )[A-Z]?\d+)*)")
    assert set(re.findall(r"\d+", " ".join(named_as.findall(comments())))) <= listed


def test_every_rule_that_a_test_names_is_described():
    assert named() - set(described()) == set()


def test_every_rule_that_is_described_has_a_test():
    assert set(described()) - named() == set()


def test_rules_are_described_once_and_can_be_linked_to():
    page = (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")
    assert len(described()) == len(set(described())) == page.count("<a id=")
    assert [anchor.upper() for anchor, _ in DESCRIBED.findall(page)] == described()


def test_rules_of_a_subject_stand_in_order():
    numbers = [(number[0], int(number[1:])) for number in described()]
    for letter in dict.fromkeys(letter for letter, _ in numbers):
        assert (of_letter := [n for each, n in numbers if each == letter]) == sorted(of_letter)
