"""Webhooks in a file: YAML or JSON, with secrets by the names of environment variables."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, cast

from adjourn._text import did_you_mean, visible_line
from adjourn._values.secret import Secret
from adjourn._yaml import Items, Node, Pairs, Place, Problem, data_of, read_yaml
from adjourn.errors import UsageError

from ._webhook import Webhook
from ._webhooks import Webhooks

_TOP = ("public_url", "webhooks")
_KINDS: dict[str, tuple[type | tuple[type, ...], str]] = {
    "url": (str, "a text"),
    "secret": ((str, list), "${NAME}, or a list of them"),
    "events": (list, "a list"),
    "agents": (list, "a list"),
    "name": (str, "a text"),
    "details": (bool, "true or false"),
    "link": (str, "a text"),
    "expiring_before": ((int, float), "a number of seconds"),
    "timeout": ((int, float), "a number of seconds"),
    "allow_private": (bool, "true or false"),
    "allow_http": (bool, "true or false"),
}
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def load_webhooks(path: str | os.PathLike[str], *, public_url: str | None = None) -> Webhooks:
    """Return the webhooks of a file; `public_url` counts instead of the one that the file names.

    Raises:
        UsageError: the file cannot be read, or has mistakes, which are listed with their places.
    """
    shown = visible_line(os.fspath(path))
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The file of webhooks '{shown}' cannot be read: {error}.") from error
    documents, problems = read_yaml(text)
    if len(documents) > 1:
        problems.append(Problem(documents[1].place, "there is more than one document", "Remove the line '---'."))
    if documents and not problems:
        found = _Reading(problems).webhooks(documents[0])
        given = public_url if public_url is not None else found.public_url
        if not problems:
            return Webhooks(found.webhooks, public_url=given)
    if not documents and not problems:
        problems.append(Problem(Place(1, 1), "it is empty", "Write `webhooks:` and a list."))
    raise UsageError("\n".join([f"The file of webhooks '{shown}' has mistakes:", *map(_line, problems)]))


def _line(problem: Problem) -> str:
    place = problem.place
    return visible_line(f"  line {place.line}, column {place.column}: {problem.message}. {problem.hint}".rstrip())


class _Reading:
    """Reads one file; whatever is wrong is noted, so that all of it can be said at once."""

    def __init__(self, problems: list[Problem]) -> None:
        self._problems = problems

    def webhooks(self, node: Node) -> _Found:
        found = _Found()
        if not isinstance(node, Pairs):
            self._note(node, "the file is not a mapping", "Write `webhooks:` and a list.")
            return found
        for key, value in node.pairs:
            if key.text not in _TOP:
                self._note(key, f"there is no field '{key.text}'", _known(key.text, _TOP))
            elif key.text == "public_url":
                found.public_url = self._text(value)
        listed = node.get("webhooks")
        if not isinstance(listed, Items) or not listed.items:
            self._note(listed or node, "there are no webhooks", "Write `webhooks:` and a list of them.")
            return found
        made = [self._webhook(each) for each in listed.items]
        found.webhooks = [each for each in made if each is not None]
        names = [each.name for each in found.webhooks]
        if len(set(names)) < len(names):
            self._note(listed, "two webhooks have the same name or URL", "Give each a name of its own.")
        return found

    def _webhook(self, node: Node) -> Webhook | None:
        if not isinstance(node, Pairs):
            self._note(node, "a webhook is not a mapping", "Write `url:` and `secret:`.")
            return None
        before = len(self._problems)
        given: dict[str, Any] = {}  # Any: arguments of Webhook, which checks them
        for key, value in node.pairs:
            if key.text not in _KINDS:
                self._note(key, f"there is no field '{key.text}'", _known(key.text, tuple(_KINDS)))
            else:
                given[key.text] = self._field(key.text, value)
        for name in ("url", "secret"):
            if node.get(name) is None:
                self._note(node, f"a webhook has no '{name}'", f"Add `{name}:`.")
        if len(self._problems) > before:
            return None
        try:
            return Webhook(given.pop("url"), **given)
        except UsageError as error:
            self._note(node, str(error).rstrip("."), "")
            return None

    def _field(self, name: str, node: Node) -> Any:
        value = data_of(node, self._problems)
        kinds, words = _KINDS[name]
        if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
            self._note(node, f"'{name}' is not {words}", f"Write {words}.")
            return None
        if name == "secret":
            listed = cast("list[object]", value) if isinstance(value, list) else [value]
            return [self._secret(node, each) for each in listed]
        if name in ("url", "link"):
            return self._expanded(node, cast("str", value))
        return value

    def _secret(self, node: Node, value: object) -> Secret | None:
        match = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            hint = "Secrets do not belong in files. Name the environment variable that has it: ${WEBHOOK_SECRET}."
            self._note(node, "the secret is not the name of a variable", hint)
            return None
        if not os.environ.get(match[1]):
            self._note(node, f"the environment variable {match[1]} is not set", f"Set it: export {match[1]}=...")
            return None
        return Secret.from_env(match[1])

    def _text(self, node: Node) -> str | None:
        value = data_of(node, self._problems)
        if not isinstance(value, str):
            self._note(node, "this is not a text", "Write a text.")
            return None
        return self._expanded(node, value)

    def _expanded(self, node: Node, text: str) -> str:
        def value(match: re.Match[str]) -> str:
            found = os.environ.get(match[1])
            if not found:
                self._note(node, f"the environment variable {match[1]} is not set", f"Set it: export {match[1]}=...")
            return found or ""

        return _REFERENCE.sub(value, text)

    def _note(self, node: Node, message: str, hint: str) -> None:
        self._problems.append(Problem(node.place, message, hint))


class _Found:
    def __init__(self) -> None:
        self.public_url: str | None = None
        self.webhooks: list[Webhook] = []


def _known(name: str, fields: tuple[str, ...]) -> str:
    return did_you_mean(name, fields).strip() or f"There are: {', '.join(fields)}."
