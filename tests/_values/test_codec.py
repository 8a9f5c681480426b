"""Values go into a checkpoint and come back the same in value and type."""

from __future__ import annotations

import io
import json
import os
import struct
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import example, given
from pydantic import TypeAdapter

from adjourn._values import codec
from adjourn._values.codec import ClassChanged, Unknown, adopt, decode, encode, fingerprint
from adjourn._values.frozen import freeze
from adjourn.errors import CheckpointCorrupt, NotStorable
from tests._values.values import Color, Draft, Level, Note, Pair, Person, Plain, Point, Rights, keep, same, values


@given(values)
@example({"$t": "tuple", "v": [1]})
@example({"a": {"$t": "test.Draft", "v": {"title": "x"}}})
@example([{"$t": None}, {"$t": {"$t": 1}}])
@example({1: {"$t": 2}})
@example(-0.0)
@example(10**6000)
@example(datetime(2024, 10, 27, 2, 30, fold=1))  # noqa: DTZ001 - naive on purpose
@example(time(2, 30, fold=1))
@example(datetime(2024, 1, 1, tzinfo=timezone(timedelta(microseconds=1))))
@example(time(2, 30, tzinfo=timezone(timedelta(microseconds=1))))
def test_what_is_stored_comes_back_in_value_and_type(value: Any) -> None:  # rules C10, S10
    assert same(keep(value), value)


@given(values)
def test_owning_twice_changes_nothing(value: Any) -> None:
    once, plain = adopt(value, "value")
    twice, still_plain = adopt(once, "value")
    assert same(once, value)
    assert same(twice, once)
    assert plain == still_plain
    assert encode(once, plain) == encode(twice, plain)


@given(values)
def test_a_value_said_to_be_plain_is_encoded_as_with_tags(value: Any) -> None:
    owned, plain = adopt(value, "value")
    if plain:
        assert encode(owned, True) == encode(owned, False)


@given(values)
def test_bytes_are_json_that_other_programs_can_read(value: Any) -> None:
    json.loads(encode(*adopt(value, "value")))


def test_look_alikes_of_tags_stay_what_they_are() -> None:  # rule C10
    for tag in ("tuple", "set", "dict", "int", "test.Draft", "test-note", "os.system", "", None, 1, ["tuple"]):
        assert same(keep({"$t": tag, "v": [1]}), {"$t": tag, "v": [1]})
        assert same(keep([{"deep": {"$t": tag}}]), [{"deep": {"$t": tag}}])


def test_look_alikes_inside_a_native_are_not_lifted() -> None:
    note = Note(text="n", data={"$t": "tuple", "v": [1]})
    assert keep([note]) == [note]


def test_one_and_true_and_one_point_zero_are_kept_apart() -> None:
    assert same(keep([1, True, 1.0, "1", Decimal(1), Level.LOW]), [1, True, 1.0, "1", Decimal(1), Level.LOW])


BERLIN = ZoneInfo("Europe/Berlin")
ZONED = [
    datetime(2024, 7, 1, 12, tzinfo=BERLIN),
    datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN),
    datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=BERLIN),
    time(12, tzinfo=BERLIN),
    datetime(2024, 7, 1, tzinfo=ZoneInfo("UTC")),
    datetime(2024, 7, 1, tzinfo=timezone(timedelta(hours=-5), "EST")),
    time(12, tzinfo=timezone(timedelta(0), "Zulu")),
    datetime(2024, 7, 1, tzinfo=UTC),
]


@pytest.mark.parametrize("when", ZONED, ids=range(len(ZONED)))
def test_a_zone_stays_what_it_is(when: datetime | time) -> None:  # rule S10
    for kept in (keep(when), keep([Draft("t", price=when)])[0].price):
        assert (repr(kept), kept.utcoffset()) == (repr(when), when.utcoffset())


def test_a_fixed_offset_of_another_library_becomes_one_of_pythons() -> None:
    when = TypeAdapter(datetime).validate_json('"2024-07-01T12:00:00+02:00"')
    assert repr(keep(when)) == repr(datetime(2024, 7, 1, 12, tzinfo=timezone(timedelta(hours=2))))


