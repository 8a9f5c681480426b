"""What a model is told of a docstring, in every style that people write."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjourn import tool

GOOGLE = """Send a message.

    It goes out at once.

    Args:
        to (str): Who gets it,
            by full name.
        text: What to say: anything.
        urgent (bool, optional): Whether to ring.

    Returns:
        A receipt.

    Raises:
        OSError: no network.
    """
NUMPY = """
    Send a message.

    It goes out at once.

    Parameters
    ----------
    to : str
        Who gets it,
        by full name.
    text: str
        What to say: anything.
    urgent : bool, optional
        Whether to ring.

    Returns
    -------
    str
        A receipt.
    """
SPHINX = """Send a message.

    It goes out at once.

    :param str to: Who gets it,
        by full name.
    :param text: What to say: anything.
    :type text: str
    :param urgent: Whether to ring.
    :returns: A receipt.
    :raises OSError: no network.
    """


def told(docstring: str | None) -> tuple[str, dict[str, str]]:
    def send(to: str, text: str, urgent: bool = False) -> str:
        return text

    send.__doc__ = docstring
    made = tool(send)
    parts: dict[str, Any] = made.schema["properties"]
    return made.description, {name: part["description"] for name, part in parts.items() if "description" in part}


@pytest.mark.parametrize("docstring", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
@pytest.mark.parametrize("indent", ["", "\t", "      "])
def test_description_and_parameters_are_told(docstring: str, indent: str):
    first, *rest = docstring.splitlines()
    shifted = "\n".join([first, *(indent + line for line in rest)])
    assert told(shifted) == (
        "Send a message.\n\nIt goes out at once.",
        {"to": "Who gets it, by full name.", "text": "What to say: anything.", "urgent": "Whether to ring."},
    )


ODD: dict[str, tuple[str | None, str, dict[str, str]]] = {
    "none": (None, "", {}),
    "empty": ("   \n  ", "", {}),
    "one line": ("Send it.", "Send it.", {}),
    "parameters alone": ("Args:\n    to: Whom.", "", {"to": "Whom."}),
    "no indent after the title": ("Send.\n\nArgs:\nto: Whom.", "Send.\n\nto: Whom.", {}),
    "a deeper block": (
        "Send.\n\n    Args:\n            to: Whom.\n              By name.",
        "Send.",
        {"to": "Whom. By name."},
    ),
    "blank lines between": (
        "Send.\n\nArgs:\n\n    to: Whom.\n\n    text: What.\n",
        "Send.",
        {"to": "Whom.", "text": "What."},
    ),
    "text on the next line": ("Send.\n\nArgs:\n    to:\n        Whom.", "Send.", {"to": "Whom."}),
    "a type with brackets": ("Send.\n\nArgs:\n    to (dict[str, (int)]): Whom.", "Send.", {"to": "Whom."}),
    "unknown names": ("Send.\n\nArgs:\n    cc: Who else.", "Send.", {}),
    "examples stay": (
        "Send.\n\nExample:\n    send(1)\n\nArgs:\n    to: Whom.",
        "Send.\n\nExample:\n    send(1)",
        {"to": "Whom."},
    ),
    "text after a section": ("Send.\n\nArgs:\n    to: Whom.\n\nBe polite.", "Send.\n\nBe polite.", {"to": "Whom."}),
    "two names at once": (
        "Send.\n\nParameters\n----------\nto, text : str\n    Words.",
        "Send.",
        {"to": "Words.", "text": "Words."},
    ),
    "numpy without types": ("Send.\n\nParameters\n----------\nto\n    Whom.", "Send.", {"to": "Whom."}),
    "numpy, then more": (
        "Send.\n\nParameters\n----------\nto : str\n    Whom.\n\nNotes\n-----\nQuick.",
        "Send.\n\nNotes\n-----\nQuick.",
        {"to": "Whom."},
    ),
    "a colon in prose": ("Send. Note: it is quick.\nSo: be careful.", "Send. Note: it is quick.\nSo: be careful.", {}),
    "a field that is none": ("Send to :ref:`x` and\n:here: too.", "Send to :ref:`x` and\n:here: too.", {}),
    "windows lines": ("Send.\r\n\r\nArgs:\r\n    to: Whom.\r\n", "Send.", {"to": "Whom."}),
}


@pytest.mark.parametrize("case", ODD)
def test_odd_docstrings_are_told_as_they_are_meant(case: str):
    docstring, description, parameters = ODD[case]
    assert told(docstring) == (description, parameters)


LINES = st.sampled_from(
    [
        "Args:",
        "Parameters",
        "----------",
        ":param to: x",
        ":param",
        "to : str",
        "to: x",
        "",
        "  to (a: b",
        "Returns:",
        ":",
        "\t- x",
    ]
)


@given(st.lists(LINES | st.text(max_size=20), max_size=12), st.integers(0, 9))
def test_any_text_is_a_docstring(lines: list[str], indent: int):
    description, parameters = told("\n".join(" " * (indent * i % 7) + line for i, line in enumerate(lines)))
    assert parameters.keys() <= {"to", "text", "urgent"}
    assert description == description.strip()
