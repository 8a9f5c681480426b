"""The page of errors names every error with its attributes."""

import re

import pytest

from adjourn.errors import AdjournError
from tests.test_docs import ROOT
from tests.test_errors import make, public_classes

PAGE = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
ROWS: dict[str, tuple[str, str]] = {
    name: (attributes, remedy)
    for name, attributes, remedy in re.findall(r"^\| `(\w+)` \|[^|]+\|([^|]*)\|([^|]+)\|$", PAGE, re.MULTILINE)
}
KINDS = [kind for kind in public_classes() if AdjournError in kind.__bases__]
NAMED = [kind for kind in public_classes() if kind not in (AdjournError, *KINDS)]
OF_A_SESSION = {"session_id"}


@pytest.mark.parametrize("kind", NAMED)
def test_an_error_is_named_with_its_attributes_and_a_remedy(kind: type[AdjournError]) -> None:
    attributes, remedy = ROWS[kind.__name__]
    facts = {name for name in vars(make(kind)) if not name.startswith("_")}
    assert set(re.findall(r"`(\w+)`", attributes)) - OF_A_SESSION == facts - OF_A_SESSION
    assert remedy.strip()


def test_the_kinds_and_nothing_else_are_named() -> None:
    assert all(f"## {kind.__name__}" in PAGE for kind in KINDS)
    assert set(ROWS) == {kind.__name__ for kind in NAMED}
