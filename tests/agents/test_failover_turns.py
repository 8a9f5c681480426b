"""Failover over turns."""

from __future__ import annotations

from adjourn import ChatModelAgent, Runner
from adjourn.errors import ModelError
from adjourn.stores import Store
from adjourn.testing import ScriptedModel


async def test_the_model_that_answered_last_is_asked_first_in_the_next_turn(store: Store) -> None:  # rule A8
    first, second = ScriptedModel([ModelError("away")]), ScriptedModel(["one", "two"])

    def runner() -> Runner:
        return Runner(ChatModelAgent("A", model=first, failover=[second]), store=store)

    assert (await runner().run("hi", session_id="s")).output == "one"
    assert (await runner().run("again", session_id="s")).output == "two"
    assert len(first.requests) == 1
