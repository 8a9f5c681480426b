"""The queue of a session: inputs that are submitted wait for their turn, and each begins exactly one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from adjourn import (
    AnswerWith,
    ChatModelAgent,
    Message,
    Runner,
    SessionBusy,
    UnfinishedRun,
    UsageError,
    current,
    interrupt,
    workflow,
)
from adjourn.errors import (
    CheckpointNotFound,
    Conflict,
    InputRefused,
    InputWithdrawn,
    NotStorable,
    ProgramChanged,
    StateInvalid,
)
from adjourn.events import CheckpointSaved, Delta, Done
from adjourn.graph import Overwrite
from adjourn.sessions import Sessions
from adjourn.stores import MemoryStore, Store
from adjourn.stores._wrapper import StoreWrapper
from adjourn.stores.kit import Claim, ListDue, ListSessions, StoreRequest
from adjourn.testing import FaultStore, ScriptedModel

from .programs import Gate, steps, turns

T = TypeVar("T")


class Desk:
    """A workflow that notes what it was asked, and what its runners and gates are."""

    def __init__(self, store: Store | None, **options: Any) -> None:  # Any: options of a runner
        self.seen: list[str] = []
        self.gates: dict[str, Gate] = {}
        self.failing: set[str] = set()
        self.asking: set[str] = set()

        @workflow(name="desk")
        async def desk(wish: str) -> str:
            if gate := self.gates.get(wish):
                await gate.wait()
            if wish in self.asking:
                interrupt("Sure?", key="sure")
            if wish in self.failing:
                raise ValueError(wish)
            self.seen.append(wish)
            return f"{wish}!"

        self.program = desk
        self.runner = Runner(desk, store=store, **options)

    def gate(self, wish: str) -> Gate:
        self.gates[wish] = Gate()
        return self.gates[wish]


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something holds; a test that waits in vain is ended by its time limit."""
    while not await holds():  # noqa: ASYNC110  # what others have stored has no event here
        await asyncio.sleep(0.005)


async def settled(sessions: Sessions, session: str = "s", status: str = "done", inputs: int = 0) -> None:
    async def is_there() -> bool:
        now = await sessions.status(session)
        return (now.status, now.inputs) == (status, inputs)

    await until(is_there)


# Submitting


async def test_what_is_submitted_begins_when_somebody_takes_it_up(store: Store):  # rule V11
    desk = Desk(store)
    given = await desk.runner.submit("a", session_id="s", user_id="ann", metadata={"from": "web"})
    assert (given.session_id, given.status, given.waiting) == ("s", "queued", 1)
    status = await desk.runner.status("s")
    assert (status.status, status.inputs, status.user_id, status.checkpoint_id) == ("queued", 1, "ann", "")
    assert status.program == "runnable:desk"
    assert [each.session_id for each in await desk.runner.sessions(status="queued")] == ["s"]
    [waiting] = await desk.runner.inputs("s")
    assert (waiting.id, waiting.input, waiting.user_id, waiting.metadata) == (given.id, "a", "ann", {"from": "web"})
    assert desk.seen == []
    assert (await desk.runner.recover("s")).value == "a!"
    assert (await desk.runner.status("s")).inputs == 0
    assert (await desk.runner.history("s"))[0].metadata == {"from": "web"}


async def test_a_session_whose_first_input_waits_can_be_read(store: Store):  # rule V11
    runner = Runner(ChatModelAgent("clerk", model=ScriptedModel(["yes"])), store=store)
    await runner.submit("hi", session_id="s", user_id="ann")
    assert await runner.messages("s") == await Sessions(store).messages("s") == ()
    assert await runner.history("s") == []
    assert (await runner.verify("s")).is_sound
    for whose in ("bob", None):
        with pytest.raises(CheckpointNotFound):
            await runner.messages("s" if whose else "another", user_id=whose)
    await runner.advance("s")
    assert [message.text for message in await runner.messages("s", user_id="ann")] == ["hi", "yes"]


async def test_the_turn_of_one_input_begins_if_it_is_next(store: Store):  # rule V11
    desk = Desk(store)
    first, second = [await desk.runner.submit(wish, session_id="s") for wish in ("a", "b")]
    with pytest.raises(Conflict, match="is not next"):
        await desk.runner.advance("s", input_id=second.id)
    assert (await desk.runner.advance("s", input_id=first.id)).value == "a!"
    with pytest.raises(Conflict):
        await desk.runner.advance("s", input_id=first.id)
    assert (await desk.runner.advance("s", input_id=second.id)).value == "b!"
    assert desk.seen == ["a", "b"]


