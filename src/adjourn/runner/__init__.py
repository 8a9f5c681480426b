"""Running programs in sessions: `Runner`, `Run` and what they give."""

from .result import RunResult, SessionStatus
from .run import Run
from .runner import Runner
from .settings import Options
from .travel import Checkpoint, Diff, Tree

__all__ = ["Checkpoint", "Diff", "Options", "Run", "RunResult", "Runner", "SessionStatus", "Tree"]
