"""Search text with a regular expression in bounded time.

Python's `re` tries one way after the other, and for some expressions the number of ways doubles with every character:
`(a+)+$` takes years for fifty letters, and nothing can interrupt it. The patterns of schemas meet texts that models and
people send, so they are not searched by `re`. Here all ways are followed at once: an expression becomes a graph of
states, and each character moves the set of states that have been reached. That takes at most the length of the text
times the number of states, and sets that were seen before are looked up.

`re` still reads the expression and decides about single characters and boundaries, so both mean the same thing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, cast

# Any: the modules of `re` that read expressions are not public, and have no types. Whatever they contain that is not
# known here is refused, so another version of Python cannot change what an expression means.
_parser: Any = cast("Any", re)._parser
_compiler: Any = cast("Any", re)._compiler

MAX_STATES = 10_000
MAX_WORK = 2_000_000
"""How many states may be looked at: about half a second."""
MAX_KNOWN = 20_000
"""How many states an expression keeps in the steps that it has seen before."""

_REFUSED = {
    "GROUPREF": "refers back to a group",
    "GROUPREF_EXISTS": "depends on a group",
    "ATOMIC_GROUP": "has an atomic group",
    "POSSESSIVE_REPEAT": "has a possessive repetition",
}
_SINGLE = frozenset({"LITERAL", "NOT_LITERAL", "ANY", "IN"})
_REPEATS = frozenset({"MAX_REPEAT", "MIN_REPEAT"})
_NONE = frozenset[int]()
_EDGES = frozenset({"AT_BEGINNING", "AT_BEGINNING_STRING", "AT_END", "AT_END_STRING"})

Test = Callable[[str], Any]


class Work:
    """What is left of the work that comparing a text, or several, may take."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = MAX_WORK

    def count(self, number: int) -> None:
        """Take off some of it.

        Raises:
            TooHard: that was all.
        """
        self._left -= number
        if self._left < 0:
            raise TooHard


Condition = Callable[[str, int, Work], Any]


class TooHard(Exception):
    """A text and an expression take too long to compare."""


class BadPattern(ValueError):
    """An expression that cannot be used; the message says why."""


@lru_cache(maxsize=512)
def pattern(source: str) -> Pattern:
    """Return the expression in the form that is searched with.

    Raises:
        BadPattern: it is not a regular expression, or has something that cannot be searched for in bounded time.
    """
    try:
        # Compiled as well, since some mistakes are only found there.
        tree, flags = _parser.parse(source), re.compile(source).flags
        return Pattern(tree, flags)
    except (re.error, OverflowError) as error:
        raise BadPattern(f"is not a regular expression: {error}") from error
    except RecursionError as error:
        raise BadPattern("is nested too deeply") from error


_Step = tuple[frozenset[int], str, str | None]  # the states, the character, and the end of the text if it is near


