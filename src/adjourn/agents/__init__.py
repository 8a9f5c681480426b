"""Agents: chat models with tools, and agents that run others in sequence, in parallel and in loops."""

from adjourn._calls.approval import Approvals, RememberedApproval
from adjourn.runner import AgentOptions

from ._config import AgentInput, ResumeInfo, Yielded
from .agent import Agent
from .agent_tool import AgentTool
from .chat import ChatModelAgent, Limits
from .deep import DeepAgent
from .graph_agent import GraphAgent
from .plan_execute import Plan, PlanExecute, Prompts, Replan
from .supervisor import Supervisor
from .workflows import LoopAgent, ParallelAgent, SequentialAgent

__all__ = [
    "Agent",
    "AgentInput",
    "AgentOptions",
    "AgentTool",
    "Approvals",
    "ChatModelAgent",
    "DeepAgent",
    "GraphAgent",
    "Limits",
    "LoopAgent",
    "ParallelAgent",
    "Plan",
    "PlanExecute",
    "Prompts",
    "RememberedApproval",
    "Replan",
    "ResumeInfo",
    "SequentialAgent",
    "Supervisor",
    "Yielded",
]
