"""Tools that raise: the model is told what happened, and nothing else breaks."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from adjourn import Approve, Runner, ToolError, current, interrupt, tool
from adjourn.errors import NotStorable, StoreUnavailable
from adjourn.stores import MemoryStore, Store
from adjourn.testing import FaultStore
from tests.agents.calling import agent, all_of, call, results, runner, told

ROOT = Path(__file__).parents[2]
ran: list[Any] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()


class Broken(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even its text")


class Own(BaseException):
    pass


def raising(error: BaseException, **options: Any) -> Any:
    def fail() -> str:
        """Fail."""
        raise error

    return tool(fail, **options)


def raising_async(error: BaseException, **options: Any) -> Any:
    async def fail() -> str:
        """Fail."""
        raise error

    return tool(fail, **options)


def raising_stream(error: BaseException, **options: Any) -> Any:
    async def fail() -> Any:
        """Fail."""
        yield "one"
        raise error

    return tool(fail, **options)


WAYS: dict[str, Any] = {
    "thread": raising,
    "inline": partial(raising, thread=False),
    "async": raising_async,
    "stream": raising_stream,
    "timed": partial(raising_async, timeout=20),
}

ERRORS: list[tuple[BaseException, str]] = [
    (ValueError("bad"), "ValueError: bad"),
    (ToolError("cannot do that"), "Error: cannot do that"),
    (KeyError("x"), "KeyError: 'x'"),
    (Exception(), "Exception"),
    (RecursionError("too deep"), "RecursionError"),
    (MemoryError(), "MemoryError"),
    (ExceptionGroup("several", [ValueError("one"), TypeError("two")]), "several"),
    (AssertionError("not so"), "not so"),
    (Broken(), "Broken"),
    (StopIteration("odd"), "StopIteration"),
    (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), "UnicodeDecodeError"),
    (LookupError("\ud800 \x00"), "LookupError"),
    (SystemExit(3), "end the program"),
    (asyncio.CancelledError(), "cancelled"),
    (TimeoutError("own"), "own"),
    (Own("its own"), "Own: its own"),
    (BaseExceptionGroup("several", [Own("one")]), "several"),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("error", "text"), ERRORS, ids=lambda each: type(each).__name__)
async def test_the_model_is_told_and_the_run_goes_on(way: str, error: BaseException, text: str) -> None:  # rule T1
    made = runner([WAYS[way](error)], call("fail"))
    events = await asyncio.wait_for(all_of(made.run("go", session_id="s")), 120)
    (read,) = results(await made.messages("s"))
    assert text in read
    assert read.startswith("Error: ")
    assert "Traceback" not in read
    assert __file__ not in read
    (ended,) = told(events)
    assert ended.error is not None
    assert (await made.status("s")).status == "done"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("error", [ValueError("bad"), SystemExit(3), RecursionError("deep")], ids=repr)
async def test_raised_where_errors_are_to_be_raised_it_can_be_recovered(
    store: Store, way: str, error: BaseException
) -> None:  # rule T1
    made = runner([WAYS[way](error)], call("fail"), store=store, on_tool_error="raise")
    with pytest.raises(Exception, match=r"bad|program|deep"):
        await made.run("go", session_id="s")
    assert (await made.status("s")).status == "failed"
    mended = runner([tool(lambda: "mended", name="fail")], store=store, on_tool_error="raise")
    assert results(await mended.recover("s")) == ["mended"]


@pytest.mark.parametrize("way", ["thread", "inline", "async", "timed"])
async def test_what_is_no_exception_at_all_does_not_hang_the_run(way: str) -> None:  # rule T1
    calls = [call("fail", "c1"), call("ok", "c2")]
    made = runner([WAYS[way](GeneratorExit()), tool(lambda: "ok", name="ok")], calls)
    with pytest.raises(BaseException):  # noqa: B017, PT011  # whichever it is, it ends
        await asyncio.wait_for(made.run("go"), 120)


def test_ctrl_c_in_a_tool_stops_the_program_and_the_session_recovers(tmp_path: Path) -> None:  # rule T1
    path = tmp_path / "s.db"
    code = f"""
import asyncio
from adjourn import ChatModelAgent, Runner, ToolCall, tool
from adjourn.testing import ScriptedModel

@tool
async def fail() -> str:
    "Fail."
    raise KeyboardInterrupt

