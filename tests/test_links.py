"""Links between our pages lead to files and headings that exist."""

import re
from pathlib import Path

import pytest

from tests.test_docs import ROOT

PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "examples" / "README.md"]
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """What can be linked to on a page: its headings, as GitHub names them, and explicit anchors."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r'<a id="([^"]+)">', text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path):
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    for target, anchor in LINK.findall(text):
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(file), f"{page.name} links to {target}#{anchor}"
