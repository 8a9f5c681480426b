"""`@once`: functions whose result is kept in the frame that called them."""

from __future__ import annotations

import asyncio
import copy
import functools
import hashlib
import inspect
import threading
import warnings
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ParamSpec, TypeVar, get_type_hints, overload

import msgspec

from adjourn._values import codec
from adjourn._values.adopt import check_annotation
from adjourn.errors import NotStorable, UsageError

from .address import identity_of
from .entry import Entry, Failed, Flow, Place, current_place
from .failures import Source, check_classes, until_cut_off
from .frame import UserFrame
from .memos import Key, Kind, Memo
from .scope import RunCancelled, live_scopes

P = ParamSpec("P")
R = TypeVar("R")
Call = Callable[[], Any]


@overload
def once(fn: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def once(
    *,
    name: str | None = None,
    key: str | Callable[..., str] | None = None,
    ignore: Sequence[str] = (),
    raises: Sequence[type[Exception]] = (),
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def once(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    key: str | Callable[..., str] | None = None,
    ignore: Sequence[str] = (),
    raises: Sequence[type[Exception]] = (),
) -> Any:
    """Keep a function's result in the frame that calls it, and give it back when the frame is rerun.

    A call is identified by name, arguments and position among equal calls. Arguments named in `ignore` do not count; a
    `key` that is a text counts too, and one that is a function of the arguments counts in their place. Outside a run
    it just runs.

    Exceptions are not kept, unless the code asks a person after one: then it is raised again when the code is rerun,
    without a call. For that its class must be a built-in one, one of Adjourn's, or named in `raises` (which stands for
    subclasses, too).

    In a thread that code of a run starts by itself, a call is kept if the thread has the context of that code, as with
    `asyncio.to_thread` or `contextvars.copy_context().run`. If it has not, the call is not part of the run: it just
    runs, and warns if any run is live in this process, unless it is made in the main thread or on an event loop.
    """

    def mark(fn: Callable[..., Any]) -> Callable[..., Any]:
        naming = _Naming(fn, name or fn.__qualname__.rpartition(".")[2], key, ignore, raises)
        return _async_once(fn, naming) if inspect.iscoroutinefunction(fn) else _sync_once(fn, naming)

    return mark if fn is None else mark(fn)


class _Naming:
    """Gives each call of one function its name in the frame, and knows the exceptions it may raise."""

    def __init__(
        self,
        fn: Callable[..., Any],
        name: str,
        key: str | Callable[..., str] | None,
        ignore: Sequence[str],
        raises: Sequence[type[Exception]],
    ) -> None:
        self.name = name
        self.source = Source(f"'{name}'", check_classes(raises, f"@once on '{name}'"), "@once(raises=[{}])")
        self._fn = fn
        self._key = key
        self._signature = inspect.signature(fn)
        unknown = set(ignore) - set(self._signature.parameters)
        if unknown:
            raise UsageError(
                f"@once on '{name}' ignores {', '.join(sorted(unknown))}, which it does not have as parameters."
            )
        self._ignore = frozenset(ignore)

    def which(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Return what tells a call from others of the same function."""
        if callable(self._key):
            return str(self._key(*args, **kwargs))
        arguments = self._fingerprint(args, kwargs)
        return arguments if self._key is None else f"{self._key} {arguments}"

    def note_failure(self, place: Place, key: Key, error: BaseException, caller: Flow, runner: Flow) -> None:
        """Note that a call failed, unless nothing can be noted any more."""
        frame = place.frame
        if not place.is_over and frame.scope.closed is None and frame.kept(key) is None:
            place.entry.note_failure(key, Failed(error, self.source, None, caller, runner))

    @functools.cached_property
    def refusal(self) -> NotStorable | None:
        """Why no result of the function could be kept, if its annotation tells."""
        try:
            check_annotation(get_type_hints(self._fn).get("return"), f"{self.name}()")
        except NotStorable as error:
            return error
        except Exception:  # noqa: BLE001  # protects the call: a hint that cannot be resolved tells nothing
            return None
        return None

    def _fingerprint(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        counted = {name: value for name, value in bound.arguments.items() if name not in self._ignore}
        try:
            return codec.fingerprint(counted, "")
        except NotStorable as error:
            argument = next((name for name in counted if error.path.startswith(name)), "...")
            raise NotStorable(
                f"{self.name}({error.path})",
                None,
                f"Leave it out of the comparison with @once(ignore=['{argument}']), or give @once a key that is a "
                f"function of the arguments. {error.remedy}",
                type_name=error.type_name,
            ) from error


def _async_once(fn: Callable[..., Any], naming: _Naming) -> Callable[..., Any]:
    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        place = current_place.get()
        if place is None or place.once is not None:
            _warn_if_astray(place, naming.name)
            return fn(*args, **kwargs)
        # Numbered when the function is called, so that concurrent calls cannot swap.
        number = place.frame.scope.on_loop(place.entry.next)
        key = number(Kind.ONCE, naming.name, naming.which(args, kwargs))
        return _keep_async(place, key, naming, place.entry.flow(), lambda: fn(*args, **kwargs))

    return call


def _sync_once(fn: Callable[..., Any], naming: _Naming) -> Callable[..., Any]:
    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        place = current_place.get()
        if place is None or place.once is not None:
            _warn_if_astray(place, naming.name)
            return fn(*args, **kwargs)
        return _keep_sync(place, naming, naming.which(args, kwargs), lambda: fn(*args, **kwargs))

    return call


def _warn_if_astray(place: Place | None, name: str) -> None:
    """Warn about a call in a thread that code of a run has probably started, without its context.

    Code on an event loop or in the main thread has nothing to do with the runs beside it.
    """
    if place is not None or not live_scopes or threading.current_thread() is threading.main_thread():
        return
    if all(scope.loop.is_closed() for scope in tuple(live_scopes)):
        return  # These will never end.
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        warnings.warn(
            f"@once function '{name}' was called in a thread that does not belong to any run, so its result is not "
            "kept. If code of a run has started the thread, carry its context over: start it with "
            "`contextvars.copy_context().run`, or use `asyncio.to_thread`.",
            RuntimeWarning,
            stacklevel=3,
        )


async def _keep_async(place: Place, key: Key, naming: _Naming, caller: Flow, call: Call) -> Any:
    entry = place.entry
    if asyncio.get_running_loop() is not place.frame.scope.loop:
        raise UsageError(
            f"'{place.address}' awaits the @once function '{key.name}' on another event loop, where it cannot be kept. "
            "Await it in async code of the run itself, or make it a plain function."
        )
    place.check()
    if (memo := entry.replay(key)) is not None:
        if memo.is_to_be_cut_off:
            await until_cut_off(naming.source)
        return entry.give_back(memo, naming.source)
    flow, writer = _begin(entry, key, naming, threading.get_ident()), place.frame.scope.log

    async def work() -> Any:
        current_place.set(place.within(once=key))
        try:
            await writer.assure()
            value = await call()
            place.check()
            _keep(entry, key, value, flow)
        except (Exception, asyncio.CancelledError) as error:
            naming.note_failure(place, key, error, caller, flow)
            raise
        return value

    return await entry.complete(work, lambda _: writer.durable(here=True))


def _keep_sync(place: Place, naming: _Naming, which: str, call: Call) -> Any:
    scope, caller = place.frame.scope, threading.get_ident()
    if scope.log.is_unsure and caller != scope.thread:
        scope.await_on_loop(scope.log.assure)
    begun = scope.on_loop(_begin_sync)(place, naming, which, caller)
    if isinstance(begun, Memo):
        return place.entry.give_back(begun, naming.source)
    token = current_place.set(place.within(once=begun.key))
    try:
        value = call()
    except BaseException as error:  # SystemExit, too: the end of the entry waits for this call
        with begun.ending():
            scope.on_loop(begun.fail)(error)
        raise
    finally:
        current_place.reset(token)
    with begun.ending():
        if begun.done is None:
            begun.keep(value)  # On the loop itself it cannot be waited for: it is durable with the next commit.
        else:
            scope.await_on_loop(lambda: begun.keep_durably(value))
    return value


def _begin_sync(place: Place, naming: _Naming, which: str, caller: int) -> _Begun | Memo:
    """Return what is kept of a call, or begin it; on the session's event loop, for the thread `caller`."""
    entry, scope = place.entry, place.frame.scope
    place.check()
    key = entry.next(Kind.ONCE, naming.name, which)
    if (memo := entry.replay(key)) is not None:
        return memo
    if caller == scope.thread:
        scope.log.assure_here()
    flow = _begin(entry, key, naming, caller)
    return _Begun(place, key, naming, flow, None if caller == scope.thread else entry.begin_work())


class _Begun(msgspec.Struct, frozen=True):
    """A sync call that has begun; in a thread, `done` is what the end of its entry waits for."""

    place: Place
    key: Key
    naming: _Naming
    flow: Flow
    done: asyncio.Future[None] | None

    def keep(self, value: object) -> None:
        self.place.check()
        _keep(self.place.entry, self.key, value, self.flow)

    async def keep_durably(self, value: object) -> None:
        current_place.set(None)  # A task of the engine: it does not end with the code.
        try:
            self.keep(value)
            await self.place.frame.scope.log.durable(here=True)
        finally:
            self._end()

    def fail(self, error: BaseException) -> None:
        if isinstance(error, Exception | asyncio.CancelledError):
            self.naming.note_failure(self.place, self.key, error, self.flow, self.flow)
        self._end()

    @contextmanager
    def ending(self) -> Generator[None]:
        """Let the entry end whatever becomes of the result: the run may have lost its session meanwhile."""
        try:
            yield
        except BaseException:
            with suppress(RuntimeError):  # The event loop is closed, so nothing waits.
                self.place.frame.scope.loop.call_soon_threadsafe(self._end)
            raise

    def _end(self) -> None:
        if self.done is not None and not self.done.done():
            self.place.entry.end_work(self.done)


def _begin(entry: Entry, key: Key, naming: _Naming, caller: int) -> Flow:
    """Check that the thread `caller` may make a new call now, and return the flow of the code that makes it."""
    if naming.refusal is not None:
        raise copy.copy(naming.refusal)
    entry.check_begin()
    _check_going_on(entry.frame)
    flow = entry.flow(caller)
    if flow is None:
        entry.check_order(key)
    return flow


def _check_going_on(frame: UserFrame) -> None:
    if frame.stops_between_calls and frame.scope.cancellation.mode is not None:
        raise RunCancelled


def _keep(entry: Entry, key: Key, value: object, flow: Flow) -> None:
    path = f"{key.name}()"
    if codec.holds_secret(value, path):
        # Code that is rerun must get what it got the first time.
        remedy = "It holds the value of a Secret. Return the Secret itself, read with `from_env`, or do without @once."
        raise NotStorable(path, value, remedy)
    writes = entry.wrote.pop(key, {}) if entry.wrote else {}
    entry.keep(key, value, writes, concurrent=flow is not None)


def idempotency_key(place: Place) -> str:
    """Return a key for this call: the same across attempts, crashes and resumes, new for each pass, turn and fork."""
    frame = place.frame
    once = "" if place.once is None else str(place.once)
    parts = (frame.scope.session_id, frame.scope.branch, identity_of(frame.path) + place.extra, frame.instance, once)
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()