class Local(tzinfo):
    """A zone of another library, whose name Python does not know."""

    def utcoffset(self, dt: datetime | None) -> timedelta | None:
        return None if dt is None else timedelta(hours=dt.month)


@pytest.mark.parametrize("zone", [Local(), tzinfo()], ids=["local", "abstract"])
def test_a_zone_that_could_not_be_found_again_is_refused_where_it_enters(zone: tzinfo) -> None:  # rules S10, I7
    for when in (datetime(2024, 7, 1, tzinfo=zone), time(12, tzinfo=zone)):
        with pytest.raises(
            NotStorable, match=r"'s\.at\[0\]' holds a datetime\.(date)?time.*zoneinfo\.ZoneInfo by name"
        ):
            adopt({"at": [when]}, "s")


def test_a_zone_that_was_read_from_a_file_is_refused() -> None:
    changes_once = (
        struct.pack(">6l", 0, 0, 0, 1, 2, 4) + struct.pack(">lb", 0, 1) + struct.pack(">lbblbb", 0, 0, 0, 60, 0, 2)
    )
    zone = ZoneInfo.from_file(io.BytesIO(b"TZif" + bytes(16) + changes_once + b"A\0B\0"), key="UTC")
    with pytest.raises(NotStorable, match="could not be found again"):
        adopt(datetime(2024, 7, 1, tzinfo=zone), "s")


def test_a_zone_that_this_machine_does_not_have_says_what_to_install() -> None:  # rule C10
    body = b'{"$t":"datetime","v":["2024-07-01T12:00:00",0,"Mars/Olympus"]}'
    with pytest.raises(ClassChanged, match=r"time zone 'Mars/Olympus'.*pip install tzdata"):
        decode(body)
    assert decode(body, lenient=True) == Unknown("datetime", ["2024-07-01T12:00:00", 0, "Mars/Olympus"])


@pytest.mark.parametrize("key", ["../../etc/passwd", "/etc/localtime", "os.path", "", "a/" * 200 + "b", "a\\u0000b", 5])
def test_a_zone_with_a_hostile_name_is_looked_for_nowhere(key: object) -> None:  # rule C10
    with pytest.raises(CheckpointCorrupt, match="'datetime'"):
        decode(f'{{"$t":"datetime","v":["2024-07-01T12:00:00",0,{json.dumps(key)}]}}'.encode())


def test_raw_messages_and_buffers_are_read_like_bytes() -> None:
    body = encode(*adopt((1, 2), "value"))
    assert decode(msgspec.Raw(body)) == decode(bytearray(body)) == decode(memoryview(body)) == (1, 2)


def test_frozen_json_is_owned_as_ordinary_dicts_and_lists() -> None:
    owned, plain = adopt(freeze({"a": [{"b": 1}]}, "arguments"), "value")
    assert same(owned, {"a": [{"b": 1}]})
    assert plain


def test_a_fingerprint_is_32_hex_digits() -> None:
    assert len(fingerprint({"a": 1})) == 32
    int(fingerprint({"a": 1}), 16)


def test_a_fingerprint_does_not_see_the_order_of_a_dict() -> None:
    assert fingerprint({"a": 1, "b": [2]}) == fingerprint({"b": [2], "a": 1})
    assert fingerprint({1: "a", "$t": (1,)}) == fingerprint({"$t": (1,), 1: "a"})
    assert fingerprint([{2: 1, 1: {"x": 1, "y": 2}}]) == fingerprint([{1: {"y": 2, "x": 1}, 2: 1}])
    assert fingerprint(Person(name="a")) == fingerprint(Person(name="a", age=0))


def test_a_fingerprint_sees_types() -> None:
    different: list[Any] = [
        *(1, "1", True, 1.0, Decimal(1), b"1", Level.LOW, 2**64, hex(2**64), None, "null"),
        *([1], (1,), {1}, frozenset({1}), {1: None}, {"1": None}, [[1]], Point(1), Pair(1), Draft("1")),
        *({"$t": "tuple", "v": [1]}, date(2024, 1, 1), "2024-01-01", UUID(int=1), str(UUID(int=1))),
        *(timedelta(1), Note(text="1"), {"$t": "test-note", "text": "1"}, {"text": "1"}),
    ]
    assert len({fingerprint(value) for value in different}) == len(different)


