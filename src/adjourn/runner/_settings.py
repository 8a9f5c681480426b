"""The options of a runner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Literal, TypedDict, cast

import msgspec

from adjourn._checks import check_middleware, is_count, is_positive
from adjourn._engine.record import MAX_BYTES
from adjourn._engine.values import adopt_value
from adjourn._generics import Deps
from adjourn._habits import WITHOUT_RETRY, check_known
from adjourn._temporary import temporary_id
from adjourn._values.frozen import check_json
from adjourn.errors import UsageError
from adjourn.sessions import SessionStatus
from adjourn.sessions._permission import MayAnswer
from adjourn.sessions._settings import AuditKey, Settings, check_name, choice, random_id
from adjourn.stores import InTransaction, Store

from ._notices import Notify

Durability = Literal["step", "pause", "async"]
AfterTransfer = Literal["stay", "root"]


class Options(TypedDict, Generic[Deps], total=False):
    """The options of a runner, as keyword arguments.

    store: where sessions are kept: a store or its URL, such as "sqlite:///file.db"; None keeps them in this runner.
    deps: what code of a run finds as `current().deps` when a call gives none: a value, or a function of the status.
    values: the session values that a new session begins with; what later calls and code write lies over them.
    require_token: whether an approval must be answered by its token, so that it counts only for what was shown.
    streaming: whether models are asked for their answers piece by piece; True by default.
    durability: when a step is stored: "step" before it is reported, "async" while the next runs, "pause" at pauses.
    app_name: whose sessions these are, as the same id in another app is another session; "adjourn" by default.
    require_by: True refuses an approval that does not say who gave it, as `by`.
    may_answer: a function of a question, `by` and the turn's user, which returns True or why the answer is refused.
    self_approval: False if an approval counts only by somebody who is none of its requesters; True by default.
    notify: who is told of pauses and ends, such as `Webhooks([...])`; None tells nobody.
    audit_key: a secret that signs the log, so that nobody without it can change the log unnoticed; or several.
    middleware: what wraps the calls of models and tools in every agent that this runner runs.
    interrupts: False makes every question an error, for programs that nobody answers.
    after_transfer: who takes the next turn after a transfer: "stay" (whoever has it; the default) or "root".
    max_concurrency: how many nodes of one run may work at once; None for no limit.
    lease_ttl: seconds after which a session whose process does not respond may be taken over; 30 by default.
    store_timeout: seconds that a run waits for a store that does not answer, before it fails; 30 by default.
    max_session_bytes: what a session may hold; a run that would store more fails. 256 MiB by default, and at most.
    clock: a function that returns the time in seconds since 1970, such as a fake for tests; `time.time` by default.
    new_id: a function that returns ids for sessions and branches; random ones by default.
    """

    store: Store | str | None
    deps: Deps | Callable[[SessionStatus], Deps] | None
    values: Mapping[str, Any]
    require_token: bool
    streaming: bool
    durability: Durability
    app_name: str
    require_by: bool
    may_answer: MayAnswer | None
    self_approval: bool
    notify: Notify | None
    audit_key: AuditKey | None
    middleware: Sequence[Any]
    interrupts: bool
    after_transfer: AfterTransfer
    max_concurrency: int | None
    lease_ttl: float
    store_timeout: float
    max_session_bytes: int
    clock: Callable[[], float] | None
    new_id: Callable[[], str] | None


class ProgramOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a runner that are for its program: the engine carries them along, and programs read them."""

    streaming: bool = True
    middleware: tuple[Any, ...] = ()
    after_transfer: AfterTransfer = "stay"


