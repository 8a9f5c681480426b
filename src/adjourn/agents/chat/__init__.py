"""The chat-model agent."""

from ._config import Limits as Limits
from .agent import ChatModelAgent as ChatModelAgent
