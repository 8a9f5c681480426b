"""Failures of kept calls: stored when code asks a person after one, and raised again when the code is rerun."""

from __future__ import annotations

import asyncio
import builtins
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias, cast

from msgspec import Raw

from adjourn._hiding import logger
from adjourn._values import codec
from adjourn.errors import AdjournError, NotStorable, ProgramChanged, UsageError, text_of

from .memos import NONE, Failure
from .values import decoded

Classes: TypeAlias = Sequence[type[Exception]]


class LooseGate(UsageError):
    """What guards a call did not say whether it may run. Nothing around the call may make up for that."""


PATIENCE = 10.0
"""Seconds after which a call that waits to be cut off is logged."""

_log = logger("adjourn")


class Source(NamedTuple):
    """What may fail, and the classes that are known for it; `naming` says where more of them are named."""

    name: str
    raises: Classes
    naming: str


def check_classes(raises: Iterable[Any], what: str) -> tuple[type[Exception], ...]:
    """Return the classes given as `raises`.

    Raises:
        UsageError: one of them is not a class of exceptions.
    """
    classes = tuple(raises)
    for each in classes:
        if not (isinstance(each, type) and issubclass(each, Exception)):
            raise UsageError(f"raises= of {what} has {each!r}, which is not a class of exceptions.")
    return classes


async def until_cut_off(source: Source) -> None:
    """Wait to be cut off again: in a race or a group, raising anything at once would change who comes first."""
    text = "%s waits to be cut off, as it was before the last question. If the code does not do that any more, `edit`."
    warning = asyncio.get_running_loop().call_later(PATIENCE, _log.warning, text, source.name)
    try:
        await asyncio.Event().wait()
    finally:
        warning.cancel()


def handled_now() -> tuple[BaseException, ...]:
    """Return the exception that the calling code is handling, with those that led to it."""
    found: list[BaseException] = []
    error = sys.exc_info()[1]
    while error is not None and not any(each is error for each in found):
        found.append(error)
        error = error.__cause__ or error.__context__
    return tuple(found)


def stored(error: BaseException, source: Source) -> Failure:
    """Return a failure as it is stored.

    Raises:
        NotStorable: it could not be raised again as it was.
    """
    if not isinstance(error, Exception):
        return Failure(TimeoutError.__name__, "", is_cut_off=True)
    kind = _name(type(error))
    if type(error) is not _find(kind, source.raises):
        naming = source.naming.format(type(error).__name__)
        raise _unfit(error, source, f"Name its class, as in {naming}, or catch it inside")
    parts = tuple(stored(part, source) for part in _parts(error))
    failure = Failure(kind, text_of(error), _arguments(error), _attributes(error), parts=parts)
    if not _reads_the_same(failure, type(error), source):
        raise _unfit(error, source, "Its text cannot be made again from what it holds: catch it inside")
    return failure


def _parts(error: Exception) -> tuple[Exception, ...]:
    return cast("ExceptionGroup[Exception]", error).exceptions if isinstance(error, ExceptionGroup) else ()


def _arguments(error: Exception) -> Raw:
    if isinstance(error, ExceptionGroup):
        return codec.stored([error.message], "args")
    # A built-in error may know more than its `args`: that of a file has its name apart from them.
    args = error.__reduce__()[1] if _is_builtin(type(error)) else error.args
    if not args:
        return NONE
    try:
        return codec.stored(list(args), "args")
    except NotStorable:
        return codec.stored([text_of(error)], "args")


def _attributes(error: Exception) -> Raw:
    """Return what an exception holds besides its arguments, without what cannot be stored."""
    found: dict[str, Any] = {}
    for name, value in vars(error).items():
        with suppress(NotStorable):
            if name != "__notes__":
                codec.stored(value, name)
                found[name] = value
    return codec.stored(found, "attributes") if found else NONE


def _reads_the_same(failure: Failure, kind: type[Exception], source: Source) -> bool:
    try:
        return text_of(_rebuild(failure, kind, source)) == failure.text
    except Exception:  # noqa: BLE001  # a user's class may do anything when it is made
        return False


def _unfit(error: Exception, source: Source, remedy: str) -> NotStorable:
    unfit = NotStorable(
        f"failure of {source.name}",
        error,
        "It came before this question, and must be raised again when the code is rerun with the answer. "
        f"{remedy} and return something else.",
    )
    unfit.while_asking = True
    return unfit


def restored(failure: Failure, source: Source) -> Exception:
    """Return the exception to raise again.

    Raises:
        ProgramChanged: its class is not known any more.
    """
    kind = _find(failure.kind, source.raises)
    if kind is None:
        naming = source.naming.format(failure.kind.rpartition(".")[2])
        raise ProgramChanged(
            source.name, f"its failure before a question was a {failure.kind}, which is not named any more ({naming})"
        )
    return _rebuild(failure, kind, source)


def _rebuild(failure: Failure, kind: type[Exception], source: Source) -> Exception:
    args: list[Any] = decoded(failure.args) or []
    if failure.parts:
        args.append([restored(part, source) for part in failure.parts])
    if _is_builtin(kind):
        return kind(*args)
    # Its constructor may take other arguments than it passes on, so it is not called.
    error = kind.__new__(kind, *args)
    error.args = tuple(args)
    error.__dict__.update(decoded(failure.attributes) or {})
    return error


def _find(name: str, raises: Classes) -> type[Exception] | None:
    """Return the class of this name: a built-in one, one of ours, or one that was named or is below such a one."""
    ours = [kind for kind in vars(builtins).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    named = list(_with_subclasses(*raises))
    known = {_name(kind): kind for kind in (*ours, *_with_subclasses(AdjournError), *named)}
    if name in known:
        return known[name]
    # The module of a program has another name while it is run as a script.
    return next((kind for kind in named if _is_same_program(name, kind)), None)


def _is_same_program(name: str, kind: type[Exception]) -> bool:
    module = name.removesuffix(f".{kind.__qualname__}")
    return module != name and "__main__" in (module, kind.__module__)


def _with_subclasses(*kinds: type[Exception]) -> Iterator[type[Exception]]:
    for kind in kinds:
        yield kind
        yield from _with_subclasses(*kind.__subclasses__())


def _is_builtin(kind: type[Exception]) -> bool:
    return kind.__module__ == builtins.__name__


def _name(kind: type[Exception]) -> str:
    return kind.__qualname__ if _is_builtin(kind) else f"{kind.__module__}.{kind.__qualname__}"
