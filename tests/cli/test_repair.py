"""Repairing the indexes of a store from the command line."""

from __future__ import annotations

from typing import Any, cast

import pytest
import redis as redis_py

from adjourn.stores import EncryptedStore
from tests.cli.shell import Shell
from tests.servers import redis


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_a_damaged_index_is_named_with_the_command_that_repairs_it(shell: Shell, is_encrypted: bool):  # rule C15
    url = redis().fresh()
    store = {"ADJOURN_STORE": f"encrypted+{url}" if is_encrypted else url}
    if is_encrypted:
        store["ADJOURN_KEYS"] = f"k1:{EncryptedStore.generate_key()}"
    for name in ("s1", "s2"):
        shell.ok("chat", "desk:trip", "-m", "Bern", "--session", name, **store)
    with cast("Any", redis_py.Redis).from_url(url) as own:
        own.zadd("adj:adjourn:sessions", {b"\xff of %d" % is_encrypted: 3e9})  # what was logged is logged once
        own.zrem("adj:adjourn:sessions", "s1")
    listed = shell.ok("sessions", **store)
    assert ("s1" in listed.out, "s2" in listed.out) == (False, True)
    assert "Run `adjourn repair`" in listed.err
    assert "made again from 2 sessions" in shell.ok("repair", **store).out
    listed = shell.run_process("sessions", **store)
    assert ("s1" in listed.out, "s2" in listed.out, "repair" in listed.err) == (True, True, False)
    assert shell.ok("repair", "--json", **store).json == {"sessions": 2}


def test_other_stores_have_nothing_to_repair(shell: Shell):
    shell.ok("chat", "desk:trip", "-m", "Bern", "--session", "s1")
    assert "There is nothing to repair" in shell.ok("repair").out
    assert shell.ok("repair", "--json").json == {"sessions": None}
    assert "There is no file" in shell.run("repair", "--store", "sqlite:///other.db").err


def test_people_who_call_it_something_else_are_led_to_it(shell: Shell):
    assert "Did you mean 'repair'?" in shell.run("rebuild").err
    assert "Did you mean 'audit'?" in shell.run("verify").err
