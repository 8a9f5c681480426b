"""Google ADK's API server, as `adk api_server` starts it, without a log line for each request."""

import json
import sqlite3
from collections.abc import AsyncGenerator
from tempfile import TemporaryDirectory
from typing import Any

import uvicorn
from google.adk.agents import LlmAgent
from google.adk.cli.fast_api import get_fast_api_app
from google.adk.cli.utils.base_agent_loader import BaseAgentLoader
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.genai.types import Content, Part

from bench.sides.agents.google_adk import USAGE
from bench.sides.service.work import INSTRUCTION, Contestant, contest, say


class Model(BaseLlm):
    async def generate_content_async(self, request: LlmRequest, stream: bool = False) -> AsyncGenerator[LlmResponse]:
        pieces: list[str] = []
        async for piece in say(request.contents[-1].parts[-1].text):
            pieces.append(piece)
            yield LlmResponse(content=Content(role="model", parts=[Part(text=piece)]), partial=True)
        whole = Content(role="model", parts=[Part(text="".join(pieces))])
        yield LlmResponse(content=whole, usage_metadata=USAGE)


class Loader(BaseAgentLoader):
    def __init__(self) -> None:
        self._agent = LlmAgent(name="teller", model=Model(model="offline"), instruction=INSTRUCTION)

    def load_agent(self, agent_name: str) -> Any:
        return self._agent

    def list_agents(self) -> list[str]:
        return ["teller"]


def serve(port: int, store: str) -> None:
    if store != "memory":
        # As ours: it stays with the file, and what is written is flushed by default.
        sqlite3.connect(store).execute("PRAGMA journal_mode=WAL").connection.close()
    with TemporaryDirectory() as folder:
        app = get_fast_api_app(
            agents_dir=folder,
            agent_loader=Loader(),
            session_service_uri="memory://" if store == "memory" else f"sqlite:///{store}",
            use_local_storage=False,
            web=False,
            auto_create_session=True,  # saves a request
        )
        uvicorn.run(app, port=port, log_level="warning", access_log=False)


def post(session: str, message: str) -> tuple[str, object]:
    content = {"role": "user", "parts": [{"text": message}]}
    data = {"app_name": "teller", "user_id": "u", "session_id": session, "new_message": content, "streaming": True}
    return "/run_sse", data


def token(data: bytes) -> str:
    event = json.loads(data)
    return event["content"]["parts"][0]["text"] if event.get("partial") else ""


if __name__ == "__main__":
    contest(Contestant(serve=serve, post=post, token=token))
