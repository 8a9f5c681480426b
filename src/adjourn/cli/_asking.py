"""Asking the person at the terminal, and from what they type to the answer that a question wants."""

from __future__ import annotations

import argparse
import getpass
import json
import os
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from adjourn._engine.record import id_of_token
from adjourn._schemas.jsonschema import problems
from adjourn._screen import Screen
from adjourn._text import visible_line
from adjourn.errors import (
    AlreadyResumed,
    InterruptExpired,
    InvalidAnswer,
    StaleCheckpoint,
    UnknownInterrupt,
    UsageError,
)
from adjourn.events import Interrupt
from adjourn.printing import ToolRequest, tool_request
from adjourn.sessions import AuditEntry

from ._printing import fields_of, in_words, is_yes_or_no, kind_of, print_question, required_of, say
from ._stores import AnySessions, command

if TYPE_CHECKING:
    pass


async def find_question(sessions: AnySessions, session_id: str, name: str | None) -> Interrupt:
    """Return the open question of this token, id or key, or the only one.

    Raises:
        UnknownInterrupt, AlreadyResumed, InterruptExpired, StaleCheckpoint: there is none, or it is no longer open.
        UsageError: there are several to choose from.
    """
    found = await sessions.pending(session_id)
    if name is not None:
        exact = [asked for asked in found if name in (asked.token, asked.id)]
        named = exact or [asked for asked in found if asked.key == name]
    else:
        named = found
    if len(named) == 1:
        return named[0]
    if not named:
        raise await _not_open(sessions, session_id, name, [asked.id for asked in found])
    ids = "\n".join(f"  {asked.id}" for asked in named)
    raise UsageError(
        f"Session '{session_id}' asks {len(named)} questions. Choose one with --question ID, or an approval with the "
        f"token that `adjourn pending {session_id}` shows below it:\n{ids}"
    )


async def _not_open(sessions: AnySessions, session_id: str, name: str | None, open_: list[str]) -> Exception:
    status = await sessions.status(session_id)
    ended = [entry for entry in await sessions.audit(session_id) if name is None or _has_name(entry, name)]
    if not ended:
        if name is None:
            return UsageError(f"Session '{session_id}' asks nothing now. `adjourn show {session_id}` shows its status.")
        if id_of_token(name) is not None:
            return StaleCheckpoint(session_id, "", status.checkpoint_id, token=name, open=open_)
        return UnknownInterrupt(session_id, name, open_)
    last = max(ended, key=lambda entry: entry.at.timestamp() if entry.at else 0.0)
    if last.outcome in (None, "expired"):
        return InterruptExpired(session_id, last.interrupt.id)
    at = None if last.at is None else last.at.timestamp()
    return AlreadyResumed(session_id, last.interrupt.id, live=status.status == "running", by=last.by, at=at)


def _has_name(entry: AuditEntry, name: str) -> bool:
    return name in (entry.interrupt.token, entry.interrupt.id, entry.interrupt.key)


_WORDS = {
    **dict.fromkeys(("y", "yes", "true", "ok", "approve", "approved"), True),
    **dict.fromkeys(("n", "no", "false", "reject", "refuse", "refused"), False),
}


def parse(text: str, asked: Interrupt) -> Any:
    """Return the answer that a text means: a choice, yes or no, JSON if the schema expects it, else the text itself.

    Raises:
        InvalidAnswer: the schema takes none of these.
    """
    text = text.strip()
    for value in _readings(text, asked):
        if accepts(asked, value):
            return value
    best = _word(text) if isinstance(_word(text), bool) else parse_data(text)
    raise InvalidAnswer(asked.session_id, asked.id, problems(best, asked.schema))


def accepts(asked: Interrupt, value: Any) -> bool:
    """Return whether the question's schema accepts this answer."""
    return not problems(value, asked.schema)


def parse_data(text: str) -> Any:
    """Return a text as JSON data if it is JSON, but quoted text and anything else as it is."""
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return text
    return text if isinstance(value, str) else value


