"""Agents, made from what a document says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from adjourn._engine.program import Program
from adjourn._options import options_of
from adjourn._text import a_type
from adjourn.agents import ChatModelAgent, GraphAgent, Limits, SequentialAgent
from adjourn.graph import CompiledGraph
from adjourn.middleware import FolderBackend, MemoryBackend
from adjourn.tools import ExitTool

from . import _declared as declared
from ._fitting import WRONG, Path
from ._graphs import make_graph
from ._middleware import make_middleware
from ._parts import Parts, given_in, retry_of

SPEC = ("spec",)
STAND_IN = "demo:tickets"
"""A model for agents that are only made to see whether they can be."""
_FIELDS = {"failover": ("model", "fallback"), "retry": ("model", "retry"), "backend": ("files",)}
"""Where options are in files, if not under their own names."""
_JUDGED_BESIDE = {"return_directly": "tools", "output_mode": "output_type"}
"""Options that are right or wrong only beside another one."""
_LEFT_OUT: Any = object()
"""Stands for an option that the document leaves to the constructor."""


def make_agent(parts: Parts, name: str, spec: declared.AnySpec) -> Any:
    """Return the agent, or `WRONG`; the parts know why, or the document did not fit."""
    made = parts.trial(SPEC, lambda: _made(parts, name, spec))
    return WRONG if parts.problems or not parts.fits(()) else made


def _made(parts: Parts, name: str, spec: declared.AnySpec) -> Any:
    match spec:
        case declared.GraphSpec():
            return _graph(parts, name, spec)
        case declared.PythonSpec():
            return _python(parts, name, spec)
        case _:
            return _of_options(parts, name, spec)


def _of_options(parts: Parts, name: str, spec: declared.AgentSpec) -> Any:
    options = make_options(parts, spec)
    if isinstance(spec, declared.ChatSpec):
        _try_out(parts, name, options)
    elif right := _right(options.get("agents", ())):
        parts.trial((*SPEC, "agents"), lambda: SequentialAgent(name, agents=right))
    if any(map(_is_wrong, options.values())) or parts.problems or not parts.fits(SPEC):
        return WRONG
    return spec.made_by(name, **options)


def make_options(parts: Parts, spec: declared.AgentSpec) -> dict[str, Any]:
    """Return the options that a document gives to the constructor of its agent, with `WRONG` where one is wrong."""
    options: dict[str, Any] = {}
    for option in options_of(spec.made_by):
        field = _FIELDS.get(option, (option,))[0]
        if field in spec.__struct_fields__:
            make = _FORMS.get(option)
            options[option] = getattr(spec, field) if make is None else make(parts, spec)
    return {option: value for option, value in options.items() if value is not _LEFT_OUT}


def _try_out(parts: Parts, name: str, options: Mapping[str, Any]) -> None:
    """Report what an agent refuses of its options, each in its place, also if others are missing or wrong."""
    refused: set[str] = set()

    def refuses(path: Path, option: str, value: Any) -> bool:
        given: dict[str, Any] = {"model": STAND_IN, option: value}
        beside = _JUDGED_BESIDE.get(option)
        if beside is not None and beside in options:
            given[beside] = options[beside]
            if beside in refused or _is_wrong(given[beside]):
                return False
        if parts.trial(path, lambda: ChatModelAgent(name, **given)) is not WRONG:
            return False
        refused.add(option)
        return True

    known = options_of(ChatModelAgent)
    for option, value in options.items():
        path = (*SPEC, *_FIELDS.get(option, (option,)))
        if option not in known:
            continue
        if isinstance(value, list):
            each = list(enumerate(cast("list[Any]", value)))
            right = [
                item for number, item in each if item is not WRONG and not refuses((*path, number), option, [item])
            ]
            refuses(path, option, right)
        elif value is not WRONG and parts.fits(path):
            refuses(path, option, value)


def _retry(parts: Parts, spec: declared.ChatSpec) -> Any:
    if not parts.fits((*SPEC, "model")) or not isinstance(spec.model, declared.ModelSpec) or spec.model.retry is None:
        return _LEFT_OUT
    return retry_of(spec.model.retry)


def _limits(parts: Parts, spec: declared.ChatSpec) -> Any:
    return None if spec.limits is None else Limits(**given_in(spec.limits))


def _is_wrong(value: Any) -> bool:
    return value is WRONG or (isinstance(value, list) and WRONG in value)


def _right(values: Sequence[Any]) -> list[Any]:
    return [value for value in values if value is not WRONG]


def _output_type(parts: Parts, spec: declared.ChatSpec) -> Any:
    return parts.python(spec.output_type) if isinstance(spec.output_type, str) else spec.output_type


def _backend(parts: Parts, spec: declared.DeepAgentSpec) -> Any:
    if isinstance(spec.files, declared.FolderSpec):
        return FolderBackend(parts.surroundings.inside(spec.files.folder))
    return None if spec.files is None else MemoryBackend()


def _role(parts: Parts, role: declared.RoleSpec, name: str) -> Any:
    if role is WRONG or not parts.fits((*SPEC, name)):
        return WRONG
    if role.model is not None and role.agent is None:
        return parts.model(role.model, (*SPEC, name, "model"))
    if role.agent is not None and role.model is None:
        return parts.agent(role.agent, (*SPEC, name, "agent"))
    return parts.wrong((*SPEC, name), "this is either a 'model' or an 'agent'", "Give one of them.")


# Options that have another form in files; the others have the value that is there.
_FORMS: dict[str, Callable[[Parts, Any], Any]] = {
    "model": lambda parts, spec: parts.model(spec.model, (*SPEC, "model")),
    "failover": lambda parts, spec: parts.fallbacks(spec.model, (*SPEC, "model")),
    "retry": _retry,
    "tools": lambda parts, spec: parts.tools(spec.tools, (*SPEC, "tools")),
    "middleware": lambda parts, spec: make_middleware(parts, spec.middleware, (*SPEC, "middleware")),
    "exit_tool": lambda parts, spec: ExitTool() if spec.exit_tool else None,
    "output_type": lambda parts, spec: parts.attempt((*SPEC, "output_type"), lambda: _output_type(parts, spec)),
    "limits": lambda parts, spec: parts.attempt((*SPEC, "limits"), lambda: _limits(parts, spec)),
    "agents": lambda parts, spec: parts.agents(spec.agents, (*SPEC, "agents")),
    "sub_agents": lambda parts, spec: parts.agents(spec.sub_agents, (*SPEC, "sub_agents")),
    "backend": lambda parts, spec: parts.attempt((*SPEC, "files"), lambda: _backend(parts, spec)),
    "planner": lambda parts, spec: _role(parts, spec.planner, "planner"),
    "executor": lambda parts, spec: _role(parts, spec.executor, "executor"),
    "replanner": lambda parts, spec: _role(parts, spec.replanner, "replanner"),
}


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
