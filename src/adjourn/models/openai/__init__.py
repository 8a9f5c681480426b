"""Models of OpenAI, and of any server with a compatible chat completions API."""

from .model import OpenAIChatModel as OpenAIChatModel
