"""What must not cross a fork: locks that a thread of the parent may hold, its tasks, and its open connections."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_owners: weakref.WeakKeyDictionary[Any, Callable[[Any], object]] = weakref.WeakKeyDictionary()
_inherited: list[object] = []


def after_fork(call: Callable[[], object]) -> None:
    """Call something in each child of a fork, on systems that have forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=call)


def forget_after_fork(owner: T, forget: Callable[[T], object]) -> None:
    """Call `forget` with its owner in each child of a fork, for as long as the owner lives.

    It returns what must be neither used nor closed there, since it is the parent's.
    """
    _owners[owner] = forget


@after_fork
def _forget() -> None:
    _inherited.extend([forget(owner) for owner, forget in list(_owners.items())])
