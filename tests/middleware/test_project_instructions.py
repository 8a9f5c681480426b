"""Instructions from files such as AGENTS.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from adjourn import Runner, UsageError
from adjourn.middleware import ProjectInstructions

from .scripts import scripted


async def test_the_files_are_part_of_the_instruction_and_read_anew_for_each_turn(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("Use tabs.\n")
    (tmp_path / "more.md").write_text("Literally {this}.")
    middleware = [ProjectInstructions(tmp_path, tmp_path / "more.md")]
    agent, model = scripted("1", "2", instruction="Be kind.", middleware=middleware)
    runner = Runner(agent)
    await runner.run("go", session_id="s")
    (tmp_path / "AGENTS.md").write_text("Use spaces.")
    await runner.run("on", session_id="s")
    told = [request.messages[0].text for request in model.requests]
    assert told[0] == ("Be kind.\n\n<AGENTS.md>\nUse tabs.\n</AGENTS.md>\n\n<more.md>\nLiterally {this}.\n</more.md>")
    assert "Use spaces." in told[1]


def test_what_cannot_be_read_is_told_where_it_is_given(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"AGENTS.md' cannot be read"):
        ProjectInstructions(tmp_path)
    (tmp_path / "AGENTS.md").write_text("x" * 20)
    with pytest.raises(UsageError, match=r"AGENTS.md' cannot be read"):
        ProjectInstructions(tmp_path, max_size=10)
    with pytest.raises(UsageError, match=r"cannot be read"):
        ProjectInstructions(tmp_path / "gone" / "AGENTS.md")
