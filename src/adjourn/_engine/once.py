"""`@once`: functions whose result is kept in the frame that called them."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import inspect
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ParamSpec, TypeVar, overload

from adjourn._values import codec
from adjourn.errors import NotStorable, ReplayMismatch, UsageError

from .frame import Place, UserFrame, decoded, here
from .scope import RunCancelled

P = ParamSpec("P")
R = TypeVar("R")
Call = Callable[[], Any]


@overload
def once(fn: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def once(
    *, name: str | None = None, key: str | Callable[..., str] | None = None, ignore: Sequence[str] = ()
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def once(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    key: str | Callable[..., str] | None = None,
    ignore: Sequence[str] = (),
) -> Any:
    """Keep a function's result in the frame that calls it: when the frame runs again, it is given back.

    A call is known by `key` (a text, or a function of the arguments), else by name, arguments and its place among
    equal calls. Arguments named in `ignore` do not count. Exceptions are not kept. Outside a run it just runs.
    """

    def mark(fn: Callable[..., Any]) -> Callable[..., Any]:
        naming = _Naming(fn, name or fn.__qualname__.rpartition(".")[2], key, ignore)
        return _async_once(fn, naming) if inspect.iscoroutinefunction(fn) else _sync_once(fn, naming)

    return mark if fn is None else mark(fn)


class _Naming:
    """Gives each call of one function its name in the frame."""

    def __init__(
        self, fn: Callable[..., Any], name: str, key: str | Callable[..., str] | None, ignore: Sequence[str]
    ) -> None:
        self.name = name
        self._key = key
        self._signature = inspect.signature(fn)
        unknown = set(ignore) - set(self._signature.parameters)
        if unknown:
            raise UsageError(
                f"@once on '{name}' ignores {', '.join(sorted(unknown))}, which it does not have as parameters."
            )
        self._ignore = frozenset(ignore)

    def of(self, frame: UserFrame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """The name of this call; it is taken when the function is called, so that concurrent calls cannot swap."""
        which = self._key(*args, **kwargs) if callable(self._key) else self._key or self._fingerprint(args, kwargs)
        what = f"once:{self.name}:{which}"
        return f"{what}:{frame.occurrence(what)}"

    def _fingerprint(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        counted = {name: value for name, value in bound.arguments.items() if name not in self._ignore}
        try:
            return codec.fingerprint(counted)
        except NotStorable as error:
            raise NotStorable(
                f"{self.name}({error.path})",
                None,
                f"Leave it out of the comparison with @once(ignore=[...]), or give @once a key. ({error})",
            ) from error


def _async_once(fn: Callable[..., Any], naming: _Naming) -> Callable[..., Any]:
    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        at = here.get()
        if at is None or at.once is not None:
            return fn(*args, **kwargs)
        memo = naming.of(at.frame, args, kwargs)
        return _keep_async(at, memo, naming.name, lambda: fn(*args, **kwargs))

    return call


def _sync_once(fn: Callable[..., Any], naming: _Naming) -> Callable[..., Any]:
    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        at = here.get()
        if at is None or at.once is not None:
            return fn(*args, **kwargs)
        memo = naming.of(at.frame, args, kwargs)
        return _keep_sync(at, memo, naming.name, lambda: fn(*args, **kwargs))

    return call


async def _keep_async(at: Place, memo: str, name: str, call: Call) -> Any:
    frame = at.frame
    at.check()
    if (raw := frame.kept(memo)) is not None:
        frame.repeat_values(memo)
        return decoded(raw)
    _check_going_on(frame)
    straight = frame.is_straight()
    if straight:
        _check_order(frame, memo, name)
    token = here.set(at.within(once=memo))
    under_way: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    frame.busy = frame.busy or set()
    frame.busy.add(under_way)
    try:
        await frame.scope.journal.assure()
        value = await call()
        at.check()
        _keep(frame, memo, value, straight)
        await frame.scope.journal.durable()
    except BaseException:
        _note_failure(at, memo)
        raise
    finally:
        here.reset(token)
        frame.busy.discard(under_way)
        under_way.set_result(None)
    return value


def _keep_sync(at: Place, memo: str, name: str, call: Call) -> Any:
    frame, scope = at.frame, at.frame.scope
    at.check()
    if (raw := frame.kept(memo)) is not None:
        frame.repeat_values(memo)
        return decoded(raw)
    _check_going_on(frame)
    straight = frame.is_straight()
    if straight:
        _check_order(frame, memo, name)
    token = here.set(at.within(once=memo))
    try:
        value = call()
    except BaseException:
        scope.on_loop(_note_failure)(at, memo)
        raise
    finally:
        here.reset(token)
    scope.on_loop(lambda: at.check() or _keep(frame, memo, value, straight))()
    if threading.get_ident() != scope.thread:
        # In a thread it can be waited for; on the loop itself it is durable with the next commit.
        asyncio.run_coroutine_threadsafe(scope.journal.durable(), scope.loop).result()
    return value


def _keep(frame: UserFrame, memo: str, value: object, straight: bool) -> None:
    frame.keep(memo, value)
    if not straight:
        frame.set_beside(memo)
    if frame.wrote:
        frame.keep_values(memo, frame.wrote.pop(memo, {}))


def _note_failure(at: Place, memo: str) -> None:
    if not at.is_over and at.frame.scope.closed is None and at.frame.kept(memo) is None:
        at.frame.loosen(memo)


def _check_going_on(frame: UserFrame) -> None:
    if frame.stops_between_calls and frame.scope.cancel_mode is not None:
        raise RunCancelled


def _check_order(frame: UserFrame, memo: str, name: str) -> None:
    """In straight code, a new call cannot come while an earlier one of the same function has not come again."""
    if frame.memos is None or frame.is_loose(memo):
        return
    for missed in frame.unused(f"once:{name}:"):
        if not frame.is_beside(missed):
            frame.fault = ReplayMismatch(frame.address, f"the kept call {missed}", f"the call {memo}")
            raise frame.fault


def idempotency_key(at: Place) -> str:
    """A key for this very call: equal over attempts, crashes and resumes, new for each pass, turn, fork and edit."""
    scope = at.frame.scope
    parts = (scope.session_id, scope.branch, at.address, at.frame.instance, at.once or "")
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()
