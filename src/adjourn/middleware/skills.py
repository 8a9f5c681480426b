"""Skills: instructions in folders that an agent reads when it needs them."""

# An override is documented where it is declared.
# ruff: noqa: D102

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from adjourn._text import visible_line
from adjourn.errors import UsageError, text_of
from adjourn.tools import tool

from ._front_matter import Value, read_front_matter
from .files.backends import FileError, FolderBackend
from .hooks import Middleware, Setup

FILE = "SKILL.md"
MAX_SIZE = 1_000_000
MAX_DESCRIPTION = 1024
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_log = logging.getLogger(__name__)


class Skill(Struct, frozen=True, kw_only=True):
    """A skill: its folder, and the front matter of its `SKILL.md`."""

    name: str
    description: str
    folder: Path
    about: Mapping[str, Value]


class Skills(Middleware):
    """Lists the skills in `root` to an agent, and provides it with the tool `read_skill`.

    A skill is a folder with a `SKILL.md`: at the top, between lines of `---`, `name: ...` and `description: ...`, and
    below the text that the agent reads when it uses the skill. It may refer to other files of the folder, which the
    agent can read as well. Skills that cannot be read raise a `UsageError` here that lists all problems; with
    `on_bad="skip"` they are logged and left out.
    """

    def __init__(self, root: str | os.PathLike[str], *, on_bad: Literal["raise", "skip"] = "raise") -> None:
        if on_bad not in ("raise", "skip"):
            raise UsageError(f"Skills(on_bad={on_bad!r}): use 'raise' or 'skip'.")
        self.skills: Mapping[str, Skill] = _load(Path(root), raises=on_bad == "raise")
        self._tools = (tool(self.read_skill),) if self.skills else ()

    def before_agent(self, setup: Setup) -> Setup:
        if not self.skills:
            return setup
        listed = "\n".join(f"- {skill.name}: {skill.description}" for skill in self.skills.values())
        note = f"You have skills. When one fits your task, read it with `read_skill` first:\n{listed}"
        instruction = f"{setup.instruction}\n\n{note}" if setup.instruction else note
        return replace(setup, instruction=instruction, tools=(*setup.tools, *self._tools))

    async def read_skill(self, name: str, file: str = FILE) -> str:
        """Read a skill.

        Args:
            name: Which skill.
            file: Another file of the skill; by default the skill itself.
        """
        skill = self.skills.get(name)
        if skill is None:
            raise FileError(f"There is no skill '{name}'. There are: {', '.join(self.skills)}.")
        text = await FolderBackend(skill.folder, max_size=MAX_SIZE).read(file)
        return read_front_matter(text)[1] if file == FILE else text


def _load(root: Path, *, raises: bool) -> dict[str, Skill]:
    if not root.is_dir():
        raise UsageError(f"Skills({str(root)!r}): there is no such folder.")
    found, problems = dict[str, Skill](), list[str]()
    for folder in sorted(path.parent for path in root.glob(f"*/{FILE}")):
        try:
            skill = _read(folder)
            if skill.name in found:
                raise ValueError(f"{found[skill.name].folder.name}/{FILE} also has the name '{skill.name}'")
            found[skill.name] = skill
        except (FileError, ValueError) as error:
            problems.append(f"{folder.name}/{FILE}: {text_of(error)}")
    if problems and raises:
        raise UsageError(f"Skills in '{root}' cannot be read:" + "".join(f"\n  - {each}" for each in problems))
    for problem in problems:
        _log.warning("A skill is left out: %s", visible_line(problem))
    return found


def _read(folder: Path) -> Skill:
    text = FolderBackend(folder, max_size=MAX_SIZE).read_now(FILE)
    about, _ = read_front_matter(text)
    name, description = about.get("name"), about.get("description")
    for problem in _problems(name, description):
        raise ValueError(problem)
    return Skill(name=str(name), description=str(description), folder=folder, about=about)


def _problems(name: object, description: object) -> Iterator[str]:
    if not isinstance(name, str) or len(name) > 64 or not _NAME.fullmatch(name):
        yield f"the name is {name!r}; use up to 64 lowercase letters, digits and hyphens"
    if not isinstance(description, str) or not 0 < len(description) <= MAX_DESCRIPTION:
        yield f"it has no description; give one of up to {MAX_DESCRIPTION} characters"
