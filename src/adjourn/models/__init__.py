"""Models: requests, answers, the protocol for models, and adapters for providers."""

from typing import TYPE_CHECKING

from .abilities import Abilities
from .bounds import AnswerBounds
from .calling import close_stream, generate, stream
from .chunks import Chunk, Gathering, Origin, ToolCallChunk, chunks_of
from .names import resolve_model
from .protocol import ChatModel, Generates, ModelRequest, OutputMode, Streams, ToolSpec

if TYPE_CHECKING:
    from .demo import DemoModel
    from .openai.model import OpenAIChatModel

__all__ = [
    "Abilities",
    "AnswerBounds",
    "ChatModel",
    "Chunk",
    "DemoModel",
    "Gathering",
    "Generates",
    "ModelRequest",
    "OpenAIChatModel",
    "Origin",
    "OutputMode",
    "Streams",
    "ToolCallChunk",
    "ToolSpec",
    "chunks_of",
    "close_stream",
    "generate",
    "resolve_model",
    "stream",
]


if not TYPE_CHECKING:  # For a type checker every name would exist.

    def __getattr__(name: str) -> object:
        # Adapters are loaded on first use.
        if name == "OpenAIChatModel":
            from .openai.model import OpenAIChatModel  # noqa: PLC0415

            return OpenAIChatModel
        if name == "DemoModel":
            from .demo import DemoModel  # noqa: PLC0415

            return DemoModel
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