def pairs_of(option: str, words: list[str]) -> dict[str, str]:
    """Return the names and texts of `NAME=VALUE` words.

    Raises:
        UsageError: one of them has no `=`, or a name comes twice.
    """
    pairs: dict[str, str] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name:
            raise UsageError(f"{option} {word!r}: write NAME=VALUE, such as {option} user=Martin.".lstrip())
        if name in pairs:
            raise UsageError(f"{option} {word!r}: {name!r} was given before. Give each name once.".lstrip())
        pairs[name] = text
    return pairs


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _readings(text: str, asked: Interrupt) -> Iterator[Any]:
    """Yield what a text may mean, most likely first."""
    named = [choice for choice in asked.choices if text in (choice, json.dumps(choice, ensure_ascii=False))]
    yield from named
    if isinstance(word := _word(text), bool) and (asked.schema is not None or asked.reason == "need_approval"):
        yield word
    if asked.choices and text.isascii() and text.isdigit() and 0 < int(text) <= len(asked.choices):
        yield asked.choices[int(text) - 1]
    if asked.schema is not None:
        yield parse_data(text)
    yield text


def _word(text: str) -> bool | None:
    return _WORDS.get(text.lower())


class _Later:
    pass


LATER = _Later()
"""The answer of a person who leaves a question open."""

LEAVING = ("/later", "/quit", "/exit")
"""What leaves a question open. In a chat, who types what ends the chat does not mean it as an answer."""


