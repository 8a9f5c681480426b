"""Agents, made from what a document says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

from adjourn._engine.program import Program
from adjourn._text import a_type
from adjourn.agents import (
    ChatModelAgent,
    DeepAgent,
    GraphAgent,
    LoopAgent,
    ParallelAgent,
    PlanExecute,
    SequentialAgent,
    Supervisor,
)
from adjourn.graph import CompiledGraph
from adjourn.middleware import FolderBackend, MemoryBackend
from adjourn.tools import ExitTool

from . import _declared as declared
from ._fitting import WRONG, Path
from ._graphs import make_graph
from ._middleware import make_middleware
from ._parts import Parts, limits_of, retry_of

Group: TypeAlias = declared.SequentialSpec | declared.ParallelSpec | declared.LoopSpec
SPEC = ("spec",)
STAND_IN = "demo:tickets"
"""A model for agents that are only made to see whether they can be."""
_FIELDS = {"failover": ("model", "fallback"), "retry": ("model", "retry")}
"""Where options are in files, if not under their own names."""


def make_agent(parts: Parts, name: str, spec: declared.AnySpec) -> Any:
    """Return the agent, or `WRONG`; the parts know why, or the document did not fit."""
    made = parts.trial(SPEC, lambda: _made(parts, name, spec))
    return WRONG if parts.problems or not parts.fits(()) else made


def _made(parts: Parts, name: str, spec: declared.AnySpec) -> Any:
    match spec:
        case declared.ChatSpec():
            return _chat(parts, name, spec)
        case declared.SequentialSpec() | declared.ParallelSpec() | declared.LoopSpec():
            return _group(parts, name, spec)
        case declared.PlanExecuteSpec():
            return _plan_execute(parts, name, spec)
        case declared.GraphSpec():
            return _graph(parts, name, spec)
        case declared.PythonSpec():
            return _python(parts, name, spec)


def _right(values: Sequence[Any]) -> list[Any]:
    return [value for value in values if value is not WRONG]


def _chat(parts: Parts, name: str, spec: declared.ChatSpec) -> Any:
    options = _chat_options(parts, spec)
    _try_out(parts, name, options)
    match spec:
        case declared.SupervisorSpec():
            kind, options["agents"] = Supervisor, parts.agents(spec.agents, (*SPEC, "agents"))
            if not spec.instruction:
                del options["instruction"]  # It has one of its own.
        case declared.DeepAgentSpec():
            kind, options["agents"] = DeepAgent, parts.agents(spec.agents, (*SPEC, "agents"))
            options["general_purpose"] = spec.general_purpose
            options["emit_internal_events"] = spec.emit_internal_events
            options["backend"] = parts.attempt((*SPEC, "files"), lambda: _backend(parts, spec))
        case _:
            kind = ChatModelAgent
    is_wrong = any(value is WRONG or (isinstance(value, list) and WRONG in value) for value in options.values())
    return WRONG if is_wrong or parts.problems or not parts.fits(SPEC) else kind(name, **options)


def _try_out(parts: Parts, name: str, options: Mapping[str, Any]) -> None:
    """Report what an agent refuses of its options, each in its place, also if others are missing or wrong."""

    def refuses(path: Path, option: str, value: Any) -> bool:
        given: dict[str, Any] = {"model": STAND_IN, option: value}
        return parts.trial(path, lambda: ChatModelAgent(name, **given)) is WRONG

    for option, value in options.items():
        path = (*SPEC, *_FIELDS.get(option, (option,)))
        if isinstance(value, list):
            each = list(enumerate(cast("list[Any]", value)))
            right = [
                item for number, item in each if item is not WRONG and not refuses((*path, number), option, [item])
            ]
            refuses(path, option, right)
        elif value is not WRONG and parts.fits(path):
            refuses(path, option, value)


def _chat_options(parts: Parts, spec: declared.ChatSpec) -> dict[str, Any]:
    """Return the options that all agents with a model have, with `WRONG` in place of what is wrong."""
    options: dict[str, Any] = {
        "model": parts.model(spec.model, (*SPEC, "model")),
        "failover": parts.fallbacks(spec.model, (*SPEC, "model")),
        "tools": parts.tools(spec.tools, (*SPEC, "tools")),
        "middleware": make_middleware(parts, spec.middleware, (*SPEC, "middleware")),
        "instruction": spec.instruction,
        "description": spec.description,
        "tool_calls": spec.tool_calls,
        "exit_tool": ExitTool() if spec.exit_tool else None,
        "output_key": spec.output_key,
        "output_type": parts.attempt((*SPEC, "output_type"), lambda: _output_type(parts, spec)),
        "max_iterations": spec.max_iterations,
        "on_tool_error": spec.on_tool_error,
        "on_unknown_tool": spec.on_unknown_tool,
        "disallow_transfer_to_parent": spec.disallow_transfer_to_parent,
        "limits": parts.attempt((*SPEC, "limits"), lambda: limits_of(spec.limits)),
    }
    if parts.fits((*SPEC, "model")) and isinstance(spec.model, declared.ModelSpec) and spec.model.retry is not None:
        options["retry"] = retry_of(spec.model.retry)
    if isinstance(spec, declared.ChatModelAgentSpec | declared.DeepAgentSpec):
        options["sub_agents"] = parts.agents(spec.sub_agents, (*SPEC, "sub_agents"))
    return options


def _output_type(parts: Parts, spec: declared.ChatSpec) -> Any:
    return parts.python(spec.output_type) if isinstance(spec.output_type, str) else spec.output_type


def _backend(parts: Parts, spec: declared.DeepAgentSpec) -> Any:
    if isinstance(spec.files, declared.FolderSpec):
        return FolderBackend(parts.surroundings.inside(spec.files.folder))
    return None if spec.files is None else MemoryBackend()


def _group(parts: Parts, name: str, spec: Group) -> Any:
    agents = parts.agents(spec.agents, (*SPEC, "agents"))
    if right := _right(agents):
        parts.trial((*SPEC, "agents"), lambda: SequentialAgent(name, agents=right))
    if WRONG in agents or parts.problems or not parts.fits(SPEC):
        return WRONG
    match spec:
        case declared.SequentialSpec():
            return SequentialAgent(name, agents=agents, description=spec.description)
        case declared.ParallelSpec():
            return ParallelAgent(name, agents=agents, description=spec.description)
        case declared.LoopSpec():
            return LoopAgent(name, agents=agents, max_iterations=spec.max_iterations, description=spec.description)


def _plan_execute(parts: Parts, name: str, spec: declared.PlanExecuteSpec) -> Any:
    roles = {role: _role(parts, getattr(spec, role), role) for role in ("planner", "executor", "replanner")}
    if WRONG in roles.values() or not parts.fits(SPEC):
        return WRONG
    return PlanExecute(name, **roles, max_iterations=spec.max_iterations, description=spec.description)


def _role(parts: Parts, role: declared.RoleSpec, name: str) -> Any:
    if role is WRONG or not parts.fits((*SPEC, name)):
        return WRONG
    if role.model is not None and role.agent is None:
        return parts.model(role.model, (*SPEC, name, "model"))
    if role.agent is not None and role.model is None:
        return parts.agent(role.agent, (*SPEC, name, "agent"))
    return parts.wrong((*SPEC, name), "this is either a 'model' or an 'agent'", "Give one of them.")


def _graph(parts: Parts, name: str, spec: declared.GraphSpec) -> Any:
    graph = make_graph(parts, name, spec)
    middleware = make_middleware(parts, spec.middleware, (*SPEC, "middleware"))
    if graph is WRONG or WRONG in middleware or not parts.fits(SPEC):
        return WRONG
    return GraphAgent(
        name,
        graph,
        description=spec.description,
        input=spec.input,
        output=spec.output,
        middleware=middleware,
    )


def _python(parts: Parts, name: str, spec: declared.PythonSpec) -> Any:
    if not parts.fits(SPEC):
        return WRONG
    found = parts.python(spec.ref)
    if isinstance(found, CompiledGraph):
        graph = cast("CompiledGraph", found)
        return GraphAgent(name, graph, description=spec.description, input=spec.input, output=spec.output)
    for option in ("input", "output"):
        if getattr(spec, option) is not None:
            parts.wrong((*SPEC, option), f"only a graph has an '{option}'", "Remove it.")
    if isinstance(found, type) or not isinstance(found, Program):
        hint = "Name an agent, a compiled graph, or a function with @workflow."
        return parts.wrong((*SPEC, "ref"), f"this is {a_type(found)}, which cannot be run", hint)
    program = cast("Program", found)
    if program.name != name and parts.fits(("metadata",)):  # Sessions know their program by its own name.
        hint = f"Call it that here, too: metadata: {{name: {program.name}}}."
        return parts.wrong(("metadata", "name"), f"in Python it is called '{program.name}'", hint)
    return program
