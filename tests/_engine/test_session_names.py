"""Names of sessions, users and apps: any text, and nothing else."""

from collections.abc import Callable
from typing import Any

import pytest

from adjourn import UsageError, interrupt
from adjourn.stores import Store
from tests._engine.asking import lone


def ask(state: Any) -> Any:
    return {"log": [interrupt("a", key="a")]}


@pytest.mark.parametrize("name", [5, b"x", "\ud800", ("a",)], ids=repr)
async def test_names_that_could_not_be_read_again_are_refused(name: Any, store: Store):  # rules C10, C12
    graph = lone(ask, store=store)
    await graph.run({}, session_id="s")
    calls: list[Callable[[], Any]] = [
        lambda: graph.resume("s", {"a": 1}, by=name),
        lambda: graph.resume(name, {"a": 1}),
        lambda: graph.recover(name),
        lambda: graph.run({}, session_id=name),
        lambda: graph.run({}, session_id="t", user_id=name),
        lambda: lone(ask, store=store, app_name=name),
    ]
    for call in calls:
        with pytest.raises(UsageError):
            call()
    with pytest.raises(UsageError):
        await graph.fork("s", to=name)
    assert [each.session_id for each in await graph.sessions()] == ["s"]
    assert (await graph.resume("s", {"a": 1})).status == "done"


async def test_an_empty_session_id_is_no_name(store: Store):  # rule C12
    with pytest.raises(UsageError, match="session_id"):
        lone(ask, store=store).run({}, session_id="")
