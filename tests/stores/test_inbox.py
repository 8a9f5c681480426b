"""The terms by which stores index open questions say the same as the filters that people give."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from adjourn.errors import UsageError
from adjourn.stores import QuestionFilter
from adjourn.stores.kit import QuestionRow, SessionRow, cursor, place_of, selects, terms_in, terms_of

# Few enough that they often fit, with everything that separates parts of terms and addresses.
words = st.one_of(
    st.sampled_from(["", "a", "b", "app", "agent:A", "a=b", "all:", "own:", "~", "~a", "#", "%", "_", "a" * 201]),
    st.text(alphabet="a:;=#~%", max_size=4),
)
addresses = st.lists(words, max_size=4).map(";".join)


def session(app: str, user: str | None) -> SessionRow:
    return SessionRow(1, "s", app, user, 0.0)


def question(address: str, agent: str, reason: str, tags: list[str]) -> QuestionRow:
    return QuestionRow("q", b"", None, address=address, agent=agent, reason=reason, tags=tuple(tags))


rows = st.builds(session, words, st.none() | words)
questions = st.builds(question, addresses, words, words, st.lists(words, max_size=3))


@given(st.data(), rows, questions)
def test_a_filter_selects_what_has_all_of_its_terms(
    data: st.DataObject, row: SessionRow, asked: QuestionRow
):  # rule I15
    def some(*fitting: str | None) -> str | None:
        return data.draw(st.none() | words | st.sampled_from(fitting))

    segments = asked.address.split(";")
    wanted = QuestionFilter(
        app=some(row.app),
        user=some(row.user),
        agent=some(asked.agent),
        under=some(*[";".join(segments[:end]) for end in range(len(segments) + 1)]),
        reason=some(asked.reason),
        tag=some(*asked.tags, "a"),
    )
    assert selects(wanted, row, asked) == (set(terms_in(wanted)) <= set(terms_of(row, asked)))


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 2**62))
@example(0, 1)
def test_a_cursor_stands_for_its_place(asked: float, no: int):  # rule I15
    assert place_of(cursor(asked, no)) == (asked, no)


@given(st.text())
def test_nothing_else_is_a_cursor(text: str):  # rule I15
    try:
        place = place_of(text)
    except UsageError:
        return
    assert cursor(*place) == text
