"""Tools that are tried again: with the same key, with what is on record, and never for a pause."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from adjourn import Middleware, Retry, Runner, current, interrupt, once, tool
from adjourn.errors import RetryExhausted
from adjourn.events import Custom, Retrying
from adjourn.stores import Store
from tests.agents.calling import agent, all_of, call, lone, results, runner

AGAIN = Retry(attempts=3, backoff=0)
ran: list[Any] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()


def flaky(times: int, error: type[Exception] = ConnectionError) -> None:
    """Fail the first few times."""
    ran.append(current().idempotency_key)
    if len(ran) <= times:
        raise error("not now")


class Around(Middleware):
    """Does nothing."""

    async def wrap_tool(self, call: Any, request: Any) -> Any:
        return await call(request)


@pytest.mark.parametrize("thread", [True, False])
async def test_tried_again_it_has_the_same_idempotency_key(store: Store, thread: bool) -> None:  # rules T6, R14
    def fetch() -> str:
        """Fetch."""
        flaky(2)
        return f"attempt {current().attempt}"

    made = runner([tool(fetch, retry=AGAIN, thread=thread)], call("fetch"), store=store)
    events = await all_of(made.run("go", session_id="s"))
    assert results(await made.messages("s")) == ["attempt 3"]
    assert (len(ran), len(set(ran))) == (3, 1)
    retries = [event for event in events if isinstance(event, Retrying)]
    assert [(event.attempt, event.max_attempts) for event in retries] == [(1, 3), (2, 3)]
    assert {event.address for event in retries} == {"agent:A;tool:fetch:c1"}


async def test_the_key_is_the_same_after_a_failure_a_pause_and_in_a_new_process(store: Store) -> None:  # rule R14
    @tool
    async def fetch() -> str:
        """Ask, then fail once."""
        ran.append(current().idempotency_key)
        interrupt("Go on?")
        if len(ran) == 2:
            raise ConnectionError("not now")
        return "fetched"

    asked = await runner([fetch], call("fetch"), store=store).run("go", session_id="s")
    with pytest.raises(ConnectionError):
        await runner([fetch], store=store, on_tool_error="raise").resume("s", {lone(asked): True})
    assert results(await runner([fetch], store=store).recover("s")) == ["fetched"]
    assert (len(ran), len(set(ran))) == (3, 1)


async def test_the_key_is_another_for_each_call_step_turn_and_session(store: Store) -> None:  # rule R14
    @tool
    async def fetch() -> str:
        """Fetch."""
        ran.append(current().idempotency_key)
        return "fetched"

    calls = [call("fetch", "c1"), call("fetch", "c2")]
    made = runner([fetch], calls, call("fetch", "c1"), "one", calls, "two", calls, store=store)
    await made.run("go", session_id="s")
    await made.run("go", session_id="s")
    await made.run("go", session_id="t")
    assert (len(ran), len(set(ran))) == (7, 7)


async def test_out_of_attempts_the_model_is_told(store: Store) -> None:  # rule T6
    @tool(retry=AGAIN)
    async def fetch() -> str:
        """Fail."""
        flaky(9)
        return "no"

    made = runner([fetch], call("fetch"), store=store)
    (text,) = results(await made.run("go", session_id="s"))
    assert "not now" in text
    assert len(ran) == 3


async def test_out_of_attempts_it_is_raised_where_errors_are_to_be_raised(store: Store) -> None:  # rule T6
    @tool(retry=AGAIN)
    async def fetch() -> str:
        """Fail."""
        flaky(3)
        return "fetched"

    made = runner([fetch], call("fetch"), store=store, on_tool_error="raise")
    with pytest.raises(RetryExhausted) as raised:
        await made.run("go", session_id="s")
    assert isinstance(raised.value.__cause__, ConnectionError)
    assert results(await made.recover("s")) == ["fetched"]
    assert len(set(ran)) == 1


async def test_only_what_the_policy_names_is_tried_again() -> None:  # rule T6
    @tool(retry=Retry(attempts=3, on=ConnectionError, backoff=0))
    async def fetch() -> str:
        """Fail otherwise."""
        flaky(9, ValueError)
        return "no"

    assert results(await runner([fetch], call("fetch")).run("go")) == ["Error: ValueError: not now"]
    assert len(ran) == 1


async def test_wrong_arguments_and_results_that_cannot_be_told_are_not_tried_again() -> None:  # rules T1, T6
    @tool(retry=AGAIN)
    async def fetch(number: int) -> Any:
        """Give something without a form in JSON."""
        ran.append(number)
        return object()

    result = await runner([fetch], [call("fetch", "c1", number="1"), call("fetch", "c2", number=1)]).run("go")
    assert all(text.startswith("Error") for text in results(result))
    assert ran == [1]


MIDDLEWARE: list[tuple[Middleware, ...]] = [(), (Around(),)]


@pytest.mark.parametrize("middleware", MIDDLEWARE)
async def test_answers_are_used_again(store: Store, middleware: Any) -> None:  # rules G12, T6
    @tool(retry=AGAIN)
    async def fetch() -> str:
        """Ask twice, then fail twice."""
        found = [interrupt("Which?"), interrupt("When?", key="when")]
        flaky(2)
        return f"{found}"

    made = Runner(agent([fetch], call("fetch"), middleware=middleware), store=store)
    asked = await made.run("go", session_id="s")
    asked = await made.resume("s", {lone(asked): "this"})
    result = await made.resume("s", {lone(asked): "now"})
    assert (results(result), len(ran)) == (["['this', 'now']"], 3)


@pytest.mark.parametrize("middleware", MIDDLEWARE)
async def test_kept_calls_are_not_made_again(store: Store, middleware: Any) -> None:  # rules G12, R13
    charged: list[str] = []

    @once
    async def charge(cents: int) -> str:
        charged.append(current().idempotency_key)
        return f"charged {cents}"

    @tool(retry=AGAIN)
    async def pay() -> str:
        """Charge twice, then fail twice."""
        receipts = [await charge(1), await charge(1), await charge(2)]
        flaky(2)
        return " ".join(receipts)

    made = Runner(agent([pay], call("pay"), middleware=middleware), store=store)
    assert results(await made.run("go", session_id="s")) == ["charged 1 charged 1 charged 2"]
    assert (len(charged), len(set(charged))) == (3, 3)


async def test_after_an_approval_it_is_tried_again_and_not_asked_about(store: Store) -> None:  # rules T4, T6
    @tool(approval=True, retry=AGAIN)
    def pay() -> str:
        """Pay at the third try."""
        flaky(2)
        return "paid"

    made = runner([pay], call("pay"), store=store)
    asked = await made.run("go", session_id="s")
    assert results(await runner([pay], store=store).resume("s", {lone(asked): True})) == ["paid"]
    assert len(ran) == 3


async def test_what_was_emitted_is_not_emitted_again(store: Store) -> None:  # rules R5, G12
    @tool(retry=AGAIN)
    async def fetch() -> str:
        """Tell, then fail twice."""
        current().emit("begins")
        flaky(2)
        current().emit("ends")
        return "fetched"

    events = await all_of(runner([fetch], call("fetch"), store=store).run("go", session_id="s"))
    assert [event.data for event in events if isinstance(event, Custom)] == ["begins", "ends"]


async def test_what_a_failed_attempt_wrote_is_dropped(store: Store) -> None:  # rule R15
    @tool(retry=AGAIN)
    async def fetch() -> str:
        """Write a value of its own in each attempt."""
        seen = sorted(current().values)
        current().values[f"attempt{current().attempt}"] = 1
        flaky(2)
        return f"{seen}"

    @tool
    async def look() -> str:
        """Look at the values."""
        return f"{sorted(current().values)}"

    made = runner([fetch, look], call("fetch"), call("look", "c2"), store=store)
    assert results(await made.run("go", session_id="s")) == ["[]", "['attempt3']"]


@pytest.mark.parametrize("as_error", [True, False])
async def test_a_pause_is_never_tried_again(store: Store, as_error: bool) -> None:  # rules I1, G12
    @tool(retry=AGAIN)
    async def ask() -> str:
        """Ask, and make something else of the pause."""
        ran.append("in")
        answer = None
        with contextlib.suppress(BaseException):
            answer = interrupt("What?")
        if answer is None and as_error:
            raise ConnectionError("not now")
        return f"got {answer}"

    made = runner([ask], call("ask"), store=store)
    asked = await made.run("go", session_id="s")
    assert (lone(asked), ran) == ("agent:A;tool:ask:c1", ["in"])
    assert results(await made.resume("s", {lone(asked): "it"})) == ["got it"]


async def test_a_failure_before_what_is_on_record_is_told_all_the_same(store: Store) -> None:  # rules T1, R6
    @once
    async def charge() -> str:
        return "charged"

    @tool
    async def pay() -> str:
        """Fail after the pause, before it came to the call and to the question again."""
        ran.append("in")
        if len(ran) == 2:
            raise ConnectionError("not now")
        return f"{await charge()} {interrupt('Go on?')}"

    made = runner([pay], call("pay"), store=store)
    asked = await made.run("go", session_id="s")
    result = await made.resume("s", {lone(asked): True})
    assert (result.status, results(result)) == ("done", ["Error: ConnectionError: not now"])


async def test_attempts_may_fail_at_different_places(store: Store) -> None:  # rules G12, T6
    @once
    async def charge() -> str:
        return "charged"

    @tool(retry=AGAIN)
    async def pay() -> str:
        """Fail after the kept call, then before it."""
        ran.append("in")
        if len(ran) > 1:
            raise ConnectionError("before")
        await charge()
        raise ConnectionError("after")

    (text,) = results(await runner([pay], call("pay"), store=store).run("go", session_id="s"))
    assert "before" in text
    assert len(ran) == 3