async def test_a_turn_that_was_submitted_is_the_same_as_one_that_was_run(store: Store):  # rule V11
    @workflow
    async def tell(wish: str) -> list[object]:
        now = current()
        return [wish, now.user_id, now.values["mood"], now.deps]

    runner = Runner(tell, store=store, deps="the runner's")
    given = await runner.submit("a", user_id="ann", values={"mood": "good"})
    assert (await runner.recover(given.session_id)).value == ["a", "ann", "good", "the runner's"]
    assert (await runner.run("a", user_id="ann", values={"mood": "good"})).value == ["a", "ann", "good", "the runner's"]


async def test_a_submission_without_a_user_begins_a_turn_of_nobody(store: Store):  # rules C12, V11
    @workflow
    async def who(_: str) -> str | None:
        return current().user_id

    runner = Runner(who, store=store)
    assert (await runner.run("a", session_id="s", user_id="ann")).value == "ann"
    await runner.submit("b", session_id="s")
    assert (await runner.recover("s")).value is None
    with pytest.raises(CheckpointNotFound):
        await runner.submit("c", session_id="s", user_id="bob")
    with pytest.raises(CheckpointNotFound):
        await runner.for_user("bob").inputs("s")
    assert (await runner.status("s")).user_id == "ann"


async def test_inputs_begin_in_order(store: Store):  # rule V11
    desk = Desk(store)
    for wish in "abc":
        await desk.runner.submit(wish, session_id="s")
    assert (await desk.runner.advance("s")).value == "a!"
    assert [each.input for each in await desk.runner.inputs("s")] == ["b", "c"]
    assert (await desk.runner.advance("s")).value == "b!"
    assert (await desk.runner.advance("s")).value == "c!"
    assert (await desk.runner.advance("s")).value == "c!", "nothing is left to do"
    assert desk.seen == ["a", "b", "c"]


async def test_the_same_id_is_the_same_submission(store: Store):  # rule V11
    desk = Desk(store)
    for _ in range(2):
        assert (await desk.runner.submit("a", session_id="s", id="one")).waiting == 1
    await desk.runner.recover("s")
    assert (await desk.runner.submit("a", session_id="s", id="one")).waiting == 0
    with pytest.raises(Conflict, match=r"another input was submitted as 'one'\. Choose another id for this one\.$"):
        await desk.runner.submit("b", session_id="s", id="one")
    await desk.runner.recover("s")
    assert desk.seen == ["a"]


async def test_an_empty_id_is_refused(store: Store):  # rule V11
    """It would make one submission of all that were meant to have an id, and lose the others."""
    desk = Desk(store)
    with pytest.raises(UsageError, match="id is empty"):
        await desk.runner.submit("a", session_id="s", id="")
    assert await desk.runner.sessions() == []


async def test_what_could_not_begin_is_refused_when_it_is_submitted(store: Store):  # rule V11
    graph, bad = steps("a", store=store), {"done": "no list", "answer": 1}
    with pytest.raises(StateInvalid):
        await graph.submit(bad, session_id="s")
    with pytest.raises(StateInvalid):
        await graph.submit({"unknown": 1}, session_id="s")
    with pytest.raises(NotStorable):
        await graph.submit({"answer": object()}, session_id="s")
    with pytest.raises(NotStorable):
        await graph.submit({}, session_id="s", values={"v": object()})
    assert await graph.sessions() == []
    await graph.submit({}, session_id="s")
    with pytest.raises(ProgramChanged):
        await steps("a", name="other", store=store).submit({}, session_id="s")
    with pytest.raises(UsageError, match="on_pending='finish'"):
        await graph.submit({}, session_id="s", on_pending="finish")  # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match="use one of 'error', 'queue'"):
        await graph.submit({}, session_id="s", on_busy="wait")  # pyright: ignore[reportArgumentType]
    assert len(await graph.inputs("s")) == 1


