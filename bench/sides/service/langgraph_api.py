"""LangGraph's server in memory, as `langgraph dev` starts it, with room for all chats at once."""

import json
from collections.abc import AsyncIterator
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langgraph.graph import START, MessagesState, StateGraph

from bench.sides.service.work import INSTRUCTION, Contestant, contest, say


class Model(BaseChatModel):
    @property
    def _llm_type(self) -> str:
        return "offline"

    def _generate(self, messages: list[BaseMessage], *args: Any, **options: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage(""))])

    async def _astream(self, messages: list[BaseMessage], *args: Any, **options: Any) -> AsyncIterator[Any]:
        async for piece in say(messages[-1].text):
            yield ChatGenerationChunk(message=AIMessageChunk(piece))


model = Model()


async def tell(state: MessagesState) -> dict[str, Any]:
    return {"messages": [await model.ainvoke([("system", INSTRUCTION), *state["messages"]])]}


graph = StateGraph(MessagesState).add_node("tell", tell).add_edge(START, "tell").compile()


def serve(port: int, store: str) -> None:
    from langgraph_api.cli import run_server

    graphs = {"teller": f"{__file__}:graph"}
    run_server("127.0.0.1", port, graphs=graphs, n_jobs_per_worker=2000, disable_persistence=True, server_level="ERROR")


def post(session: str, message: str) -> tuple[str, object]:
    data = {
        "assistant_id": "teller",
        "input": {"messages": [{"role": "user", "content": message}]},
        "stream_mode": ["messages-tuple"],
        "if_not_exists": "create",  # saves a request
    }
    return f"/threads/{session[:8]}-{session[8:12]}-{session[12:16]}-{session[16:20]}-{session[20:]}/runs/stream", data


def token(data: bytes) -> str:
    frame = json.loads(data)
    return frame[0]["content"] if isinstance(frame, list) and frame[0]["type"] == "AIMessageChunk" else ""


if __name__ == "__main__":
    contest(Contestant(serve=serve, post=post, token=token))
