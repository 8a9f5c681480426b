"""Events as JSON: what a page or another process reads is what was told."""

import json
from datetime import UTC, datetime
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjourn import Event, Interrupt, Message, ToolCall, Usage
from adjourn._values.codec import adopt
from adjourn.events import (
    BreakLoop,
    Cancelled,
    CheckpointSaved,
    Custom,
    Delta,
    Done,
    Exit,
    Failed,
    Interrupted,
    MessageEvent,
    NodeEnd,
    NodeStart,
    Progress,
    Retrying,
    ToolCalled,
    ToolResult,
    Transfer,
    from_json,
    to_json,
)
from tests._values.values import same, texts, values

NAMES: dict[type[Any], str] = {
    MessageEvent: "message",
    ToolResult: "tool_result",
    Transfer: "transfer",
    Exit: "exit",
    BreakLoop: "break_loop",
    NodeEnd: "node_end",
    CheckpointSaved: "checkpoint",
    Custom: "custom",
    Interrupted: "interrupt",
    Done: "done",
    Failed: "error",
    Cancelled: "cancelled",
    Delta: "delta",
    ToolCalled: "tool_call",
    NodeStart: "node_start",
    Retrying: "retry",
    Progress: "progress",
}

plain: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
counts = st.integers(0, 2**40)
seconds = st.floats(0, 1e9)
owned = values.map(lambda value: adopt(value, "value")[0])
times = st.none() | st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
calls = st.builds(ToolCall, id=texts, name=texts, arguments=st.dictionaries(texts, plain, max_size=3))
messages = st.one_of(
    st.builds(Message.user, texts),
    st.builds(Message.system, texts),
    st.builds(Message.assistant, texts, tool_calls=st.lists(calls, max_size=2)),
    st.builds(Message.tool, texts, tool_call_id=texts, name=texts),
)
interrupts = st.recursive(
    st.builds(
        Interrupt,
        id=texts,
        address=texts,
        info=owned,
        reason=texts,
        prompt=st.none() | texts,
        key=st.none() | texts,
        schema=st.none() | st.dictionaries(texts, plain, max_size=2),
        choices=st.lists(plain, max_size=3).map(tuple),
        created=times,
        expires=times,
        is_root_cause=st.booleans(),
        checkpoint_id=st.none() | texts,
        session_id=texts,
    ),
    lambda inner: st.builds(Interrupt, id=texts, address=texts, info=owned, parent=inner),
    max_leaves=3,
)
place: dict[str, st.SearchStrategy[Any]] = {
    "agent": texts,
    "path": st.lists(texts, max_size=3).map(tuple),
    "address": texts,
    "seq": st.none() | counts,
}
usages = st.builds(Usage, calls=counts, input_tokens=counts, output_tokens=counts)

STRATEGIES: dict[type[Any], st.SearchStrategy[Any]] = {
    MessageEvent: st.builds(MessageEvent, message=messages, **place),
    ToolResult: st.builds(ToolResult, tool=texts, call_id=texts, result=texts, error=st.none() | texts, **place),
    Transfer: st.builds(Transfer, target=texts, **place),
    Exit: st.builds(Exit, result=texts, **place),
    BreakLoop: st.builds(BreakLoop, **place),
    NodeEnd: st.builds(NodeEnd, node=texts, seconds=seconds, cached=st.booleans(), **place),
    CheckpointSaved: st.builds(CheckpointSaved, checkpoint_id=texts, source=texts, step=counts, **place),
    Custom: st.builds(Custom, data=owned, **place),
    Interrupted: st.builds(
        Interrupted, interrupts=st.lists(interrupts, max_size=2).map(tuple), checkpoint_id=texts, **place
    ),
    Done: st.builds(Done, output=texts, usage=st.none() | usages, **place),
    Failed: st.builds(Failed, error=texts, message=texts, **place),
    Cancelled: st.builds(Cancelled, mode=texts, **place),
    Delta: st.builds(Delta, text=texts, reasoning=texts, call_id=st.none() | texts, **place),
    ToolCalled: st.builds(ToolCalled, call=calls, **place),
    NodeStart: st.builds(NodeStart, node=texts, attempt=counts, **place),
    Retrying: st.builds(Retrying, attempt=counts, max_attempts=counts, delay=seconds, error=texts, **place),
    Progress: st.builds(
        Progress,
        message=texts,
        fraction=st.none() | seconds,
        done=st.none() | seconds,
        total=st.none() | seconds,
        **place,
    ),
}


def test_every_kind_of_event_is_tested_here():
    assert set(STRATEGIES) == set(NAMES) == set(get_args(Event))


def user_data(event: Any) -> list[Any]:
    """What users put into an event, for a comparison that sees types."""
    if isinstance(event, Custom):
        return [event.data]
    found: list[Any] = []
    todo = list(event.interrupts) if isinstance(event, Interrupted) else []
    while todo:
        interrupt = todo.pop()
        found.append(interrupt.info)
        todo += [interrupt.parent] if interrupt.parent else []
    return found


@pytest.mark.parametrize("kind", NAMES, ids=NAMES.values())
def test_events_survive_json(kind: type[Any]):  # api: Events
    @given(STRATEGIES[kind])
    def check(event: Event) -> None:
        body = to_json(event)
        assert json.loads(body)["type"] == NAMES[kind]
        back = from_json(body)
        assert type(back) is kind
        assert back == event
        assert same(user_data(back), user_data(event))
        assert from_json(body.decode()) == event
        assert to_json(back) == body

    check()


@pytest.mark.parametrize("kind", NAMES, ids=NAMES.values())
def test_events_cannot_be_changed(kind: type[Any]):  # api: Events
    @given(STRATEGIES[kind])
    def check(event: Event) -> None:
        for name in event.__struct_fields__:
            with pytest.raises(AttributeError):
                setattr(event, name, None)

    check()


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"null", b'{"type":"nobody"}', b'{"type":"custom"', b"\xff"])
def test_what_is_no_event_is_refused(body: bytes):  # api: Events
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
        from_json(body)


def test_json_is_small():  # defaults are left out
    assert to_json(Custom(data={"a": [1]}, seq=3)) == b'{"type":"custom","seq":3,"data":{"a":[1]}}'


def test_look_alikes_of_tags_stay_data():  # rule C10
    for data in ({"$t": "tuple", "v": [1]}, {"$t": 1}, {"$t": {"$t": "set"}}):
        assert from_json(to_json(Custom(data=data))) == Custom(data=data)
