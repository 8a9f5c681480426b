"""Models that need no key and no network: each is a function of what was said so far, and streams word by word."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable

from adjourn import Message, ToolCall
from adjourn.models import Chunk, ModelRequest, chunks_of

Reply = str | ToolCall


class Offline:
    """Stands in for a model. With a key, name a real one in the YAML file instead, such as `openai:gpt-5`."""

    def __init__(self, reply: Callable[[ModelRequest], Reply]) -> None:
        self.reply = reply

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        reply = self.reply(request)
        if isinstance(reply, ToolCall):
            for chunk in chunks_of(Message.assistant(tool_calls=[reply])):
                yield chunk
            return
        for word in re.findall(r"\s*\S+", reply):
            await asyncio.sleep(0.02)
            yield Chunk(text=word)


def call(request: ModelRequest, name: str, **arguments: str) -> ToolCall:
    """A call of a tool, with an id of its own in the conversation."""
    number = 1 + sum(len(message.tool_calls) for message in request.messages)
    return ToolCall(id=f"call_{number}", name=name, arguments=arguments)