async def test_a_graph_takes_a_part_of_its_state_as_input(store: Store):  # rule V11
    graph = steps("a", store=store)
    await graph.run({"answer": 1, "done": ["first"]}, session_id="s")
    await graph.submit({"done": ["second"]}, session_id="s")
    result = await graph.recover("s")
    assert (result.state["done"], result.state["answer"]) == (["first", "a", "second", "a"], 1)
    await graph.submit({"done": Overwrite(["third"])}, session_id="s")
    assert (await graph.recover("s")).state["done"] == ["third", "a"]


async def test_messages_can_be_submitted(store: Store):  # rule V11
    runner = Runner(ChatModelAgent("A", model=ScriptedModel(["hi", "bye"])), store=store)
    await runner.submit([Message.user("hello")], session_id="s", model_options={"temperature": 0.5})
    await runner.submit("and now?", session_id="s")
    assert (await runner.advance("s")).output == "hi"
    assert (await runner.advance("s")).output == "bye"
    assert [message.text for message in await runner.messages("s")] == ["hello", "hi", "and now?", "bye"]


async def test_submit_can_refuse_to_wait(store: Store):  # rule V11
    desk = Desk(store)
    await desk.runner.submit("a", session_id="s", on_busy="error")
    with pytest.raises(SessionBusy, match="1 input that waits") as busy:
        await desk.runner.submit("b", session_id="s", on_busy="error")
    assert busy.value.inputs == 1
    with pytest.raises(SessionBusy, match="1 input that waits"):
        await desk.runner.run("b", session_id="s")
    await desk.runner.recover("s")
    await desk.runner.submit("c", session_id="s")
    with pytest.raises(SessionBusy, match="1 input that waits"):
        await desk.runner.run("d", session_id="s")
    assert desk.seen == ["a"]


async def test_submit_can_take_the_place_of_others(store: Store):  # rule V11
    desk = Desk(store)
    await desk.runner.run("before", session_id="s")
    gate = desk.gate("a")
    run = desk.runner.run("a", session_id="s")
    await run.start()
    await gate.reached.wait()
    await desk.runner.submit("b", session_id="s")
    with pytest.raises(NotStorable):
        await desk.runner.submit(object(), session_id="s", on_busy="cancel")
    assert (await desk.runner.status("s")).inputs == 1, "what cannot begin cancels nothing"
    submitting = asyncio.create_task(desk.runner.submit("c", session_id="s", id="c", on_busy="cancel"))
    await settled(desk.runner, status="running", inputs=0)
    gate.opened.set()  # It lets what is under way end.
    await submitting
    await desk.runner.submit("c", session_id="s", id="c", on_busy="cancel")
    assert (await run).status == "done"
    own = desk.gate("c")
    going_on = desk.runner.advance("s")
    await going_on.start()
    await own.reached.wait()
    await desk.runner.submit("c", session_id="s", id="c", on_busy="cancel")  # A retry, after its turn has begun.
    own.opened.set()
    assert (await going_on).value == "c!"
    assert desk.seen == ["before", "a", "c"]


async def test_an_input_can_be_withdrawn(store: Store):  # rule V11
    desk = Desk(store)
    one = await desk.runner.submit("a", session_id="s")
    two = await desk.runner.submit("b", session_id="s")
    assert await desk.runner.withdraw("s", one.id)
    assert not await desk.runner.withdraw("s", one.id)
    assert (await desk.runner.recover("s")).value == "b!"
    assert not await desk.runner.withdraw("s", two.id)


def test_the_queue_from_sync_code():  # rule V11
    desk = Desk(MemoryStore())
    given = desk.runner.submit_sync("a", session_id="s")
    assert [each.id for each in desk.runner.inputs_sync("s")] == [given.id]
    assert desk.runner.advance_sync("s").value == "a!"
    assert not desk.runner.withdraw_sync("s", given.id)


# Whoever ends a turn takes the next input


async def test_whoever_ends_a_turn_takes_the_next_input(store: Store):  # rule V11
    desk = Desk(store)
    gate = desk.gate("a")
    run = asyncio.create_task(_result(desk.runner.run("a", session_id="s")))
    await gate.reached.wait()
    for wish in "bcd":
        assert (await Desk(store).runner.submit(wish, session_id="s")).status == "running"
    gate.opened.set()
    assert await run == "a!"
    await settled(desk.runner)
    assert desk.seen == ["a", "b", "c", "d"]


