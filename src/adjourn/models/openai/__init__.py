"""Models of OpenAI, and of every server that speaks its chat completions."""

from .model import OpenAIChatModel as OpenAIChatModel
