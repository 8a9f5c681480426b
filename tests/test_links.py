"""Links between our pages lead to files and headings that exist, and the modules that they name exist, too."""

import re
from pathlib import Path

import pytest

from tests.test_docs import ROOT

PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "examples" / "README.md"]
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
PACKAGE = re.compile(r"^\| `([\w/]+/)` \| \|$", re.MULTILINE)
"""The head of a table of modules."""
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


def modules() -> list[tuple[str, str]]:
    """What pages about the code name of it: modules and folders by a path, or by a name in the table of a package."""
    found: list[tuple[str, str]] = []
    for page in ("docs/architecture.md", "CONTRIBUTING.md", "docs/dependencies.md"):
        package = ""
        for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
            if header := PACKAGE.match(line):
                package = header[1].removeprefix("adjourn/")
                continue
            if not line.startswith("|"):
                package = ""
            names = re.findall(r"`([\w/]+\.py)`" if not package else r"`([\w/]+(?:\.py|/))`", line)
            found += [(page, package + name) for name in names]
    return found


@pytest.mark.parametrize(("page", "module"), sorted(set(modules())))
def test_modules_that_are_named_exist(page: str, module: str):
    places = [ROOT / module, ROOT / "src" / "adjourn" / module]
    if "/" not in module:  # One that was named before, with its folder.
        places += [*(ROOT / "src" / "adjourn").rglob(module), *(ROOT / "tests").rglob(module)]
    assert any(place.exists() for place in places)


def test_every_module_is_named():
    """It stands in the table of its package, or its folder, which has no table, in that of the package around it."""
    page, source = "docs/architecture.md", ROOT / "src" / "adjourn"
    tables = {header[1].removeprefix("adjourn/") for header in PACKAGE.finditer((ROOT / page).read_text("utf-8"))}
    named = {name for where, name in modules() if where == page} - tables
    paths = [path.relative_to(source) for path in source.rglob("*.py") if not path.stem.startswith("__")]
    missing = [str(path) for path in paths if str(path) not in named and f"{path.parent}/" not in named]
    assert [name for name in missing if not name.startswith("middleware/")] == []  # "one file each"
