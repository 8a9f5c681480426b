"""Checks of the numbers that users give as options."""

from __future__ import annotations

from typing import TypeGuard


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether it is a number: neither True or False, nor "not a number"."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value  # NaN


def is_positive(value: object) -> TypeGuard[int | float]:
    """Whether it is a number above zero."""
    return is_number(value) and value > 0


def is_count(value: object) -> TypeGuard[int]:
    """Whether it is a whole number, 1 or more."""
    return isinstance(value, int) and is_positive(value)