@given(values, values)
def test_fingerprints_are_equal_exactly_for_equal_values(left: Any, right: Any) -> None:
    assert fingerprint(left) == fingerprint(keep(left))
    if encode(*adopt(left, "v")) == encode(*adopt(right, "v")):
        assert fingerprint(left) == fingerprint(right)


def test_a_fingerprint_of_what_cannot_be_stored_names_it() -> None:
    with pytest.raises(NotStorable) as caught:
        fingerprint({"arguments": [Plain()]}, "charge")
    assert caught.value.path == "charge.arguments[0]"


@given(values)
def test_lowered_data_lifts_to_the_value(value: Any) -> None:
    owned, _ = adopt(value, "value")
    lowered = codec.lower(owned)
    as_json = msgspec.json.decode(msgspec.json.encode(lowered))
    before = msgspec.json.encode(as_json)
    assert same(codec.lift(as_json), owned)
    assert same(codec.lift_leniently(as_json), owned)
    assert msgspec.json.encode(as_json) == before, "lifting does not change what it was given"


def test_a_mapping_of_unowned_values_cannot_be_lowered() -> None:
    with pytest.raises(NotStorable):
        codec.lower({"a": Plain()})


def test_the_tags_are_as_documented() -> None:
    shown: Mapping[str, Any] = {
        '{"$t":"tuple","v":[1]}': (1,),
        '{"$t":"set","v":[1,2]}': {2, 1},
        '{"$t":"bytes","v":"YQ=="}': b"a",
        '{"$t":"decimal","v":"1.50"}': Decimal("1.50"),
        '{"$t":"datetime","v":"2024-01-01T00:00:00+00:00"}': datetime(2024, 1, 1, tzinfo=UTC),
        '{"$t":"timedelta","v":[1,2,3]}': timedelta(1, 2, 3),
        '{"$t":"int","v":"0x10000000000000000"}': 2**64,
        '{"$t":"dict","v":[[1,"a"],["$t",2]]}': {1: "a", "$t": 2},
        '{"$t":"test.Draft","v":{"title":"a","price":0,"notes":[]}}': Draft("a"),
        '{"$t":"test.Person","v":{"name":"a","age":0,"extra":null},"unset":["age","extra"]}': Person(name="a"),
        '{"$t":"test.Color","v":"BLUE"}': Color.BLUE,
        '{"$t":"test.Rights","v":3}': Rights.READ | Rights.WRITE,
        '{"$t":"test-note","text":"a","data":{}}': Note(text="a"),
    }
    assert {encode(*adopt(value, "value")).decode(): value for value in shown.values()} == shown


def run_python(code: str, **env: str) -> str:
    # `-X faulthandler` would not save a test process from a crash: hence one of its own.
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **env},
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_deep_bytes_do_not_crash_a_program_that_raised_the_recursion_limit() -> None:  # rule C10, failure 54
    assert "refused refused refused" in run_python(
        "import sys; sys.setrecursionlimit(10**7)\n"
        "from adjourn._values.codec import decode\n"
        "from adjourn.errors import CheckpointCorrupt\n"
        "for unit in (b'[', b'{\"a\":', b'[\"[]\\\\\"]\",'):\n"
        "    try: decode(unit * 1_000_000)\n"
        "    except CheckpointCorrupt: print('refused', end=' ')\n"
        "assert decode(b'[\"' + b'[' * 5000 + b'\"]') == ['[' * 5000]\n"
    )


def test_bytes_are_the_same_in_every_process() -> None:
    code = (
        "from adjourn._values.codec import encode, adopt, fingerprint\n"
        "value = {'s': {'a', 'b', 1, 2.5, None, ('x', 'y')}, 'f': frozenset('hello'), 'n': {frozenset('ab'), b'z'}}\n"
        "print(encode(*adopt(value, 'v')).decode(), fingerprint(value))\n"
    )
    outputs = {run_python(code, PYTHONHASHSEED=str(seed)) for seed in (0, 1, 2, 3)}
    assert len(outputs) == 1
