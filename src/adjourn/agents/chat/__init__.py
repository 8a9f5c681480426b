"""The chat-model agent."""

from .agent import ChatModelAgent as ChatModelAgent
from .limits import Limits as Limits
