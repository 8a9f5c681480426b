"""Middleware by name, made from what a document says."""

from __future__ import annotations

from functools import singledispatch
from typing import Any, get_args

from adjourn import middleware as ready

from . import _declared as declared
from ._declared import PYTHON
from ._fitting import WRONG, Path
from ._parts import Parts, given_in, items_of


def make_middleware(parts: Parts, given: declared.Middlewares, path: Path) -> list[Any]:
    """Return the middleware; in place of what is wrong, `WRONG`."""
    made: list[Any] = []
    for number, each in enumerate(items_of(given)):
        at = (*path, number)
        made.append(parts.attempt(at, lambda each=each, at=at: _one(parts, each, at)))
    return made


def _one(parts: Parts, given: str | declared.AnyMiddleware, path: Path) -> Any:
    if isinstance(given, str):
        return parts.python(given) if given.startswith(PYTHON) else _made(_BY_NAME[given](), parts, path)
    return _made(given, parts, path)


_BY_NAME: dict[str, Any] = {str(each.__struct_config__.tag): each for each in get_args(declared.AnyMiddleware)}
_OF_OPTIONS: dict[type[Any], Any] = {
    declared.CallLimitsSpec: ready.CallLimits,
    declared.LogCallsSpec: ready.LogCalls,
    declared.PatchToolCallsSpec: ready.PatchToolCalls,
    declared.ReduceToolResultsSpec: ready.ReduceToolResults,
    declared.TaskBoardSpec: ready.TaskBoard,
    declared.TodoListSpec: ready.TodoList,
}
"""Those that just have options, of the same names."""


@singledispatch
def _made(spec: declared.MiddlewareSpec, parts: Parts, path: Path) -> Any:
    return _OF_OPTIONS[type(spec)](**given_in(spec))


@_made.register
def _(spec: declared.ApprovalPolicySpec, parts: Parts, path: Path) -> Any:
    rules = [ready.ApprovalRule(**given_in(rule)) for rule in spec.rules]
    for number, rule in enumerate(rules):
        if rule.action == "ask":
            parts.asks.append(((*path, "rules", number), "this rule asks a person"))
    return ready.ApprovalPolicy(rules)


@_made.register
def _(spec: declared.FileToolsSpec, parts: Parts, path: Path) -> Any:
    if spec.approval:
        parts.asks.append(((*path, "approval"), "changes of files need approval"))
    backend = None if spec.folder is None else ready.FolderBackend(parts.surroundings.inside(spec.folder))
    return ready.FileTools(backend, read_only=spec.read_only, approval=spec.approval)


@_made.register
def _(spec: declared.ProjectInstructionsSpec, parts: Parts, path: Path) -> Any:
    return ready.ProjectInstructions(*map(parts.surroundings.inside, spec.paths))


@_made.register
def _(spec: declared.RedactPIISpec, parts: Parts, path: Path) -> Any:
    kinds: dict[str, Any] = {} if spec.kinds is None else {"kinds": spec.kinds}
    return ready.RedactPII(**kinds, patterns=spec.patterns, answers=spec.answers)


@_made.register
def _(spec: declared.SkillsSpec, parts: Parts, path: Path) -> Any:
    return ready.Skills(parts.surroundings.inside(spec.folder), ignore=spec.ignore)


@_made.register
def _(spec: declared.SummarizeSpec, parts: Parts, path: Path) -> Any:
    model = parts.model(spec.model, (*path, "model"))
    return model if model is WRONG else ready.Summarize(model, **given_in(spec, but="model"))


@_made.register
def _(spec: declared.ToolSearchSpec, parts: Parts, path: Path) -> Any:
    tools = parts.tools(spec.tools, (*path, "tools"))
    return WRONG if WRONG in tools else ready.ToolSearch(tools, limit=spec.limit)
