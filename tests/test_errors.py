"""Errors travel: to other processes, into copies, and into the tree that is drawn of them."""

import copy
import inspect
import pickle  # noqa: TID251  # errors cross process pools, which pickle them
import re
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest

from adjourn import errors
from adjourn._engine.record import Record, decode, encode
from adjourn._engine.scope import RunCancelled
from adjourn._values.damage import Reading
from adjourn.errors import AdjournError, CheckpointCorrupt, ModelError, RetryExhausted, SessionError, ToolError
from adjourn.events import Interrupt
from adjourn.spec import Mistake

# An argument for each name that a constructor has.
ARGUMENTS: dict[str, Any] = {
    "address": "node:a",
    "agent": "A",
    "approvals": ["node:a"],
    "attempts": 3,
    "by": "ann",
    "checkpoint_id": "c1",
    "claims": 5,
    "detail": "it was moved",
    "error": ValueError("bad"),
    "expires": 12.5,
    "field": "total",
    "first": "a",
    "graph": "g",
    "mistakes": [Mistake("a.yaml", 1, 2, "it is wrong")],
    "head": "c2",
    "input_id": "i1",
    "inputs": 1000,
    "size": 5000,
    "more": 12,
    "interrupt_id": "node:a",
    "interrupts": ["node:a", "node:b"],
    "known": ["a", "b"],
    "limit": 7,
    "message": "It went wrong.",
    "missing": "the graph has no node 'b'",
    "name": "g",
    "node": "b",
    "now": "pay(2)",
    "open": ["node:a"],
    "owner_id": "host/1/2",
    "path": "state.client",
    "problem": "expected int",
    "problems": ["expected int", "lacks 'a'"],
    "recorded": "pay(1)",
    "remedy": "Store its id instead.",
    "calls": 200,
    "second": "b",
    "seconds": 1.5,
    "session_id": "s1",
    "status": "failed",
    "store": "sqlite:///a.db",
    "tool": "pay",
    "value": object(),
    "version": 9,
    "what": "model_calls",
}
OPTIONAL: dict[type[AdjournError], dict[str, Any]] = {
    errors.ApprovalSpent: {"asked_at": "b.1", "pending": ["a"]},
    errors.NodeNotFound: {"keys": ["x"]},
    errors.AlreadyResumed: {"live": True, "by": "ann", "at": 3.5},
    errors.SessionBusy: {"owner_id": "host/1/2", "expires": 12.5},
    errors.LimitExceeded: {"within": "session"},
    errors.StoreUnavailable: {"is_lasting": True},
    errors.ToolRefused: {"reason": "the budget is spent"},
    errors.ContextTooLong: {"provider": "p", "status": 400, "code": "context_length_exceeded"},
    ModelError: {"provider": "p", "status": 429, "code": "slow_down", "retry_after": 2.0, "retryable": False},
}
SPECIAL: dict[type[AdjournError], dict[str, Any]] = {
    errors.CheckpointTooNew: {"version": 9, "known": 2},
    errors.MissingKey: {"key_id": "2025", "detail": "a record needs it", "known": ("2026",)},
    errors.GraphInterrupted: {
        "session_id": "s1",
        "interrupts": [Interrupt(id="node:a", key="k", info={"a": 1})],
    },
}


def public_classes() -> list[type[AdjournError]]:
    found = [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, AdjournError)]
    return sorted(found, key=lambda each: each.__name__)


def test_a_star_imports_every_error_and_no_helper() -> None:
    assert sorted(errors.__all__) == errors.__all__ == sorted([*(each.__name__ for each in public_classes()), "Pause"])


def make(kind: type[AdjournError]) -> AdjournError:
    """An error of this kind, with a value for everything that it can be given."""
    if kind in SPECIAL:
        return kind(**SPECIAL[kind])
    if kind.__init__ is AdjournError.__init__:
        return kind("It went wrong.")
    parameters = inspect.signature(kind).parameters.values()
    needed = {each.name: ARGUMENTS[each.name] for each in parameters if each.default is each.empty}
    return kind(**needed | OPTIONAL.get(kind, {}))


