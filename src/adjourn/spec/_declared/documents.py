"""What a file says: which agent it describes."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import field

from .agents import (
    ChatModelAgentSpec,
    DeepAgentSpec,
    LoopSpec,
    ParallelSpec,
    PlanExecuteSpec,
    PythonSpec,
    SequentialSpec,
    SupervisorSpec,
)
from .graphs import GraphSpec
from .parts import AgentName, Part


class MetadataSpec(Part, frozen=True, kw_only=True):
    """What the agent is called.

    name: its name, in requests and in the files of other agents.
    labels: for people and tools; nothing here reads them.
    """

    name: AgentName
    labels: dict[str, str] = {}


AnySpec: TypeAlias = (
    ChatModelAgentSpec
    | SupervisorSpec
    | DeepAgentSpec
    | SequentialSpec
    | ParallelSpec
    | LoopSpec
    | PlanExecuteSpec
    | GraphSpec
    | PythonSpec
)


class Document(Part, frozen=True, kw_only=True):
    """One agent. A file may have several, with lines of `---` in between.

    apiVersion: the version of this format.
    kind: what it describes.
    metadata: what the agent is called.
    spec: what the agent is.
    """

    version: Literal["adjourn/v1"] = field(name="apiVersion")
    kind: Literal["Agent"]
    metadata: MetadataSpec
    spec: AnySpec
