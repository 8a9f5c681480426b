"""Owners: which process holds a session, and how people are told of it."""

import os

import pytest

from adjourn._owner import is_dead, owner_name, process_id


def test_this_process_is_told_as_such():
    assert owner_name(f"{process_id()}/run") == f"this process ({os.getpid()})"
    assert not is_dead(f"{process_id()}/run")


@pytest.mark.skipif(not process_id().split("/")[0], reason="this system has no name for its boot")
def test_other_processes_are_told_by_where_they_run():
    boot, space, _, start = process_id().split("/")
    assert owner_name(f"{boot}/{space}/99999999/{start}/run") == "process 99999999 on this machine"
    assert owner_name(f"{boot}/other/7/{start}/run") == "process 7 in a container on this machine"
    assert owner_name(f"elsewhere/{space}/7/{start}/run") == "process 7 on another machine"
    assert owner_name("//7//run") == "process 7"


@pytest.mark.skipif(not process_id().split("/")[0], reason="this system has no name for its boot")
@pytest.mark.parametrize("pid", ["99999999", "9" * 40, "x", "\0"])
def test_a_pid_that_no_process_has_is_dead(pid: str):
    boot, space, _, start = process_id().split("/")
    assert is_dead(f"{boot}/{space}/{pid}/{start}/run")


@pytest.mark.parametrize(("owner", "name"), [("ann", "ann"), ("a/b/c/d", "a/b/c/d"), ("", "somebody else")])
def test_an_owner_that_is_no_process_has_its_id_for_a_name(owner: str, name: str):
    assert owner_name(owner) == name
