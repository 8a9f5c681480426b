"""Whether the checker finds what must not be in a ledger, and takes what may."""

from pathlib import Path

import pytest

from .checker import check_fences
from .ledger import Kind, Ledger

CLAIMS: list[tuple[Kind, str, int]] = [("claimed", "b.0", 1), ("committed", "b.1", 1), ("claimed", "b.1", 2)]


def ledger_of(folder: Path, *lines: tuple[Kind, str, int]) -> Ledger:
    ledger = Ledger(folder / "ledger")
    for kind, what, fence in lines:
        ledger.write(kind, what, fence=fence)
    return ledger


def test_an_owner_may_note_its_last_record_after_the_next_one_claimed(tmp_path: Path):  # rule C6
    first, last, claim = CLAIMS
    check_fences(ledger_of(tmp_path, first, claim, last))


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        (("committed", "b.2", 1), "after fence 2"),
        (("committed", "b.1", 2), "was written twice"),
        (("claimed", "b.1", 2), "two owners"),
    ],
)
def test_who_writes_after_another_claimed_is_found(tmp_path: Path, wrong: tuple[Kind, str, int], found: str):  # rule C6
    ledger = ledger_of(tmp_path, *CLAIMS, wrong)
    with pytest.raises(AssertionError, match=found):
        check_fences(ledger)
