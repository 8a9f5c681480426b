"""`tool`: from a function to what a model is told, and back to a call."""

from __future__ import annotations

from typing import Any

import pytest

from adjourn import RunContext, Tool, UsageError, tool
from adjourn.errors import InvalidArguments


@tool
async def book_ticket(location: str, passenger_name: str, seats: int = 1) -> str:
    """Book a train ticket.

    Args:
        location: Where to.
        passenger_name: Who travels.
    """
    return f"{seats} to {location} for {passenger_name}"


def test_a_model_is_told_name_docstring_and_parameters():
    assert book_ticket.spec.name == "book_ticket"
    assert book_ticket.spec.description == "Book a train ticket."
    assert book_ticket.spec.schema == {
        "type": "object",
        "properties": {
            "location": {"type": "string", "description": "Where to."},
            "passenger_name": {"type": "string", "description": "Who travels."},
            "seats": {"type": "integer", "default": 1},
        },
        "required": ["location", "passenger_name"],
        "additionalProperties": False,
    }


async def test_calling_a_tool_calls_its_function():
    assert await book_ticket("Beijing", "Martin") == "1 to Beijing for Martin"


async def test_validated_arguments_are_what_the_function_is_called_with():  # rule T1
    values = book_ticket.validate({"location": "Beijing", "passenger_name": "Martin"})
    assert values == {"location": "Beijing", "passenger_name": "Martin", "seats": 1}
    assert book_ticket.lower(values) == values
    assert await book_ticket.call(values) == "1 to Beijing for Martin"


def refused(made: Tool, arguments: Any) -> str:
    with pytest.raises(InvalidArguments) as caught:
        made.validate(arguments)
    return str(caught.value)


def test_every_problem_is_told_with_its_argument():  # rule T1
    text = refused(book_ticket, {"location": 3, "seats": "1", "price": 2})
    for words in ("location: expected string", "seats: expected integer", "lacks 'passenger_name'", "'price'"):
        assert words in text


def test_a_context_parameter_is_not_told():
    @tool
    def look(order: str, ctx: RunContext) -> str:
        return order

    assert list(look.schema["properties"]) == ["order"]
    assert look.contexts == ("ctx",)


def test_a_parameter_without_a_type_is_refused_where_the_tool_is_made():
    def look(order: str) -> str:
        return order

    del look.__annotations__["order"]
    with pytest.raises(UsageError, match="'order' without a type"):
        tool(look)
