"""Adjourn's agents, through its public API."""

from collections.abc import AsyncIterator
from itertools import count

from adjourn import ChatModelAgent, Delta, Message, Runner, ToolCall, tool
from adjourn.models import Chunk, ModelRequest
from adjourn.stores import MemoryStore
from bench.sides.agents.work import INSTRUCTION, QUESTION, Run, Script, look_up, seen, works
from bench.sides.side import main

_sessions = (f"s{number}" for number in count())


class Scripted:
    """The model that calls the tool."""

    def __init__(self, script: Script) -> None:
        self.script = script

    async def generate(self, request: ModelRequest) -> Message:
        number = self.script.next()
        if number is None:
            return Message.assistant(self.script.answer(request.messages[-1].text))
        call = ToolCall(id=f"call{number}", name="look_up", arguments={"number": number})
        return Message.assistant(tool_calls=[call])


class Streamed:
    """The model that streams."""

    def __init__(self, pieces: list[str]) -> None:
        self.pieces = pieces

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        for piece in self.pieces:
            yield Chunk(text=piece)


def chat(script: Script) -> Run:
    calls = script.calls
    agent = ChatModelAgent(
        "clerk", model=Scripted(script), instruction=INSTRUCTION, tools=[look_up], max_iterations=calls + 1
    )
    runner = Runner(agent)

    async def run() -> str:
        return (await runner.run(QUESTION, max_steps=2 * calls + 10)).output

    return run


def approval(script: Script) -> dict[str, Run]:
    agent = ChatModelAgent(
        "clerk", model=Scripted(script), instruction=INSTRUCTION, tools=[tool(look_up, approval=True)]
    )
    runner = Runner(agent, store=MemoryStore())

    async def run() -> str:
        paused = await runner.run(QUESTION, session_id=next(_sessions))
        (question,) = paused.interrupts
        return (await runner.resume(paused.session_id, {question.id: True})).output

    return {"stored": run}


def stream(pieces: list[str]) -> Run:
    runner = Runner(ChatModelAgent("clerk", model=Streamed(pieces), instruction=INSTRUCTION))

    async def run() -> str:
        return seen([event.text async for event in runner.run(QUESTION) if isinstance(event, Delta)])

    return run


if __name__ == "__main__":
    main(works(chat, approval, stream))