async def test_a_pause_holds_the_queue(store: Store):  # rule V11
    desk = Desk(store)
    desk.asking.add("a")
    await desk.runner.run("a", session_id="s")
    given = await desk.runner.submit("b", session_id="s", on_pending="abandon")
    assert given.status == "waiting"
    await desk.runner.recover("s")
    assert desk.seen == []
    assert (await desk.runner.resume("s")).value == "a!"
    await settled(desk.runner)
    assert desk.seen == ["a", "b"]


@pytest.mark.parametrize("how", ["failed", "cancelled"])
async def test_a_turn_that_did_not_end_well_holds_the_queue(store: Store, how: str):  # rule V11
    desk = Desk(store)
    gate = desk.gate("a")
    desk.failing |= {"a"} if how == "failed" else set()
    run = desk.runner.run("a", session_id="s")
    await run.start()
    await gate.reached.wait()
    await desk.runner.submit("b", session_id="s")
    gate.opened.set()
    if how == "cancelled":
        await run.cancel()
    else:
        with pytest.raises(ValueError, match="a"):
            await run
    await asyncio.sleep(0)
    status = await desk.runner.status("s")
    assert (status.status, status.inputs) == (how, 1), "it is held, not queued"
    assert await store.read(ListDue()) == []
    desk.failing.clear()
    assert (await desk.runner.recover("s")).value == "a!"
    await settled(desk.runner)
    assert desk.seen == ["a", "b"]


async def test_an_input_may_give_up_a_turn_that_failed(store: Store):  # rule V11
    desk = Desk(store)
    gate = desk.gate("a")
    desk.failing |= {"a", "c"}
    run = asyncio.create_task(_result(desk.runner.run("a", session_id="s")))
    await gate.reached.wait()
    await desk.runner.submit("b", session_id="s", on_pending="abandon")
    gate.opened.set()
    with pytest.raises(ValueError, match="a"):
        await run
    await settled(desk.runner)
    # In another session: whoever went on with the queue of this one may look for more.
    with pytest.raises(ValueError, match="c"):
        await desk.runner.run("c", session_id="t")
    await desk.runner.submit("d", session_id="t", on_pending="abandon")
    assert [each.why for each in await store.read(ListDue())] == ["input"]
    assert (await desk.runner.advance("t")).value == "d!"
    assert desk.seen == ["b", "d"]


async def test_a_queued_turn_that_fails_holds_what_is_behind_it(store: Store):  # rule V11
    desk = Desk(store)
    desk.failing.add("b")
    for wish in "abc":
        await desk.runner.submit(wish, session_id="s")
    await desk.runner.recover("s")
    await settled(desk.runner, status="failed", inputs=1)
    assert desk.seen == ["a"]
    desk.failing.clear()
    await desk.runner.recover("s")
    await settled(desk.runner)
    assert desk.seen == ["a", "b", "c"]


async def test_advance_leaves_the_next_turn_to_another_call(store: Store):  # rule V11
    desk = Desk(store)
    await desk.runner.submit("a", session_id="s")
    await desk.runner.submit("b", session_id="s")
    await desk.runner.advance("s")
    await asyncio.sleep(0)
    assert desk.seen == ["a"]
    assert [each.why for each in await store.read(ListDue())] == ["input"]


async def test_advance_leaves_what_failed_to_whoever_recovers_it(store: Store):  # rule V11
    desk = Desk(store)
    desk.failing.add("a")
    with pytest.raises(ValueError, match="a"):
        await desk.runner.run("a", session_id="s")
    await desk.runner.submit("b", session_id="s")
    desk.failing.clear()
    with pytest.raises(UnfinishedRun):
        await desk.runner.advance("s")
    assert (await desk.runner.recover("s")).value == "a!"
    with pytest.raises(CheckpointNotFound):
        await desk.runner.advance("nobody's")


def test_the_next_turn_begins_after_a_run_from_sync_code():  # rule V11
    store = MemoryStore()
    desk = Desk(store)

    @workflow(name="desk")
    async def first(wish: str) -> str:
        await desk.runner.submit("b", session_id="s", id="next")
        return wish

    assert Runner(first, store=store).run_sync("a", session_id="s").value == "a"
    for thread in [each for each in threading.enumerate() if each.name == "adjourn-queue s"]:
        thread.join()
    assert desk.runner.status_sync("s").status == "done"
    assert desk.runner.status_sync("s").inputs == 0


