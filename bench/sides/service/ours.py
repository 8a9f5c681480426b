"""Adjourn's server, as `adjourn serve` starts it."""

from collections.abc import AsyncIterator

import msgspec

from adjourn import ChatModelAgent
from adjourn.models import Chunk, ModelRequest
from adjourn.server import App
from adjourn.server.serve import Server
from bench.sides.service.work import INSTRUCTION, Contestant, contest, say


class Model:
    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        async for piece in say(request.messages[-1].text):
            yield Chunk(text=piece)


def serve(port: int, store: str) -> None:
    agent = ChatModelAgent("teller", model=Model(), instruction=INSTRUCTION)
    app = App([agent], store="memory://" if store == "memory" else f"sqlite:///{store}")
    Server(app, port=port).run()


def post(session: str, message: str) -> tuple[str, object]:
    return "/api/v1/chat", {"agent": "teller", "session_id": session, "message": message}


class Frame(msgspec.Struct):
    type: str
    text: str = ""


def token(data: bytes) -> str:
    frame = msgspec.json.decode(data, type=Frame)
    return frame.text if frame.type == "delta" else ""


if __name__ == "__main__":
    contest(Contestant(serve=serve, post=post, token=token))
