"""What files say about middleware."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta

from .parts import Count, FallbackSpec, ModelName, Part, Texts, Tools


class MiddlewareSpec(Part, tag_field="name", frozen=True, kw_only=True):
    """Middleware, by its name."""


class ApprovalRuleSpec(Part, frozen=True, kw_only=True):
    """What to do with calls of some tools.

    tool: the name of the tool; * is a wildcard.
    arguments: the values that some arguments must have; in a text, * matches anything.
    action: whether to ask a person, to allow the call, or to deny it.
    reason: what the model is told when a call is denied.
    """

    tool: str = "*"
    arguments: dict[str, Any] | None = None
    action: Literal["ask", "allow", "deny"] = "ask"
    reason: str = ""


class ApprovalPolicySpec(MiddlewareSpec, tag="approval_policy", frozen=True, kw_only=True):
    """Decides by rules whether a call needs approval.

    rules: the first that fits a call decides; otherwise the tool's own approval does.
    """

    rules: list[ApprovalRuleSpec]


class CallLimitsSpec(MiddlewareSpec, tag="call_limits", frozen=True, kw_only=True):
    """Limits the calls of a session.

    model_calls: how often the model may be called.
    tool_calls: how often tools may be called.
    tokens: how many tokens may be used.
    tools: how often single tools may be called, by name.
    on_limit: tell the model, or raise an error.
    """

    model_calls: Count | None = None
    tool_calls: Count | None = None
    tokens: Count | None = None
    tools: dict[str, Annotated[int, Meta(ge=0)]] = {}
    on_limit: Literal["tell", "raise"] = "tell"


class FileToolsSpec(MiddlewareSpec, tag="file_tools", frozen=True, kw_only=True):
    """Gives an agent files.

    folder: where the files are, relative to the folder of agents; by default they are stored with the session.
    read_only: whether to leave out the tools that change files.
    approval: whether a person must approve each change.
    """

    folder: str | None = None
    read_only: bool = False
    approval: bool = False


class LogCallsSpec(MiddlewareSpec, tag="log_calls", frozen=True, kw_only=True):
    """Logs the calls of models and tools.

    content: whether to log what was said, too.
    """

    content: bool = False


class PatchToolCallsSpec(MiddlewareSpec, tag="patch_tool_calls", frozen=True, kw_only=True):
    """Answers calls that were left without a result."""


class ProjectInstructionsSpec(MiddlewareSpec, tag="project_instructions", frozen=True, kw_only=True):
    """Adds the text of files to the instruction.

    paths: the files, or folders with an AGENTS.md, relative to the folder of agents.
    """

    paths: Annotated[Texts, Meta(min_length=1)]


class RedactPIISpec(MiddlewareSpec, tag="redact_pii", frozen=True, kw_only=True):
    """Replaces e-mail addresses, card numbers and the like before the model sees them.

    kinds: which of them; all by default.
    patterns: further regular expressions, by the name of what they find.
    answers: whether to replace them in answers, too.
    """

    kinds: list[Literal["email", "iban", "card", "phone", "ip"]] | None = None
    patterns: dict[str, str] = {}
    answers: bool = True


class ReduceToolResultsSpec(MiddlewareSpec, tag="reduce_tool_results", frozen=True, kw_only=True):
    """Truncates long results of tools, and clears old ones.

    max_chars: how long a result may be.
    clear_at: how many tokens a conversation has before old results are cleared.
    keep: how many of the newest results are kept.
    """

    max_chars: Count = 20_000
    clear_at: Count = 50_000
    keep: Annotated[int, Meta(ge=0)] = 5


class SkillsSpec(MiddlewareSpec, tag="skills", frozen=True, kw_only=True):
    """Lists skills to an agent, which it reads when it needs them.

    folder: where they are, relative to the folder of agents.
    ignore: keys in the front matter of skills that are to be ignored instead of refused.
    """

    folder: str
    ignore: Texts = []


class SummarizeSpec(MiddlewareSpec, tag="summarize", frozen=True, kw_only=True):
    """Replaces the beginning of a long conversation by a summary.

    model: the model that writes the summary.
    tokens: how many tokens a conversation has before it is summarized.
    messages: how many messages a conversation has before it is summarized.
    keep: how many of the newest messages are kept.
    """

    model: ModelName | FallbackSpec
    tokens: Count = 100_000
    messages: Count | None = None
    keep: Count = 20


class TaskBoardSpec(MiddlewareSpec, tag="task_board", frozen=True, kw_only=True):
    """Gives agents a board of tasks that depend on one another."""


class TodoListSpec(MiddlewareSpec, tag="todo_list", frozen=True, kw_only=True):
    """Gives an agent a to-do list.

    key: the session value that holds it.
    """

    key: str = "todos"


class ToolSearchSpec(MiddlewareSpec, tag="tool_search", frozen=True, kw_only=True):
    """Gives an agent tools that its model sees only after searching for them.

    tools: the tools.
    limit: how many tools a search finds.
    """

    tools: Tools
    limit: Count = 5


AnyMiddleware: TypeAlias = (
    ApprovalPolicySpec
    | CallLimitsSpec
    | FileToolsSpec
    | LogCallsSpec
    | PatchToolCallsSpec
    | ProjectInstructionsSpec
    | RedactPIISpec
    | ReduceToolResultsSpec
    | SkillsSpec
    | SummarizeSpec
    | TaskBoardSpec
    | TodoListSpec
    | ToolSearchSpec
)
BY_NAME_ALONE = (
    "file_tools",
    "log_calls",
    "patch_tool_calls",
    "redact_pii",
    "reduce_tool_results",
    "task_board",
    "todo_list",
)
"""Middleware that can be named without options."""
MiddlewareRef: TypeAlias = Annotated[
    str,
    Meta(
        pattern=rf"^(python://[A-Za-z_][\w.]*:[A-Za-z_][\w.]*|{'|'.join(BY_NAME_ALONE)})$",
        examples=list(BY_NAME_ALONE),
        extra={"kind": "middleware"},
    ),
]
Middlewares: TypeAlias = list[MiddlewareRef | AnyMiddleware]