def test_a_loop_that_closes_leaves_the_next_turn_to_others():  # rule V11
    store = MemoryStore()
    desk = Desk(store)
    gate = desk.gate("b")

    async def main() -> None:
        await desk.runner.submit("a", session_id="s")
        await desk.runner.submit("b", session_id="s")
        assert (await desk.runner.recover("s")).value == "a!"
        await gate.reached.wait()

    asyncio.run(main())
    assert desk.runner.status_sync("s").status == "queued"
    desk.gates.clear()
    assert desk.runner.recover_sync("s").value == "b!"
    assert desk.seen == ["a", "b"]


# An input that cannot begin


async def test_an_input_that_cannot_begin_is_held_and_named(store: Store, caplog: pytest.LogCaptureFixture):  # rule V11
    """As after a deploy that has removed what it needs."""

    @workflow(name="desk")
    async def strict(wish: int) -> str:
        return str(wish)

    desk = Desk(store)
    given = await desk.runner.submit("a", session_id="s")
    await desk.runner.submit("b", session_id="s")
    changed = Runner(strict, store=store)
    with pytest.raises(InputRefused, match=f"'{given.id}' that is next in its queue.*withdraw") as refused:
        await changed.recover("s")
    assert refused.value.input_id == given.id
    assert (await changed.status("s")).status == "queued"
    head = (await store.read(ListSessions()))[0]
    assert (head.claims, head.inputs) == (0, 2), "nothing was claimed"
    assert await changed.withdraw("s", given.id)
    await desk.runner.recover("s")
    assert desk.seen == ["b"]


# Waiting for one's turn


async def test_run_waits_behind_the_turn_that_runs(store: Store):  # rule V11
    desk = Desk(store)
    gate = desk.gate("a")
    first = asyncio.create_task(_result(desk.runner.run("a", session_id="s")))
    await gate.reached.wait()
    with pytest.raises(SessionBusy):
        await desk.runner.run("b", session_id="s")
    others = [asyncio.create_task(_result(desk.runner.run(wish, session_id="s", on_busy="queue"))) for wish in "bc"]
    await settled(desk.runner, status="running", inputs=2)
    order = [each.input for each in await desk.runner.inputs("s")]
    gate.opened.set()
    assert await first == "a!"
    assert await asyncio.gather(*others) == ["b!", "c!"]
    assert desk.seen == ["a", *order]
    assert await desk.runner.inputs("s") == []


async def test_run_begins_at_once_where_nobody_is_in_the_way(store: Store):  # rule V11
    desk = Desk(store)
    assert (await desk.runner.run("a", session_id="s", on_busy="queue")).value == "a!"
    assert (await desk.runner.run("b", on_busy="queue")).value == "b!"
    await desk.runner.submit("c", session_id="s")
    assert (await desk.runner.run("d", session_id="s", on_busy="queue")).value == "d!"
    assert desk.seen == ["a", "b", "c", "d"], "what waits comes first"


async def test_a_run_that_waited_reports_its_own_turn_only(store: Store):  # rule V11
    runner, gate = Runner(ChatModelAgent("A", model=ScriptedModel(["to b"])), store=store), Gate()

    async def wait(request: Any) -> str:  # Any: a request of the model
        await gate.wait()
        return "to a"

    slow = Runner(ChatModelAgent("A", model=ScriptedModel([wait, "to b"])), store=store)
    first = asyncio.create_task(_output(slow.run("a", session_id="s")))
    await gate.reached.wait()
    reading = asyncio.create_task(_events(runner.run("b", session_id="s", on_busy="queue")))
    await settled(runner, status="running", inputs=1)
    gate.opened.set()
    assert await first == "to a"
    events = await reading
    done = [event for event in events if isinstance(event, Done)]
    assert [event.output for event in done] == ["to b"]
    saved = [event.source for event in events if isinstance(event, CheckpointSaved)]
    assert saved[0] == "input"
    assert saved.count("input") == 1


