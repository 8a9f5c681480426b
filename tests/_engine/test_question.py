"""What a question says: what people see of it, how it is named, and what it may hold."""

import asyncio
import dataclasses
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from adjourn import AnswerWith, interrupt, stored
from adjourn.errors import NotStorable
from adjourn.events import Interrupted
from adjourn.graph import END, Command, CompiledGraph
from adjourn.stores import Store
from adjourn.testing import FakeClock
from tests._engine.asking import events_of, ids, lone, together
from tests.conftest import MakeStore


async def test_a_question_reads_the_same_everywhere(make_store: MakeStore):  # rules I2, I12
    clock = FakeClock()
    store = make_store(clock)

    def node(state: Any) -> None:
        interrupt(
            {"draft": ("a", "b")},
            key="approval",
            reason="need_approval",
            prompt="Publish?",
            schema=bool,
            expires_in=timedelta(days=1),
        )

    graph = lone(node, store=store, clock=clock)
    *_, last = await events_of(graph.run({}, session_id="s"))
    assert isinstance(last, Interrupted)
    (asked,) = last.interrupts
    now = datetime.fromtimestamp(clock(), UTC)
    assert asked.info == {"draft": ("a", "b")}
    assert (asked.key, asked.reason, asked.prompt) == ("approval", "need_approval", "Publish?")
    assert asked.schema == {"type": "boolean"}
    assert asked.choices == (True, False)
    assert (asked.created, asked.expires) == (now, now + timedelta(days=1))
    assert asked.is_root_cause
    assert asked.session_id == "s"
    assert asked.checkpoint_id == last.checkpoint_id == (await graph.checkpoint("s")).id
    assert asked.parent is not None
    assert (asked.parent.id, asked.parent.is_root_cause, asked.parent.parent) == ("runnable:g", False, None)
    assert (await graph.recover("s")).interrupts == (asked,)
    assert (await graph.status("s")).interrupts == (asked,)
    assert await graph.pending("s") == [asked]
    assert await graph.pending() == [asked]


async def test_a_question_without_prompt_shows_its_text():  # rule I2
    (asked,) = (await lone(lambda state: interrupt("Your name?")).run({})).interrupts
    assert (asked.prompt, asked.info, asked.reason, asked.key, asked.schema, asked.choices) == (
        *("Your name?", "Your name?", "need_input", None, None, ()),
    )
    (asked,) = (await lone(lambda state: interrupt({"a": 1})).run({})).interrupts
    assert asked.prompt is None


@pytest.mark.parametrize(
    ("schema", "choices"), [(bool, (True, False)), (bool | None, (True, False, None)), (int, ()), (None, ())]
)
async def test_answers_that_can_be_listed_are_choices(schema: Any, choices: tuple[Any, ...]):  # rules I2, I12
    (asked,) = (await lone(lambda state: interrupt("q", schema=schema)).run({})).interrupts
    assert set(asked.choices) == set(choices)


@dataclasses.dataclass
class Draft:
    title: str


async def test_a_person_without_the_code_sees_the_question_and_can_answer(store: Store):  # rule I12
    @stored("tests.interrupt.Shown")
    class Shown(msgspec.Struct, frozen=True):
        title: str

    await lone(lambda state: {"log": [interrupt(Shown("A poem"), schema=bool)]}, store=store).run({}, session_id="s")
    stranger = lone(lambda state: None, store=store)
    (asked,) = await stranger.pending("s")
    assert asked.info == Shown("A poem")
    assert asked.schema == {"type": "boolean"}


async def test_siblings_share_their_parents_and_come_in_task_order(store: Store):  # rule I2
    go = asyncio.Event()

    async def slow(state: Any) -> None:
        await go.wait()
        interrupt("slow")

    async def quick(state: Any) -> None:
        go.set()
        interrupt("quick")

    result = await together({"slow": slow, "quick": quick}, store=store).run({}, session_id="s")
    first, second = result.interrupts
    assert ids(result) == ["runnable:g;node:slow", "runnable:g;node:quick"]
    assert first.parent is second.parent


async def test_similar_names_are_different_places(store: Store):  # rule I3
    def node(state: Any) -> dict[str, Any]:
        return {"log": [interrupt("q")]}

    nodes = {"a": node, "a:1": node, "a;b": node, "a%3Bb": node, "a#2": node}
    result = await together(nodes, store=store).run({}, session_id="s")
    assert len(set(ids(result))) == len(nodes)
    answers = {asked: number for number, asked in enumerate(ids(result))}
    assert (await together(nodes, store=store).resume("s", answers)).state["log"] == [0, 1, 2, 3, 4]


async def test_asking_anew_counts_on_and_open_ids_stay(store: Store):  # rules I3, R8
    def node(state: Any) -> Command:
        name = interrupt("name?")
        age = interrupt("age?")
        again = interrupt("again?", schema=bool)
        return Command(update={"log": [(name, age)]}, goto="ask" if again else END)

    def build() -> CompiledGraph:
        return lone(node, store=store)

    seen: list[str] = []
    result = await build().run({}, session_id="s")
    for answer in ["Ann", 41, True, "Bob", 42, False]:
        seen += ids(result)
        assert ids(await build().recover("s")) == ids(result)
        result = await build().resume("s", {ids(result)[0]: answer})
    place = "runnable:g;node:ask"
    assert seen == [place, *(f"{place}#{number}" for number in range(2, 7))]
    assert result.state["log"] == [("Ann", 41), ("Bob", 42)]


async def test_numbers_go_on_in_the_next_turn(store: Store):  # rule I3
    graph = lone(lambda state: {"log": [interrupt("q", key="q")]}, store=store)
    for turn in range(1, 4):
        result = await graph.run({}, session_id="s")
        assert ids(result) == ["runnable:g;node:ask" + (f"#{turn}" if turn > 1 else "")]
        result = await graph.resume("s", {"q": turn})
        assert result.state["log"] == [1, 2, 3][:turn]


class Opaque:
    pass


def _unstorable() -> list[Any]:
    deep: list[Any] = []
    deep.append(deep)
    return [Opaque(), {"a": [Opaque()]}, threading.Lock(), lambda: 1, float("nan"), "\ud800", deep, Draft("x")]


@pytest.mark.parametrize("thread", [True, False])
@pytest.mark.parametrize("where", ["info", "state", "on_expire"])
async def test_what_cannot_be_stored_is_refused_where_it_is_asked(where: str, thread: bool):  # rule I7
    caught: list[NotStorable] = []

    def node(state: Any) -> None:
        for value in _unstorable():
            given: dict[str, Any] = {"info": "q", where: AnswerWith(value) if where == "on_expire" else value}
            with pytest.raises(NotStorable) as raised:
                interrupt(given.pop("info"), **given)
            caught.append(raised.value)

    result = await lone(node, thread=thread).run({})
    assert result.status == "done"
    assert len(caught) == len(_unstorable())
    assert "Opaque" in str(caught[0])
    assert "Opaque" in str(caught[1])


async def test_the_refusal_says_how_to_register_a_type():  # rule I7
    with pytest.raises(NotStorable, match="stored"):
        await lone(lambda state: interrupt(Draft("x"))).run({})


async def test_what_was_shown_is_what_was_given(store: Store):  # rule I7
    info: dict[str, Any] = {"list": [1]}

    async def node(state: Any) -> None:
        try:
            interrupt(info)
        finally:
            info["list"].append(2)

    (asked,) = (await lone(node, store=store).run({}, session_id="s")).interrupts
    assert asked.info == {"list": [1]}