async def main():
    model = ScriptedModel([ToolCall(id="c1", name="fail", arguments={{}}), "done"])
    await Runner(ChatModelAgent("A", model=model, tools=[fail]), store="sqlite:///{path}").run("go", session_id="s")

with asyncio.Runner() as loop:
    try:
        loop.run(main())
    except KeyboardInterrupt:
        print("stopped")
    status = Runner(ChatModelAgent("A", model=ScriptedModel([])), store="sqlite:///{path}").status("s")
    print(loop.run(status).status)
"""
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, timeout=600, check=False)
    assert ended.stdout.decode().split() == ["stopped", "failed"], ended.stderr.decode()
    made = runner([tool(lambda: "mended", name="fail")], store=f"sqlite:///{path}")
    assert results(made.recover_sync("s")) == ["mended"]


async def test_a_real_recursion_is_told() -> None:  # rule T1
    def deep(number: int) -> int:
        return deep(number + 1) + 1

    for thread in (True, False):
        endless = tool(lambda: str(deep(0)), name="endless", thread=thread)
        (text,) = results(await runner([endless], call("endless")).run("go"))
        assert "RecursionError" in text


async def test_a_very_long_error_is_cut() -> None:  # rule T1
    made = runner([raising(ValueError("x" * 5_000_000))], call("fail"))
    (text,) = results(await made.run("go"))
    assert len(text) < 200_000


UNSTORABLE: list[Any] = [object(), threading.Lock(), lambda: 1, {1: object()}, float("nan"), [float("inf")], b"\xff"]


@pytest.mark.parametrize("value", UNSTORABLE)
async def test_a_result_without_a_form_in_json_is_told_with_its_type(value: Any) -> None:  # rule T1
    async def give() -> Any:
        """Give something."""
        return value

    (text,) = results(await runner([tool(give)], call("give")).run("go"))
    assert text.startswith("Error: ") or isinstance(value, bytes)


async def test_a_result_that_holds_itself_is_told() -> None:  # rule T1
    async def give() -> Any:
        """Give a list of itself."""
        items: list[Any] = []
        items.append(items)
        return items

    (text,) = results(await runner([tool(give)], call("give")).run("go"))
    assert text.startswith("Error: ")


async def test_what_cannot_be_shown_to_a_person_is_refused_where_it_is_asked(store: Store) -> None:  # rule I7
    @tool
    async def ask() -> str:
        """Ask with something that cannot be kept."""
        try:
            interrupt({"lock": threading.Lock()})
        except NotStorable as error:
            ran.append(str(error))
            raise
        return "no"

    with pytest.raises(NotStorable, match="lock"):
        await runner([ask], call("ask"), store=store).run("go", session_id="s")
    assert "lock" in ran[0]


async def test_a_session_value_that_cannot_be_kept_is_refused_where_it_is_written() -> None:  # rule I7
    @tool
    async def write() -> str:
        """Write."""
        current().values["lock"] = threading.Lock()
        return "no"

    (text,) = results(await runner([write], call("write")).run("go"))
    assert "NotStorable" in text


async def test_what_a_failed_call_wrote_and_wanted_is_dropped(store: Store) -> None:  # rules R15, T8
    @tool
    async def fail() -> str:
        """Write, want to exit, and fail."""
        current().values["written"] = 1
        current().exit("out")
        raise ValueError("bad")

    @tool
    async def look() -> str:
        """Look at the values."""
        return f"{dict(current().values)}"

    made = runner([fail, look], call("fail"), call("look", "c2"), store=store)
    result = await made.run("go", session_id="s")
    assert (result.output, results(result)[1]) == ("done", "{}")


async def test_a_refused_or_failed_call_leaves_what_was_remembered(store: Store) -> None:  # rules T5, R15
    made = runner([raising(ValueError("bad"), approval=True)], call("fail"), call("fail", "c2"), store=store)
    asked = await made.run("go", session_id="s")
    result = await made.resume("s", {asked.interrupts[0].id: Approve(remember="session")})
    assert (result.status, len(results(result))) == ("done", 2)


async def test_a_tools_error_does_not_hide_that_the_store_is_away() -> None:  # rule C11
    inner = MemoryStore()
    for place in range(2, 6):
        store = FaultStore(inner, fail_at=place, times=1000)
        made = Runner(
            agent([tool(lambda: "ok", name="ok", at_most_once=True)], call("ok")), store=store, store_timeout=0.01
        )
        with pytest.raises(StoreUnavailable):
            await made.run("go", session_id=f"s{place}")