class RunnerSettings(Settings):
    """The options of a runner, checked."""

    app: str

    def __init__(self, options: Options) -> None:
        check_known("Runner", options, Options.__annotations__, WITHOUT_RETRY)
        store, self.app = options.get("store"), options.get("app_name", "adjourn")
        check_name("app_name", self.app)  # One app runs the programs, so None, for all apps, is not valid here.
        super().__init__(
            store,
            self.app,
            options.get("clock"),
            options.get("new_id"),
            require_token=options.get("require_token", False),
            require_by=options.get("require_by", False),
            may_answer=options.get("may_answer"),
            self_approval=options.get("self_approval", True),
            audit_key=options.get("audit_key"),
        )
        self.has_own_store: bool = store is None
        self.is_in_transaction: bool = isinstance(self.store, InTransaction) and self.store.is_in_transaction
        self.notify: Notify | None = options.get("notify")
        if self.notify is not None and not hasattr(self.notify, "notices"):
            raise UsageError(f"notify={self.notify!r}: give an object with a method `notices`, such as `Webhooks`.")
        self.deps: Any = options.get("deps")
        self.values: dict[str, Any] = _values(options.get("values", {}))
        self.durability: Durability = options.get("durability", "pause" if self.has_own_store else "step")
        if self.durability not in ("step", "pause", "async"):
            raise UsageError(f"durability={self.durability!r}: use 'step', 'pause' or 'async'.")
        self.program: ProgramOptions = _program_options(options)
        self.interrupts: bool = choice("interrupts", options.get("interrupts", True))
        self.max_concurrency: int | None = options.get("max_concurrency")
        if self.max_concurrency is not None and not is_count(self.max_concurrency):
            raise UsageError(f"max_concurrency={self.max_concurrency!r}: give 1 or more, or None for no limit.")
        self.lease_ttl: float = _seconds("lease_ttl", options.get("lease_ttl", 30.0))
        self.store_timeout: float = _seconds("store_timeout", options.get("store_timeout", 30.0))
        self.max_session_bytes: int = options.get("max_session_bytes", MAX_BYTES)
        if not is_count(self.max_session_bytes) or self.max_session_bytes > MAX_BYTES:
            raise UsageError(f"max_session_bytes={self.max_session_bytes!r}: give a number up to {MAX_BYTES}.")

    def new_session(self) -> str:
        """Return an id for a session that was given none; without a store, one that says so."""
        return temporary_id() if self.has_own_store and self.new_id is random_id else self.new_id()


def _program_options(options: Options) -> ProgramOptions:
    after_transfer = options.get("after_transfer", "stay")
    if after_transfer not in ("stay", "root"):
        raise UsageError(f"after_transfer={after_transfer!r}: use 'stay' or 'root'.")
    return ProgramOptions(
        streaming=choice("streaming", options.get("streaming", True)),
        middleware=check_middleware(_listing("middleware", options.get("middleware", ())), "Runner"),
        after_transfer=after_transfer,
    )


# What the checkpoints of an edit and of a fork are listed with.
_RESERVED = frozenset({"edited", "as_node", "at", "forked_from"})


def stored_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what a turn's checkpoints are listed with, as JSON.

    Raises:
        UsageError: it is not JSON, or has a name that is reserved.
    """
    if metadata is None:
        return {}
    try:
        check_json(metadata, "metadata")
        stored = msgspec.json.decode(msgspec.json.encode(metadata), type=dict[str, Any])
    except (TypeError, ValueError) as error:
        raise UsageError(f"metadata={metadata!r}: give a mapping of names to JSON values ({error}).") from error
    for name in sorted(_RESERVED & stored.keys()):
        raise UsageError(f"metadata has '{name}', which edits and forks write. Choose another name.")
    return stored


def _values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that a new session begins with, as the runner's own."""
    if not isinstance(values, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
        raise UsageError(f"values={values!r}: give a mapping of names to session values.")
    return {name: adopt_value(name, value) for name, value in values.items()}


def _listing(name: str, values: Any) -> tuple[Any, ...]:  # Any: users pass anything
    if not isinstance(values, list | tuple):
        raise UsageError(f"{name}={values!r}: give a list.")
    return tuple(cast("Sequence[Any]", values))


def _seconds(name: str, value: float) -> float:
    if not is_positive(value):
        raise UsageError(f"{name}={value!r}: give seconds, a number above zero.")
    return value
