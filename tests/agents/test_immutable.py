"""Agents in use do not change."""

from __future__ import annotations

import pytest

from adjourn import ChatModelAgent, Runner
from adjourn.testing import ScriptedModel


async def test_an_agent_that_has_run_cannot_be_changed() -> None:
    agent = ChatModelAgent("A", model=ScriptedModel(["hi"]), instruction="Be kind.")
    await Runner(agent).run("hello")
    with pytest.raises(AttributeError, match="'A' is in use"):
        agent.instruction = "Be rude."
    assert agent.instruction == "Be kind."
