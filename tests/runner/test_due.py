"""What a worker has listed serves it for several sessions, until others are faster."""

from adjourn.runner._due import Ahead, Key
from adjourn.stores import Due

FOUND = [((0, name), Due(session=name, app="app", why="input")) for name in "abcdefgh"]


def test_a_list_serves_until_nothing_is_left():
    ahead = Ahead(FOUND)
    taken: list[tuple[Key, Due]] = []
    while not ahead.is_used_up(after=1000):
        taken.append(ahead.pop())
    assert (sorted(key for key, _ in taken), bool(ahead)) == ([key for key, _ in FOUND], False)


def test_what_others_have_just_written_is_left_out():
    ahead = Ahead(FOUND)
    for key, _ in FOUND[1:]:
        ahead.drop(key)
    ahead.drop((1, "elsewhere"))
    assert (ahead.pop(), bool(ahead)) == (FOUND[0], False)


def test_a_list_is_too_old_when_others_were_faster_or_time_has_passed():
    ahead = Ahead(FOUND)
    for _ in range(3):
        assert not ahead.is_used_up(after=1000)
        ahead.note_miss()
    assert ahead.is_used_up(after=1000)
    assert Ahead(FOUND).is_used_up(after=-1)
