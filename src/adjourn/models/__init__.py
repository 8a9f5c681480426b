"""Models: requests, answers, the protocol for models, and adapters for providers."""

from typing import TYPE_CHECKING

from .chunks import Chunk, Gathering, ToolCallChunk, chunks_of
from .names import resolve_model
from .protocol import ChatModel, Generates, ModelRequest, Streams, ToolSpec, close_stream, generate, stream

if TYPE_CHECKING:
    from .demo import DemoModel
    from .openai.model import OpenAIChatModel

__all__ = [
    "ChatModel",
    "Chunk",
    "DemoModel",
    "Gathering",
    "Generates",
    "ModelRequest",
    "OpenAIChatModel",
    "Streams",
    "ToolCallChunk",
    "ToolSpec",
    "chunks_of",
    "close_stream",
    "generate",
    "resolve_model",
    "stream",
]


def __getattr__(name: str) -> object:
    # Adapters are loaded on first use.
    if name == "OpenAIChatModel":
        from .openai.model import OpenAIChatModel  # noqa: PLC0415

        return OpenAIChatModel
    if name == "DemoModel":
        from .demo import DemoModel  # noqa: PLC0415

        return DemoModel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
