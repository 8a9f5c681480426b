"""LangGraph's agent, as its documentation has it: `create_agent` of langchain, which is made of its graphs."""

from itertools import count
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from bench.sides.agents.work import INSTRUCTION, QUESTION, Run, Script, look_up, seen, works
from bench.sides.side import main

ASKED = {"messages": [{"role": "user", "content": QUESTION}]}
_threads = count()


class Offline(BaseChatModel):
    """What the models of both kinds need."""

    @property
    def _llm_type(self) -> str:
        return "offline"

    def bind_tools(self, tools: Any, **_: Any) -> "Offline":
        return self

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        raise NotImplementedError


class Scripted(Offline):
    """The model that calls the tool."""

    script: Any

    async def _agenerate(self, messages: Any, *_: Any, **__: Any) -> ChatResult:
        number = self.script.next()
        if number is None:
            message = AIMessage(self.script.answer(messages[-1].content))
        else:
            call = {"id": f"call{number}", "name": "look_up", "args": {"number": number}}
            message = AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=message)])


class Streamed(Offline):
    """The model that streams."""

    pieces: list[str]

    async def _astream(self, *_: Any, **__: Any) -> Any:
        for piece in self.pieces:
            yield ChatGenerationChunk(message=AIMessageChunk(piece))


def chat(script: Script) -> Run:
    agent = create_agent(Scripted(script=script), [look_up], system_prompt=INSTRUCTION)

    async def run() -> str:
        done = await agent.ainvoke(ASKED, {"recursion_limit": 2 * script.calls + 10})
        return done["messages"][-1].content

    return run


def approval(script: Script) -> dict[str, Run]:
    agent = create_agent(
        Scripted(script=script),
        [look_up],
        system_prompt=INSTRUCTION,
        middleware=[HumanInTheLoopMiddleware(interrupt_on={"look_up": True})],
        checkpointer=InMemorySaver(),
    )

    async def run() -> str:
        config = {"configurable": {"thread_id": str(next(_threads))}}
        paused = await agent.ainvoke(ASKED, config, durability="sync")
        assert paused["__interrupt__"]
        decided = Command(resume={"decisions": [{"type": "approve"}]})
        return (await agent.ainvoke(decided, config, durability="sync"))["messages"][-1].content

    return {"stored": run}


def stream(pieces: list[str]) -> Run:
    agent = create_agent(Streamed(pieces=pieces), [], system_prompt=INSTRUCTION)

    async def run() -> str:
        chunks = agent.astream(ASKED, stream_mode="messages")
        return seen([chunk.content async for chunk, _ in chunks if chunk.content])

    return run


if __name__ == "__main__":
    main(works(chat, approval, stream))
