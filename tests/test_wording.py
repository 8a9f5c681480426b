"""Words for messages that are built from names."""

import pytest

from adjourn._text import a_type, undotted, with_article


@pytest.mark.parametrize(
    ("noun", "said"),
    [
        ("int", "an int"),
        ("str", "a str"),
        ("UUID", "a UUID"),
        ("asyncio.Lock", "an asyncio.Lock"),
        ("_io.StringIO", "an _io.StringIO"),
        ("_thread.lock", "a _thread.lock"),
    ],
)
def test_a_name_has_its_article(noun: str, said: str):
    assert with_article(noun) == said


def test_a_type_has_its_article():
    assert [a_type(value) for value in (1, "x", object(), None)] == ["an int", "a str", "an object", "a NoneType"]


def test_a_text_can_be_followed_by_more():
    assert f"{undotted('It broke.')}. Mend it." == f"{undotted('It broke')}. Mend it." == "It broke. Mend it."
