"""Models: what is asked, what comes back, the shape of whoever answers, and the adapters of providers."""

from typing import TYPE_CHECKING

from .chunk import Chunk, ToolCallChunk, chunks_of
from .gathering import Gathering
from .model import ChatModel, Generates, Streams, close_stream, generate, stream
from .names import resolve_model
from .request import ModelRequest, ToolSpec

if TYPE_CHECKING:
    from .demo import DemoModel
    from .openai import OpenAIChatModel

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
    # Adapters are loaded by those who use them.
    if name == "OpenAIChatModel":
        from .openai import OpenAIChatModel  # noqa: PLC0415

        return OpenAIChatModel
    if name == "DemoModel":
        from .demo import DemoModel  # noqa: PLC0415

        return DemoModel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
