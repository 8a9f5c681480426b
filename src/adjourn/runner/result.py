"""The result of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, Literal, cast

import msgspec

from adjourn._engine.program import Report
from adjourn._engine.questions import OpenNow
from adjourn._generics import Defaulted, Out_co, State_co
from adjourn._habits import OF_RESULTS, Explains
from adjourn._html import table
from adjourn._plain import Documented
from adjourn.events import Interrupt
from adjourn.messages import Message, Usage


class RunResult(
    msgspec.Struct, Documented, Explains, Defaulted, Generic[Out_co, State_co], frozen=True, kw_only=True, dict=True
):
    """The result of a run: `output` is text, `value` a typed result, `state` a graph's state.

    `checkpoint_id` is where the session was when the run ended: what `fork`, `edit` and `history` take it up from; None
    if nothing was stored. `report` and `open` are the engine's, behind the properties.
    """

    _instead = OF_RESULTS

    status: Literal["done", "interrupted", "cancelled"]
    session_id: str
    checkpoint_id: str | None
    report: Report = Report()
    open: OpenNow | None = None
    usage: Usage = Usage()

    @classmethod
    def documented(cls) -> Mapping[str, bool]:
        """Return the names in its document; the conversation, and the state that an agent keeps it in, are not."""
        names = ("session_id", "status", "output", "value", "state", "checkpoint_id", "usage", "interrupts")
        return dict.fromkeys(names, True)

    def __getitem__(self, name: str) -> Any:
        return None if name == "state" and self.report.messages is not None else super().__getitem__(name)

    @classmethod
    def from_document(cls, data: object) -> Any:
        """Refuse data: only a run makes a result.

        Raises:
            ValueError: always.
        """
        raise ValueError("A RunResult is made by a run, and cannot be read from data.")

    def __repr__(self) -> str:
        waits = "".join(
            f", waits for {interrupt.key or interrupt.prompt or interrupt.id}" for interrupt in self.interrupts
        )
        shown = f"value={self.value!r}" if self.value is not None else f"state={self.state!r}"
        return f"<RunResult {self.status}, session {self.session_id}, checkpoint {self.checkpoint_id}{waits}, {shown}>"

    def _repr_html_(self) -> str:
        rows = {
            "output": self.output or None,
            "value": None if self.value == self.output else self.value,
            "state": None if self.state is None or self.report.messages is not None else self.state,
            "messages": len(self.messages) or None,
            "checkpoint": self.checkpoint_id,
        }
        shown = table(
            f"{self.status}, session {self.session_id}", [each for each in rows.items() if each[1] is not None]
        )
        return "".join([shown, *(asked._repr_html_() for asked in self.interrupts)])  # pyright: ignore[reportPrivateUsage]  # a name of IPython

    @property
    def interrupts(self) -> tuple[Interrupt, ...]:
        """The questions that wait for an answer, in task order."""
        return () if self.open is None else self.open.shown()

    @property
    def output(self) -> str:
        """The text that the run ended with."""
        return self.report.output

    @property
    def value(self) -> Out_co:
        """What a workflow returned, or an agent's answer as its `output_type`; None until the run is done."""
        return self.report.value

    @property
    def state(self) -> State_co:
        """The final state of a graph: a dict, or an instance of its schema class. Yours to change."""
        kept = vars(self)
        if "state" not in kept:
            kept["state"] = plain_state(self.report)
        return kept["state"]

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation, if there is one."""
        return messages_of(self.report, self.state)

    @property
    def message(self) -> Message | None:
        """The last message of the conversation."""
        messages = self.messages
        return messages[-1] if messages else None

    @property
    def finish_reason(self) -> str | None:
        """Why the model ended its last answer: "stop", or "length" or "content_filter" if it was cut short."""
        message = self.message
        return message.finish_reason if message is not None and message.role == "assistant" else None


def messages_of(report: Report, state: Any = None) -> tuple[Message, ...]:  # Any: a state of any type that graphs know
    """Return the conversation in a report: its messages, or those of the state, as users see it."""
    if report.messages is not None:
        return tuple(report.messages)
    state = plain_state(report) if state is None else state
    try:
        found = state["messages"]
    except (KeyError, TypeError):
        found = getattr(state, "messages", ())
    return tuple(cast("list[Message]", found))


def plain_state(report: Report) -> Any:
    """Return a program's state as users see it: a mapping as a dict."""
    state = report.state
    return dict(cast("Mapping[str, Any]", state)) if isinstance(state, Mapping) else state
