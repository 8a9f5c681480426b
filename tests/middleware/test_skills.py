"""Skills: folders with a SKILL.md, told to an agent and read when it needs them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adjourn import Runner, UsageError, interrupt, tool
from adjourn.middleware import Skills

from .conftest import Reopen
from .scripts import call, result_of, scripted


def skill(root: Path, folder: str, text: str) -> Path:
    (root / folder).mkdir(parents=True)
    (root / folder / "SKILL.md").write_text(text)
    return root / folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "skills"
    skill(made, "tickets", "---\nname: tickets\ndescription: How tickets are booked.\n---\n\nSee rules.md.\n")
    (made / "tickets" / "rules.md").write_text("No smoking.")
    (made / "no skill").mkdir()
    return made


async def test_skills_are_told_of_and_read_when_needed(root: Path) -> None:
    agent, model = scripted(
        [call("read_skill", name="tickets"), call("read_skill", "c2", name="tickets", file="rules.md")],
        "done",
        middleware=[Skills(root)],
        instruction="Be kind.",
    )
    result = await Runner(agent).run("go")
    told = model.requests[0].messages[0].text
    assert told.startswith("Be kind.\n\n")
    assert "- tickets: How tickets are booked." in told
    assert "No smoking" not in told
    assert result_of(result.messages, "c1") == "See rules.md."
    assert result_of(result.messages, "c2") == "No smoking."


@pytest.mark.parametrize("file", ["../../secret", "/etc/passwd", "a\0", "out.md", "none.md", "n" * 300])
async def test_a_file_that_is_none_of_the_skill_is_not_read(root: Path, file: str) -> None:  # attack 18
    (root.parent / "secret").write_text("secret")
    (root / "tickets" / "out.md").symlink_to(root.parent / "secret")
    agent, _ = scripted(call("read_skill", name="tickets", file=file), "done", middleware=[Skills(root)])
    text = result_of((await Runner(agent).run("go")).messages)
    assert text.startswith("Error: ")
    assert "secret" not in text.replace(repr(file), "")


async def test_a_skill_that_is_not_there_is_told_with_those_that_are(root: Path) -> None:
    agent, _ = scripted(call("read_skill", name="trains"), "done", middleware=[Skills(root)])
    result = await Runner(agent).run("go")
    assert "There is no skill 'trains'. There are: tickets." in result_of(result.messages)


BAD = {
    "no yaml": "---\n{]\n---\n",
    "no front matter": "# Title\n",
    "open": "---\nname: x\n",
    "neither": "---\nname: x\ndescription: x\ndisable-model-invocation: perhaps\n---\n",
    "bad name": "---\nname: ../x\ndescription: x\n---\n",
    "a list": "---\nname:\n  - x\ndescription: x\n---\n",
    "no description": "---\nname: x\n---\n",
    "long": f"---\nname: x\ndescription: {'x' * 2000}\n---\n",
    "twice": "---\nname: tickets\ndescription: x\n---\n",
    "key twice": "---\nname: x\nname: y\ndescription: x\n---\n",
}


@pytest.mark.parametrize("why", BAD)
async def test_a_bad_skill_is_an_error_with_its_file_or_left_out_and_told(
    root: Path, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    skill(root, "zzz", BAD[why])
    with pytest.raises(UsageError, match=r"cannot be read:\n  - zzz/SKILL.md: "):
        Skills(root)
    assert list(Skills(root, on_bad="skip").skills) == ["tickets"]
    assert "A skill is left out: zzz/SKILL.md" in caplog.text


def test_bytes_and_links_out_are_bad_skills_too_and_all_are_told_at_once(root: Path) -> None:
    (skill(root, "bytes", "") / "SKILL.md").write_bytes(b"\xff")
    (root / "link").mkdir()
    (root.parent / "other.md").write_text("---\nname: other\ndescription: x\n---\n")
    (root / "link" / "SKILL.md").symlink_to(root.parent / "other.md")
    with pytest.raises(UsageError) as caught:
        Skills(root)
    assert "bytes/SKILL.md: 'SKILL.md' is not UTF-8 text" in str(caught.value)
    assert "link/SKILL.md: 'SKILL.md' is a link that leads out" in str(caught.value)


def test_a_folder_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no such folder"):
        Skills(tmp_path / "none")


async def test_without_skills_the_agent_is_as_it_was(tmp_path: Path) -> None:
    agent, model = scripted("done", middleware=[Skills(tmp_path)])
    await Runner(agent).run("go")
    assert model.requests[0].tools == ()


async def test_they_are_there_after_a_pause_in_another_process(root: Path, reopen: Reopen) -> None:
    @tool
    async def ask() -> str:
        """Ask."""
        return str(interrupt("go on?", key="ask"))

    def agent(*script: Any) -> Any:
        return scripted(*script, tools=[ask], middleware=[Skills(root)])[0]

    await Runner(agent([call("ask"), call("read_skill", "c2", name="tickets")]), store=reopen()).run(
        "go", session_id="s1"
    )
    runner = Runner(agent(call("read_skill", "c3", name="tickets"), "done"), store=reopen())
    result = await runner.resume("s1", {"ask": "yes"})
    assert result_of(result.messages, "c2") == result_of(result.messages, "c3") == "See rules.md."


HEAD = "---\nname: tickets\ndescription: How tickets are booked.\n"


@pytest.mark.parametrize(
    "line", ["context: fork", "agent: Explore", "model: opus", "effort: high", "hooks:\n  Stop:\n    - run: {a: b}"]
)
async def test_what_would_change_how_a_skill_runs_is_refused_unless_it_is_ignored(tmp_path: Path, line: str) -> None:
    skill(tmp_path, "tickets", f"{HEAD}{line}\n---\n\nText.\n")
    key = line.partition(":")[0]
    with pytest.raises(UsageError, match=f"it wants '{key}: .*ignore=\\['{key}'\\]"):
        Skills(tmp_path)
    assert not Skills(tmp_path, on_bad="skip").skills
    skills = Skills(tmp_path, ignore=[key])
    assert (list(skills.skills), await skills.read_skill("tickets")) == (["tickets"], "Text.")
    with pytest.raises(UsageError, match="give a list of some of these: context, agent"):
        Skills(tmp_path, ignore=["name"])


@pytest.mark.parametrize(
    "line",
    [
        "allowed-tools: Read, Bash(git add *)",
        "allowed-tools: [Read, Bash(git add *)]",
        "context: inline\nallowed-tools:\n  - Read\n  - Bash(git add *)",
    ],
)
async def test_allowed_tools_are_told_with_the_skill(tmp_path: Path, line: str) -> None:
    skill(tmp_path, "tickets", f"{HEAD}{line}\n---\n\nText.\n")
    text = await Skills(tmp_path).read_skill("tickets")
    assert text == "[Use only these tools with this skill: Read, Bash(git add *).]\n\nText."


@pytest.mark.parametrize(("value", "is_left_out"), [("true", True), ("True", True), ("yes", True), ("no", False)])
def test_a_skill_that_models_must_not_use_is_left_out(tmp_path: Path, value: str, is_left_out: bool) -> None:
    skill(tmp_path, "tickets", f"{HEAD}disable-model-invocation: {value}\n---\n\nText.\n")
    assert (not Skills(tmp_path).skills) is is_left_out


def test_what_is_common_is_read(tmp_path: Path) -> None:
    lines = "description: Use when: a ticket is lost # often\nmodel: inherit\nmetadata:\n  tags: [a, b]"
    skill(tmp_path, "lost-tickets", f"---\n{lines}\n---\n\nText.\n")
    (found,) = Skills(tmp_path).skills.values()
    assert (found.name, found.description) == ("lost-tickets", "Use when: a ticket is lost")
    assert found.about["metadata"] == {"tags": ["a", "b"]}
