"""What nodes return: the state that they were given, changed or not, and what they cannot return."""

from typing import Annotated, Any, TypedDict

import pytest

from adjourn import AdjournError
from adjourn.errors import StateInvalid
from adjourn.graph import END, Command, Overwrite, StateGraph, append, merge
from tests.graph.shapes import chain, giving, together


class Notes(TypedDict, total=False):
    title: str
    items: Annotated[list[Any], append]
    table: Annotated[dict[str, Any], merge]
    deep: dict[str, Any]
    count: int


async def test_returning_the_state_counts_only_what_changed() -> None:  # rule S7
    def back(state: Any) -> Any:
        state["items"].append("new")
        state["table"]["b"] = 2
        state["title"] = "changed"
        return state

    start = {"items": ["old"], "table": {"a": 1}, "title": "x", "count": 1, "deep": {"k": [1]}}
    state = await chain(Notes, back).invoke(start)
    assert state == {**start, "items": ["old", "new"], "table": {"a": 1, "b": 2}, "title": "changed"}


async def test_returning_the_state_untouched_writes_nothing() -> None:  # rule S7
    def back(state: Any) -> Any:
        assert dict(state)
        return state

    start = {"items": ["old"], "table": {"a": 1}, "title": "x", "deep": {"k": [1]}}
    assert await together(Notes, {"a": back, "b": back, "c": giving({"title": "y"})}).invoke(start) == {
        **start,
        "title": "y",
    }


async def test_the_state_in_a_command_counts_only_what_changed() -> None:  # rule S7
    def back(state: Any) -> Command:
        state["items"].append("new")
        return Command(update=state, goto=END)

    assert (await chain(Notes, back).invoke({"items": ["old"]}))["items"] == ["old", "new"]


async def test_changing_an_appending_field_elsewhere_than_at_its_end_is_refused() -> None:  # rule S7
    def back(state: Any) -> Any:
        state["items"] = state["deep"]["list"]
        return state

    for new in (["a"], ["b", "a"], ["x", "a", "b"], ["a", "x"], []):
        with pytest.raises(StateInvalid, match="items"):
            await chain(Notes, back).invoke({"items": ["a", "b"], "deep": {"list": new}})


async def test_a_field_cannot_be_deleted() -> None:  # rule S7
    def back(state: Any) -> Any:
        del state["title"]
        return state

    with pytest.raises(StateInvalid, match=r"title.*deleted"):
        await chain(Notes, back).invoke({"title": "t"})


async def test_a_returned_state_may_overwrite() -> None:  # rules S7, S9
    def back(state: Any) -> Any:
        state["items"] = Overwrite(["only"])
        return state

    assert (await chain(Notes, back).invoke({"items": ["a"]}))["items"] == ["only"]


async def test_a_key_taken_out_of_a_merging_field_is_gone() -> None:  # rule S7
    def back(state: Any) -> Any:
        del state["table"]["a"]
        return state

    assert (await chain(Notes, back).invoke({"table": {"a": 1, "b": 2}}))["table"] == {"b": 2}


@pytest.mark.parametrize("field", ["items", "table"])
async def test_a_returned_state_with_the_wrong_kind_of_value_is_refused(field: str) -> None:  # rules S2, S7
    def back(state: Any) -> Any:
        state[field] = None
        return state

    with pytest.raises(StateInvalid, match=field):
        await chain(Notes, back).invoke({})


async def test_equal_is_not_the_same_type() -> None:  # rule S7
    def back(state: Any) -> Any:
        state["count"] = True
        state["deep"]["list"] = [True]
        state["table"]["k"] = 1.0
        return state

    state = await chain(Notes, back, check_updates=False).invoke({"count": 1, "deep": {"list": [1]}, "table": {"k": 1}})
    assert state["count"] is True
    assert isinstance(state["table"]["k"], float)
    assert state["deep"]["list"][0] is True


async def test_what_a_fan_out_laid_over_the_state_is_not_written_back() -> None:  # rules S7, G5
    def spread(state: Any) -> list[Command]:
        return [Command(update={"title": t, "items": [t]}, goto="w") for t in "ab"]

    def worker(state: Any) -> Any:
        state["items"].append(state["title"] * 2)
        return state

    graph = StateGraph(Notes).add_node("spread", spread).add_node("w", worker).set_entry_point("spread").compile()
    assert await graph.invoke({"title": "t", "items": ["0"]}) == {"title": "t", "items": ["0", "aa", "bb"], "table": {}}


async def test_a_sync_function_that_returns_a_coroutine_is_told_what_to_do() -> None:
    async def helper() -> dict[str, Any]:
        return {}

    def forgets_to_await(state: Any) -> Any:
        return helper()

    with pytest.raises(AdjournError, match="async def"):
        await chain(Notes, forgets_to_await).invoke({})


@pytest.mark.parametrize("result", ["text", 5, ("a",), object(), True])
async def test_a_node_that_returns_something_else_is_told(result: Any) -> None:
    with pytest.raises(AdjournError, match=r"'a' returned an? .*mapping"):
        await together(Notes, {"a": giving(result)}).invoke({})
