"""The OpenAI Agents SDK, as its documentation has it, without tracing."""

from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, RunState, Usage, function_tool, set_tracing_disabled
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
)

from bench.sides.agents.work import INSTRUCTION, QUESTION, Run, Script, look_up, seen, works
from bench.sides.side import main


def message(text: str) -> ResponseOutputMessage:
    """A text of the assistant."""
    said = ResponseOutputText(text=text, type="output_text", annotations=[])
    return ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[said])


class Scripted(Model):
    """The model that calls the tool."""

    def __init__(self, script: Script) -> None:
        self.script = script

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:
        number = self.script.next()
        if number is None:
            output = message(self.script.answer(input[-1]["output"]))
        else:
            output = ResponseFunctionToolCall(
                type="function_call", name="look_up", call_id=f"call{number}", arguments=f'{{"number": {number}}}'
            )
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


class Streamed(Model):
    """The model that streams."""

    def __init__(self, pieces: list[str]) -> None:
        self.pieces = pieces

    async def get_response(self, *_: Any, **__: Any) -> ModelResponse:
        raise NotImplementedError

    async def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        for number, piece in enumerate(self.pieces):
            yield ResponseTextDeltaEvent(
                type="response.output_text.delta",
                delta=piece,
                item_id="m",
                output_index=0,
                content_index=0,
                logprobs=[],
                sequence_number=number,
            )
        response = Response(
            id="r",
            created_at=0.0,
            model="offline",
            object="response",
            output=[message("".join(self.pieces))],
            parallel_tool_calls=False,
            tool_choice="auto",
            tools=[],
        )
        yield ResponseCompletedEvent(type="response.completed", response=response, sequence_number=len(self.pieces))


def chat(script: Script) -> Run:
    agent = Agent("clerk", instructions=INSTRUCTION, tools=[function_tool(look_up)], model=Scripted(script))

    async def run() -> str:
        return (await Runner.run(agent, QUESTION, max_turns=script.calls + 1)).final_output

    return run


def approval(script: Script) -> dict[str, Run]:
    tool = function_tool(look_up, needs_approval=True)
    agent = Agent("clerk", instructions=INSTRUCTION, tools=[tool], model=Scripted(script))

    async def once(*, stored: bool) -> str:
        state = (await Runner.run(agent, QUESTION)).to_state()
        if stored:
            state = await RunState.from_string(agent, state.to_string())
        (question,) = state.get_interruptions()
        state.approve(question)
        return (await Runner.run(agent, state)).final_output

    async def stored() -> str:
        return await once(stored=True)

    async def held() -> str:
        return await once(stored=False)

    return {"stored": stored, "held": held}


def stream(pieces: list[str]) -> Run:
    agent = Agent("clerk", instructions=INSTRUCTION, model=Streamed(pieces))

    async def run() -> str:
        events = Runner.run_streamed(agent, QUESTION).stream_events()
        raw = [event.data async for event in events if event.type == "raw_response_event"]
        return seen([data.delta for data in raw if data.type == "response.output_text.delta"])

    return run


if __name__ == "__main__":
    set_tracing_disabled(True)
    main(works(chat, approval, stream))
