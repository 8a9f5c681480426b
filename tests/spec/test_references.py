"""`python://` leads into the folder, or to packages that the operator allows, and nowhere else."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from adjourn import ChatModelAgent, Runner
from tests.spec.folder import Folder, document

CHAT = "type: chat_model_agent\nmodel: python://parts:model\n"


def said(folder: Folder, reference: str, **options: object) -> str:
    """Return what is said about a reference; nothing if it is fine."""
    folder.add("x", f"{CHAT}tools: [{reference}]")
    return "\n".join(each.message + " " + each.hint for each in folder.load(**options).mistakes)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (
            "python://os:system",
            "no module os in the folder of agents If you mean an installed package, allow it: --allow os",
        ),
        ("python://subprocess:run", "--allow subprocess"),
        ("python://adjourn.testing:ScriptedModel", "--allow adjourn"),
        ("python://__main__:main", "no module __main__"),
        ("python://json:loads", "another module is called json, too"),
        ("python://colorsys:thing", "another module is called colorsys, too"),
        ("python://outside:run", "outside is a link that leads out of the folder"),
        ("python://parts:book.__globals__", "parts has no 'book.__globals__'"),
        ("python://reaching:os.system", "reaching has no 'os.system'"),
        ("python://broken:x", "importing broken failed with ZeroDivisionError: division by zero"),
        ("python://syntax:x", "importing syntax failed with SyntaxError"),
        ("python://needy:x", "importing needy failed: No module named 'nothing_of_that_name' Install what it imports"),
        ("python://leaving:x", "importing leaving ends the process"),
        ("python://pack.wrong:x", "no module pack.wrong"),
        ("python://lazy:x", "lazy:x failed with RuntimeError: not now"),
        ("python://..parts:book", "does not fit here"),
        ("python:///etc/passwd:x", "does not fit here"),
    ],
)
def test_what_leads_elsewhere_is_refused(folder: Folder, tmp_path: Path, reference: str, message: str):  # rule V6
    (tmp_path / "outside.py").write_text("raise SystemError('it ran')")
    (folder.path / "outside.py").symlink_to(tmp_path / "outside.py")
    for name in ("json", "colorsys"):  # one that Python has imported, and one that it has not
        folder.write(f"{name}.py", "raise SystemError('it ran')")
    sys.modules.pop("colorsys", None)
    folder.write("reaching.py", "import os\n")
    folder.write("broken.py", "1 / 0\n")
    folder.write("syntax.py", "def\n")
    folder.write("needy.py", "import nothing_of_that_name\n")
    folder.write("leaving.py", "raise SystemExit(0)\n")
    folder.write("pack/__init__.py", "")
    folder.write("lazy.py", "def __getattr__(name):\n    raise RuntimeError('not now')\n")
    found = said(folder, reference)
    assert message in found
    assert "it ran" not in found


def test_packages_of_the_operator_can_be_named(folder: Folder):
    assert "--allow adjourn" in said(folder, "python://adjourn._text:visible")
    assert said(folder, "python://adjourn._text:visible", allow=["adjourn"]) == ""
    assert "no module adjourn.nothing" in said(folder, "python://adjourn.nothing:x", allow=["adjourn"])


def test_modules_of_the_folder_import_each_other(folder: Folder):
    folder.write("tickets/__init__.py", "")
    folder.write("tickets/prices.py", "PRICE = 7\n")
    folder.write(
        "tickets/tools.py",
        "from tickets.prices import PRICE\nfrom .prices import PRICE as SAME\n\n"
        "class Desk:\n    def price(self) -> int:\n        'Price.'\n        return PRICE + SAME\n\ndesk = Desk()\n",
    )
    folder.add("x", f"{CHAT}tools: [python://tickets.tools:desk.price]")
    agent = folder.load().check().agents["x"]
    assert isinstance(agent, ChatModelAgent)
    assert agent.tools[0]() == 14


def test_only_modules_that_are_named_are_imported(folder: Folder):  # rule V6
    folder.write("unnamed.py", "raise SystemError('it ran')")
    folder.add("x", CHAT)
    assert folder.load().check()
    assert "unnamed" not in sys.modules
    assert not list(folder.path.rglob("__pycache__"))


def test_another_folder_has_its_own_modules(tmp_path: Path):
    found: list[str] = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        folder = Folder(tmp_path / name)
        folder.write("which.py", f"def {name}() -> str:\n    'Which.'\n    return '{name}'\n")
        folder.add("x", f"{CHAT}tools: [python://which:{name}]")
        agent = folder.load().check().agents["x"]
        assert isinstance(agent, ChatModelAgent)
        found.append(agent.tools[0]())
    assert found == ["one", "two"]


async def test_a_reload_gives_new_agents_and_leaves_the_old_ones_alone(folder: Folder):
    version = "def version() -> str:\n    'Version.'\n    return '{}'\n"
    folder.write("versions.py", version.format(1))
    folder.add("x", f"{CHAT}tools: [python://versions:version]")
    old = folder.load().check()
    assert not old.is_outdated
    folder.write("versions.py", version.format(2))  # as long as before, and in the same second
    assert old.is_outdated
    new = old.reload().check()
    assert not new.is_outdated
    tools = [agent.tools[0] for agent in (old.agents["x"], new.agents["x"]) if isinstance(agent, ChatModelAgent)]
    assert [tool() for tool in tools] == ["1", "2"]
    assert (await Runner(old.agents["x"]).run("hi")).output == "Answer to hi"


def test_a_reload_that_finds_mistakes_says_so_and_changes_nothing(folder: Folder):
    folder.add("x", CHAT)
    old = folder.load().check()
    folder.add("x", f"{CHAT}tools: 7")
    new = old.reload()
    assert new.mistakes
    assert not new.agents
    assert list(old.agents) == ["x"]
    folder.add("x", CHAT)
    (folder.path / "z.yaml").write_text(document("z", CHAT))
    assert list(new.reload().check().agents) == ["x", "z"]
    (folder.path / "z.yaml").unlink()
    assert new.is_outdated
