"""The result of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

import msgspec

from adjourn._engine.program import Report
from adjourn.events import Interrupt
from adjourn.messages import Message, Usage


class RunResult(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The result of a run: `output` is text, `value` a typed result, `state` a graph's state."""

    status: Literal["done", "interrupted", "cancelled"]
    session_id: str
    checkpoint_id: str | None
    report: Report = Report()
    interrupts: tuple[Interrupt, ...] = ()
    usage: Usage = Usage()

    def __repr__(self) -> str:
        waits = "".join(f", waits for {interrupt.id}" for interrupt in self.interrupts)
        shown = f"value={self.value!r}" if self.value is not None else f"state={self.state!r}"
        return f"<RunResult {self.status}, session {self.session_id}, checkpoint {self.checkpoint_id}{waits}, {shown}>"

    @property
    def output(self) -> str:
        """The text that the run ended with."""
        return self.report.output

    @property
    def value(self) -> Any:
        """The typed result, None if there is none."""
        return self.report.value

    @property
    def state(self) -> Any:
        """The final state of a graph: a dict, or an instance of its schema class. Yours to change."""
        kept = vars(self)
        if "state" not in kept:
            kept["state"] = plain_state(self.report)
        return kept["state"]

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation, if there is one."""
        if self.report.messages is not None:
            return tuple(self.report.messages)
        try:
            found = self.state["messages"]
        except (KeyError, TypeError):
            found = getattr(self.state, "messages", ())
        return tuple(cast("list[Message]", found))

    @property
    def message(self) -> Message | None:
        """The last message of the conversation."""
        messages = self.messages
        return messages[-1] if messages else None


def plain_state(report: Report) -> Any:
    """Return a program's state as users see it: a mapping as a dict."""
    state = report.state
    return dict(cast("Mapping[str, Any]", state)) if isinstance(state, Mapping) else state
