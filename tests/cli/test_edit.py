"""`adjourn edit`."""

from __future__ import annotations

import pytest

from tests.cli.shell import Shell


@pytest.fixture
def review(shell: Shell) -> Shell:
    """A session of a graph that waits."""
    shell.ok("chat", "desk:review", "-m", "a poem", "--session", "s1")
    return shell


def test_a_state_is_edited_and_goes_on_from_there(review: Shell):  # rule C6
    done = review.ok("edit", "desk:review", "s1", 'drafts=["mine"]', "approved:=true", "--as-node", "write")
    assert "has the new drafts, approved. Next: approve." in done.out
    assert "Go on with: adjourn recover desk:review s1" in done.err
    assert review.ok("show", "s1", "--json").json["state"]["drafts"] == ["draft 1 of a poem", "mine"]
    review.ok("recover", "desk:review", "s1")
    review.answer("s1", "yes")
    assert "mine" in review.ok("recover", "desk:review", "s1").out


def test_values_are_text_json_or_in_a_file(review: Shell):
    (review.folder / "poem.txt").write_text("Roses, 日本\n", encoding="utf-8")
    words = ("user_input=@poem.txt", 'last_response:="7"', "approved=true")
    point = review.ok("edit", "desk:review", "--json", "s1", *words)
    state = review.ok("show", "s1", "--json").json
    assert state["checkpoint_id"] == point.json["checkpoint_id"]
    values = {name: state["state"][name] for name in ("user_input", "last_response", "approved")}
    assert values == {"user_input": "Roses, 日本\n", "last_response": "7", "approved": True}


MISTAKES = {
    ("drafts",): "'drafts': write NAME=VALUE",
    ("approved:=yes",): "approved:=yes is not JSON",
    ("user_input=@nowhere.txt",): "cannot be read",
    ("user_input=a", "user_input=b"): "'user_input' was given before",
    ("colour=red",): "colour",
    ("user_input=a", "--as-node", "nobody"): "nobody",
}


def test_mistakes_are_named_and_change_nothing(review: Shell):
    before = review.ok("show", "s1", "--json").json["checkpoint_id"]
    for words, told in MISTAKES.items():
        done = review.run("edit", "desk:review", "s1", *words)
        assert done.code in (1, 2)
        assert told in done.err
    assert review.ok("show", "s1", "--json").json["checkpoint_id"] == before