def is_terminal() -> bool:
    """Return whether there is a person to ask."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def answering(options: argparse.Namespace, session_id: str, asked: Sequence[Interrupt]) -> str:
    """Return the command that answers these questions: at a terminal it shows them, elsewhere it names the one seen."""
    if is_terminal():
        return command(options, "answer", session_id)
    token = asked[0].token if len(asked) == 1 else "TOKEN"
    return command(options, "answer", session_id, "--question", token, "ANSWER")


def typed(prompt: str) -> str:
    """Read a line that the person types.

    Raises:
        EOFError: the input has ended.
    """
    print(prompt, end="", flush=True)
    try:
        _wait_for_line()
        line = sys.stdin.readline()
    except UnicodeDecodeError:
        return ""  # What is not text is not an answer.
    if not line:
        print()
        raise EOFError
    return line.strip().encode("utf-8", "replace").decode()


def _wait_for_line() -> None:
    """Return when there is something to read; a signal that comes before that, such as Ctrl-C, is handled here.

    A read that begins right after a signal does not notice it, and waits for the next key.
    """
    # A pipe's lines may be in Python's buffer already; a terminal gives one at a time.
    is_main = threading.current_thread() is threading.main_thread()
    if os.name != "posix" or not is_main or not sys.stdin.isatty():
        return
    noticing, noticed = os.pipe()
    os.set_blocking(noticed, False)
    before = signal.set_wakeup_fd(noticed, warn_on_full_buffer=False)
    try:
        while sys.stdin not in select.select([sys.stdin, noticing], [], [])[0]:
            os.read(noticing, 4096)
    finally:
        signal.set_wakeup_fd(before)
        os.close(noticing)
        os.close(noticed)


def choose(prompt: str) -> str:
    """Read a line that the person types at a highlighted prompt.

    Raises:
        EOFError: there is no more to come.
    """
    return typed(Screen(sys.stdout).painted(prompt, "bold") + " ")


def confirms(prompt: str) -> bool:
    """Ask for yes or no until the person has typed one.

    Raises:
        EOFError: there is no more to come.
    """
    while True:
        match choose(prompt).lower():
            case "y" | "yes":
                return True
            case "n" | "no":
                return False
            case _:
                say("Type y or n, then Enter.", "dim")


def person() -> str | None:
    """Return the name that answers are signed with by default."""
    try:
        return os.environ.get("ADJOURN_USER") or getpass.getuser()
    except (KeyError, OSError, ImportError):  # where there is none; on Windows it is looked for where Unix has it
        return None


def takes_decisions(asked: Interrupt, request: ToolRequest) -> bool:
    """Return whether a question accepts every decision that can be made here."""
    return accepts(asked, True) and accepts(asked, {"decision": "edit", "arguments": dict(request.arguments)})


def decide(asked: Interrupt, request: ToolRequest) -> Any:  # Any: one of the forms that an approval takes
    """Ask until there is a decision; `LATER` if the person leaves it open.

    Raises:
        EOFError: nobody types any more.
    """
    while True:
        word = choose("[a]pprove  [e]dit  [r]efuse  re[s]pond  [l]ater ?").lower()
        match word:
            case "a" | "approve" | "y" | "yes":
                return True
            case "e" | "edit":
                edited = _edit(asked, request)
                if edited is not None:
                    return edited
            case "r" | "refuse" | "reject" | "n" | "no":
                reason = typed("Why? The model is told (or just Enter): ")
                return {"decision": "reject", "reason": reason} if reason else False
            case "s" | "respond":
                text = typed("The result that the model gets instead: ")
                return {"decision": "respond", "text": text}
            case "l" | "later" | "/later" | "/quit" | "/exit":
                return LATER
            case _:
                say("Type one of the letters a, e, r, s or l, then Enter.", "dim")


def _edit(asked: Interrupt, request: ToolRequest) -> dict[str, Any] | None:
    """Return the answer with edited arguments; None if the person changed their mind."""
    edited = _in_editor(request) if os.environ.get("EDITOR") else _line_by_line(request)
    if edited is None or edited == request.arguments:
        say("Nothing was changed.", "dim")
        return None
    Screen(sys.stdout).write(_block(_pretty(edited)))
    answer = {"decision": "edit", "arguments": edited}
    if found := problems(answer, asked.schema):
        say(visible_line(f"The tool does not take these: {'; '.join(map(in_words, found))}"), "red")
        return None
    return answer if typed("Run it with these? [y/n] ").lower() in ("y", "yes") else None


def _pretty(arguments: Mapping[str, Any]) -> str:
    return json.dumps(arguments, ensure_ascii=False, indent=2)


def _block(text: str) -> str:
    """Return lines of text behind a margin, with invisible characters spelled out."""
    return "".join(f"  │ {visible_line(line)}\n" for line in text.split("\n"))


def _in_editor(request: ToolRequest) -> dict[str, Any] | None:
    with tempfile.TemporaryDirectory(prefix="adjourn-") as folder:
        file = Path(folder) / "arguments.json"
        file.write_text(_pretty(request.arguments) + "\n", encoding="utf-8")
        try:
            subprocess.run([*shlex.split(os.environ["EDITOR"]), str(file)], check=True)
            edited = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            say(f"That gave no arguments: {error}", "red")
            return None
    if not isinstance(edited, dict):
        say("Arguments are a JSON object, in braces.", "red")
        return None
    return cast("dict[str, Any]", edited)


def _line_by_line(request: ToolRequest) -> dict[str, Any]:
    say("Type a new value, or just Enter to keep the one that is there.", "dim")
    edited = dict(request.arguments)
    for name, value in request.arguments.items():
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        text = typed(f"  {visible_line(name)} [{visible_line(shown)}]: ")
        if text:
            # A text stays one, whatever it looks like: nobody means the number 7 by a phone number.
            edited[name] = text if isinstance(value, str) else parse_data(text)
    return edited


def ask(asked: Interrupt, number: str = "") -> Any:  # Any: what the schema takes
    """Show a question and read its answer; `LATER` if the person leaves it open.

    Raises:
        EOFError: nobody types any more.
    """
    print_question(asked, number)
    request = tool_request(asked.info)
    if request is not None and takes_decisions(asked, request):
        return decide(asked, request)
    fields = fields_of(asked)
    return _fill_in(asked, fields) if fields else _answer(asked)


def _answer(asked: Interrupt) -> Any:
    is_short = is_yes_or_no(asked)
    if not is_short:
        _print_choices(asked)
    while True:
        text = choose("[y]es  [n]o  [l]ater ?" if is_short else "Your answer, or /later:")
        if text in LEAVING or (is_short and text.lower() in ("l", "later")):
            return LATER
        if not text:
            continue
        try:
            return parse(text, asked)
        except InvalidAnswer as error:
            _refuse(error.problems)


def _print_choices(asked: Interrupt) -> None:
    for position, choice in enumerate(asked.choices, 1):
        say(f"  {position}  {visible_line(choice if isinstance(choice, str) else json.dumps(choice))}")


def _refuse(problems: tuple[str, ...] | list[str]) -> None:
    say(visible_line(f"That does not fit: {'; '.join(map(in_words, problems))}"), "red")


def _fill_in(asked: Interrupt, fields: Mapping[str, Interrupt]) -> Any:
    required = required_of(asked)
    say("Type /later to leave it open.", "dim")
    while True:
        answer: dict[str, Any] = {}
        for name, field in fields.items():
            value = _field(name, field, is_required=name in required)
            if value is LATER:
                return LATER
            if value is not None:
                answer[name] = value
        found = problems(answer, asked.schema)
        if not found:
            return answer
        _refuse(found)


def _field(name: str, field: Interrupt, *, is_required: bool) -> Any:
    note = "" if is_required else ", optional"
    while True:
        text = choose(f"{visible_line(name)} ({visible_line(kind_of(field))}{note}):")
        if text in LEAVING:
            return LATER
        if not text and not is_required:
            return None
        try:
            return parse(text, field)
        except InvalidAnswer as error:
            _refuse(error.problems)
