"""Pydantic AI, as its documentation has it, with its own offline model."""

from collections.abc import AsyncIterator
from typing import Any

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, Tool, UsageLimits
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import RequestUsage

from bench.sides.agents.work import INSTRUCTION, QUESTION, Run, Script, look_up, seen, works
from bench.sides.side import main

# Given, since this model would otherwise count the words of all messages at every call.
USAGE = RequestUsage(input_tokens=10, output_tokens=10)


def scripted(script: Script) -> FunctionModel:
    """The model that calls the tool."""

    async def think(messages: Any, _: Any) -> ModelResponse:
        number = script.next()
        if number is None:
            part = TextPart(script.answer(messages[-1].parts[-1].content))
        else:
            part = ToolCallPart("look_up", {"number": number}, tool_call_id=f"call{number}")
        return ModelResponse(parts=[part], usage=USAGE)

    return FunctionModel(think)


def chat(script: Script) -> Run:
    agent = Agent(scripted(script), instructions=INSTRUCTION, tools=[look_up])
    limits = UsageLimits(request_limit=None)

    async def run() -> str:
        return (await agent.run(QUESTION, usage_limits=limits)).output

    return run


def approval(script: Script) -> dict[str, Run]:
    agent = Agent(
        scripted(script),
        instructions=INSTRUCTION,
        tools=[Tool(look_up, requires_approval=True)],
        output_type=[str, DeferredToolRequests],
    )

    async def once(*, stored: bool) -> str:
        paused = await agent.run(QUESTION)
        (call,) = paused.output.approvals
        history = paused.all_messages()
        if stored:
            history = ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(history))
        decided = DeferredToolResults(approvals={call.tool_call_id: True})
        return (await agent.run(message_history=history, deferred_tool_results=decided)).output

    async def stored() -> str:
        return await once(stored=True)

    async def held() -> str:
        return await once(stored=False)

    return {"stored": stored, "held": held}


def stream(pieces: list[str]) -> Run:
    async def generate(*_: Any) -> AsyncIterator[str]:
        for piece in pieces:
            yield piece

    agent = Agent(FunctionModel(stream_function=generate), instructions=INSTRUCTION)

    async def run() -> str:
        async with agent.run_stream(QUESTION) as result:
            return seen([text async for text in result.stream_text(delta=True, debounce_by=None)])

    return run


if __name__ == "__main__":
    main(works(chat, approval, stream))
