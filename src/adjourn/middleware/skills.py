"""Skills: instructions in folders that an agent reads when it needs them."""

# An override is documented where it is declared.
# ruff: noqa: D102

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from adjourn._habits import checks_options
from adjourn._hiding import logger
from adjourn._text import visible_line
from adjourn.errors import UsageError, text_of
from adjourn.tools import tool

from ._front_matter import Value, read_front_matter
from .files.backends import FileError, FolderBackend
from .hooks import Middleware, Setup, noted

FILE = "SKILL.md"
MAX_SIZE = 1_000_000
MAX_DESCRIPTION = 1024
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
TRUE, FALSE = ("true", "yes", "on"), ("false", "no", "off", "")
REFUSED = ("context", "agent", "model", "effort", "hooks")
"""The keys that would change how a skill runs, which an agent that just reads it cannot do."""
CHANGE_NOTHING = (("context", "inline"), ("model", "inherit"))
_log = logger(__name__)


class Skill(Struct, frozen=True, kw_only=True):
    """A skill: its folder, and the front matter of its `SKILL.md`."""

    name: str
    description: str
    folder: Path
    about: Mapping[str, Value]


class Skills(Middleware):
    """Lists the skills in `root` to an agent, and provides it with the tool `read_skill`.

    A skill is a folder with a `SKILL.md`: at the top, between lines of `---`, `name: ...` (by default the folder's
    name) and `description: ...`, and below the text that the agent reads when it uses the skill. It may refer to other
    files of the folder, which the agent can read as well. `allowed-tools` is told to the agent together with the skill,
    and approves nothing; with `disable-model-invocation: true` a skill is left out. What else would have to change how
    a skill runs (`context`, `agent`, `model`, `effort`, `hooks`) is refused, unless `ignore` names it. Skills that
    cannot be used raise a `UsageError` here that lists all problems; with `on_bad="skip"` they are logged and left out.
    Reading them needs the extra `yaml`.
    """

    @checks_options
    def __init__(
        self, root: str | os.PathLike[str], *, on_bad: Literal["raise", "skip"] = "raise", ignore: Sequence[str] = ()
    ) -> None:
        if on_bad not in ("raise", "skip"):
            raise UsageError(f"Skills(on_bad={on_bad!r}): use 'raise' or 'skip'.")
        for key in [ignore] if isinstance(ignore, str) else ignore:
            if isinstance(ignore, str) or key not in REFUSED:
                raise UsageError(f"Skills(ignore={ignore!r}): give a list of some of these: {', '.join(REFUSED)}.")
        self.skills: Mapping[str, Skill] = _load(Path(root), frozenset(ignore), raises=on_bad == "raise")
        self._tools = (tool(self.read_skill),) if self.skills else ()

    def before_agent(self, setup: Setup) -> Setup:
        if not self.skills:
            return setup
        listed = "\n".join(f"- {skill.name}: {skill.description}" for skill in self.skills.values())
        note = f"You have skills. When one fits your task, read it with `read_skill` first:\n{listed}"
        return noted(setup, note, self._tools)

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
        if file != FILE:
            return text
        allowed = _texts(skill.about.get("allowed-tools", ""))
        note = f"[Use only these tools with this skill: {', '.join(allowed)}.]\n\n" if allowed else ""
        return note + read_front_matter(text)[1]


def _load(root: Path, ignored: Collection[str], *, raises: bool) -> dict[str, Skill]:
    if not root.is_dir():
        raise UsageError(f"Skills({str(root)!r}): there is no such folder.")
    found, problems = dict[str, Skill](), list[str]()
    for folder in sorted(path.parent for path in root.glob(f"*/{FILE}")):
        try:
            skill = _read(folder, ignored)
            if _is_true(skill.about, "disable-model-invocation"):
                continue
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


def _is_true(about: Mapping[str, Value], key: str) -> bool:
    value = about.get(key, "")
    text = value.lower() if isinstance(value, str) else None
    if text not in (*TRUE, *FALSE):
        raise ValueError(f"'{key}: {value}' is neither true nor false")
    return text in TRUE


def _read(folder: Path, ignored: Collection[str]) -> Skill:
    text = FolderBackend(folder, max_size=MAX_SIZE).read_now(FILE)
    about, _ = read_front_matter(text)
    name, description = about.get("name") or folder.name, about.get("description")
    for problem in (*_problems(name, description), *_refused(about, ignored)):
        raise ValueError(problem)
    return Skill(name=str(name), description=str(description), folder=folder, about=about)


def _problems(name: object, description: object) -> Iterator[str]:
    if not isinstance(name, str) or len(name) > 64 or not _NAME.fullmatch(name):
        yield f"the name is {name!r}; use up to 64 lowercase letters, digits and hyphens"
    if not isinstance(description, str) or not 0 < len(description) <= MAX_DESCRIPTION:
        yield f"it has no description; give one of up to {MAX_DESCRIPTION} characters"


def _refused(about: Mapping[str, Value], ignored: Collection[str]) -> Iterator[str]:
    for key in REFUSED:
        value = about.get(key, "")
        if value and key not in ignored and (key, value) not in CHANGE_NOTHING:
            shown = " ".join(str(value).split())[:60]
            yield (
                f"it wants '{key}: {shown}', and a skill is only read here. Give the work to another agent "
                f"(`agent.as_tool()`), remove the line, or use it anyway with Skills(..., ignore=['{key}'])"
            )


def _texts(value: Value) -> list[str]:
    """Return a list, which may be written with commas or spaces."""
    return (
        [each for each in re.split(r",\s*|\s+(?![^()]*\))", value) if each]
        if isinstance(value, str)
        else [str(each) for each in value]
    )