async def test_a_caller_who_waits_here_sees_its_turn_as_it_happens(store: Store):  # rule V11
    gate = Gate()

    async def answer(request: Any) -> str:  # Any: a request of the model
        if request.messages[-1].text == "a":
            await gate.wait()
        return "some words"

    runner = Runner(ChatModelAgent("A", model=ScriptedModel([answer, answer])), store=store)
    first = asyncio.create_task(_output(runner.run("a", session_id="s")))
    await gate.reached.wait()
    reading = asyncio.create_task(_events(runner.run("b", session_id="s", on_busy="queue")))
    await settled(runner, status="running", inputs=1)
    gate.opened.set()
    _, events = await asyncio.gather(first, reading)
    assert "".join([event.text for event in events if isinstance(event, Delta)]) == "some words", (
        "what is not stored also reaches it"
    )


async def test_a_run_whose_turn_somebody_else_begins_follows_it(store: Store):  # rule V11
    here, there = Desk(store), Desk(store)
    gate, own = there.gate("a"), there.gate("b")
    first = asyncio.create_task(_result(there.runner.run("a", session_id="s")))
    await gate.reached.wait()
    waiting = asyncio.create_task(_result(here.runner.run("b", session_id="s", on_busy="queue")))
    await settled(here.runner, status="running", inputs=1)
    [queued] = await here.runner.inputs("s")
    assert queued.input == "b"
    gate.opened.set()
    own.opened.set()
    assert await first == "a!"
    assert await waiting == "b!"
    assert sorted(here.seen + there.seen) == ["a", "b"]


async def test_run_waits_over_pauses(store: Store):  # rule V11
    desk = Desk(store)
    gate = desk.gate("a")
    desk.asking.add("a")
    first = asyncio.create_task(_status(desk.runner.run("a", session_id="s")))
    await gate.reached.wait()
    waiting = asyncio.create_task(_result(desk.runner.run("b", session_id="s", on_busy="queue")))
    await settled(desk.runner, status="running", inputs=1)
    gate.opened.set()
    assert await first == "interrupted"
    await settled(desk.runner, status="waiting", inputs=1)
    await desk.runner.resume("s")
    assert await waiting == "b!"


async def test_run_does_not_wait_behind_a_turn_that_failed(store: Store):  # rule V11
    desk = Desk(store)
    gate = desk.gate("a")
    desk.failing.add("a")
    first = asyncio.create_task(_result(desk.runner.run("a", session_id="s")))
    await gate.reached.wait()
    waiting = asyncio.create_task(_result(desk.runner.run("b", session_id="s", on_busy="queue")))
    giving_up = desk.runner.run("c", session_id="s", on_busy="queue", on_pending="abandon")
    await settled(desk.runner, status="running", inputs=1)
    third = asyncio.create_task(_result(giving_up))
    await settled(desk.runner, status="running", inputs=2)
    gate.opened.set()
    with pytest.raises(ValueError, match="a"):
        await first
    with pytest.raises(UnfinishedRun):
        await waiting
    assert await third == "c!"
    assert desk.seen == ["c"]


async def test_whatever_error_a_held_queue_gives_names_a_way_on(store: Store):  # rule V11
    desk = Desk(store)
    desk.failing.add("a")

    async def held(session: str) -> None:
        for wish in ("a", "b"):
            await desk.runner.submit(wish, session_id=session)
        with pytest.raises(ValueError, match="a"):
            await desk.runner.advance(session)

    await held("s")
    with pytest.raises(UnfinishedRun, match=r"1 input waits behind it.*on_busy='cancel'"):
        await desk.runner.run("z", session_id="s")
    with pytest.raises(SessionBusy, match=r"on_busy='queue'.*on_busy='cancel'"):
        await desk.runner.run("z", session_id="s", on_pending="abandon")
    with pytest.raises(UnfinishedRun, match=r"1 input waits behind it.*on_busy='cancel'"):
        await desk.runner.run("z", session_id="s", on_pending="abandon", on_busy="queue")
    assert [each.input for each in await desk.runner.inputs("s")] == ["b"]
    assert (await desk.runner.run("z", session_id="s", on_busy="cancel")).value == "z!"
    assert desk.seen == ["z"]


@pytest.mark.parametrize("how", ["answered", "expired"])
async def test_a_run_that_waits_behind_a_pause_goes_on_with_it(store: Store, how: str):  # rule V11
    gate = Gate()

    @workflow
    async def ask(wish: str) -> str:
        if wish == "a":
            await gate.wait()
            expires_in = 0.05 if how == "expired" else None
            return interrupt("Sure?", key="sure", schema=str, expires_in=expires_in, on_expire=AnswerWith("no"))
        return wish

    runner = Runner(ask, store=store)
    first = asyncio.create_task(_status(runner.run("a", session_id="s")))
    await gate.reached.wait()
    waiting = asyncio.create_task(_result(runner.run("b", session_id="s", on_busy="queue")))
    await settled(runner, status="running", inputs=1)
    gate.opened.set()
    assert await first == "interrupted"
    if how == "answered":
        await Sessions(store).answer("s", {"sure": "yes"})
    assert await waiting == "b"


