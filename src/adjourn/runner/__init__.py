"""Running programs in sessions: `Runner`, `Run` and their results."""

from adjourn.sessions import Checkpoint, Diff, SessionStatus, Tree

from ._settings import Options, ProgramOptions
from .result import RunResult
from .run import Run
from .runner import Runner

__all__ = ["Checkpoint", "Diff", "Options", "ProgramOptions", "Run", "RunResult", "Runner", "SessionStatus", "Tree"]
