"""Sessions without their programs: their status, questions and answers, history, forks, and removal."""

from ._audit import AuditEntry
from ._inbox import InboxFilter, Page
from ._inputs import WaitingInput
from ._permission import MayAnswer
from ._questions import Answers
from ._status import SessionStatus, SessionSummary
from ._verify import Problem, Verification
from ._watch import Notice, QuestionAsked, SessionEnded
from .history import Checkpoint, Diff, Tree
from .sessions import Sessions

__all__ = [
    "Answers",
    "AuditEntry",
    "Checkpoint",
    "Diff",
    "InboxFilter",
    "MayAnswer",
    "Notice",
    "Page",
    "Problem",
    "QuestionAsked",
    "SessionEnded",
    "SessionStatus",
    "SessionSummary",
    "Sessions",
    "Tree",
    "Verification",
    "WaitingInput",
]
