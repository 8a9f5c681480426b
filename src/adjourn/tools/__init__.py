"""Tools: functions that models call, and the decisions people make about those calls."""

from adjourn.errors import InvalidArguments, ToolError, ToolRefused
from adjourn.models.protocol import ToolSpec

from ._arguments import result_text
from .approval import Approval
from .builtin import ExitTool, FollowUpInfo, follow_up
from .decisions import (
    APPROVAL_SCHEMA,
    Approve,
    Decision,
    Edit,
    Reject,
    Respond,
    ToolCallInfo,
    approval_schema,
    decision,
    fits_pattern,
    review_schema,
)
from .paths import PathPattern
from .tool import MAX_RESULT, Tool, tool
from .wrappers import approved, reviewed

__all__ = [
    "APPROVAL_SCHEMA",
    "MAX_RESULT",
    "Approval",
    "Approve",
    "Decision",
    "Edit",
    "ExitTool",
    "FollowUpInfo",
    "InvalidArguments",
    "PathPattern",
    "Reject",
    "Respond",
    "Tool",
    "ToolCallInfo",
    "ToolError",
    "ToolRefused",
    "ToolSpec",
    "approval_schema",
    "approved",
    "decision",
    "fits_pattern",
    "follow_up",
    "result_text",
    "review_schema",
    "reviewed",
    "tool",
]
