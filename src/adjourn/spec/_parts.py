"""The parts of agents, made from what a document says: models and tools."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any, TypeAlias, TypeVar, cast

from msgspec.structs import replace

from adjourn._engine.retry import Retry
from adjourn._text import a_type
from adjourn._values.secret import Secret
from adjourn._yaml import Place, Problem
from adjourn.agents import Agent, AgentTool
from adjourn.errors import GraphError, UsageError, text_of
from adjourn.models import ChatModel, OpenAIChatModel, resolve_model
from adjourn.tools import Tool, tool

from . import _declared as declared
from ._declared import PYTHON
from ._fitting import WRONG, Path, Wrong, meant_or_known
from ._references import References, ReferenceWrong

T = TypeVar("T")
ModelGiven: TypeAlias = str | declared.ModelSpec | declared.FallbackSpec
_VARIABLE = re.compile(r"\$\{([^}]*)\}")
_OPENAI = "OPENAI_API_KEY"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Surroundings:
    """What documents may refer to: Python objects, environment variables, and the other agents."""

    def __init__(self, references: References, environ: Mapping[str, str] | None) -> None:
        self.references = references
        self.folder: FilePath = references.folder
        self.agents: set[str] = set()
        self.secrets: dict[str, Secret] = {}
        self._environ = environ

    def check(self, kind: str, text: str) -> Wrong | None:
        """Return what is wrong with a text that names something."""
        try:
            if text.startswith(PYTHON):
                self.references.get(text)
            elif kind == "agent":
                self._check_agent(text)
            elif kind in ("env", "secret"):
                self.expand(text)
            elif kind == "model":
                check_model_name(text)
        except ReferenceWrong as error:
            return error.message, error.hint
        return None

    def _check_agent(self, name: str) -> None:
        if name not in self.agents:
            raise ReferenceWrong(f"there is no agent '{name}'", meant_or_known(name, sorted(self.agents)))

    def expand(self, text: str) -> str:
        """Return a text with the values of environment variables in place of their names.

        Raises:
            ReferenceWrong: one is not set.
        """
        return _VARIABLE.sub(lambda match: self.variable(match[1]), text)

    def variable(self, name: str) -> str:
        """Return the value of an environment variable.

        Raises:
            ReferenceWrong: it is not set.
        """
        if not _NAME.fullmatch(name):
            raise ReferenceWrong(f"${{{name}}} does not name an environment variable", "Write ${NAME}.")
        value = (os.environ if self._environ is None else self._environ).get(name)
        if not value:
            raise ReferenceWrong(f"the environment variable {name} is not set", f"Set it: export {name}=...")
        return value

    def secret(self, text: str) -> Secret:
        """Return the secret that `${NAME}` stands for; its value is hidden while the process, or what was given, lives.

        Raises:
            ReferenceWrong: it is not set.
        """
        name = text[2:-1]
        if name not in self.secrets:
            value = self.variable(name)
            self.secrets[name] = Secret.from_env(name) if self._environ is None else Secret(value)
        return self.secrets[name]

    def given_key(self, name: str) -> Secret | None:
        """Return a key that has its usual name, if the environment is not that of the process, which models read."""
        return self.secret(f"${{{name}}}") if self._environ is not None and self._environ.get(name) else None

    def inside(self, path: str) -> FilePath:
        """Return a path below the folder of agents.

        Raises:
            ReferenceWrong: it leads out of the folder.
        """
        found = (self.folder / path).resolve()
        if not found.is_relative_to(self.folder):
            raise ReferenceWrong(f"'{path}' leads out of the folder of agents", "Name a folder inside it.")
        return found


def check_model_name(text: str) -> None:
    """Check that the provider of a model is known.

    Raises:
        ReferenceWrong: it is not.
    """
    provider, colon, _ = text.partition(":")
    if not colon or provider not in ("openai", "demo"):
        try:
            resolve_model(text)
        except UsageError as error:
            raise ReferenceWrong(text_of(error).rstrip("."), f"Or name an object: {PYTHON}module:attribute.") from error


class Parts:
    """Makes the parts of one document, and collects what is wrong with them.

    Parts that did not fit are known to be wrong, and stay so without another word: the others are made all the same, so
    that all mistakes are found at once.
    """

    def __init__(
        self,
        surroundings: Surroundings,
        places: Mapping[Path, Place],
        faulty: Collection[Path],
        agents: Mapping[str, Any],
    ) -> None:
        self.surroundings = surroundings
        self.problems: list[Problem] = []
        self.asks: list[tuple[Path, str]] = []
        """Where the document makes the agent ask people, and how."""
        self._places = places
        self._faulty = faulty
        self._agents = agents

    def fits(self, path: Path) -> bool:
        """Return whether what the document says there, and below, is what may be there."""
        return path not in self._faulty

    def wrong(self, path: Path, message: str, hint: str = "") -> Any:
        """Report what is wrong at a path, or at the nearest one above that has a place."""
        while path not in self._places:
            path = path[:-1]
        self.problems.append(Problem(self._places[path], message, hint))
        return WRONG

    def attempt(self, path: Path, make: Callable[[], T]) -> T:
        """Return what `make` returns; `WRONG` if it refuses, which is then reported, or if something there did not fit.

        What `make` uses must be at that path, or below.
        """
        if not self.fits(path):
            return WRONG
        return self.trial(path, make)

    def trial(self, path: Path, make: Callable[[], T]) -> T:
        """Return what `make` returns, which only uses what fits; `WRONG` if it refuses, which is then reported."""
        try:
            return make()
        except ReferenceWrong as error:
            return self.wrong(path, error.message, error.hint)
        except GraphError as error:
            for problem in error.problems:
                self.wrong(path, problem)
            return WRONG
        except UsageError as error:
            return self.wrong(path, text_of(error).rstrip("."))
        except Exception as error:  # noqa: BLE001  # protects whoever checks a folder: all mistakes are listed
            return self.wrong(path, f"this failed with {type(error).__name__}: {text_of(error)}")

    def python(self, reference: str) -> Any:
        """Return what a reference names, which was checked before."""
        return self.surroundings.references.get(reference)

    def agent(self, name: str, path: Path) -> Any:
        """Return another agent; `WRONG` if it has mistakes of its own."""
        if not self.fits(path):
            return WRONG
        found = self.python(name) if name.startswith(PYTHON) else self._agents.get(name, WRONG)
        if found is WRONG:
            return WRONG
        if not isinstance(found, Agent):
            return self.wrong(path, f"'{name}' is {a_type(found)}, not an agent", "Use it as an agent by itself.")
        return cast("Agent", found)

    def agents(self, names: Sequence[str], path: Path) -> list[Any]:
        """Return other agents."""
        return [self.agent(name, (*path, number)) for number, name in enumerate(items_of(names))]

    # Models

    def model(self, given: ModelGiven, path: Path) -> ChatModel:
        """Return a model."""
        return self.attempt(path, lambda: self._model(given))

    def fallbacks(self, given: ModelGiven, path: Path) -> list[ChatModel]:
        """Return the models to use when the first one fails."""
        if not isinstance(given, declared.ModelSpec):
            return []
        return [self.model(each, (*path, "fallback", number)) for number, each in enumerate(items_of(given.fallback))]

    def _model(self, given: ModelGiven) -> ChatModel:
        name = given if isinstance(given, str) else given.name
        options = {} if isinstance(given, str) else self._model_options(given)
        if name.startswith(PYTHON):
            if options:
                raise ReferenceWrong(f"{name} has settings of its own", f"Remove {', '.join(options)}.")
            return resolve_model(self.python(name))
        provider, _, model = name.partition(":")
        if provider != "openai":
            if options:
                raise ReferenceWrong(f"'{name}' has no settings", f"Remove {', '.join(options)}.")
            return resolve_model(name)
        if "api_key" not in options and (key := self.surroundings.given_key(_OPENAI)) is not None:
            options["api_key"] = key
        return OpenAIChatModel(model, **options)

    def _model_options(self, given: declared.ModelSpec | declared.FallbackSpec) -> dict[str, Any]:
        options = {
            "api_key": None if given.api_key is None else self.surroundings.secret(given.api_key),
            "base_url": None if given.base_url is None else self.surroundings.expand(given.base_url),
            "timeout": given.timeout_seconds,
            "options": given.options or None,
        }
        return {name: value for name, value in options.items() if value is not None}

    # Tools

    def tools(self, given: declared.Tools, path: Path) -> list[Any]:
        """Return tools."""
        return [self._tool(each, (*path, number)) for number, each in enumerate(items_of(given))]

    def _tool(self, given: str | declared.ToolSpec, path: Path) -> Any:
        if not self.fits(path):
            return WRONG
        spec = declared.ToolSpec(ref=given) if isinstance(given, str) else given
        if (spec.ref is None) == (spec.agent is None):
            return self.wrong(path, "a tool is either a 'ref' or an 'agent'", "Give one of them.")
        for option in ("full_history", "emit_internal_events"):
            if getattr(spec, option) is not None and spec.agent is None:
                return self.wrong((*path, option), f"only an agent has the option '{option}'", "Remove it.")
        made = self.attempt(path, lambda: self._made_tool(spec, path))
        if isinstance(made, Tool) and (made.approval is not False or made.review is not None):
            at = (*path, "approval") if spec.approval not in (None, False) else path
            self.asks.append((at, f"calls of '{made.name}' need approval"))
        return cast("Any", made)

    def _made_tool(self, spec: declared.ToolSpec, path: Path) -> Any:
        options = _tool_options(spec)
        if isinstance(spec.approval, str):
            options["approval"] = self.python(spec.approval)
        if spec.ref is None:
            assert spec.agent is not None
            agent = self.agent(spec.agent, (*path, "agent"))
            if agent is WRONG:
                return WRONG
            emits = bool(spec.emit_internal_events)
            made = AgentTool(agent, full_history=bool(spec.full_history), emit_internal_events=emits)
            return replace(made, **options)
        found = self.python(spec.ref)
        if isinstance(found, Agent):
            return replace(cast("Agent", found).as_tool(), **options)
        if not isinstance(found, Tool):
            return tool(found, **options)
        if found.approval is not False and options.get("approval") is False:
            raise ReferenceWrong(
                f"'{found.name}' needs approval in Python, which a file cannot take back", "Change the Python code."
            )
        return replace(cast("Tool", found), **options)


def items_of(given: Sequence[T]) -> Sequence[T]:
    """Return the items of a list; none if there is something else in its place."""
    return [] if given is WRONG else given


def given_in(spec: declared.Part, *, but: str = "") -> dict[str, Any]:
    """Return the fields of a declaration, except for one, as options."""
    return {name: getattr(spec, name) for name in spec.__struct_fields__ if name != but}


def _tool_options(spec: declared.ToolSpec) -> dict[str, Any]:
    options = {
        "name": spec.name,
        "description": spec.description,
        "approval": spec.approval,
        "timeout": spec.timeout_seconds,
        "return_directly": spec.return_directly,
        "at_most_once": spec.at_most_once,
        "retry": None if spec.retry is None else (retry_of(spec.retry),),
        "max_result": spec.max_result,
        "tags": None if spec.tags is None else tuple(spec.tags),
    }
    return {name: value for name, value in options.items() if value is not None}


def retry_of(spec: declared.RetrySpec) -> Retry:
    """Return a retry policy."""
    if spec.backoff_seconds is None:
        return Retry(attempts=spec.attempts)
    return Retry(attempts=spec.attempts, backoff=spec.backoff_seconds)
