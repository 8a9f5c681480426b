"""What failed before a question is seen again when the code is rerun with the answer, and not tried again."""

import asyncio
import threading
from typing import Any

import pytest

from adjourn import Retry, Runner, UsageError, current, interrupt, once, workflow
from adjourn.errors import NotStorable, ProgramChanged, ReplayMismatch, ToolError
from adjourn.graph import START, StateGraph
from adjourn.stores import Store
from tests._engine.asking import Log, ids, lone

made: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_made() -> None:
    made.clear()


class Declined(Exception):
    """What a bank's library raises: with a constructor of its own, and something that cannot be stored."""

    def __init__(self, code: int, *, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.connection = threading.Lock()


class Overdrawn(Declined):
    pass


@once
async def charge(cents: int) -> str:
    made.append(cents)
    raise ConnectionError(f"the bank is away ({cents})")


@once
def charge_now(cents: int) -> str:
    made.append(cents)
    raise ConnectionError(f"the bank is away ({cents})")


@workflow
async def pay(cents: int) -> str:
    made.append(cents)
    raise ConnectionError(f"the bank is away ({cents})")


async def by_once() -> Any:
    return await charge(5)


async def by_child() -> Any:
    return await current().run(pay, 5)


@pytest.mark.parametrize("way", [by_once, by_child])
async def test_a_failed_charge_is_not_made_again(way: Any, store: Store):  # rule R13
    async def node(state: Any) -> Any:
        try:
            return {"log": [await way()]}
        except ConnectionError as error:
            return {"log": [str(error), interrupt("Charge again?", key="q")]}

    await lone(node, store=store).run({}, session_id="s")
    result = await lone(node, store=store).resume("s", {"q": "do not charge"})
    assert result.state["log"] == ["the bank is away (5)", "do not charge"]
    assert made == [5]


async def test_sync_code_sees_its_failure_again(store: Store):  # rule R13
    def node(state: Any) -> Any:
        try:
            return {"log": [charge_now(5)]}
        except ConnectionError as error:
            return {"log": [str(error), interrupt("Charge again?", key="q")]}

    await lone(node, store=store).run({}, session_id="s")
    result = await lone(node, store=store).resume("s", {"q": "no"})
    assert (result.state["log"], made) == (["the bank is away (5)", "no"], [5])


async def test_all_tries_are_seen_again(store: Store):  # rule R13
    @once
    async def flaky() -> int:
        made.append("try")
        if len(made) < 3:
            raise ConnectionError("away")
        return len(made)

    async def node(state: Any) -> Any:
        seen = list[Any]()
        while not seen or seen[-1] == "away":
            try:
                seen.append(await flaky())
            except ConnectionError as error:
                seen.append(str(error))
        return {"log": [*seen, interrupt("q", key="q")]}

    await lone(node, store=store).run({}, session_id="s")
    result = await lone(node, store=store).resume("s", {"q": 1})
    assert result.state["log"] == ["away", "away", 3, 1]
    assert len(made) == 3


async def test_each_of_several_flows_sees_its_own_failure_again(store: Store):  # rules R13, I1
    async def handle(cents: int) -> Any:
        try:
            return await charge(cents)
        except ConnectionError as error:
            return [str(error), interrupt(f"Charge {cents} again?", key=f"q{cents}")]

    async def node(state: Any) -> Any:
        return {"log": await asyncio.gather(handle(1), handle(2))}

    paused = await lone(node, store=store).run({}, session_id="s")
    assert len(paused.interrupts) == 2
    result = await lone(node, store=store).resume("s", {"q1": "a", "q2": "b"})
    assert result.state["log"] == [["the bank is away (1)", "a"], ["the bank is away (2)", "b"]]
    assert made == [1, 2]


async def test_a_failure_beside_a_question_is_tried_again(store: Store):  # rule R13
    broken = True

    @workflow
    async def fails() -> str:
        made.append("tried")
        if broken:
            raise ConnectionError("away")
        return "there"

    @workflow
    async def asks() -> str:
        return interrupt("q", key="q")

    @workflow
    async def flow() -> Any:
        return await asyncio.gather(current().run(fails), current().run(asks))

    await Runner(flow, store=store).run(session_id="s")
    with pytest.raises(ConnectionError):
        await Runner(flow, store=store).resume("s", {"q": "yes"})
    broken = False
    assert (await Runner(flow, store=store).recover("s")).value == ["there", "yes"]


async def test_what_failed_before_a_child_asked_is_seen_again(store: Store):  # rule R13
    @workflow
    async def ask_boss(what: str) -> str:
        return interrupt(what, key="boss")

    async def node(state: Any) -> Any:
        try:
            return {"log": [await charge(5)]}
        except ConnectionError as error:
            return {"log": [await current().run(ask_boss, str(error))]}

    await lone(node, store=store).run({}, session_id="s")
    result = await lone(node, store=store).resume("s", {"boss": "leave it"})
    assert (result.state["log"], made) == (["leave it"], [5])


@pytest.mark.parametrize("kind", [Declined, Overdrawn])
async def test_named_classes_are_raised_again(kind: type[Declined], store: Store):  # rule R13
    @once(raises=[Declined])
    async def charge_card() -> None:
        made.append("charged")
        raise kind(51, reason="no money")

    async def node(state: Any) -> Any:
        try:
            await charge_card()
        except Declined as error:
            return {"log": [type(error).__name__, str(error), error.code, interrupt("q", key="q")]}

    await lone(node, store=store).run({}, session_id="s")
    result = await lone(node, store=store).resume("s", {"q": 1})
    assert result.state["log"] == [kind.__name__, "51: no money", 51, 1]
    assert made == ["charged"]


async def test_classes_of_a_childs_failures_are_named_where_it_is_run(store: Store):  # rule R13
    @workflow
    async def pay_card() -> None:
        made.append("charged")
        raise Declined(51, reason="no money")

    async def node(state: Any) -> Any:
        try:
            await current().run(pay_card, raises=[Declined])
        except Declined as error:
            return {"log": [error.code, interrupt("q", key="q")]}

    await lone(node, store=store).run({}, session_id="s")
    assert (await lone(node, store=store).resume("s", {"q": 1})).state["log"] == [51, 1]
    assert made == ["charged"]


async def test_a_group_is_raised_again_with_all_that_is_in_it(store: Store):  # rule R13
    """As a `TaskGroup` raises it."""

    @workflow
    async def look_up(input: str) -> None:
        made.append("looked up")
        async with asyncio.TaskGroup() as group:
            group.create_task(fails(Declined(51, reason="no money")))
            group.create_task(fails(ExceptionGroup("inner", [KeyError("x"), FileNotFoundError(2, "No", "a.txt")])))

    async def fails(error: Exception) -> None:
        raise error

    async def node(state: Any) -> Any:
        seen: list[Any] = []
        try:
            await current().run(look_up, "x", raises=[Declined])
        except* Declined as declined:
            seen += [str(declined), *(getattr(each, "code", 0) for each in declined.exceptions)]
        except* (KeyError, OSError) as others:
            seen += [repr(others), others.subgroup(OSError) is not None]
        return {"log": [*seen, interrupt(str(seen), key="q")]}

    asked = (await lone(node, store=store).run({}, session_id="s")).interrupts[0].info
    *seen, answer = (await lone(node, store=store).resume("s", {"q": 1})).state["log"]
    assert (str(seen), answer, made) == (asked, 1, ["looked up"])
    assert 51 in seen


async def test_an_unknown_class_in_a_group_is_named(store: Store):  # rule R13
    @once
    async def look_up() -> None:
        raise ExceptionGroup("all", [ValueError("a"), Declined(51, reason="no money")])

    async def node(state: Any) -> Any:
        try:
            await look_up()
        except ExceptionGroup:
            interrupt("q", key="q")

    with pytest.raises(NotStorable, match=r"look_up.*raises=\[Declined\]"):
        await lone(node, store=store).run({}, session_id="s")


async def test_an_unknown_class_is_refused_before_anybody_is_asked(store: Store):  # rule R13
    @once
    async def charge_card() -> None:
        raise Declined(51, reason="no money")

    async def node(state: Any) -> Any:
        try:
            await charge_card()
        except Declined:
            interrupt("q", key="q")

    with pytest.raises(NotStorable, match=r"charge_card.*raises=\[Declined\]"):
        await lone(node, store=store).run({}, session_id="s")
    assert await lone(node, store=store).pending("s") == []


async def test_a_class_that_is_not_named_any_more_is_said_so(store: Store):  # rules R13, R10
    def build(**options: Any) -> Any:
        @once(**options)
        async def charge_card() -> None:
            made.append("charged")
            raise Declined(51, reason="no money")

        async def node(state: Any) -> Any:
            try:
                await charge_card()
            except Declined as error:
                return {"log": [error.code, interrupt("q", key="q")]}

        return lone(node, store=store)

    await build(raises=[Declined]).run({}, session_id="s")
    with pytest.raises(ProgramChanged, match="Declined"):
        await build().resume("s", {"q": 1})
    assert (await build(raises=[Declined]).recover("s")).state["log"] == [51, 1]
    assert made == ["charged"]


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        KeyError("key"),
        FileNotFoundError(2, "No such file", "draft.txt"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        StopAsyncIteration("x"),
        ToolError("The tool failed."),
        ConnectionError(object()),
        TypeError(),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_built_in_exceptions_and_ours_are_raised_again(error: Exception, store: Store):  # rule R13
    @once
    async def fail() -> None:
        made.append("failed")
        raise error

    async def node(state: Any) -> Any:
        try:
            await fail()
        except Exception as caught:  # noqa: BLE001  # any of them
            same = type(caught) is type(error) and str(caught) == str(error)
            return {"log": [same, interrupt("q", key="q")]}

    await lone(node, store=store).run({}, session_id="s")
    assert (await lone(node, store=store).resume("s", {"q": 1})).state["log"] == [True, 1]
    assert made == ["failed"]


@pytest.mark.parametrize("limit", ["timeout", "wait_for"])
@pytest.mark.parametrize("is_child", [True, False])
async def test_what_was_cut_off_is_a_timeout(limit: str, is_child: bool, store: Store):  # rule R13
    @once
    async def charge_slowly() -> None:
        made.append("begun")
        await asyncio.Event().wait()

    @workflow
    async def pay_slowly() -> None:
        made.append("begun")
        await asyncio.Event().wait()

    async def node(state: Any) -> Any:
        call = current().run(pay_slowly) if is_child else charge_slowly()
        try:
            if limit == "wait_for":
                await asyncio.wait_for(call, 0.01)
            else:
                async with asyncio.timeout(0.01):
                    await call
        except TimeoutError:
            return {"log": [interrupt("It hangs. Go on?", key="q")]}

    await lone(node, store=store).run({}, session_id="s")
    assert (await lone(node, store=store).resume("s", {"q": "yes"})).state["log"] == ["yes"]
    assert made == ["begun"]


async def test_without_a_question_a_failure_is_not_kept(store: Store):  # rule R13
    broken = True

    @once
    async def fetch() -> str:
        made.append("tried")
        if broken:
            raise ConnectionError("away")
        return "page"

    async def node(state: Any) -> Any:
        return {"log": [await fetch()]}

    with pytest.raises(ConnectionError):
        await lone(node, store=store).run({}, session_id="s")
    broken = False
    assert (await lone(node, store=store).recover("s")).state["log"] == ["page"]
    assert made == ["tried", "tried"]


async def test_what_an_earlier_attempt_failed_with_is_not_kept(store: Store):  # rules R13, G12
    @once
    async def fetch() -> str:
        made.append("tried")
        if len(made) == 1:
            raise ConnectionError("away")
        return "page"

    async def node(state: Any) -> Any:
        return {"log": [await fetch(), interrupt("q", key="q")]}

    retry = Retry(attempts=2, backoff=0)
    graph = StateGraph(Log).add_node("ask", node, retry=retry).add_edge(START, "ask").compile(store=store)
    await graph.run({}, session_id="s")
    assert (await graph.resume("s", {"q": 1})).state["log"] == ["page", 1]
    assert made == ["tried", "tried"]


async def test_a_person_who_says_no_is_not_overruled_by_recovery(store: Store):  # rules R13, R6
    async def node(state: Any) -> Any:
        try:
            return {"log": [await charge(5)]}
        except ConnectionError:
            if interrupt("Charge again?", key="q") == "no":
                raise
            return {"log": ["later"]}

    await lone(node, store=store).run({}, session_id="s")
    with pytest.raises(ConnectionError, match="away"):
        await lone(node, store=store).resume("s", {"q": "no"})
    with pytest.raises(ConnectionError, match="away"):
        await lone(node, store=store).recover("s")
    assert made == [5]


async def test_after_an_edit_what_failed_is_tried_again(store: Store):  # rules R13, C4
    async def node(state: Any) -> Any:
        try:
            return {"log": [await charge(5)]}
        except ConnectionError:
            return {"log": [interrupt("Charge again?", key="q")]}

    await lone(node, store=store).run({}, session_id="s")
    await lone(node, store=store).edit("s", {"log": ["edited"]})
    await lone(node, store=store).recover("s")
    assert made == [5, 5]


async def test_a_fork_sees_the_failure_too(store: Store):  # rules R13, C4
    async def node(state: Any) -> Any:
        try:
            return {"log": [await charge(5)]}
        except ConnectionError:
            return {"log": [interrupt("Charge again?", key="q")]}

    await lone(node, store=store).run({}, session_id="s")
    fork = await lone(node, store=store).fork("s")
    assert (await lone(node, store=store).resume(fork, {"q": "no"})).state["log"] == ["no"]
    assert made == [5]


async def test_a_mismatch_below_cannot_be_caught(store: Store):  # rule R6
    key = "first"

    @workflow
    async def inner() -> Any:
        return interrupt("q", key=key)

    @workflow
    async def flow() -> Any:
        try:
            return await current().run(inner)
        except ReplayMismatch:
            return interrupt("What now?", key="swallowed")

    await Runner(flow, store=store).run(session_id="s")
    key = "second"
    with pytest.raises(ReplayMismatch, match=r"'first'.*\n.*'second'"):
        await Runner(flow, store=store).resume("s", {"first": "a"})
    assert await Runner(flow, store=store).pending("s") == []
    key = "first"
    assert (await Runner(flow, store=store).recover("s")).value == "a"


@pytest.mark.parametrize("is_same_process", [True, False])
async def test_after_a_mismatch_below_the_old_code_goes_on(is_same_process: bool, store: Store):  # rule R6
    asks = True

    @once
    async def prepare() -> str:
        made.append("prepared")
        return "ready"

    @workflow
    async def inner() -> Any:
        ready = await prepare()
        return [ready, interrupt("q", key="q") if asks else "not asked"]

    @workflow
    async def flow() -> Any:
        try:
            return await current().run(inner)
        except ReplayMismatch:
            return interrupt("What now?", key="swallowed")

    def build() -> Runner:
        return runner if is_same_process else Runner(flow, store=store)

    runner = Runner(flow, store=store)
    await runner.run(session_id="s")
    asks = False
    with pytest.raises(ReplayMismatch):
        await build().resume("s", {"q": "yes"})
    assert await build().pending("s") == []
    assert (await build().status("s")).status == "failed"
    asks = True
    assert (await build().recover("s")).value == ["ready", "yes"]
    assert made == ["prepared"]


async def test_after_a_change_of_the_program_below_the_old_code_goes_on(store: Store):  # rules R6, R10
    @workflow(name="child")
    async def as_workflow() -> Any:
        return interrupt("q", key="q")

    as_graph = lone(lambda state: {"log": [interrupt("q", key="q")]}, name="child")
    child: Any = as_workflow

    @workflow
    async def flow() -> Any:
        return await current().run(child)

    await Runner(flow, store=store).run(session_id="s")
    child = as_graph
    other = Runner(flow, store=store)
    for go_on in (other.resume("s", {"q": 1}), other.recover("s"), Runner(flow, store=store).recover("s")):
        with pytest.raises(ProgramChanged):
            await go_on
    child = as_workflow
    assert (await other.recover("s")).value == 1


@pytest.mark.parametrize("kind", ["workflow", "graph", "node gone"])
async def test_however_often_the_changed_program_is_tried_nothing_is_lost(store: Store, kind: str):  # rules R6, R10
    made: list[str] = []

    @once
    async def prepare() -> str:
        made.append("prepared")
        return "ready"

    @workflow(name="child")
    async def as_workflow() -> Any:
        return [await prepare(), interrupt("q", key="q")]

    async def ask(state: Any) -> Any:
        return {"log": [await prepare(), interrupt("q", key="q")]}

    right: Any = as_workflow if kind == "workflow" else lone(ask, name="child")
    wrong: Any = lone(ask, name="child") if kind == "workflow" else as_workflow
    if kind == "node gone":
        wrong = StateGraph(Log, name="child").add_node("another", ask).add_edge(START, "another").compile()
    child = right

    @workflow
    async def flow() -> Any:
        return await current().run(child, None if kind == "workflow" else {})

    def build() -> Runner:
        return Runner(flow, store=store)

    await build().run(session_id="s")
    await build().answer("s", {"q": "yes"})
    child = wrong
    # Now and then a full record is due, which has to hold what the program cannot use.
    for _ in range(12):
        with pytest.raises(ProgramChanged):
            await build().recover("s")
    child = right
    found = (await build().recover("s")).value
    assert (found if kind == "workflow" else found["log"]) == ["ready", "yes"]
    assert made == ["prepared"]
    assert (await build().verify("s")).is_sound


async def test_mended_code_need_not_run_what_the_wrong_code_ran(store: Store):  # rule R6
    version = "first"

    @workflow
    async def extra() -> Any:
        made.append("extra")
        return interrupt("extra?", key="extra")

    @workflow
    async def flow() -> Any:
        if version == "wrong":
            await current().try_run(extra)
            return "ended without asking"
        return interrupt("q", key="q")

    await Runner(flow, store=store).run(session_id="s")
    version = "wrong"
    with pytest.raises(ReplayMismatch):
        await Runner(flow, store=store).resume("s", {"q": "yes"})
    version = "mended"
    assert (await Runner(flow, store=store).recover("s")).value == "yes"


def test_what_cannot_be_raised_is_refused_at_once() -> None:  # rule R13
    with pytest.raises(UsageError, match=r"'charge'.*not a class of exceptions"):
        once(name="charge", raises=["ConnectionError"])(lambda: None)  # pyright: ignore[reportArgumentType]


async def test_ids_of_questions_are_the_same_after_a_failure(store: Store):  # rules I3, R13
    async def node(state: Any) -> Any:
        try:
            await charge(5)
        except ConnectionError:
            return {"log": [interrupt("a"), interrupt("b")]}

    paused = await lone(node, store=store).run({}, session_id="s")
    again = await lone(node, store=store).resume("s", {ids(paused)[0]: 1})
    assert (await lone(node, store=store).resume("s", {ids(again)[0]: 2})).state["log"] == [1, 2]
    assert made == [5]


async def through_wait_for(cents: int) -> Any:
    return await asyncio.wait_for(charge(cents), 5)


async def through_gather(cents: int) -> Any:
    return (await asyncio.gather(charge(cents)))[0]


async def through_task(cents: int) -> Any:
    return await asyncio.create_task(charge(cents))


async def through_thread(cents: int) -> Any:
    return await asyncio.to_thread(charge_now, cents)


async def through_child_task(cents: int) -> Any:
    return await asyncio.create_task(current().run(pay, cents))


@pytest.mark.parametrize("way", [through_wait_for, through_gather, through_task, through_thread, through_child_task])
async def test_a_failure_in_a_task_of_a_flow_belongs_to_the_flow(way: Any, store: Store):  # rules R13, I1
    async def handle(cents: int, both: asyncio.Barrier) -> Any:
        try:
            return await way(cents)
        except ConnectionError as error:
            await both.wait()
            return [str(error), interrupt(f"Charge {cents} again?", key=f"q{cents}")]

    async def node(state: Any) -> Any:
        both = asyncio.Barrier(2)
        return {"log": await asyncio.gather(handle(1, both), handle(2, both))}

    await lone(node, store=store).run({}, session_id="s")
    await lone(node, store=store).resume("s", {"q1": "a"})
    result = await lone(node, store=store).resume("s", {"q2": "b"})
    assert result.state["log"] == [["the bank is away (1)", "a"], ["the bank is away (2)", "b"]]
    assert sorted(made) == [1, 2]


async def test_a_class_that_is_not_named_any_more_cannot_be_caught(store: Store):  # rules R6, R13
    def build(**options: Any) -> Any:
        @once(**options)
        async def charge_card() -> None:
            raise Declined(51, reason="no money")

        async def node(state: Any) -> Any:
            try:
                await charge_card()
            except Declined:
                return {"log": [interrupt("q", key="q")]}
            except Exception:  # noqa: BLE001  # as people write it
                made.append("fallback")
                return {"log": ["fallback"]}

        return lone(node, store=store)

    await build(raises=[Declined]).run({}, session_id="s")
    with pytest.raises(ProgramChanged, match="Declined"):
        await build().resume("s", {"q": 1})
    assert (await build(raises=[Declined]).recover("s")).state["log"] == [1]


async def test_a_class_of_the_main_program_is_known_when_the_program_is_imported(store: Store):  # rules R9, R13
    def build(module: str) -> Any:
        kind = type("Declined", (Exception,), {"__module__": module, "__qualname__": "Declined"})

        @once(raises=[kind])
        async def charge_card() -> None:
            made.append("charged")
            raise kind("no money")

        async def node(state: Any) -> Any:
            try:
                await charge_card()
            except kind as error:
                return {"log": [str(error), interrupt("q", key="q")]}

        return lone(node, store=store)

    await build("__main__").run({}, session_id="s")
    assert (await build("shop.app").resume("s", {"q": 1})).state["log"] == ["no money", 1]
    assert made == ["charged"]


async def test_classes_of_an_invoked_graph_are_named_where_it_is_invoked(store: Store):  # rules R13, G15
    async def fails(state: Any) -> Any:
        made.append("charged")
        raise Declined(51, reason="no money")

    inner = lone(fails, name="inner")

    async def node(state: Any) -> Any:
        try:
            await inner.invoke({}, raises=[Declined])
        except Declined as error:
            return {"log": [error.code, interrupt("q", key="q")]}

    await lone(node, store=store).run({}, session_id="s")
    assert (await lone(node, store=store).resume("s", {"q": 1})).state["log"] == [51, 1]
    assert made == ["charged"]


@once
async def slow(name: str) -> str:
    made.append(name)
    await asyncio.Event().wait()
    return name


@once
async def quick(name: str) -> str:
    made.append(name)
    return name


async def test_the_loser_of_a_race_loses_again(store: Store):  # rule R13
    async def node(state: Any) -> Any:
        first, second = asyncio.create_task(slow("slow")), asyncio.create_task(quick("quick"))
        done, pending = await asyncio.wait({first, second}, return_when=asyncio.FIRST_COMPLETED)
        for each in pending:
            each.cancel()
        await asyncio.wait(pending)
        (winner,) = done
        return {"log": [winner.result(), interrupt("q", key="q")]}

    await lone(node, store=store).run({}, session_id="s")
    assert (await lone(node, store=store).resume("s", {"q": 1})).state["log"] == ["quick", 1]
    assert sorted(made) == ["quick", "slow"]


async def test_what_was_given_up_after_a_while_is_given_up_again(store: Store):  # rule R13
    async def node(state: Any) -> Any:
        call = asyncio.create_task(slow("slow"))
        done, _ = await asyncio.wait({call}, timeout=0.05)
        call.cancel()
        await asyncio.wait({call})
        return {"log": [len(done), interrupt("No answer in time. Go on?", key="q")]}

    await lone(node, store=store).run({}, session_id="s")
    assert (await lone(node, store=store).resume("s", {"q": "yes"})).state["log"] == [0, "yes"]
    assert made == ["slow"]


async def test_what_a_failure_beside_it_cut_off_is_cut_off_again(store: Store):  # rule R13
    async def node(state: Any) -> Any:
        caught: list[str] = []
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(slow("slow"))
                group.create_task(charge(5))
        except* ConnectionError as errors:
            caught += [str(error) for error in errors.exceptions]
        return {"log": [caught, interrupt("q", key="q")]}

    await lone(node, store=store).run({}, session_id="s")
    assert (await lone(node, store=store).resume("s", {"q": 1})).state["log"] == [["the bank is away (5)"], 1]
    assert made == ["slow", 5]


@pytest.mark.parametrize("is_child", [False, True])
async def test_attempts_of_a_workflow_count_failures(store: Store, is_child: bool):  # rule G12
    seen: list[int] = []

    def made() -> Runner[None, Any]:
        @workflow
        async def work(input: str) -> str:
            seen.append(current().attempt)
            if len(seen) < 3:
                raise OSError("not yet")
            return "done"

        @workflow
        async def parent(input: str) -> str:
            return await current().run(work, input)

        return Runner(parent if is_child else work, store=store)

    with pytest.raises(OSError, match="not yet"):
        await made().run("x", session_id="s")
    with pytest.raises(OSError, match="not yet"):
        await made().recover("s")
    assert (await made().recover("s")).value == "done"
    assert seen == [1, 2, 3]
    await made().run("next", session_id="s")
    assert seen == [1, 2, 3, 1]
