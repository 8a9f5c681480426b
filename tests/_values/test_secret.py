"""A Secret shows its value to nobody who does not ask for it, and only its name is ever stored."""

from __future__ import annotations

import copy
import gc
import json
import logging
import pickle  # noqa: TID251 - to see that it cannot
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

import adjourn
from adjourn import Runner, Secret, interrupt, workflow
from adjourn._hiding import Held, known, logger
from adjourn._values import codec
from adjourn.errors import NotStorable, UsageError
from adjourn.stores import MemoryStore, SessionRef
from adjourn.stores.kit import Load

SOURCE = Path(adjourn.__file__).parent
VALUE = 'tr0ub4dor&3/"horse'


@pytest.fixture
def secret() -> Secret:
    return Secret(VALUE)


@pytest.fixture
def variable(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("TEST_API_KEY", VALUE)
    return "TEST_API_KEY"


# The value type


@dataclass
class Config:
    key: Secret


def test_only_reveal_shows_the_value(secret: Secret):  # rule K5
    assert secret.reveal() == VALUE
    shown = [str(secret), repr(secret), f"{secret} {secret!r} {secret:>40}", "%s" % secret, repr([secret])]  # noqa: UP031
    shown += [repr(Config(secret)), repr(copy.deepcopy({"k": secret})), repr(copy.copy(secret))]
    assert VALUE not in "".join(shown)
    assert not hasattr(secret, "__dict__")


WRITERS = {"json": json.dumps, "msgspec": msgspec.json.encode, "pickle": pickle.dumps}


@pytest.mark.parametrize("name", WRITERS)
def test_it_cannot_be_written(secret: Secret, name: str):  # rule K5
    with pytest.raises(TypeError) as caught:
        WRITERS[name](secret)
    assert VALUE not in str(caught.value)


def test_equal_secrets_are_equal(variable: str):
    assert Secret("abcdefgh") == Secret("abcdefgh")
    assert Secret("abcdefgh") != Secret("abcdefgi")
    assert Secret("abcdefgh") != "abcdefgh"
    assert len({Secret("abcdefgh"), Secret("abcdefgh"), Secret("other")}) == 2
    assert Secret.from_env(variable) == Secret.from_env(variable)
    assert Secret.from_env(variable).reveal() == VALUE
    assert Secret.from_env(variable) != Secret(VALUE)


@pytest.mark.parametrize("wrong", ["", None, 5, b"abc"])
def test_what_is_no_text_is_refused(wrong: Any):
    with pytest.raises(UsageError, match="Give the secret as text"):
        Secret(wrong)


def test_a_variable_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EMPTY", "")
    for name in ("NOT_SET", "EMPTY"):
        with pytest.raises(UsageError, match=name):
            Secret.from_env(name)


# In a state


@workflow
async def ask(what: str) -> str:
    return interrupt({"what": what})


@workflow
async def ask_with(key: Any) -> str:
    interrupt("go on?", state={"key": key})
    return "done"


async def test_without_a_name_it_is_not_storable_and_the_remedy_is_told(secret: Secret):  # rule K5, failures 60
    with pytest.raises(NotStorable, match="from_env") as caught:
        await Runner(ask_with).run(secret)
    assert VALUE not in str(caught.value)


async def test_only_its_name_is_stored(variable: str):  # rule K5
    store = MemoryStore()

    @workflow
    async def flow(key: Secret) -> str:
        return f"{interrupt('go on?')}: {len(key.reveal())}"

    await Runner(flow, store=store).run(Secret.from_env(variable), session_id="s")
    loaded = await store.read(Load(SessionRef("s")))
    assert loaded is not None
    assert b'{"$t":"secret","v":"TEST_API_KEY"}' in b"".join(loaded.rows)
    done = await Runner(flow, store=store).resume("s", {"runnable:flow": "yes"})
    assert done.output == f"yes: {len(VALUE)}"


def test_stored_data_cannot_name_a_variable_that_the_program_did_not(monkeypatch: pytest.MonkeyPatch):  # rule K5
    monkeypatch.setenv("OTHER_KEY", "somebody's key")
    found = codec.decode(b'{"$t":"secret","v":"OTHER_KEY"}')
    with pytest.raises(UsageError, match=r"Secret\.from_env\('OTHER_KEY'\)"):
        found.reveal()
    Secret.from_env("OTHER_KEY")
    assert found.reveal() == "somebody's key"


# In texts


def test_known_values_are_hidden_in_every_common_form(secret: Secret):  # rule K5
    forms = [form.text for form in known.forms]
    assert VALUE in forms
    text = " ".join(forms)
    assert known.hide(f"a {VALUE} b") == "a [secret] b"
    assert not any(form in known.hide(text) for form in forms)


def test_short_values_are_words_and_not_hidden():
    secret = Secret("none")
    assert known.hide("there is none") == "there is none"
    assert secret.reveal() == "none"


def test_a_value_is_hidden_for_as_long_as_its_secret_lives():
    first, second = Secret("for a while"), Secret("for a while")
    assert known.hide("for a while") == "[secret]"
    del first
    gc.collect()
    assert known.hide("for a while") == "[secret]"
    assert second.reveal() == "for a while"
    del second
    gc.collect()
    assert known.hide("for a while") == "for a while"


def test_numbers_and_names_in_json_stay_what_they_are():
    secret = Secret("12345678")
    data = b'{"12345678":12345678,"a":"x 12345678","b":[0.12345678,"12345678"]}'
    assert known.hide_in_json(data) == b'{"12345678":12345678,"a":"x [secret]","b":[0.12345678,"[secret]"]}'
    assert secret.reveal() == "12345678"


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_a_text_in_pieces_is_hidden_across_them(size: int):  # rule K5
    secrets = [Secret("abcabcabd"), Secret("abcabcabdxyz"), Secret("dxyzabca")]
    for text in ("no abcabcab", "abcabcabcabd", "abcabcabdxyzabca abcabcabdxyz", "abc" * 9 + "abd", "x dxyzabca"):
        held, out = Held(), ""
        for at in range(0, len(text), size):
            out += held.add(text[at : at + size])
            assert not any(each.reveal() in out for each in secrets)
        assert out + held.rest() == known.hide(text)


def test_log_lines_and_their_tracebacks_hide_it(secret: Secret, caplog: pytest.LogCaptureFixture):  # rule K5
    log = logger("adjourn.test")
    try:
        raise ValueError(f"bad key {VALUE}")
    except ValueError:
        log.exception("failed with %s", VALUE)
    log.info("a harmless %s", "line")
    handler = logging.Formatter()
    written = [handler.format(record) for record in caplog.records]
    assert VALUE not in "".join(written)
    assert "ValueError: bad key [secret]" in written[0]


def test_every_logger_of_ours_hides_secrets():  # rule K5
    made = [
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if re.search(r"(?m)^\w+ = logging\.getLogger\(", path.read_text(encoding="utf-8"))
    ]
    assert made == [], "use adjourn._hiding.logger"
