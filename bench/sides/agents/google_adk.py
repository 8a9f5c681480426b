"""Google's Agent Development Kit, as its documentation has it, with its sessions in memory."""

from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import LlmAgent, RunConfig
from google.adk.agents.run_config import StreamingMode
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.tools import FunctionTool
from google.genai.types import Content, FunctionResponse, GenerateContentResponseUsageMetadata, Part

from bench.sides.agents.work import INSTRUCTION, QUESTION, Run, Script, look_up, seen, works
from bench.sides.side import main

CONFIRMATION = "adk_request_confirmation"
# Given, since ADK would otherwise log at every call that it is missing.
USAGE = GenerateContentResponseUsageMetadata(prompt_token_count=10, candidates_token_count=10, total_token_count=20)


class Scripted(BaseLlm):
    """The model that calls the tool."""

    script: Any

    async def generate_content_async(self, request: LlmRequest, stream: bool = False) -> AsyncGenerator[LlmResponse]:
        number = self.script.next()
        if number is None:
            result = request.contents[-1].parts[-1].function_response.response["result"]
            part = Part(text=self.script.answer(result))
        else:
            part = Part.from_function_call(name="look_up", args={"number": number})
        yield LlmResponse(content=Content(role="model", parts=[part]), usage_metadata=USAGE)


class Streamed(BaseLlm):
    """The model that streams."""

    pieces: list[str]

    async def generate_content_async(self, request: LlmRequest, stream: bool = False) -> AsyncGenerator[LlmResponse]:
        for piece in self.pieces:
            yield LlmResponse(content=Content(role="model", parts=[Part(text=piece)]), partial=True)
        whole = Content(role="model", parts=[Part(text="".join(self.pieces))])
        yield LlmResponse(content=whole, usage_metadata=USAGE)


async def said(runner: InMemoryRunner, session: Any, part: Part, config: RunConfig | None = None) -> list[Any]:
    """The events of one turn."""
    message = Content(role="user", parts=[part])
    events = runner.run_async(user_id="u", session_id=session.id, new_message=message, run_config=config)
    return [event async for event in events]


def make_runner(model: BaseLlm, tools: list[Any]) -> InMemoryRunner:
    return InMemoryRunner(LlmAgent(name="clerk", model=model, instruction=INSTRUCTION, tools=tools), app_name="bench")


def chat(script: Script) -> Run:
    runner = make_runner(Scripted(model="offline", script=script), [look_up])

    async def run() -> str:
        session = await runner.session_service.create_session(app_name="bench", user_id="u")
        return (await said(runner, session, Part(text=QUESTION)))[-1].content.parts[-1].text

    return run


def approval(script: Script) -> dict[str, Run]:
    tool = FunctionTool(look_up, require_confirmation=True)
    runner = make_runner(Scripted(model="offline", script=script), [tool])

    async def run() -> str:
        session = await runner.session_service.create_session(app_name="bench", user_id="u")
        events = await said(runner, session, Part(text=QUESTION))
        (asked,) = [call for event in events for call in event.get_function_calls() if call.name == CONFIRMATION]
        decided = FunctionResponse(id=asked.id, name=CONFIRMATION, response={"confirmed": True})
        return (await said(runner, session, Part(function_response=decided)))[-1].content.parts[-1].text

    return {"stored": run}


def stream(pieces: list[str]) -> Run:
    runner = make_runner(Streamed(model="offline", pieces=pieces), [])
    config = RunConfig(streaming_mode=StreamingMode.SSE)

    async def run() -> str:
        session = await runner.session_service.create_session(app_name="bench", user_id="u")
        events = await said(runner, session, Part(text=QUESTION), config)
        return seen([event.content.parts[0].text for event in events if event.partial])

    return run


if __name__ == "__main__":
    main(works(chat, approval, stream))