class Declined(SessionError):
    """A user's error, with a constructor of its own."""

    def __init__(self, session_id: str, *, cents: int) -> None:
        self.cents = cents
        super().__init__(session_id, f"{cents} cents were declined.")


class Plain(ToolError):
    """A user's error, without a constructor."""


class Both(ModelError, ValueError):
    """A user's error that is one of Python's, too."""


def pickled(protocol: int) -> Callable[[Any], Any]:
    return lambda error: pickle.loads(pickle.dumps(error, protocol))  # noqa: S301  # our own bytes


COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{f"pickle {protocol}": pickled(protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)},
}
MADE: dict[str, Callable[[], AdjournError]] = {
    **{kind.__name__: lambda kind=kind: make(kind) for kind in public_classes()},
    "a user's": lambda: Declined("s1", cents=5),
    "a user's plain one": lambda: Plain("no", 3),
    "a user's empty one": Plain,
    "a user's of two": lambda: Both("no", status=500),
}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_an_error_is_the_same_after_its_journey(
    made: Callable[[], AdjournError], copied: Callable[[AdjournError], AdjournError]
):
    error = made()
    error.add_note("seen by ann")
    again = copied(error)
    assert again is not error
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert again.args == error.args
    assert vars(again) == vars(error)
    assert again.__notes__ == ["seen by ann"]
    assert again.retryable == error.retryable


def test_a_deep_copy_shares_nothing_and_a_copy_its_attributes():
    error = Plain("no")
    seen = vars(error)["seen"] = ["ann"]
    flat, deep = copy.copy(error), copy.deepcopy(error)
    seen.append("ben")
    assert vars(flat) == {"seen": ["ann", "ben"]}
    assert vars(deep) == {"seen": ["ann"]}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("kind", [errors.Pause, RunCancelled])
def test_what_unwinds_user_code_is_the_same_after_its_journey(
    kind: type[BaseException], copied: Callable[[BaseException], BaseException]
):
    again = copied(kind("why"))
    assert type(again) is kind
    assert again.args == ("why",)


def fail() -> None:
    raise RetryExhausted("node:a", 3, ValueError("bad"))


def test_an_error_comes_out_of_a_process_pool():
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        error = pool.submit(fail).exception()
    assert isinstance(error, RetryExhausted)
    assert (error.address, error.attempts) == ("node:a", 3)
    assert str(error) == "'node:a' failed 3 times; the last error was ValueError: bad"


# The tree


def drawn() -> dict[str, str]:
    """The parent of each class, as the tree at the top of the module draws it."""
    above: list[str] = []
    parents: dict[str, str] = {}
    for line in inspect.cleandoc(errors.__doc__ or "").partition("AdjournError")[2].partition("\n\n")[0].splitlines():
        branch = re.match(r"([│ ]*)[├└]── (.*)", line)
        if branch is None:
            continue
        depth = len(branch[1]) // 4
        del above[depth:]
        listed = branch[2].split("  ")[0]
        parent = above[-1] if above else "AdjournError"
        names = re.findall(r"(\w+)(?: \(([\w, ]+)\))?", listed)
        for name, inner in names:
            parents[name] = parent
            parents |= dict.fromkeys(inner.split(", "), name) if inner else {}
        above.append(names[-1][0])
    return parents


def test_the_tree_at_the_top_is_the_tree_of_the_classes():
    there = {kind.__name__: kind.__mro__[1].__name__ for kind in public_classes() if kind is not AdjournError}
    assert drawn() == there


def test_damage_says_what_to_do_also_when_its_session_becomes_known():
    assert str(CheckpointCorrupt("it is gone", "s")).endswith("it is gone. Restore a backup.")
    old = encode(Record(v=1, full=True))
    with pytest.raises(CheckpointCorrupt, match=r"session 's' .* with an older version"), Reading("s"):
        decode(old)
