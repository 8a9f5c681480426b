"""Secrets: values that code can use, and that nobody gets to see."""

from __future__ import annotations

import os
import weakref
from hashlib import blake2b
from typing import Any, NoReturn, SupportsIndex

from adjourn._hiding import HIDDEN, known
from adjourn.errors import UsageError

UNNAMED = (
    "A secret does not belong in a checkpoint. Pass it in `deps`, or read it with `Secret.from_env(NAME)`: then only "
    "the name is stored."
)


class Secret:
    """A value, such as a password or a key, that code can use and nobody gets to see.

    `reveal()` is the only way to its value: printing, formatting, JSON, pickling and copying do not show it. While it
    exists, its value (of eight characters or more) is also replaced wherever texts leave a run: in messages, tool
    results, errors, events, what is stored, and the logs of Adjourn.

    One that was read with `from_env` can be kept in the state of a run: only its name is stored.

    Raises:
        UsageError: the value is not a text, or is empty.
    """

    __slots__ = ("__weakref__", "_name", "_value")

    def __init__(self, value: str) -> None:
        if not isinstance(value, str) or not value:  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
            what = "an empty text" if value == "" else f"a {type(value).__name__}"
            raise UsageError(f"Secret(...) was given {what}. Give the secret as text.")
        self._name: str | None = None
        self._value: str | None = value
        known.add(value)
        weakref.finalize(self, known.remove, value).atexit = False

    @classmethod
    def from_env(cls, name: str) -> Secret:
        """Return the secret that an environment variable holds.

        Its value is hidden for as long as the process lives.

        Raises:
            UsageError: the variable is not set, or empty.
        """
        value = os.environ.get(name) if isinstance(name, str) else None  # pyright: ignore[reportUnnecessaryIsInstance]
        if not value:
            raise UsageError(
                f"The environment variable {name!r} is not set. Set it, or give the secret: Secret(value)."
            )
        if _from_environment.get(name) != value:
            known.add(value)
            _from_environment[name] = value
        return cls._named(name)

    @classmethod
    def _named(cls, name: str) -> Secret:
        """Return a secret of the environment, which is looked up when it is revealed."""
        secret = cls.__new__(cls)
        secret._name, secret._value = name, None
        return secret

    @property
    def name(self) -> str | None:
        """The environment variable that it was read from, if it was."""
        return self._name

    def reveal(self) -> str:
        """Return the value.

        Raises:
            UsageError: it was stored by its name, and this process has not read that name with `from_env`.
        """
        if self._value is not None:
            return self._value
        assert self._name is not None
        value = _from_environment.get(self._name)
        if value is None:
            # Whoever can write to the store must not be able to read any variable of the process.
            raise UsageError(
                f"The secret {self._name!r} was stored by its name, and this process does not know it. Call "
                f"Secret.from_env({self._name!r}) where your program starts."
            )
        return value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        if self._value is None or other._value is None:
            return self._name is not None and self._name == other._name
        return _digest(self._value) == _digest(other._value)

    def __hash__(self) -> int:
        return hash((Secret, self._name, self._value))

    def __str__(self) -> str:
        return HIDDEN

    def __format__(self, spec: str) -> str:
        return format(HIDDEN, spec)

    def __repr__(self) -> str:
        return f"Secret({HIDDEN})" if self._name is None else f"Secret.from_env({self._name!r})"

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: Any) -> Secret:
        return self

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError("A Secret cannot be pickled. Pass its name, and read it there with Secret.from_env(name).")


_SALT = os.urandom(16)


def _digest(value: str) -> bytes:
    # How long it takes to compare digests tells nothing about the values.
    return blake2b(value.encode(), key=_SALT, digest_size=16).digest()


_from_environment: dict[str, str] = {}
"""The variables that this process has named, with their values."""


def secret_named(name: str) -> Secret:
    """Return the secret that was stored under this name; whoever reveals it is told if it is not known."""
    return Secret._named(name)  # pyright: ignore[reportPrivateUsage]  # of this module