class Pattern:
    """A regular expression as a graph of states.

    `_moves` has where a state leads with a character, `_links` where it leads without one, perhaps only under a
    condition (`^`, `$`, a word boundary, a look ahead or behind). State 0 is the end.
    """

    def __init__(self, tree: Any, flags: int) -> None:
        self._moves: list[tuple[Test, int] | None] = [None]
        self._links: list[list[tuple[Condition | None, int]]] = [[]]
        self._depends_on_edges_only = True
        self._single: dict[tuple[str, str, int], Test] = {}
        self._start = self._sequence(tree, flags, 0)
        self._known: dict[_Step, frozenset[int]] = {}
        self._known_size = 0

    def search(self, text: str, work: Work) -> bool:
        """Return whether the expression matches anywhere in the text.

        Raises:
            TooHard: the text is too long for the expression.
        """
        known, last, states = self._known, len(text) - 1, _NONE
        for place in range(len(text) + 1):
            # Only the edges of a text matter to `^` and `$`, so elsewhere the states and the character say it all.
            char = text[place - 1] if place else ""
            key = (states, char, None if 0 < place < last else text[place : place + 2])
            found = known.get(key)
            if found is None:
                found = self._step(states, text, place, work, again=True)
                if self._depends_on_edges_only:
                    self._remember(key, found)
            if 0 in found:
                return True
            states = found
        return False

    def _remember(self, step: _Step, found: frozenset[int]) -> None:
        self._known_size += 1 + len(found)
        if self._known_size > MAX_KNOWN:
            self._known.clear()
            self._known_size = 1 + len(found)
        self._known[step] = found

    def matches(self, text: str, first: int, last: int, work: Work, *, whole: bool) -> bool:
        """Return whether it matches from `first` on: up to `last` if `whole`, otherwise up to anywhere before it."""
        states = self._reached([self._start], text, first, work)
        for place in range(first + 1, last + 1):
            if not states or (not whole and 0 in states):
                break
            states = self._step(states, text, place, work, again=False)
        return 0 in states

    def _step(self, states: frozenset[int], text: str, place: int, work: Work, *, again: bool) -> frozenset[int]:
        """Return the states after the character before `place`; with `again`, a match may also begin there."""
        reached = [self._start] if again else []
        for state in states:
            move = self._moves[state]
            if move is not None and move[0](text[place - 1]):
                reached.append(move[1])
        work.count(len(states))
        return self._reached(reached, text, place, work)

    def _reached(self, states: list[int], text: str, place: int, work: Work) -> frozenset[int]:
        """Return these states and those that they lead to without a character."""
        found, todo = set(states), list(states)
        while todo:
            for condition, target in self._links[todo.pop()]:
                if target not in found and (condition is None or condition(text, place, work)):
                    found.add(target)
                    todo.append(target)
        work.count(len(found))
        return frozenset(found)

    # Building: each method returns the state from which its part of the expression leads to `then`.

    def _state(self, move: tuple[Test, int] | None, links: Iterable[tuple[Condition | None, int]] = ()) -> int:
        if len(self._moves) >= MAX_STATES:
            raise BadPattern(f"is too large: it has more than {MAX_STATES} states with its repetitions written out")
        self._moves.append(move)
        self._links.append(list(links))
        return len(self._moves) - 1

    def _sequence(self, tree: Any, flags: int, then: int) -> int:
        for kind, value in reversed(list(tree)):
            then = self._part(str(kind), value, flags, then)
        return then

    def _part(self, kind: str, value: Any, flags: int, then: int) -> int:
        if kind in _SINGLE:
            return self._state((self._test(kind, value, flags), then))
        if kind in _REPEATS:
            least, most, tree = value
            return self._repeat(int(least), int(most), tree, flags, then)
        match kind:
            case "BRANCH":
                return self._state(None, [(None, self._sequence(branch, flags, then)) for branch in value[1]])
            case "SUBPATTERN":
                _, added, removed, tree = value
                return self._sequence(tree, (flags | added) & ~removed, then)
            case "AT":
                self._depends_on_edges_only &= str(value) in _EDGES and not flags & re.MULTILINE
                return self._state(None, [(_at(value, flags), then)])
            case "ASSERT" | "ASSERT_NOT":
                self._depends_on_edges_only = False
                direction, tree = value
                return self._state(None, [(_look(kind == "ASSERT", int(direction), tree, flags), then)])
            case _:
                raise BadPattern(f"{_REFUSED.get(kind, f'has {kind}')}, which cannot be searched for in bounded time")

    def _test(self, kind: str, value: Any, flags: int) -> Test:
        # Looked up, since a repetition contains the same one many times, and compiling is slow.
        key = (kind, str(value), flags)
        if key not in self._single:
            self._single[key] = _alone(kind, value, flags).match
        return self._single[key]

    def _repeat(self, least: int, most: int, tree: Any, flags: int, then: int) -> int:
        if most == int(_parser.MAXREPEAT):
            loop = self._state(None)
            self._links[loop] = [(None, self._sequence(tree, flags, loop)), (None, then)]
            then = loop
        else:
            after = then
            for _ in range(most - least):
                then = self._state(None, [(None, self._sequence(tree, flags, then)), (None, after)])
        for _ in range(least):
            # A state of its own, so that empty parts, repeated often, count as well.
            then = self._state(None, [(None, self._sequence(tree, flags, then))])
        return then


def _alone(kind: str, value: Any, flags: int) -> re.Pattern[str]:
    """Return one character or boundary of an expression, compiled by `re` itself."""
    state = _parser.State()
    state.flags = flags
    return _compiler.compile(_parser.SubPattern(state, [(getattr(_parser, kind), value)]), flags)


def _at(value: Any, flags: int) -> Condition:
    match = _alone("AT", value, flags).match
    return lambda text, place, _: match(text, place)


def _look(wanted: bool, direction: int, tree: Any, flags: int) -> Condition:
    """Return the condition of a look ahead, or of a look behind, whose length `re` knows."""
    inner, width = Pattern(tree, flags), int(tree.getwidth()[0])

    def ahead(text: str, place: int, work: Work) -> bool:
        return inner.matches(text, place, len(text), work, whole=False) is wanted

    def behind(text: str, place: int, work: Work) -> bool:
        first = place - width
        return (first >= 0 and inner.matches(text, first, place, work, whole=True)) is wanted

    return ahead if direction > 0 else behind
