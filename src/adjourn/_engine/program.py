"""Programs: what a Runner can run, and what user code can run as a child."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic

import msgspec

from adjourn._generics import Defaulted, Deps_contra, Out_co, Product_co, State_co
from adjourn.messages import Message

from .record import Image
from .scope import Frame, Scope


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a program reports: the parts of a result. Without `messages`, they are those of the state.

    `fields` are those of a graph's state, by name, whatever class its nodes read it as.
    """

    output: str = ""
    messages: Sequence[Message] | None = None
    value: Any = None
    state: Mapping[str, Any] | Any = None
    fields: Mapping[str, Any] | None = None


class ProgramFrame(Frame):
    """The frame of a whole program: a graph, a workflow, an agent.

    `has_tasks` says whether what runs in it takes slots for its own tasks.
    """

    has_tasks: bool = True
    step: int = 0
    count: int = 0

    def begin(self, input: Any, state: Mapping[str, Any] | None = None) -> None:
        """Take a turn's input (or, below another frame, the child's), and fields of the state besides.

        Wrong input raises and changes nothing.
        """
        raise NotImplementedError

    async def advance(self) -> bool:
        """Run what can run; return True when the program has ended, False when it waits."""
        raise NotImplementedError

    def report(self) -> Report:
        """Return what the program shows now."""
        raise NotImplementedError

    def product(self) -> Any:
        """Return what a parent gets for running this as a child; it must be storable."""
        raise NotImplementedError

    def following(self) -> tuple[str, ...]:
        """Return the names of what runs next; there are none if it has ended."""
        raise NotImplementedError

    def set_values(self, values: Mapping[str, Any]) -> None:
        """Write session values at the root."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Give up what is unfinished of the last turn."""
        raise NotImplementedError

    def supply(self, state: Mapping[str, Any]) -> None:
        """Add keys that the saved state lacks."""
        raise NotImplementedError

    def edit(self, values: Mapping[str, Any], as_node: str | None) -> None:
        """Change the state by hand, through reducers, as if `as_node` had returned `values`.

        Unfinished work below starts over on the changed state.
        """
        raise NotImplementedError


def start(child: ProgramFrame, input: Any) -> None:
    """Begin a program below another frame; one that cannot begin leaves nothing to be stored."""
    try:
        child.begin(input)
    except BaseException:
        child.close()
        raise


class Program(Defaulted, Generic[Deps_contra, Out_co, State_co, Product_co]):
    """Something that runs in its own frame.

    For type checkers it has the type of the deps that its code needs, of its `value`, of its `state`, and of its
    product: what code gets that runs it as a child.
    """

    name: str
    """The name in addresses."""
    kind: str
    """The type of its segment in addresses: `runnable`, or `agent`."""

    def open(self, scope: Scope, parent: Frame | None, segment: str, image: Image | None) -> ProgramFrame:
        """Return a frame for this program, from its stored image if there is one.

        Raises:
            ProgramChanged: what is stored does not fit the program.
        """
        raise NotImplementedError

    def option_names(self) -> dict[str, str]:
        """Return the agents that can have options of their own in a turn: what each is called, and its own name."""
        return {}

    def comparable_input(self, input: Any) -> Any:
        """Return input in a form that is storable, and equal for equal input."""
        return input

    def convert_product(self, product: Any) -> Product_co:
        """Return what code gets for a product as it is stored."""
        return product
