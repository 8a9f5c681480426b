"""Running programs in sessions: `Runner`, `Run` and what they give."""

from ._settings import Options, ProgramOptions
from .history import Checkpoint, Diff, Tree
from .result import RunResult, SessionStatus
from .run import Run
from .runner import Runner

__all__ = ["Checkpoint", "Diff", "Options", "ProgramOptions", "Run", "RunResult", "Runner", "SessionStatus", "Tree"]
