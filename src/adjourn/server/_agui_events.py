"""The events of a run in the words of AG-UI 1.0, which wants everything that was started to be ended, in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from adjourn._documents import plain
from adjourn.events import (
    Cancelled,
    Custom,
    Delta,
    Done,
    Failed,
    Interrupted,
    MessageEvent,
    NodeEnd,
    NodeStart,
    Progress,
    Retrying,
    ToolResult,
)
from adjourn.messages import Message
from adjourn.runner import Watched

from ._agui_data import (
    Data,
    answer_of_model,
    arguments_of,
    conversation,
    known_results,
    reasoning_id,
    reasoning_of,
    result_ids,
)
from ._drafts import Draft


class _Writing:
    """A message as far as the reader has it."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.text = ""
        self.reasoning = ""
        self.is_text_open = False
        self.is_reasoning_open = False


class Encoder:
    """Turns what happens in a run into events of AG-UI.

    Ids of messages are those of the log, so they are the same in every run and in every snapshot.
    """

    def __init__(self, known: Sequence[Message]) -> None:
        """Encode a run that begins with this conversation."""
        self._results = known_results(known)
        self._shown = conversation(known)
        self._writing: dict[str, _Writing] = {}
        self._steps: dict[str, set[str]] = {}
        self._outputs: set[str] = set()

    def events(self, item: Watched | Draft) -> Iterator[Data]:
        """Return the events for something that happens before the end of a run."""
        match item:
            case Delta(call_id=str(call_id)):
                yield from self._output(call_id, item.text)
            case Delta(message_id=str(name)):
                yield from self._more(name, self._of(name, item.address), item.text, item.reasoning)
            case Draft(message_id=str(name), call_id=None):
                yield from self._up_to(name, self._of(name, item.address), item.text, item.reasoning)
            case MessageEvent(message=message) if message.role == "assistant":
                yield from self._message(message, message.id or f"e{item.seq}", item.address)
            case Retrying():
                yield from self._retract(item.address)
            case Done() | Interrupted() | Failed() | Cancelled():
                yield from self.close()
            case _:
                yield from self._beside(item)

    def _beside(self, item: Watched | Draft) -> Iterator[Data]:
        """Return the events for something that is not about a message that a model writes."""
        match item:
            case ToolResult(call_id=call):
                about = {"messageId": self._results.get(call, f"e{item.seq}"), "toolCallId": call, "role": "tool"}
                content = item.result or item.error or ""
                self._shown.append({"id": about["messageId"], "role": "tool", "toolCallId": call, "content": content})
                yield {"type": "TOOL_CALL_RESULT", **about, "content": content}
            case NodeStart():
                yield from self._step(item.node, item.address)
            case NodeEnd():
                yield from self._step(item.node, item.address)
                yield from self._end_step(item.node, item.address)
            case Custom():
                yield {"type": "CUSTOM", "name": "custom", "value": plain(item.data)}
            case Progress():
                about = {"messageId": f"progress:{item.address}", "activityType": "adjourn.progress"}
                done = {"message": item.message, "fraction": item.fraction, "done": item.done, "total": item.total}
                content = {name: value for name, value in done.items() if value is not None}
                yield {"type": "ACTIVITY_SNAPSHOT", **about, "content": content}
            case _:
                pass

    def close(self) -> Iterator[Data]:
        """End whatever is open, as a run can only end then."""
        for name, writing in self._writing.items():
            yield from self._end(name, writing)
        self._writing.clear()
        for step in self._steps:
            yield {"type": "STEP_FINISHED", "stepName": step}
        self._steps.clear()

    # Messages

    def _of(self, name: str, address: str) -> _Writing:
        return self._writing.setdefault(name, _Writing(address))

    def _more(self, name: str, writing: _Writing, text: str, reasoning: str) -> Iterator[Data]:
        if reasoning:
            if not writing.is_reasoning_open:
                writing.is_reasoning_open = True
                yield {"type": "REASONING_START", "messageId": reasoning_id(name)}
                yield {"type": "REASONING_MESSAGE_START", "messageId": reasoning_id(name), "role": "reasoning"}
            writing.reasoning += reasoning
            yield {"type": "REASONING_MESSAGE_CONTENT", "messageId": reasoning_id(name), "delta": reasoning}
        if text:
            yield from self._end_reasoning(name, writing)
            if not writing.is_text_open:
                writing.is_text_open = True
                yield {"type": "TEXT_MESSAGE_START", "messageId": name, "role": "assistant"}
            writing.text += text
            yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": name, "delta": text}

    def _up_to(self, name: str, writing: _Writing, text: str, reasoning: str) -> Iterator[Data]:
        """Send what is missing of a text, which the reader may have a part of; the last snapshot mends the rest."""
        if text.startswith(writing.text) and reasoning.startswith(writing.reasoning):
            yield from self._more(name, writing, text[len(writing.text) :], reasoning[len(writing.reasoning) :])

    def _message(self, message: Message, name: str, address: str) -> Iterator[Data]:
        writing = self._of(name, address)
        yield from self._up_to(name, writing, message.text, reasoning_of(message))
        yield from self._end(name, writing)
        del self._writing[name]
        self._results.update(result_ids(message, name))
        self._shown.extend(answer_of_model(message, name))
        for call in message.tool_calls:
            start = {"toolCallId": call.id, "toolCallName": call.name, "parentMessageId": name}
            yield {"type": "TOOL_CALL_START", **start}
            yield {"type": "TOOL_CALL_ARGS", "toolCallId": call.id, "delta": arguments_of(call)}
            yield {"type": "TOOL_CALL_END", "toolCallId": call.id}

    def _end(self, name: str, writing: _Writing) -> Iterator[Data]:
        yield from self._end_reasoning(name, writing)
        if writing.is_text_open:
            writing.is_text_open = False
            yield {"type": "TEXT_MESSAGE_END", "messageId": name}

    def _end_reasoning(self, name: str, writing: _Writing) -> Iterator[Data]:
        if writing.is_reasoning_open:
            writing.is_reasoning_open = False
            yield {"type": "REASONING_MESSAGE_END", "messageId": reasoning_id(name)}
            yield {"type": "REASONING_END", "messageId": reasoning_id(name)}

    def _retract(self, address: str) -> Iterator[Data]:
        """Take back what was written by something that begins again, which only a snapshot can do.

        It has what was sent before, and not what is stored by now: the rest of that is still to come.
        """
        is_void = False
        for name in [name for name, writing in self._writing.items() if writing.address == address]:
            writing = self._writing.pop(name)
            is_void = is_void or bool(writing.text)
            yield from self._end(name, writing)
        if is_void:
            yield {"type": "MESSAGES_SNAPSHOT", "messages": list(self._shown)}

    # Tools and nodes

    def _output(self, call_id: str, text: str) -> Iterator[Data]:
        if not text:
            return
        about = {"messageId": f"output:{call_id}", "activityType": "adjourn.tool_output"}
        if call_id in self._outputs:
            yield {"type": "ACTIVITY_DELTA", **about, "patch": [{"op": "add", "path": "/pieces/-", "value": text}]}
            return
        self._outputs.add(call_id)
        yield {"type": "ACTIVITY_SNAPSHOT", **about, "content": {"toolCallId": call_id, "pieces": [text]}}

    def _step(self, step: str, address: str) -> Iterator[Data]:
        if step not in self._steps:  # A node may run several times at once; a step cannot.
            yield {"type": "STEP_STARTED", "stepName": step}
        self._steps.setdefault(step, set()).add(address)

    def _end_step(self, step: str, address: str) -> Iterator[Data]:
        self._steps[step].discard(address)
        if not self._steps[step]:
            del self._steps[step]
            yield {"type": "STEP_FINISHED", "stepName": step}
