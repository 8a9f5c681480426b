"""The floor: an agent as a loop in asyncio, by hand, for this one model and this one tool."""

import json
from collections.abc import AsyncIterator
from itertools import count
from typing import Any

from bench.sides.agents.work import INSTRUCTION, QUESTION, Run, Script, look_up, seen, works
from bench.sides.side import main

Message = dict[str, Any]
TOOLS = {"look_up": look_up}
_sessions = count()


async def think(script: Script, messages: list[Message]) -> Message:
    """The model."""
    number = script.next()
    if number is None:
        return {"role": "assistant", "content": script.answer(messages[-1]["content"])}
    call = {"id": f"call{number}", "name": "look_up", "arguments": json.dumps({"number": number})}
    return {"role": "assistant", "tool_call": call}


async def use(call: dict[str, str]) -> Message:
    """Run the tool."""
    result = await TOOLS[call["name"]](**json.loads(call["arguments"]))
    return {"role": "tool", "tool_call_id": call["id"], "content": result}


def opening() -> list[Message]:
    return [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": QUESTION}]


def chat(script: Script) -> Run:
    async def run() -> str:
        messages = opening()
        for _ in range(script.calls + 1):
            message = await think(script, messages)
            messages.append(message)
            if "tool_call" not in message:
                break
            messages.append(await use(message["tool_call"]))
        return messages[-1]["content"]

    return run


def approval(script: Script) -> dict[str, Run]:
    store: dict[int, str] = {}

    async def run() -> str:
        session, messages = next(_sessions), opening()
        messages.append(await think(script, messages))
        store[session] = json.dumps(messages)
        messages = json.loads(store.pop(session))
        messages.append(await use(messages[-1]["tool_call"]))
        return (await think(script, messages))["content"]

    return {"stored": run}


def stream(pieces: list[str]) -> Run:
    async def generate() -> AsyncIterator[str]:
        for piece in pieces:
            yield piece

    async def run() -> str:
        return seen([piece async for piece in generate()])

    return run


if __name__ == "__main__":
    main(works(chat, approval, stream))
