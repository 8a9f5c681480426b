from __future__ import annotations

import pytest

from tests.cli.shell import Shell


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("desk", "Write the module, a colon and the name in it"),
        ("dask:trip", "Did you mean 'desk'?"),
        ("desk:tripp", "Did you mean 'trip'?"),
        ("desk:nothing", "There is: agent, review, trip"),
        ("desk.py:trip", "desk:ATTRIBUTE"),
        ("desk:draft", ".compile()"),
        ("desk:plain", "@workflow"),
        ("desk:ChatModelAgent", "It is a class"),
        ("desk:TICKET", "is a dict, which cannot be run"),
        ("broken:trip", "Importing 'broken' failed with RuntimeError: no luck"),
    ],
)
def test_a_name_that_is_wrong_is_helped_with(shell: Shell, name: str, said: str):
    (shell.folder / "broken.py").write_text("raise RuntimeError('no luck')\n")
    done = shell.run("chat", name, "-m", "hello")
    assert done.code == 2
    assert said in done.err


def test_a_runner_is_run_on_its_own_store(shell: Shell):
    source = "from adjourn import Runner\nfrom desk import review\nrunner = Runner(review, store='sqlite:///own.db')\n"
    (shell.folder / "own.py").write_text(source)
    shell.ok("chat", "own:runner", "-m", "a poem", "--session", "s1", ADJOURN_STORE="")
    store = ("--store", "sqlite:///own.db")
    shell.ok("answer", "s1", "yes", *store, *shell.shown("s1", *store))
    assert "approved: true" in shell.ok("resume", "own:runner", "s1", ADJOURN_STORE="").out
    shell.ok("chat", "own:runner", "-m", "a poem", "--session", "s1")
    assert (shell.folder / "sessions.db").exists()


def test_resuming_without_any_store_is_refused(shell: Shell):
    done = shell.run("resume", "desk:review", "s1", ADJOURN_STORE="")
    assert done.code == 2
    assert "--store" in done.err
