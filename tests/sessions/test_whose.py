"""Whose session: every call, with every user it can be made for; and sessions of several apps."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable
from typing import Any, NamedTuple

import pytest

from adjourn import CheckpointNotFound, Runner, Sessions, UsageError, interrupt, workflow
from adjourn.graph import CompiledGraph
from adjourn.runner import Run
from adjourn.sessions import Notice
from adjourn.stores import MemoryStore, SessionRef, Store
from adjourn.stores.kit import Audit, ListCheckpoints, ListEvents, ListSessions, Load
from tests.runner.programs import asking

CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "status": ((), {}),
    "pending": ((), {}),
    "messages": ((), {}),
    "audit": ((), {}),
    "verify": ((), {}),
    "answer": (({"go": 1},), {"by": "eve"}),
    "inputs": ((), {}),
    "withdraw": (("i",), {}),
    "history": ((), {}),
    "checkpoint": ((), {}),
    "state": ((), {}),
    "tree": ((), {}),
    "diff": (("CHECKPOINT", "CHECKPOINT"), {}),
    "fork": ((), {}),
    "prune": ((), {"keep": 1}),
    "delete": ((), {}),
    "resume": (({"go": 1},), {"by": "eve"}),
    "recover": ((), {}),
    "advance": ((), {}),
    "attach": ((), {}),
    "cancel": ((), {}),
    "tool_output": (("c1",), {}),
    "edit": (({"answer": "mine"},), {}),
}
"""The arguments after the session's id, for every method that needs a session; CHECKPOINT stands for the head's id."""

OTHERS = (
    "run",
    "submit",
    "sessions",
    "subscribe",
    "count_pending",
    "decisions",
    "prune_all",
    "old_sessions",
    "clean_up",
    "verify_all",
)
"""The methods that list sessions, work on all of them, or begin one."""

OF_OTHERS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "prune_all": ((), {"keep": 1}),
    "old_sessions": ((0,), {}),
    "clean_up": ((0,), {}),
}
"""The arguments of those that need some."""

ASYNC_ONLY = ("attach", "subscribe")


class Outcome(NamedTuple):
    """What a call came to: its error with its text, or what kind of thing it returned."""

    error: type[Exception] | None
    text: str


def public_methods() -> set[str]:
    methods = {name: getattr(CompiledGraph, name) for name in dir(CompiledGraph) if not name.startswith("_")}
    functions = {name: each for name, each in methods.items() if inspect.isfunction(each)}
    taking = {name for name, each in functions.items() if {"session_id", "user_id"} & set(_parameters(each))}
    return {name for name in taking if not name.endswith("_sync")} - {"for_user", "invoke"}


def _parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


def test_the_matrix_has_every_method():  # rule C12
    assert public_methods() == {*CALLS, *OTHERS}


@pytest.mark.parametrize("owner", [Sessions, Runner, CompiledGraph])
def test_every_method_takes_a_user(owner: Any):  # rule C12
    for name in (*CALLS, *OTHERS):
        if hasattr(owner, name):
            assert "user_id" in _parameters(getattr(owner, name)), name
            twin = getattr(owner, f"{name}_sync", None)
            assert (twin is None) == (name in ASYNC_ONLY), name


async def paused(store: Store) -> CompiledGraph:
    """The sessions `ann's` and `bob's`, each waiting; the runner has them both in mind."""
    graph = asking(store=store)
    for user in ("ann", "bob"):
        await graph.run({}, session_id=f"{user}'s", user_id=user)
    return graph


async def outcome(graph: Any, name: str, session: str, point: str, way: str, user: str | None) -> Outcome:
    """Make a call for a user, in one of the ways in which it can be made, and return what came of it."""
    args, options = CALLS[name]
    given = [session, *[point if each == "CHECKPOINT" else each for each in args]]
    if way == "bound":
        graph = graph.for_user(user) if user is not None else graph
    else:
        options = {**options, "user_id": user}
    try:
        if way == "sync":
            result: Any = await asyncio.to_thread(getattr(graph, f"{name}_sync"), *given, **options)
        else:
            called: Any = getattr(graph, name)(*given, **options)
            result = await called
    except Exception as error:  # noqa: BLE001  # it is what is compared
        return Outcome(type(error), str(error).replace(session, "SESSION"))
    return Outcome(None, repr(result) if result in ([], True, False, None) else type(result).__name__)


def ways(name: str) -> list[str]:
    return ["given", "bound"] if name in ASYNC_ONLY else ["given", "bound", "sync"]


MATRIX = [(name, way) for name in CALLS for way in ways(name)]


@pytest.mark.parametrize(("name", "way"), MATRIX)
async def test_a_foreign_session_is_as_one_that_does_not_exist(store: Store, name: str, way: str):  # rule C12
    graph = await paused(store)
    before = await everything(store)
    point = (await graph.status("bob's")).checkpoint_id
    foreign = await outcome(graph, name, "bob's", point, way, "ann")
    assert foreign == await outcome(graph, name, "nobody's", point, way, "ann")
    again = await outcome(asking(store=store), name, "bob's", point, way, "ann")
    assert again == foreign, "nor for a runner that has not seen it"
    assert await everything(store) == before
    if name not in ("pending", "delete"):
        assert foreign.error is CheckpointNotFound


@pytest.mark.parametrize(("name", "way"), MATRIX)
async def test_whoever_owns_it_and_whoever_names_no_user_find_it(name: str, way: str):  # rule C12
    for user in ("bob", None):
        graph = await paused(MemoryStore())
        point = (await graph.status("bob's")).checkpoint_id
        found = await outcome(graph, name, "bob's", point, way, user)
        assert found.error in (None, UsageError if name == "tool_output" else None), found
        assert found.text != "[]" or name == "inputs"


async def everything(store: Store) -> list[Any]:
    """What is stored of all sessions."""
    refs = [SessionRef("ann's"), SessionRef("bob's")]
    return [
        (
            await store.read(Load(ref)),
            await store.read(Audit(ref)),
            await store.read(ListCheckpoints(ref)),
            await store.read(ListEvents(ref)),
        )
        for ref in refs
    ] + [len(await store.read(ListSessions()))]


async def test_a_turn_on_a_foreign_session_is_refused_in_the_same_words(store: Store):  # rule C12
    graph = await paused(store)
    before = await everything(store)
    point = (await graph.status("bob's")).checkpoint_id
    with pytest.raises(CheckpointNotFound) as unknown:
        await graph.status("nobody's")
    wanted = str(unknown.value).replace("nobody's", "bob's")
    for caller in (graph, asking(store=store)):
        for pending in ("error", "abandon", "finish"):
            with pytest.raises(CheckpointNotFound) as refused:
                await caller.run({}, session_id="bob's", user_id="ann", on_pending=pending)
            assert str(refused.value) == wanted
        with pytest.raises(CheckpointNotFound):
            await caller.run(None, session_id="bob's", user_id="ann", checkpoint_id=point)
        with pytest.raises(CheckpointNotFound):
            await caller.for_user("ann").fork("ann's", to="bob's")
    assert (await everything(store)) == before


async def test_a_session_of_nobody_is_nobodys(store: Store):  # rule C12
    graph = asking(store=store)
    await graph.run({}, session_id="s")
    for caller in (graph, asking(store=store)):
        for call in (caller.run({}, session_id="s", user_id="ann"), caller.resume("s", {"go": 1}, user_id="ann")):
            with pytest.raises(CheckpointNotFound):
                await call
    assert (await graph.resume("s", {"go": 1})).status == "done"
    with pytest.raises(CheckpointNotFound):
        await graph.run({}, session_id="s", user_id="ann")


async def test_what_a_runner_kept_ready_is_not_taken_for_a_session_that_came_after_it(store: Store):  # rule C12
    kept, other = asking(store=store), asking(store=store)
    await kept.run({"answer": "of ann"}, session_id="s", user_id="ann")
    await other.delete("s")
    await other.run({}, session_id="s", user_id="bob")
    assert (await kept.state("s"))["done"] == ["before"]
    with pytest.raises(CheckpointNotFound):
        await kept.resume("s", {"go": 1}, user_id="ann")
    result = await kept.resume("s", {"go": 1}, user_id="bob")
    assert (result.state["done"], result.state["answer"]) == (["before", "ask", "after"], 1)
    assert (await kept.status("s")).user_id == "bob"


async def test_a_session_that_was_deleted_elsewhere_can_begin_anew(store: Store):  # rule C12
    kept, other = asking(store=store), asking(store=store)
    await kept.run({}, session_id="s", user_id="ann")
    await kept.resume("s", {"go": 1})
    await other.delete("s")
    await kept.run({}, session_id="s", user_id="bob")
    assert (await kept.status("s")).user_id == "bob"


# Bound to one user


async def test_a_bound_runner_is_for_one_user(store: Store):  # rule C12
    graph = await paused(store)
    ann = graph.for_user("ann")
    assert (ann.user_id, graph.user_id, ann.app_name, ann.store) == ("ann", None, "adjourn", graph.store)
    assert [each.session_id for each in await ann.sessions()] == ["ann's"]
    assert [each.session_id for each in await ann.pending()] == ["ann's"]
    assert (await ann.run({}, session_id="new")).session_id == "new"
    assert (await graph.status("new")).user_id == "ann"
    assert (await ann.resume("new", {"go": 1})).status == "done"
    with pytest.raises(CheckpointNotFound):
        await graph.for_user("bob").invoke({}, session_id="new")


async def test_another_user_cannot_be_given_to_what_is_bound(store: Store):  # rule C12
    graph = await paused(store)
    for bound in (graph.for_user("ann"), Sessions(store).for_user("ann")):
        assert (await bound.status("ann's", user_id="ann")).user_id == "ann"
        assert bound.for_user("ann").user_id == "ann"
        with pytest.raises(UsageError, match="bound to the user 'ann'"):
            bound.for_user("bob")
        for name in (*CALLS, *OTHERS):
            if hasattr(bound, name):
                args, options = {**CALLS, **OF_OTHERS}.get(name, ((), {}))
                with pytest.raises(UsageError, match="bound to the user 'ann'"):
                    await made(getattr(bound, name), name, args, {**options, "user_id": "bob"})


async def made(method: Any, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> None:
    given = args if name in OTHERS else ("bob's", *args)
    called = method(*given, **options)
    if isinstance(called, Awaitable):
        await called
    elif not isinstance(called, Run):
        await anext(called)


@pytest.mark.parametrize("wrong", [None, 5, b"ann", "\ud800"])
def test_a_user_must_be_named(wrong: Any):  # rule C12: nobody in place of a user would be everybody
    with pytest.raises(UsageError, match="user_id"):
        Sessions(MemoryStore()).for_user(wrong)
    with pytest.raises(UsageError, match="user_id"):
        asking().for_user(wrong)


async def take(notices: AsyncIterator[Notice]) -> Notice:
    async with asyncio.timeout(60):
        return await anext(notices)


async def test_a_bound_subscription_hears_of_one_users_sessions(store: Store):  # rule C12
    graph = await paused(store)
    notices = graph.for_user("bob").subscribe(report_open=True)
    assert (await take(notices)).session_id == "bob's"


# Apps


@workflow
async def trip(city: str) -> str:
    return interrupt(f"A hotel in {city}?", key="hotel", schema=str)


async def two_apps(store: Store) -> Sessions:
    """`s` in two apps, and one session that only one of them has; then what is stored under all apps."""
    for app, names in (("one", ("s", "only")), ("two", ("s",)), ("~two", ("s", "hidden"))):
        for name in names:
            await Runner(trip, store=store, app_name=app).run(app, session_id=name, user_id=f"user of {app}")
    return Sessions(store, app_name=None)


async def test_all_apps_are_listed(store: Store):  # rule C12
    sessions = await two_apps(store)
    assert sessions.app_name is None
    listed = sorted((each.app_name, each.session_id) for each in await sessions.sessions())
    assert listed == [("one", "only"), ("one", "s"), ("two", "s")], "what the library keeps for itself is not"
    assert [each.session_id for each in await sessions.pending()] == ["s", "only", "s"]
    assert [each.session_id for each in await sessions.pending(limit=2)] == ["s", "only"]
    assert len(await sessions.sessions(limit=2)) == 2
    assert [each.app_name for each in await sessions.sessions(user_id="user of two")] == ["two"]
    assert (await take(sessions.subscribe(report_open=True))).session_id == "s"
    assert await Sessions(store).sessions() == [], "and without a name it is one app"


async def test_a_session_is_found_in_the_one_app_that_has_it(store: Store):  # rule C12
    sessions = await two_apps(store)
    assert (await sessions.status("only")).app_name == "one"
    assert (await sessions.answer("only", {"hotel": "Ritz"})).app_name == "one"
    assert [each.answer for each in await sessions.audit("only")] == ["Ritz"]
    assert (await sessions.status("s", user_id="user of two")).app_name == "two", "an app of others does not count"
    for gone in ("hidden", "unknown"):
        with pytest.raises(CheckpointNotFound):
            await sessions.status(gone)
    fork = await sessions.fork("only", to="again")
    assert (await sessions.status(fork)).app_name == "one"


async def test_a_session_of_several_apps_must_be_named_with_its_app(store: Store):  # rule C12
    sessions = await two_apps(store)
    for name, (args, options) in CALLS.items():
        if hasattr(sessions, name):
            with pytest.raises(UsageError, match=r"Several apps have a session 's': one, two\. Name one"):
                await getattr(sessions, name)("s", *args, **options)
    assert len(await sessions.sessions()) == 3


def test_a_runner_has_one_app():  # rule C12
    wrong: Any = None
    with pytest.raises(UsageError, match="app_name"):
        Runner(trip, app_name=wrong)
