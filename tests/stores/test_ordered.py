"""What the memory store keeps in order is as a sorted list, however much comes and goes."""

import random

from adjourn.stores._ordered import Ordered

Entry = tuple[float, int, str]


def test_it_is_a_sorted_list_whatever_comes_and_goes():  # rule I15
    chance, ordered, kept = random.Random(7), Ordered[Entry](), list[Entry]()
    for number in range(6000):
        if kept and chance.random() < (0.3 if number < 4000 else 0.9):
            gone = kept.pop(chance.randrange(len(kept)))
            ordered.remove(gone[:2])
        else:
            entry = (float(chance.randrange(50)), number, "x")
            ordered.add(entry)
            kept.append(entry)
        if number % 400 == 0:
            kept.sort()
            assert list(ordered.behind(-1.0, 0)) == kept
            place = (float(chance.randrange(50)), chance.randrange(6000))
            assert list(ordered.behind(*place)) == [each for each in kept if each[:2] > place]
    while kept:
        ordered.remove(kept.pop()[:2])
    assert list(ordered.behind(-1.0, 0)) == []
    ordered.add((1.0, 1, "x"))
    assert list(ordered.behind(1.0, 0)) == [(1.0, 1, "x")]
