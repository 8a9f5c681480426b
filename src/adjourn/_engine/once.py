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
from adjourn.errors import NotStorable, UsageError

from .frame import Entry, Place, UserFrame, current_place
from .memos import Key, Kind
from .scope import RunCancelled
from .values import decoded

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
    """Keep a function's result in the frame that calls it, and give it back when the frame is rerun.

    A call is identified by `key` (a text, or a function of the arguments), else by name, arguments and position among
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

    def of(self, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Key:
        """Return the key of this call, computed when the function is called, so that concurrent calls cannot swap."""
        which = self._key(*args, **kwargs) if callable(self._key) else self._key or self._fingerprint(args, kwargs)
        return entry.next(Kind.ONCE, self.name, str(which))

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
        place = current_place.get()
        if place is None or place.once is not None:
            return fn(*args, **kwargs)
        key = naming.of(place.entry, args, kwargs)
        return _keep_async(place, key, lambda: fn(*args, **kwargs))

    return call


def _sync_once(fn: Callable[..., Any], naming: _Naming) -> Callable[..., Any]:
    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        place = current_place.get()
        if place is None or place.once is not None:
            return fn(*args, **kwargs)
        key = naming.of(place.entry, args, kwargs)
        return _keep_sync(place, key, lambda: fn(*args, **kwargs))

    return call


async def _keep_async(place: Place, key: Key, call: Call) -> Any:
    entry, journal = place.entry, place.frame.scope.journal
    place.check()
    if (memo := entry.replay(key)) is not None:
        return decoded(memo.result)
    straight = _begin(entry, key)
    token = current_place.set(place.within(once=key))
    try:
        with entry.under_way():
            await journal.assure()
            value = await call()
            place.check()
            _keep(entry, key, value, straight)
            await journal.durable()
    except BaseException:
        _note_failure(place, key)
        raise
    finally:
        current_place.reset(token)
    return value


def _keep_sync(place: Place, key: Key, call: Call) -> Any:
    entry, scope = place.entry, place.frame.scope
    place.check()
    if (memo := entry.replay(key)) is not None:
        return decoded(memo.result)
    straight = _begin(entry, key)
    token = current_place.set(place.within(once=key))
    try:
        value = call()
    except BaseException:
        scope.on_loop(_note_failure)(place, key)
        raise
    finally:
        current_place.reset(token)
    scope.on_loop(lambda: place.check() or _keep(entry, key, value, straight))()
    if threading.get_ident() != scope.thread:
        # In a thread it can be waited for; on the loop itself it is durable with the next commit.
        asyncio.run_coroutine_threadsafe(scope.journal.durable(), scope.loop).result()
    return value


def _begin(entry: Entry, key: Key) -> bool:
    """Check that a new call may be made now, and return whether the code's main flow makes it."""
    _check_going_on(entry.frame)
    straight = entry.is_straight()
    if straight:
        entry.check_order(key)
    return straight


def _check_going_on(frame: UserFrame) -> None:
    if frame.stops_between_calls and frame.scope.cancellation.mode is not None:
        raise RunCancelled


def _keep(entry: Entry, key: Key, value: object, straight: bool) -> None:
    writes = entry.wrote.pop(key, {}) if entry.wrote else {}
    entry.keep(key, value, writes, concurrent=not straight)


def _note_failure(place: Place, key: Key) -> None:
    frame = place.frame
    if not place.is_over and frame.scope.closed is None and frame.kept(key) is None:
        frame.make_optional(key)


def idempotency_key(place: Place) -> str:
    """Return a key for this call: the same across attempts, crashes and resumes, new for each pass, turn and fork."""
    frame = place.frame
    once = "" if place.once is None else str(place.once)
    parts = (frame.scope.session_id, frame.scope.branch, place.address, frame.instance, once)
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()
