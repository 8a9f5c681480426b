"""The options of a runner: each is explained, and one that cannot work is refused where it is given."""

import inspect
from pathlib import Path
from typing import Any

import pytest

from adjourn import ChatModelAgent, Message, Runner, UsageError, current, workflow
from adjourn.errors import MaxStepsExceeded
from adjourn.middleware import LogCalls
from adjourn.runner import TurnOptions
from adjourn.runner._settings import Options
from adjourn.stores import MemoryStore
from adjourn.testing import ScriptedModel

from .programs import steps


@workflow
async def greet(_: Any) -> str:
    return "hello"


def compiled(**options: Any) -> Runner:
    return steps("a", **options)


def running(**options: Any) -> Runner:
    return Runner(greet, **options)


def lines(documented: Any) -> list[str]:
    return [line.strip() for line in (documented.__doc__ or "").splitlines()]


@pytest.mark.parametrize("option", Options.__annotations__)
def test_help_tells_every_option_in_one_line(option: str):
    assert len([line for line in lines(Runner.__init__) if line.startswith(f"{option}: ")]) == 1


WRONG: dict[str, list[Any]] = {
    "durability": ["maybe", None, 5, ["step"]],
    "app_name": [5, None, b"x"],
    "deps": [],
    "values": [5, "limit", None, ["limit"]],
    "require_token": ["no", 0, None],
    "self_approval": ["no", 0, None],
    "require_by": ["yes", 1, None],
    "may_answer": ["ann", 5, True],
    "notify": ["https://example.com", 5, True],
    "audit_key": ["short", 5, [], ["short"]],
    "streaming": ["no", 0, None],
    "middleware": [5, "x", None, object(), [LogCalls], [object()], ["LogCalls"], [LogCalls(), None]],
    "after_transfer": ["away", None, ["stay"]],
    "interrupts": ["no", 0, None],
    "max_concurrency": ["x", 0, 1.5, True, [2]],
    "lease_ttl": ["x", 0, -1, None, True, float("nan")],
    "store_timeout": ["30", 0, None, [1]],
    "max_session_bytes": ["x", 0, 1.5, None, True, 2**40],
    "clock": [5, "now"],
    "new_id": ["id", 7],
    "store": [5, Path("file.db"), object()],
}


@pytest.mark.parametrize("make", [compiled, running])
@pytest.mark.parametrize("option", WRONG)
def test_an_option_that_cannot_work_is_refused(option: str, make: Any):
    for value in WRONG[option]:
        with pytest.raises(UsageError, match=option):
            make(**{option: value})


@pytest.mark.parametrize("name", [".", "..", ""])
async def test_a_name_that_vanishes_from_urls_is_refused(name: str):  # rule C12
    runner = running(store=MemoryStore())
    await runner.run({}, session_id="s")
    with pytest.raises(UsageError, match="session_id"):
        await runner.run({}, session_id=name)
    with pytest.raises(UsageError, match="session_id"):
        await runner.submit({}, session_id=name)
    with pytest.raises(UsageError, match="session_id"):
        await runner.fork("s", to=name)
    with pytest.raises(UsageError, match="id"):
        await runner.submit({}, session_id="s", id=name)
    for fine in ("...", "./", " ."):
        await runner.run({}, session_id=fine)


def test_every_option_is_checked():
    assert WRONG.keys() == Options.__annotations__.keys()


@pytest.mark.parametrize("make", [compiled, running])
@pytest.mark.parametrize(
    "url",
    ["file.db", "mysql://x", "redis://", "sqlite://file.db", "sqlite:///a.db?x=1", "sqlite:///a.db?timeout=x", ""],
)
def test_a_wrong_url_is_refused_where_it_is_given(url: str, make: Any):
    with pytest.raises(UsageError, match=r"sqlite:///|option|timeout|Redis server"):
        make(store=url)


@pytest.mark.parametrize("make", [compiled, running])
def test_a_file_is_not_opened_before_it_is_needed(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    make(store="sqlite:///later.db")
    make(store="sqlite:///no/such/folder/later.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("given", ["x", 0, 1.5, True, [1]])
def test_max_steps_of_a_call_that_cannot_work_is_refused(given: Any):
    runner = running()
    for call in (runner.run, runner.resume, runner.recover):
        with pytest.raises(UsageError, match="max_steps"):
            call(session_id="s", max_steps=given)


async def test_options_of_a_workflows_run_count_for_what_it_runs():
    graph = steps("a", "b", "c")

    @workflow
    async def walks(_: Any) -> Any:
        return await current().run(graph, {})

    with pytest.raises(MaxStepsExceeded):
        await Runner(walks).run(1, max_steps=2)
    assert (await Runner(walks).run(1, max_steps=3)).status == "done"

    agent = ChatModelAgent("A", model=ScriptedModel([lambda request: Message.assistant(str(request.options))]))

    @workflow
    async def asks(_: Any) -> Any:
        return await current().run(agent, "hi")

    assert "0.5" in (await Runner(asks).run(1, model_options={"temperature": 0.5})).value


@pytest.mark.parametrize("name", ["extra_headers", "Authorization", "api-key", "api_key", "headers"])
def test_secrets_among_the_options_of_a_turn_are_refused_and_not_shown(name: str) -> None:  # attack 10
    @workflow
    async def asks(_: int) -> None:
        """Do nothing."""

    with pytest.raises(UsageError, match="options are stored with the turn") as caught:
        Runner(asks).run(1, model_options={name: "s3cret"})
    assert "s3cret" not in str(caught.value)
    with pytest.raises(UsageError, match="give a mapping of names to JSON values") as caught:
        Runner(asks).run(1, model_options={name: {"s3cret", 1}, "x": object()})
    assert "s3cret" not in str(caught.value)


def test_the_options_of_a_turn_are_those_of_run():
    named = set(inspect.signature(Runner.run).parameters) - {"self", "input", "session_id"}
    assert set(TurnOptions.__annotations__) == named - {"state"}  # The state is what a graph is invoked with.