async def test_a_caller_who_leaves_takes_its_input_along(store: Store):  # rule V11
    desk = Desk(store)
    gate = desk.gate("a")
    first = asyncio.create_task(_result(desk.runner.run("a", session_id="s")))
    await gate.reached.wait()
    waiting = asyncio.create_task(_result(desk.runner.run("b", session_id="s", on_busy="queue")))
    stays = desk.runner.run("c", session_id="s", on_busy="queue")
    stays.detach()
    await settled(desk.runner, status="running", inputs=1)
    detached = asyncio.create_task(_result(stays))
    await settled(desk.runner, status="running", inputs=2)
    waiting.cancel()
    detached.cancel()
    await asyncio.gather(waiting, detached, return_exceptions=True)
    assert [each.input for each in await desk.runner.inputs("s")] == ["c"]
    gate.opened.set()
    await first
    await settled(desk.runner)
    assert desk.seen == ["a", "c"]


async def test_a_run_that_waits_can_be_cancelled_or_withdrawn(store: Store):  # rule V11
    desk = Desk(store)
    gate = desk.gate("a")
    first = asyncio.create_task(_result(desk.runner.run("a", session_id="s")))
    await gate.reached.wait()
    run = desk.runner.run("b", session_id="s", on_busy="queue")
    waiting = asyncio.create_task(_result(run))
    await settled(desk.runner, status="running", inputs=1)
    await run.cancel()
    with pytest.raises(InputWithdrawn):
        await waiting
    other = asyncio.create_task(_result(desk.runner.run("c", session_id="s", on_busy="queue")))
    await settled(desk.runner, status="running", inputs=1)
    [queued] = await desk.runner.inputs("s")
    assert await desk.runner.withdraw("s", queued.id)
    with pytest.raises(InputWithdrawn, match=queued.id):
        await other
    gate.opened.set()
    await first
    assert desk.seen == ["a"]


async def test_on_busy_cannot_be_combined_with_everything(store: Store):  # rule V11
    runner = Desk(store).runner
    with pytest.raises(UsageError, match="on_pending='finish'"):
        runner.run("a", on_busy="queue", on_pending="finish")
    with pytest.raises(UsageError, match="on_busy='wait': use one of 'error', 'queue', 'cancel'"):
        runner.run("a", on_busy="wait")  # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match="nor on_busy"):
        runner.run(session_id="s", checkpoint_id="b.0", on_busy="queue")


# What else a session with a queue can do


async def test_a_session_that_never_ran_has_nothing_to_stop_or_show(store: Store):  # rule V11
    desk = Desk(store)
    await desk.runner.submit("a", session_id="s")
    assert not await desk.runner.cancel("s")
    assert await desk.runner.history("s") == []
    assert await desk.runner.pending("s") == []
    assert await desk.runner.audit("s") == []
    assert str(await desk.runner.tree("s"))
    with pytest.raises(CheckpointNotFound):
        await desk.runner.fork("s")
    with pytest.raises(CheckpointNotFound):
        await desk.runner.resume("s")
    await desk.runner.delete("s")
    assert await desk.runner.sessions() == []


async def test_a_fork_leaves_the_queue_behind(store: Store):  # rules C10, V11
    desk = Desk(store)
    await desk.runner.run("a", session_id="s")
    await desk.runner.submit("b", session_id="s")
    forked = await desk.runner.fork("s")
    assert (await desk.runner.status(forked)).inputs == 0
    assert (await desk.runner.status(forked)).program == "runnable:desk"
    assert (await desk.runner.status("s")).status == "queued"


async def test_attach_follows_a_session_that_is_queued(store: Store):  # rule V11
    desk = Desk(store)
    await desk.runner.submit("a", session_id="s")
    following = asyncio.create_task(_result(desk.runner.attach("s")))
    await asyncio.sleep(0)
    await desk.runner.recover("s")
    assert await following == "a!"


