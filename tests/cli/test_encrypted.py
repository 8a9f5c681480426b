"""Commands on a store that is encrypted, with its key and without."""

from __future__ import annotations

from base64 import b64decode

from adjourn.stores import EncryptedStore
from tests.cli.shell import Shell

URL = "encrypted+sqlite:///sessions.db"


def test_commands_work_with_the_key_and_say_when_it_is_missing(shell: Shell):  # rule K4
    key, other = f"k1:{EncryptedStore.generate_key()}", f"k2:{EncryptedStore.generate_key()}"
    shell.ok("chat", "desk:trip", "-m", "Bern", "--session", "s1", ADJOURN_STORE=URL, ADJOURN_KEYS=key)
    assert b"Bern" not in (shell.folder / "sessions.db").read_bytes()
    (asked,) = shell.ok("pending", "--json", ADJOURN_STORE=URL, ADJOURN_KEYS=key).json
    assert asked["key"] == "name"
    for environment in ({}, {"ADJOURN_STORE": URL}, {"ADJOURN_STORE": URL, "ADJOURN_KEYS": other}):
        for words in (["pending"], ["pending", "--tag", "x"], ["pending", "--count", "--tag", "x"], ["show", "s1"]):
            failed = shell.run(*words, **environment)
            assert failed.code != 0
            assert "ADJOURN_KEYS" in failed.err or "'k1' is missing" in failed.err
    nowhere = shell.run("pending", ADJOURN_STORE="encrypted+sqlite:///other.db", ADJOURN_KEYS=key)
    assert "There is no file" in nowhere.err
    encrypted = {"ADJOURN_STORE": URL, "ADJOURN_KEYS": f"{other},{key}"}
    listed = shell.ok("keys", "--json", **encrypted).json
    assert listed == [
        {"id": "k2", "sessions": 0, "state": "encrypts"},
        {"id": "k1", "sessions": 1, "state": "needed"},
    ]
    shell.ok("answer", "s1", "--question", asked["token"], "Ann", **encrypted)
    shell.ok("recover", "desk:trip", "s1", **encrypted)
    assert "needed" in shell.ok("keys", **encrypted).out
    listed = shell.run("keys", "--json", ADJOURN_STORE=URL, ADJOURN_KEYS=other)
    assert listed.code == 1
    missing = listed.json
    assert [each["state"] for each in missing] == ["encrypts", "missing"]


def test_keys_are_made_and_belong_to_encrypted_stores(shell: Shell):
    one, two = (shell.ok("keys", "--new").out.strip() for _ in range(2))
    assert one != two
    assert len(b64decode(one.partition(":")[2])) == 32
    shell.ok("chat", "desk:trip", "-m", "Bern", "--session", "s1")
    assert "not encrypted" in shell.run("keys").err


def test_what_cannot_be_decrypted_is_said_once(shell: Shell):  # rule K4
    key, other = f"k1:{EncryptedStore.generate_key()}", f"k2:{EncryptedStore.generate_key()}"
    for number in range(4):
        keys = key if number == 3 else other
        shell.ok("chat", "desk:trip", "-m", "Bern", "--session", f"s{number}", ADJOURN_STORE=URL, ADJOURN_KEYS=keys)
    listed = shell.ok("pending", ADJOURN_STORE=URL, ADJOURN_KEYS=key)
    assert [line.split()[0] for line in listed.out.splitlines()] == ["SESSION", "s3"]
    assert listed.err.count("left out of a listing") == 1
    assert "(and 2 more)" in listed.err
