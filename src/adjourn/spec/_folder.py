"""A folder of YAML files: its agents, and every mistake in it."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path as FilePath
from typing import Any, Literal, TypeAlias, cast

from msgspec import Struct
from msgspec import inspect as types

from adjourn._engine.program import Program
from adjourn._hiding import logger
from adjourn._yaml import MAX_CHARACTERS, Node, Pairs, Place, Problem, Scalar, read_yaml
from adjourn.errors import SpecInvalid, UsageError
from adjourn.stores.urls import shown_url

from . import _declared as declared
from ._agents import make_agent
from ._fitting import WRONG, Fitting, Path
from ._parts import Parts, Surroundings
from ._references import References
from ._served import Served

log = logger("adjourn.spec")

MAX_FILES = 1000
Fingerprint: TypeAlias = frozenset[tuple[str, int, int]]


class Mistake(Struct, frozen=True, order=True):
    """Something that is wrong in a file: where, what, and what to do. Lines and columns count from 1."""

    file: str
    line: int
    column: int
    message: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.message}.{' ' if self.hint else ''}{self.hint}"


class Checkpoint(Struct, frozen=True, kw_only=True):
    """Where sessions are stored, as the files say; a store that the operator names comes first."""

    backend: Literal["memory", "sqlite", "postgres", "redis"]
    url: str | None = None
    ttl_seconds: int | None = None

    def store_url(self, given: str | None = None) -> str:
        """Return the URL of the store, with the time to live; `given` is what the operator says, and comes first.

        Raises:
            UsageError: neither the operator nor a file says where it is.
        """
        url = given or self.url or ("memory://" if self.backend == "memory" else None)
        if url is None:
            raise UsageError(
                f"The files say that sessions are stored in {self.backend}, but not where. Give the URL as --store or "
                "$ADJOURN_STORE, or in a file: checkpoint: {backend: ..., url: ...}."
            )
        if self.ttl_seconds is None or re.search(r"[?&]ttl=", url):
            return url
        if _scheme(url) not in _SCHEMES["redis"]:
            log.warning(
                "The files say that sessions end after %d seconds. Only Redis does that; what is stored in %s is kept "
                "until `adjourn prune --sessions` removes it.",
                self.ttl_seconds,
                _scheme(url),
            )
            return url
        return f"{url}{'&' if '?' in url else '?'}ttl={self.ttl_seconds}"


class Loaded:
    """What a folder says: its agents, and every mistake. Files with mistakes do not stop the others."""

    def __init__(
        self,
        served: Mapping[str, Served],
        mistakes: Sequence[Mistake],
        checkpoint: Checkpoint | None,
        folder: _Folder,
    ) -> None:
        self.served: dict[str, Served] = dict(served)
        self.mistakes: list[Mistake] = sorted(mistakes)
        self.checkpoint = checkpoint
        self._folder = folder
        self._fingerprint = folder.fingerprint

    @property
    def agents(self) -> dict[str, Program]:
        """The agents that clients can talk to, by name."""
        return {name: cast("Program", each.program) for name, each in self.served.items()}

    def check(self) -> Loaded:
        """Return this, if there are no mistakes.

        Raises:
            SpecInvalid: there are; it has all of them.
        """
        if self.mistakes:
            raise SpecInvalid(self.mistakes)
        return self

    @property
    def is_outdated(self) -> bool:
        """Whether files of the folder, YAML or Python, were changed, added or removed since."""
        return self._folder.look() != self._fingerprint

    def reload(self) -> Loaded:
        """Return what the folder says now; agents that were loaded before stay as they are, and so do their runs."""
        return self._folder.again().load()


def load(folder: str | FilePath, *, allow: Collection[str] = (), environ: Mapping[str, str] | None = None) -> Loaded:
    """Return the agents that the YAML files of a folder describe, and every mistake in them.

    Files are those that end in `.yaml` or `.yml`, in folders below, too, unless a name begins with a dot. Python is
    imported only from the folder, and from the packages in `allow`. `environ` takes the place of the environment.

    Raises:
        UsageError: there is no such folder, or PyYAML is not installed.
    """
    if isinstance(allow, str):
        raise UsageError(f"load(allow={allow!r}): give a list of packages.")
    return _Folder(FilePath(folder), allow, environ).load()


class _Document:
    """One agent in a file, on its way."""

    def __init__(self, file: str, node: Node) -> None:
        self.file = file
        self.node = node
        self.name: str | None = _name_in(node)
        self.problems: list[Problem] = []
        self.spec: declared.AnySpec | None = None
        self.places: Mapping[Path, Place] = {}
        self.faulty: Collection[Path] = ()
        self.uses: list[tuple[str, Path]] = []
        """The other documents that it names, and where."""

    def fit(self, surroundings: Surroundings) -> None:
        """Fit the document to the declarations."""
        fitting = Fitting(surroundings.check)
        made: declared.Document = fitting.fit(self.node, _document_type())
        fitting.check_variables(self.node)
        self.places, self.problems, self.faulty = fitting.places, fitting.problems, fitting.faulty
        self.uses = [
            (found.text, found.path)
            for found in fitting.found
            if found.kind == "agent" and found.text in surroundings.agents
        ]
        if made is not WRONG and made.spec is not WRONG:
            self.spec = made.spec

    @property
    def interrupt(self) -> declared.InterruptSpec | None:
        """What it says about asking people; None if that did not fit."""
        if self.spec is None or ("spec", "interrupt") in self.faulty:
            return None
        return self.spec.interrupt

    def wrong(self, path: Path, message: str, hint: str = "") -> None:
        while path not in self.places and path:
            path = path[:-1]
        self.problems.append(Problem(self.places.get(path, self.node.place), message, hint))


@cache
def _document_type() -> types.Type:
    return types.type_info(declared.Document)


def _name_in(node: Node) -> str | None:
    metadata = node.get("metadata") if isinstance(node, Pairs) else None
    name = metadata.get("name") if isinstance(metadata, Pairs) else None
    return name.text if isinstance(name, Scalar) and name.text else None


class _Folder:
    """Loads the files of one folder."""

    def __init__(self, folder: FilePath, allow: Collection[str], environ: Mapping[str, str] | None) -> None:
        if folder.is_file():
            raise UsageError(f"'{folder}' is a file. Name the folder that it is in: '{folder.parent}'.")
        if not folder.is_dir():
            raise UsageError(f"There is no folder '{folder}'. Name the folder that has the YAML files of the agents.")
        self._given = folder
        self._allow = allow
        self._environ = environ
        self._surroundings = Surroundings(References(folder, allow), environ)
        self._mistakes: list[Mistake] = []
        self._documents: list[_Document] = []
        self._unread: set[str] = set()
        """Names in files that could not be read: agents that use them have no mistake."""
        self._named: dict[str, _Document] = {}
        self._built: dict[str, Any] = {}
        self.fingerprint: Fingerprint = self.look()  # before anything is read, so that no change is missed

    def again(self) -> _Folder:
        """Return the same folder, to be loaded anew."""
        self._surroundings.references.forget_modules()
        return _Folder(self._given, self._allow, self._environ)

    def look(self) -> Fingerprint:
        """Return what tells whether a file has changed."""
        found: set[tuple[str, int, int]] = set()
        for path in self._files(".yaml", ".yml", ".py", ".md"):
            try:
                status = path.stat()
            except OSError:
                continue  # It was removed a moment ago, or is a link to nothing.
            found.add((str(path), status.st_mtime_ns, status.st_size))
        return frozenset(found)

    def _files(self, *suffixes: str) -> Iterator[FilePath]:
        for place, folders, names in os.walk(self._given):
            folders[:] = sorted(name for name in folders if not name.startswith((".", "__pycache__")))
            for name in sorted(names):
                path = FilePath(place, name)
                if path.suffix in suffixes and not name.startswith(".") and path.is_file():
                    yield path

    def load(self) -> Loaded:
        """Read, fit, check and build everything."""
        self._read()
        self._surroundings.agents = self._unread | {document.name for document in self._documents if document.name}
        for document in self._documents:
            document.fit(self._surroundings)
        self._check_names()
        self._check_cycles()
        for document in self._documents:
            if self._named.get(str(document.name)) is document:
                self._build(str(document.name))
            else:
                self._make(document)  # for its mistakes alone
        self._check_questions()
        checkpoint = self._checkpoint()
        self._mistakes += [
            Mistake(document.file, problem.place.line, problem.place.column, problem.message, problem.hint)
            for document in self._documents
            for problem in document.problems
        ]
        served = {name: self._served(name) for name, agent in self._built.items() if agent is not WRONG}
        return Loaded(
            {name: each for name, each in served.items() if each is not None}, self._mistakes, checkpoint, self
        )

    # Reading

    def _read(self) -> None:
        files = list(self._files(".yaml", ".yml"))
        if not files:
            self._wrong_file(self._given, "there are no files that end in .yaml", "Write one for each agent.")
        for number, path in enumerate(files):
            if number == MAX_FILES:
                self._wrong_file(path, f"there are more than {MAX_FILES} files", "Move some into another folder.")
                break
            text = self._text(path)
            if text is not None:
                self._parse(path, text)
        if files and not self._documents and not self._mistakes:
            self._wrong_file(
                files[0], "there is no agent in this folder", "Write one: apiVersion, kind, metadata, spec."
            )

    def _text(self, path: FilePath) -> str | None:
        try:
            if path.stat().st_size > 4 * MAX_CHARACTERS:
                self._wrong_file(path, f"the file is larger than {4 * MAX_CHARACTERS:,} bytes", "Split it.")
                return None
            return path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError:
            self._wrong_file(path, "the file is not UTF-8 text", "Save it as UTF-8.")
        except OSError as error:
            self._wrong_file(path, f"the file cannot be read: {error.strerror}", "Check its permissions.")
        return None

    def _parse(self, path: FilePath, text: str) -> None:
        documents, problems = read_yaml(text)
        self._mistakes += [
            Mistake(str(path), each.place.line, each.place.column, each.message, each.hint) for each in problems
        ]
        self._documents += [_Document(str(path), node) for node in documents]
        if problems:
            self._unread |= set(_NAME.findall(text))

    def _wrong_file(self, path: FilePath, message: str, hint: str) -> None:
        self._mistakes.append(Mistake(str(path), 1, 1, message, hint))

    # Checks across documents

    def _check_names(self) -> None:
        for document in self._documents:
            if document.name is None:
                continue
            first = self._named.setdefault(document.name, document)
            if first is not document:
                where = f"{first.file}:{first.places.get(('metadata', 'name'), first.node.place).line}"
                hint = f"The first one is in {where}. Give each its own name."
                document.wrong(("metadata", "name"), f"two agents are called '{document.name}'", hint)

    def _check_cycles(self) -> None:
        finished: set[str] = set()

        def visit(name: str, above: tuple[str, ...]) -> None:
            document = self._named[name]
            for used, path in document.uses:
                if used in (*above, name):
                    way = [*above, name]
                    circle = " > ".join([*way[way.index(used) :], used])
                    document.wrong(path, f"'{used}' is below itself: {circle}", "An agent cannot be part of itself.")
                elif used not in finished and used in self._named:
                    visit(used, (*above, name))
            finished.add(name)

        for name in self._named:
            if name not in finished:
                visit(name, ())

    def _build(self, name: str) -> Any:
        """Build an agent, after those that it names; without one of them it is `WRONG`, and so it is in a circle."""
        if name not in self._built:
            self._built[name] = WRONG
            self._built[name] = self._make(self._named[name])
        return self._built[name]

    def _make(self, document: _Document) -> Any:
        """Make an agent of a document, and add to its mistakes what is found then."""
        needed = [self._build(used) for used, _ in document.uses if used in self._named]
        if document.spec is None:
            return WRONG
        parts = Parts(self._surroundings, document.places, document.faulty, self._built)
        made = make_agent(parts, document.name or "agent", document.spec)
        if document.interrupt is not None and not document.interrupt.enabled:
            for path, what in parts.asks:
                document.wrong(path, f"{what}, but this agent must not ask", _ENABLE)
        document.problems += parts.problems
        return WRONG if document.problems or WRONG in needed else made

    def _check_questions(self) -> None:
        """Check that an agent that must not ask uses none that may, directly or through others."""
        for document in self._documents:
            if document.interrupt is None or document.interrupt.enabled or not _is_served(document):
                continue
            for used, path in document.uses:
                if asking := self._asking(used, set()):
                    document.wrong(path, f"'{asking}' may ask people, but this agent must not ask", _ENABLE)
                    self._built[str(document.name)] = WRONG

    def _asking(self, name: str, seen: set[str]) -> str | None:
        """Return the first agent that may ask: this one, or one that it uses."""
        if name not in self._named:
            return None
        interrupt = self._named[name].interrupt
        if interrupt is not None and interrupt.enabled:
            return name
        seen.add(name)
        uses = [used for used, _ in self._named[name].uses if used not in seen]
        return next((found for used in uses if (found := self._asking(used, seen)) is not None), None)

    def _checkpoint(self) -> Checkpoint | None:
        """Return the store that all agents share."""
        found: dict[str, tuple[Any, str]] = {}
        for document in self._documents:
            for path, given in _checkpoints(document):
                for field in ("backend", "url", "ttl_seconds"):
                    value = getattr(given, field)
                    if value is None:
                        continue
                    place = document.places[(*path, field)]
                    first, where = found.setdefault(field, (value, f"{document.file}:{place.line}"))
                    if value != first:
                        hint = f"{where} has {shown_url(str(first))}. All agents of a server share one store."
                        shown = shown_url(str(value))
                        document.wrong((*path, field), f"there are two different stores: {field} {shown}", hint)
                _check_url(document, path, given, self._surroundings)
        if "backend" not in found:
            return None
        values = {field: value for field, (value, _) in found.items()}
        if "url" in values:
            values["url"] = self._surroundings.expand(values["url"])
        return Checkpoint(**values)

    def _served(self, name: str) -> Served | None:
        document = self._named[name]
        spec = document.spec
        if spec is None or not spec.served or document.problems:
            return None
        return Served(
            program=self._built[name],
            description=spec.description,
            interrupts=spec.interrupt.enabled,
            require_token=spec.interrupt.require_token,
            self_approval=spec.interrupt.self_approval,
            on_busy=spec.on_busy,
            on_pending=spec.on_pending,
            answer_pending=spec.answer_pending,
            values=spec.values,
            caller_values=tuple(spec.caller_values),
            file=document.file,
        )


_BARE_VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_NAME = re.compile(r"^metadata:\s*\{?\s*name:\s*[\"']?([A-Za-z0-9][A-Za-z0-9_-]*)", re.MULTILINE)


def _is_served(document: _Document) -> bool:
    return document.spec is not None and document.spec.served is True


_ENABLE = "Write interrupt: {enabled: true} in its spec."
_SCHEMES = {
    "memory": ("memory",),
    "sqlite": ("sqlite",),
    "postgres": ("postgres", "postgresql"),
    "redis": ("redis", "rediss", "valkey", "valkeys", "unix"),
}


def _scheme(url: str) -> str:
    return url.partition("://")[0].removeprefix("encrypted+")


def _checkpoints(document: _Document) -> Iterator[tuple[Path, declared.CheckpointSpec]]:
    """Yield what a document says about the store, under `spec` or under `interrupt`."""
    if document.spec is None:
        return
    path, below = ("spec", "checkpoint"), ("spec", "interrupt", "checkpoint")
    given = document.spec.checkpoint
    if given is not None and path not in document.faulty:
        yield path, given
    interrupt = document.interrupt
    if interrupt is None or interrupt.checkpoint is None:
        return
    if given is not None:
        document.wrong(below, "the checkpoint is also under 'spec'", "Remove one.")
    else:
        yield below, interrupt.checkpoint


def _check_url(document: _Document, path: Path, given: declared.CheckpointSpec, surroundings: Surroundings) -> None:
    if given.ttl_seconds is not None and given.backend != "redis":
        hint = "Remove it, and prune old sessions with `adjourn prune`."
        document.wrong((*path, "ttl_seconds"), f"{given.backend} has no time to live", hint)
    if given.url is None:
        return
    if _scheme(surroundings.expand(given.url)) not in _SCHEMES[given.backend]:
        variable = _BARE_VARIABLE.match(given.url)
        hint = f"It begins with {_SCHEMES[given.backend][0]}://."
        if variable is not None:
            hint = f"Write ${{{variable[1]}}} for the environment variable."
        document.wrong((*path, "url"), f"this is not the URL of a {given.backend} store", hint)
