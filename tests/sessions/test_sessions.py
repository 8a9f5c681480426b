"""Sessions without their programs: what a person or a service does with nothing but a store."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from typing import Any, TypeVar

import pytest

from adjourn import (
    AlreadyResumed,
    ChatModelAgent,
    CheckpointNotFound,
    InvalidAnswer,
    Runner,
    Sessions,
    StaleCheckpoint,
    ToolCall,
    UnknownInterrupt,
    UsageError,
    current,
    interrupt,
    once,
    tool,
    workflow,
)
from adjourn.errors import Conflict
from adjourn.messages import Message, Usage
from adjourn.sessions import Notice, QuestionAsked, SessionEnded
from adjourn.stores import MemoryStore, Store
from adjourn.stores._wrapper import StoreWrapper
from adjourn.stores.kit import Delete, GiveAnswers, Prune, StoreRequest
from adjourn.testing import ScriptedModel

T = TypeVar("T")


@workflow
async def trip(city: str) -> str:
    hotel = interrupt(f"A hotel in {city}?", key="hotel", schema=str)
    nights = interrupt("How many nights?", key="nights", schema=int)
    return f"{hotel}, {nights} nights"


@tool(approval=True)
def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


def teller(store: Store, *answers: Any) -> Runner:
    script = [*answers, "Done."] if answers else ["Done."]
    return Runner(ChatModelAgent("teller", model=ScriptedModel(script), tools=[pay]), store=store)


# Answering


async def test_an_answer_is_recorded_without_going_on(store: Store):  # rules R4, I12
    await Runner(trip, store=store).run("Rome", session_id="s")
    sessions = Sessions(store)
    [asked] = await sessions.pending("s")
    status = await sessions.answer("s", {asked.id: "Ritz"}, by="ann")
    assert (status.status, await sessions.pending("s")) == ("waiting", [])
    [entry] = await sessions.audit("s")
    assert (entry.outcome, entry.answer, entry.by, entry.interrupt.prompt) == ("answered", "Ritz", "ann", asked.prompt)
    assert entry.at is not None
    result = await Runner(trip, store=store).recover("s")
    assert [each.key for each in result.interrupts] == ["nights"], "it went on with the answer, and asks the next"


async def test_keys_name_questions_and_answers_are_checked_first(store: Store):  # rules R1, R2
    await Runner(trip, store=store).run("Rome", session_id="s")
    sessions = Sessions(store)
    with pytest.raises(InvalidAnswer):
        await sessions.answer("s", {"hotel": 3})
    with pytest.raises(UnknownInterrupt, match="hotel"):
        await sessions.answer("s", {"flight": "no"})
    with pytest.raises(UsageError, match="mapping"):
        await sessions.answer("s", {})
    assert len(await sessions.pending("s")) == 1
    await sessions.answer("s", {"hotel": "Ritz"})
    with pytest.raises(AlreadyResumed) as second:
        await sessions.answer("s", {"hotel": "Savoy"}, by="bob")
    assert (second.value.live, second.value.by) == (False, None)
    with pytest.raises(AlreadyResumed):
        await sessions.answer("s")


async def test_with_a_checkpoint_an_answer_counts_only_if_nothing_moved(store: Store):  # rule R1
    runner, sessions = Runner(trip, store=store), Sessions(store)
    paused = await runner.run("Rome", session_id="s")
    await runner.resume("s", {"hotel": "Ritz"})
    with pytest.raises(StaleCheckpoint):
        await sessions.answer("s", {"nights": 2}, checkpoint_id=paused.checkpoint_id)
    for answer in (sessions.answer, runner.resume):
        with pytest.raises(CheckpointNotFound, match="never"):
            await answer("s", {"nights": 2}, checkpoint_id="never")
    [asked] = await sessions.pending("s")
    await sessions.answer("s", {"nights": 2}, checkpoint_id=asked.checkpoint_id)
    assert (await runner.recover("s")).value == "Ritz, 2 nights"


async def test_a_live_run_takes_an_answer_up(store: Store):  # rule R3
    working, go = asyncio.Event(), asyncio.Event()

    @workflow
    async def asks() -> Any:
        return interrupt("one?", key="one")

    @once
    async def note() -> str:
        return "what was asked before is stored with this"

    @workflow
    async def works() -> None:
        await note()
        working.set()
        await go.wait()

    @workflow
    async def both(_: str) -> str:
        return str((await current().run_all([(asks, None), (works, None)]))[0])

    runner, sessions = Runner(both, store=store), Sessions(store)
    running = asyncio.ensure_future(awaited(runner.run("x", session_id="s")))
    await working.wait()
    status = await sessions.answer("s", {"one": "yes"})
    assert (status.status, status.owner is not None) == ("running", True)
    go.set()
    assert (await running).value == "yes"


async def awaited(run: Any) -> Any:
    return await run


# Looking


async def test_what_a_runner_shows_a_store_alone_shows(store: Store):
    runner, sessions = teller(store, ToolCall(id="c", name="pay", arguments={"cents": 5})), Sessions(store)
    paused = await runner.run("pay", session_id="s", user_id="ann")
    assert await sessions.messages("s") == await runner.messages("s")
    assert [message.text for message in await sessions.messages("s")][:1] == ["pay"]
    assert [each.id for each in (await sessions.history("s"))] == [each.id for each in await runner.history("s")]
    assert str(await sessions.tree("s")) == str(await runner.tree("s"))
    shown, own = await sessions.pending("s"), await runner.pending("s")
    assert [each.id for each in shown] == [paused.interrupts[0].id] == [each.id for each in own]
    status = await sessions.status("s")
    assert (status.status, status.user_id, status.app_name) == ("waiting", "ann", "adjourn")
    assert [each.session_id for each in await sessions.sessions(status="waiting")] == ["s"]
    assert await sessions.sessions(status="failed") == []


async def test_a_session_of_another_app_or_user_is_not_found(store: Store):  # rule C12
    await Runner(trip, store=store, app_name="travel").run("Rome", session_id="s", user_id="ann")
    for sessions, user in ((Sessions(store), None), (Sessions(store, app_name="travel"), "bob")):
        calls = [
            sessions.status("s", user_id=user),
            sessions.messages("s", user_id=user),
            sessions.audit("s", user_id=user),
            sessions.answer("s", {"hotel": "Ritz"}, user_id=user),
            sessions.history("s", user_id=user),
            sessions.checkpoint("s", user_id=user),
            sessions.state("s", user_id=user),
            sessions.tree("s", user_id=user),
            sessions.fork("s", user_id=user),
            sessions.prune("s", keep=1, user_id=user),
        ]
        for call in calls:
            with pytest.raises(CheckpointNotFound):
                await call
        assert await sessions.pending("s", user_id=user) == []
        await sessions.delete("s", user_id=user)
    mine = Sessions(store, app_name="travel")
    assert (await mine.status("s", user_id="ann")).status == "waiting", "and nothing was changed"


async def test_the_same_id_in_another_app_is_another_session(store: Store):  # rule C12
    for app in ("one", "two"):
        await Runner(trip, store=store, app_name=app).run(app, session_id="s")
    await Sessions(store, app_name="one").answer("s", {"hotel": "Ritz"})
    assert await Sessions(store, app_name="one").pending("s") == []
    assert len(await Sessions(store, app_name="two").pending("s")) == 1
    await Sessions(store, app_name="one").delete("s")
    assert (await Sessions(store, app_name="two").status("s")).status == "waiting"


async def test_a_filter_that_matches_nothing_names_those_that_do(store: Store):  # rule C5
    await Runner(ChatModelAgent("A", model=ScriptedModel(["hi"])), store=store).run("hi", session_id="s")
    wrong: Any = "asleep"
    with pytest.raises(
        UsageError, match="status='asleep': use one of queued, running, waiting, failed, cancelled, done"
    ):
        await Sessions(store).sessions(status=wrong)
    with pytest.raises(UsageError, match=r"source='asleep': use one of input, step, .*, end, or None"):
        await Sessions(store).history("s", source=wrong)


# Forking


async def test_a_fork_without_the_program_is_the_fork_of_a_runner(store: Store):  # rule C4
    def answers(request: Any) -> Message:
        return Message.assistant(str(request.options), usage=Usage(calls=1, input_tokens=3, output_tokens=4))

    asks = ToolCall(id="c", name="pay", arguments={"cents": 5})
    first = Message.assistant("", tool_calls=[asks], usage=Usage(calls=1, input_tokens=1, output_tokens=2))
    agent = ChatModelAgent("teller", model=ScriptedModel([first, answers, answers]), tools=[pay])
    runner = Runner(agent, store=store)
    await runner.run("pay", session_id="s", model_options={"temperature": 0.5})
    fork = await Sessions(store).fork("s")
    result = await runner.resume(fork, {(await runner.pending(fork))[0].id: True})
    original = await runner.resume("s", {(await runner.pending("s"))[0].id: True})
    assert result.output == original.output
    assert "0.5" in result.output, "the options of the turn were kept"
    assert result.usage == original.usage


async def test_a_branch_of_the_session_itself(store: Store):  # rule C4
    runner, sessions = Runner(trip, store=store), Sessions(store)
    await runner.run("Rome", session_id="s")
    await runner.resume("s", {"hotel": "Ritz"})
    first = (await sessions.history("s"))[-1]
    asked_at = next(
        each for each in await sessions.history("s") if each.interrupts and each.interrupts[0].key == "hotel"
    )
    assert await sessions.fork("s", checkpoint_id=asked_at.id, to="s") == "s"
    assert [each.key for each in await sessions.pending("s")] == ["hotel"]
    await runner.resume("s", {"hotel": "Savoy"})
    assert (await runner.resume("s", {"nights": 1})).value == "Savoy, 1 nights"
    assert first.id in [each.id for each in await sessions.history("s")]


# From sync code


TWINS = "status sessions pending messages audit answer history checkpoint state tree diff fork prune delete close"


@pytest.mark.parametrize("owner", [Sessions, Runner])
@pytest.mark.parametrize("name", TWINS.split())
def test_every_call_has_a_sync_twin_of_the_same_signature(owner: Any, name: str):
    plain, twin = getattr(owner, name), getattr(owner, f"{name}_sync")
    assert list(inspect.signature(twin).parameters) == list(inspect.signature(plain).parameters)
    assert not inspect.iscoroutinefunction(twin)


def test_sync_twins_work_without_an_event_loop(tmp_path: Any):
    url = f"sqlite:///{tmp_path}/s.db"
    paused = Runner(trip, store=url).run_sync("Rome", session_id="s")
    sessions = Sessions(url)
    assert sessions.pending_sync("s")[0].id == paused.interrupts[0].id
    sessions.answer_sync("s", {"hotel": "Ritz"}, by="ann")
    assert sessions.status_sync("s").status == "waiting"
    assert [each.by for each in sessions.audit_sync("s")] == ["ann"]
    sessions.close_sync()


async def test_sync_twins_work_inside_an_event_loop():
    store = MemoryStore()
    runner = Runner(trip, store=store)
    await runner.run("Rome", session_id="s")
    assert Sessions(store).status_sync("s").status == "waiting"
    assert runner.state_sync("s") is None or runner.status_sync("s").session_id == "s"


# Subscribing


async def take(notices: AsyncIterator[Notice], count: int) -> list[Notice]:
    found: list[Notice] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            found.append(await anext(notices))
    return found


def told(notice: Notice) -> tuple[str, str]:
    match notice:
        case QuestionAsked():
            return notice.session_id, notice.interrupt.key or ""
        case SessionEnded():
            return notice.session_id, notice.status


async def test_a_subscriber_hears_of_questions_and_ends_over_all_sessions(store: Store):
    runner, sessions = Runner(trip, store=store), Sessions(store)
    await runner.run("Oslo", session_id="old")
    notices = sessions.subscribe(report_open=True)
    assert [told(each) for each in await take(notices, 1)] == [("old", "hotel")], "from here on it watches"
    await runner.run("Rome", session_id="s1")
    assert [told(each) for each in await take(notices, 1)] == [("s1", "hotel")]
    await runner.run("Bonn", session_id="s2")
    assert [told(each) for each in await take(notices, 1)] == [("s2", "hotel")]
    await runner.resume("s1", {"hotel": "Ritz"})
    assert [told(each) for each in await take(notices, 1)] == [("s1", "nights")]
    await runner.resume("s1", {"nights": 2})
    assert [told(each) for each in await take(notices, 1)] == [("s1", "done")]
    await runner.run("Oslo", session_id="old", on_pending="abandon")
    assert [told(each) for each in await take(notices, 1)] == [("old", "hotel")]


async def test_a_question_that_was_asked_before_the_subscription_is_not_reported(store: Store):
    runner, sessions = Runner(trip, store=store), Sessions(store)
    await runner.run("Oslo", session_id="old")
    notices = sessions.subscribe()
    reading = asyncio.ensure_future(take(notices, 1))
    while not reading.done():
        # The subscription begins when it is first read: a session is begun until one is reported.
        await runner.run("Rome")
    [notice] = await reading
    assert notice.session_id != "old"


async def test_questions_that_are_open_come_first_if_wanted(store: Store):
    runner, sessions = Runner(trip, store=store), Sessions(store)
    await runner.run("Rome", session_id="mine", user_id="ann")
    await runner.run("Rome", session_id="yours", user_id="bob")
    notices = sessions.subscribe(user_id="ann", report_open=True)
    assert [told(each) for each in await take(notices, 1)] == [("mine", "hotel")]
    await runner.resume("yours", {"hotel": "Ritz"})
    await runner.resume("mine", {"hotel": "Savoy"})
    assert [told(each) for each in await take(notices, 1)] == [("mine", "nights")]


async def test_a_failed_turn_is_an_end(store: Store):
    @workflow
    async def fails(_: str) -> None:
        interrupt("go on?", key="go")
        raise ValueError("no")

    runner, sessions = Runner(fails, store=store), Sessions(store)
    await runner.run("x", session_id="s")
    notices = sessions.subscribe(report_open=True)
    assert [told(each) for each in await take(notices, 1)] == [("s", "go")]
    with pytest.raises(ValueError, match="no"):
        await runner.resume("s", {"go": True})
    assert [told(each) for each in await take(notices, 1)] == [("s", "failed")]


# While others write


class Contended(StoreWrapper):
    """A store in which somebody else is faster, so many times."""

    def __init__(self, inner: Store, times: int) -> None:
        super().__init__(inner)
        self.times = times

    async def write(self, request: StoreRequest[T]) -> T:
        asked = request.plain
        if self.times and isinstance(asked, GiveAnswers):
            self.times -= 1
            raise Conflict(asked.ref.id, "somebody else was faster")
        return await super().write(request)


async def test_an_answer_is_recorded_though_others_write(store: Store):  # rule R3
    await Runner(trip, store=store).run("Oslo", session_id="s")
    with pytest.raises(Conflict, match="others keep writing it"):
        await Sessions(Contended(store, 10_000)).answer("s", {"hotel": "Grand"}, by="ann")
    assert len(await Sessions(store).pending("s")) == 1, "nothing was answered"
    await Sessions(Contended(store, 2)).answer("s", {"hotel": "Grand"}, by="ann")
    (entry,) = await Sessions(store).audit("s")
    assert (entry.answer, entry.by) == ("Grand", "ann")


async def test_of_the_same_answer_sent_twice_at_once_both_are_told_that_it_counts(store: Store):  # rules R3, V13
    class Overtaken(StoreWrapper):
        async def write(self, request: StoreRequest[T]) -> T:
            if isinstance(request.plain, GiveAnswers):
                await self.inner.write(request)  # as somebody else, who sends the same
            return await self.inner.write(request)

    runner = Runner(trip, store=store)
    await runner.run("Oslo", session_id="s")
    status = await Runner(trip, store=Overtaken(store)).answer("s", {"hotel": "Grand"}, by="ann", id="one")
    assert status.session_id == "s"
    again = await runner.answer("s", {"hotel": "Grand"}, by="ann", id="one")
    assert again.session_id == "s"
    with pytest.raises(AlreadyResumed):
        await runner.answer("s", {"hotel": "Ritz"}, by="bob", id="two")
    assert [each.answer for each in await runner.audit("s")] == ["Grand"]


async def test_sessions_that_are_deleted_meanwhile_are_not_pruned(store: Store):  # rule C7
    class Deletes(StoreWrapper):
        async def write(self, request: StoreRequest[T]) -> T:
            asked = request.plain
            if isinstance(asked, Prune) and asked.ref.id == "two":
                await super().write(Delete(asked.ref))
            return await super().write(request)

    for name in ("one", "two", "three"):
        await Runner(trip, store=store).run("Oslo", session_id=name)
        await Runner(trip, store=store).resume(name, {"hotel": "Grand"})
    await Sessions(Deletes(store)).prune_all(keep=1)
    assert {each.session_id for each in await Sessions(store).sessions()} == {"one", "three"}
