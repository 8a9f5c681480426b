"""Errors of user code: a note says in which node of which session they were raised."""

from dataclasses import dataclass
from typing import Any

import pytest

from adjourn import Retry, Runner, current, workflow
from adjourn.errors import RetryExhausted
from adjourn.graph import START, StateGraph
from adjourn.stores import Store
from tests._engine.asking import Log, chain, lone, nothing, together

BROKEN = ValueError("the same object each time")


def fail(state: Any) -> None:
    raise ValueError("broken")


def fail_alike(state: Any) -> None:
    raise BROKEN


async def notes_of(run: Any, kind: type[BaseException] = ValueError) -> list[str]:
    with pytest.raises(kind) as caught:
        await run
    return list(getattr(caught.value, "__notes__", []))


@pytest.mark.parametrize("thread", [True, False])
async def test_an_error_says_in_which_node_of_which_session_it_was_raised(thread: bool, store: Store):
    graph = lone(fail, thread=thread, store=store)
    told = "Raised in 'runnable:g;node:ask' of session 's'."
    assert await notes_of(graph.run({}, session_id="s")) == [told]
    assert await notes_of(graph.recover("s")) == [told]


async def test_it_is_said_once_of_one_error(store: Store):
    graph = lone(fail_alike, store=store)
    for run in (graph.run({}, session_id="once"), graph.recover("once"), graph.recover("once")):
        await notes_of(run)
    assert BROKEN.__notes__ == ["Raised in 'runnable:g;node:ask' of session 'once'."]


async def test_errors_that_were_tried_again_have_no_note():
    seen: list[ValueError] = []

    def fails(state: Any) -> None:
        seen.append(ValueError(len(seen)))
        raise seen[-1]

    graph = StateGraph(Log, name="g").add_node("a", fails, retry=Retry(attempts=3, backoff=0)).add_edge(START, "a")
    assert len(await notes_of(graph.compile().run({}, session_id="s"), RetryExhausted)) == 1
    assert [getattr(error, "__notes__", []) for error in seen] == [[], [], []]


async def test_the_deepest_place_is_told_once():
    inner = chain(nothing, fail, name="inner")

    async def calls(state: Any) -> Any:
        return await inner.invoke({})

    nested = StateGraph(Log, name="outer").add_subgraph("sub", inner).add_edge(START, "sub").compile()
    assert await notes_of(nested.run({}, session_id="s")) == [
        "Raised in 'runnable:outer;node:sub;node:fail' of session 's'."
    ]
    assert await notes_of(lone(calls).run({}, session_id="s")) == [
        "Raised in 'runnable:g;node:ask;runnable:inner;node:fail' of session 's'."
    ]


async def test_an_error_that_was_handled_has_no_note():
    caught: list[ValueError] = []
    inner = lone(fail, name="inner")

    async def handles(state: Any) -> Any:
        try:
            await inner.invoke({})
        except ValueError as error:
            caught.append(error)

    assert (await lone(handles).run({})).status == "done"
    assert [getattr(error, "__notes__", []) for error in caught] == [[]]


async def test_workflows_and_conditions_are_places_too():
    @workflow
    async def inner(_: Any) -> Any:
        raise ValueError("broken")

    @workflow
    async def outer(_: Any) -> Any:
        return await current().run(inner, None)

    assert await notes_of(Runner(inner).run(None, session_id="s")) == ["Raised in 'runnable:inner' of session 's'."]
    assert await notes_of(Runner(outer).run(None, session_id="s")) == [
        "Raised in 'runnable:outer;runnable:inner' of session 's'."
    ]
    graph = StateGraph(Log, name="g").add_node("a", nothing).add_edge(START, "a").add_conditional_edges("a", fail)
    (told,) = await notes_of(graph.compile().run({}, session_id="s"))
    assert told == "Raised in 'runnable:g;node:a;branch:fail' of session 's'."


async def test_of_several_errors_the_one_that_is_raised_is_told():
    notes = await notes_of(together({"a": fail, "b": fail}).run({}, session_id="s"))
    assert [note.partition(" ")[0] for note in notes] == ["In", "Raised"]
    assert notes[1] == "Raised in 'runnable:g;node:a' of session 's'."


@dataclass(frozen=True)
class Frozen(Exception):
    text: str


async def test_an_error_that_takes_no_notes_is_raised_as_it_is():
    def fails(state: Any) -> None:
        raise Frozen("broken")

    assert await notes_of(together({"a": fails, "b": fails}).run({}), Frozen) == []
