"""Running programs in sessions: `Runner`, `Run` and their results."""

from adjourn.sessions import Checkpoint, Diff, SessionStatus, Tree

from ._notices import NoticeKind, Notify, Occasion
from ._opening import TurnOptions
from ._queue import Submission
from ._reader import CaughtUp, Reader, Watched
from ._settings import Options, ProgramOptions
from .agent_options import CALLS_PER_ANSWER, AgentOptions, Limits
from .result import RunResult
from .run import Run
from .runner import Runner
from .worker import Worker, WorkerCounts

__all__ = [
    "CALLS_PER_ANSWER",
    "AgentOptions",
    "CaughtUp",
    "Checkpoint",
    "Diff",
    "Limits",
    "NoticeKind",
    "Notify",
    "Occasion",
    "Options",
    "ProgramOptions",
    "Reader",
    "Run",
    "RunResult",
    "Runner",
    "SessionStatus",
    "Submission",
    "Tree",
    "TurnOptions",
    "Watched",
    "Worker",
    "WorkerCounts",
]
