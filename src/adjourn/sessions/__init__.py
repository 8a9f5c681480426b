"""Sessions without their programs: their status, questions and answers, history, forks, and removal."""

from ._permission import MayAnswer
from ._questions import Answers
from ._status import SessionStatus
from ._watch import Notice, QuestionAsked, SessionEnded
from .history import Checkpoint, Diff, Tree
from .sessions import AuditEntry, Sessions

__all__ = [
    "Answers",
    "AuditEntry",
    "Checkpoint",
    "Diff",
    "MayAnswer",
    "Notice",
    "QuestionAsked",
    "SessionEnded",
    "SessionStatus",
    "Sessions",
    "Tree",
]