# Faults


@pytest.mark.parametrize("mode", ["before", "after"])
async def test_each_input_begins_once_whatever_write_fails(store: Store, mode: Any):  # rule V11
    """Any: a mode of the store. The ledger of the workflow says what was done."""
    for fail_at in range(1, 20):
        ledger: list[str] = []

        @workflow(name="desk")
        async def desk(wish: str, ledger: list[str] = ledger) -> str:
            ledger.append(wish)
            return wish

        name, runner = f"s{mode}{fail_at}", Runner(desk, store=store)
        faulty = FaultStore(store, fail_at, mode, times=None)
        broken = Runner(desk, store=faulty, store_timeout=0.05)
        for wish in "ab":
            await runner.submit(wish, session_id=name, id=wish)
        for _ in range(2):
            try:
                await broken.advance(name)
            except Exception:  # noqa: BLE001  # whatever it is, somebody else goes on
                break
        for _ in range(3):
            status = await runner.status(name)
            if (status.status, status.inputs) == ("done", 0):
                break
            await runner.advance(name)
        assert (await runner.status(name)).status == "done"
        turns = await runner.history(name, source="input")
        assert len(turns) == 2, f"fault {mode} at {fail_at}"
        assert list(dict.fromkeys(ledger)) == ["a", "b"]
        if not faulty.fired:
            break
    else:
        pytest.fail("there are more writes than were tried")


async def _result(run: Any) -> Any:  # Any: a run, and its value
    return (await run).value


async def _output(run: Any) -> str:
    return (await run).output


async def _status(run: Any) -> str:
    return (await run).status


async def _events(run: Any) -> list[object]:
    return [event async for event in run]


# Others are faster, or take the session away


async def test_a_caller_whose_session_is_deleted_is_told_so(store: Store):  # rule V11
    desk = Desk(store)
    gate = desk.gate("a")
    desk.asking.add("a")
    first = asyncio.create_task(_status(desk.runner.run("a", session_id="s")))
    await gate.reached.wait()
    waiting = asyncio.create_task(_result(desk.runner.run("b", session_id="s", on_busy="queue")))
    await settled(desk.runner, status="running", inputs=1)
    gate.opened.set()
    assert await first == "interrupted"
    await desk.runner.delete("s")
    with pytest.raises(InputWithdrawn):
        await waiting
    assert desk.seen == []


async def test_an_input_that_cannot_begin_by_itself_is_in_the_log(
    store: Store, caplog: pytest.LogCaptureFixture
):  # rule V11
    """As after a deploy that has removed what it needs, with nobody who waits for it."""
    gate = Gate()

    @workflow(name="desk")
    async def strict(wish: int) -> int:
        await gate.wait()
        return wish

    runner = Runner(strict, store=store)
    first = asyncio.create_task(_result(runner.run(1, session_id="s")))
    await gate.reached.wait()
    given = await Desk(store).runner.submit("b", session_id="s")
    gate.opened.set()
    assert await first == 1

    async def is_said() -> bool:
        return "cannot begin the next turn" in caplog.text

    await until(is_said)
    assert [each.id for each in await runner.inputs("s")] == [given.id]
    assert await runner.withdraw("s", given.id)


class Contended(StoreWrapper):
    """A store in which somebody else is faster, so many times, with the first claims of turns that wait."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.times = 0

    async def write(self, request: StoreRequest[T]) -> T:
        asked = request.plain
        if self.times and isinstance(asked, Claim):
            self.times -= 1
            raise SessionBusy(asked.ref.id, "somebody else")
        return await super().write(request)


@pytest.mark.parametrize("how", ["queue", "cancel"])
async def test_a_turn_that_others_were_faster_than_begins_all_the_same(store: Store, how: Any):  # rule V11
    contended = Contended(store)
    desk = Desk(contended)
    gate = desk.gate("a")
    first = asyncio.create_task(_result(desk.runner.run("a", session_id="s")))
    await gate.reached.wait()
    waiting = asyncio.create_task(_result(desk.runner.run("b", session_id="s", on_busy=how)))
    if how == "queue":
        await settled(desk.runner, status="running", inputs=1)
    else:
        await turns()
    contended.times = 2
    gate.opened.set()
    assert await waiting == "b!"
    assert contended.times == 0
    await asyncio.gather(first, return_exceptions=True)
