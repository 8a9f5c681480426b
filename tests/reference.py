"""Writes docs/reference.md: every public name with its first sentence, and options. Run `python -m tests.reference`."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator
from importlib import import_module
from typing import Any

import adjourn
from adjourn import agents, runner
from adjourn._options import options_of
from tests.test_docs import ROOT

PAGE = ROOT / "docs" / "reference.md"
GUIDES = {
    "agents": "agents.md",
    "client": "client.md",
    "context": "agents.md",
    "dbos": "queues.md",
    "errors": "errors.md",
    "events": "events.md",
    "graph": "graphs.md",
    "interrupts": "agents.md",
    "messages": "agents.md",
    "middleware": "middleware.md",
    "models": "models.md",
    "printing": "command-line.md",
    "runner": "sessions.md",
    "server": "service.md",
    "sessions": "sessions.md",
    "spec": "yaml.md",
    "stores": "stores.md",
    "testing": "testing.md",
    "tools": "agents.md",
    "webhooks": "webhooks.md",
    "workflows": "workflows.md",
}
ALIASES = {
    "OutputMode": 'How a structured answer is asked for: `"native"`, `"tool"` or `"prompt"`.',
    "NoticeKind": 'What others are told of: `"interrupt"`, `"done"`, `"error"` or `"expiring"`.',
    "ALL_QUESTIONS": "The filter that selects every open question.",
    "Answers": "What answers can be: a mapping of questions, tokens, ids or keys to data, or questions without data.",
    "APPROVAL_SCHEMA": "The schema of answers to an approval when the schema of the arguments is unknown.",
    "CALLS_PER_ANSWER": "How many tools a model may call in one answer, unless its agent says otherwise.",
    "ChatModel": "A model: anything that generates a message, or streams its pieces.",
    "Decision": "An answer to an approval: `Approve`, `Reject`, `Edit` or `Respond`.",
    "END": "Where a graph ends, as a target of edges and commands.",
    "Event": "Every event of a run, as a union.",
    "MAX_RESULT": "How many characters of a tool's result a model is shown, unless the tool says otherwise.",
    "MayAnswer": "A function that says whether somebody may answer a question: `Runner(may_answer=...)`.",
    "NodeCall": "The rest of a node's call, which `Middleware.wrap_node` goes on with.",
    "Notice": "What `Sessions.subscribe` reports.",
    "Outcome": "How a question ended: answered, expired or abandoned.",
    "Part": "A part of a message: text, an image, and so on.",
    "RemoteNotice": "What `Client.subscribe` reports.",
    "Role": "Who says a message: system, user, assistant or tool.",
    "ScriptItem": "What a `ScriptedModel` can be given: a text, a message, tool calls, chunks, an error or a function.",
    "START": "Where a graph begins, as a source of edges.",
    "Status": "The status of a session: queued, running, waiting, failed, cancelled or done.",
    "Watched": "What a `Reader` reads.",
    "Yielded": "What a custom agent may yield.",
}


def public_names(package: str) -> list[str]:
    """Return the names of a public module."""
    module = import_module(f"adjourn.{package}")
    if package == "printing":
        return ["print_event"]
    named = getattr(module, "__all__", None)
    if named is None:
        named = [name for name, value in vars(module).items() if _is_own(value, module.__name__)]
    return sorted(name for name in named if not name.startswith("_"))


def _is_own(value: Any, module: str) -> bool:
    return (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__ == module


def sentence(package: str, name: str) -> str:
    """Return what the docstring says first."""
    value = getattr(import_module(f"adjourn.{package}"), name)
    if not inspect.isclass(value) and not inspect.isfunction(value):
        return ALIASES[name]
    return " ".join((inspect.getdoc(value) or "").partition("\n\n")[0].split()).replace("|", "\\|")


OPTIONS: dict[str, Any] = {
    "Runner": runner.Options,
    "ChatModelAgent": agents.ChatModelAgent,
    "Supervisor": agents.Supervisor,
    "DeepAgent": agents.DeepAgent,
    "SequentialAgent": agents.SequentialAgent,
    "ParallelAgent": agents.ParallelAgent,
    "LoopAgent": agents.LoopAgent,
    "PlanExecute": agents.PlanExecute,
    "GraphAgent": agents.GraphAgent,
}
"""Whose options are listed, and where they are declared."""


def option_rows(declared: Any) -> Iterator[str]:
    """Return a row of a table for every option; those that only pass through to a `ChatModelAgent` are listed there."""
    known: Collection[str] = ()
    if inspect.isclass(declared) and agents.ChatModelAgent in declared.__mro__[1:]:
        known = {each.text for each in options_of(agents.ChatModelAgent).values()}
    yield f"| Option | {'beside those of `ChatModelAgent`' if known else 'what it does'} |"
    yield "|---|---|"
    for name, option in options_of(declared).items():
        if option.text not in known:
            text = option.text.replace("|", "\\|")
            yield f"| `{name}` | {text} |"


def lines() -> Iterator[str]:
    yield "# Every name\n"
    yield "What is public, with a sentence each and the page that explains it. Names with a star are importable from"
    yield "`adjourn` itself; the others from their module. What starts with an underscore is ours, and may change.\n"
    yield "`python -m tests.reference` writes this page from the docstrings. The options of runners and agents are"
    yield "[at its end](#options-of-runner).\n"
    yield "`stored` ★ is a decorator that registers a class under a name, so that its objects can be stored; see"
    yield "[stores](stores.md). `Secret` ★ is a value that code can use and nobody gets to see; see"
    yield "[security](security.md#secrets)."
    for package, guide in GUIDES.items():
        yield f"\n## adjourn.{package}\n"
        yield f"See [{guide}]({guide}).\n"
        yield "| Name | |"
        yield "|---|---|"
        for name in public_names(package):
            star = " ★" if name in adjourn.__all__ else ""
            yield f"| `{name}`{star} | {sentence(package, name)} |"
    for name, declared in OPTIONS.items():
        yield f"\n## Options of `{name}`\n"
        yield from option_rows(declared)


if __name__ == "__main__":
    PAGE.write_text("\n".join(lines()) + "\n", encoding="utf-8")
