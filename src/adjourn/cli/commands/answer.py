"""`adjourn answer`: answers a question with only its store."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from adjourn._documents import plain, questions
from adjourn._engine.record import APPROVALS
from adjourn._text import visible_line
from adjourn.cli._server import add_server_options, with_inbox
from adjourn.cli._stores import add_store_option, add_whose_options, command, server_url
from adjourn.cli.ask.asking import LATER, ask, confirms, is_terminal, person
from adjourn.cli.ask.parsing import accepts, find_question, pairs_of, parse, parse_data
from adjourn.cli.output.documents import add_json_option, print_json
from adjourn.cli.output.questions import form_of, print_question
from adjourn.errors import UsageError
from adjourn.events import Interrupt
from adjourn.printing import tool_request
from adjourn.sessions import Sessions, SessionSummary

if TYPE_CHECKING:
    from adjourn.client import Client, SessionInfo


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options for the forms of an answer."""
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument(
        "answer",
        metavar="ANSWER",
        nargs="?",
        help="yes or no, a choice or its number, JSON if the question expects it, else text; - reads standard "
        "input; without it you are asked",
    )
    parser.add_argument(
        "--question", metavar="NAME", help="which question: its token, as `pending` shows it, or its id or key"
    )
    parser.add_argument("--by", metavar="NAME", default=person(), help="who answers (your login name)")
    parser.add_argument("--message", metavar="TEXT", help="say this, too: the model reads it after the tool's result")
    parser.add_argument("--checkpoint", metavar="ID", help="count only if the session is still at this checkpoint")
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--data", metavar="JSON", help="the answer as JSON, whatever it looks like")
    forms.add_argument("--text", metavar="TEXT", help="the answer as text, whatever it looks like")
    forms.add_argument("--approve", action="store_true", help="approve a tool call as it is, as yes does")
    forms.add_argument("--refuse", metavar="REASON", help="refuse a tool call; the model sees the reason")
    forms.add_argument("--edit", metavar="JSON", help="approve a tool call with these arguments instead (all of them)")
    forms.add_argument(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        help="approve a tool call with this argument changed and the others as they are; may be repeated",
    )
    forms.add_argument("--respond", metavar="TEXT", help="do not run the tool; the model gets this as its result")
    parser.add_argument("--remember", choices=("session", "always"), help="with --approve: approve later calls too")
    add_whose_options(parser)
    add_store_option(parser)
    add_server_options(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Record the answer and print what comes next."""
    forms = [options.data, options.text, options.refuse, options.edit, options.set, options.respond, options.answer]
    given = [form for form in [*forms, options.approve or None] if form is not None]
    if options.remember and not options.approve:
        raise UsageError("--remember goes with --approve.")
    if len(given) > 1:
        raise UsageError("Give one answer: either ANSWER, or one of the options for it.")
    if not given and (options.json or not is_terminal()):
        raise UsageError("What is the answer? Give it after the session, or as - to read it from the standard input.")
    # A person may take their time between these two, and Ctrl-C must work: no event loop is running.
    asked = with_inbox(options, lambda sessions: find_question(sessions, options.session, options.question))
    try:
        value = _value(options, asked) if not given or _is_seen(options, asked) else LATER
    except EOFError:
        value = LATER
    if value is LATER:
        print("It stays open.")
        return 0
    status, left = with_inbox(options, lambda sessions: _record(sessions, options, asked, value))
    _report(options, asked, value, status, left)
    return 0


def _is_seen(options: argparse.Namespace, asked: Interrupt) -> bool:
    """Return whether the person means this very question: named by its token, or shown and confirmed now.

    Raises:
        UsageError: it is an approval, and there is nobody to show it to.
    """
    if options.question == asked.token:
        return True
    if is_terminal() and not options.json:
        print_question(asked)
        return confirms("Is this the question that you answer? [y]es  [n]o ?")
    if asked.reason in APPROVALS:
        again = command(options, "answer", asked.session_id, "--question", asked.token, *_given(options))
        raise UsageError(
            "An approval counts for what was shown, so name it by its token. Look at it with "
            f"`{command(options, 'pending', asked.session_id)}`, then:\n{again}"
        )
    return True


def _given(options: argparse.Namespace) -> list[str]:
    """Return the words that the person answered with."""
    words = [options.answer] if options.answer is not None else ["--approve"] if options.approve else []
    for name in ("remember", "data", "text", "refuse", "edit", "respond", "message", "checkpoint"):
        if (value := getattr(options, name)) is not None:
            words += [f"--{name}", value]
    words += [word for pair in options.set or () for word in ("--set", pair)]
    return words if options.by in (None, person()) else [*words, "--by", options.by]


async def _record(
    sessions: Sessions | Client, options: argparse.Namespace, asked: Interrupt, value: Any
) -> tuple[SessionSummary | SessionInfo, list[Interrupt]]:
    """Record the answer; return the status of the session, and the questions that are left."""
    status = await sessions.answer(
        options.session, {asked: value}, by=options.by, message=options.message, checkpoint_id=options.checkpoint
    )
    return status, await sessions.pending(options.session)


def _value(options: argparse.Namespace, asked: Interrupt) -> Any:  # Any: what the schema takes
    if options.data is not None:
        return _json("--data", options.data)
    if options.text is not None:
        return options.text
    if options.answer is not None:
        return parse(_read_input() if options.answer == "-" else options.answer, asked)
    decision = _changed(options, asked) if options.set else _decision(options)
    if decision is not None and asked.reason not in APPROVALS and not accepts(asked, decision):
        raise UsageError(f"{asked.id} is not an approval: it takes as an answer:\n{form_of(asked)}")
    return ask(asked) if decision is None else decision


def _read_input() -> str:
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise UsageError(f"The standard input is not UTF-8 text: {error}.") from None


def _decision(options: argparse.Namespace) -> dict[str, Any] | None:
    if options.approve:
        return {"decision": "approve", **({"remember": options.remember} if options.remember else {})}
    if options.refuse is not None:
        return {"decision": "reject", "reason": options.refuse}
    if options.edit is not None:
        return {"decision": "edit", "arguments": _json("--edit", options.edit)}
    return None if options.respond is None else {"decision": "respond", "text": options.respond}


def _changed(options: argparse.Namespace, asked: Interrupt) -> dict[str, Any]:
    request = tool_request(asked.info)
    if request is None:
        raise UsageError(f"--set changes arguments of a tool call, and {asked.id} is about none. Use --data JSON.")
    changes = pairs_of("--set", options.set)
    # A text stays one, whatever it looks like: nobody means the number 7 by a phone number.
    texts = {name for name, value in request.arguments.items() if isinstance(value, str)}
    read = {name: text if name in texts else parse_data(text) for name, text in changes.items()}
    return {"decision": "edit", "arguments": {**request.arguments, **read}}


def _json(option: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{option} {text!r} is not JSON: {error}.") from None


def _report(
    options: argparse.Namespace,
    asked: Interrupt,
    value: Any,
    status: SessionSummary | SessionInfo,
    left: list[Interrupt],
) -> None:
    # A server goes on by itself, unless other questions are open.
    is_running = not left if server_url(options) else isinstance(status, SessionSummary) and status.owner is not None
    if options.json:
        document = {
            "session_id": asked.session_id,
            "id": asked.id,
            "answer": plain(value),
            "by": options.by,
            "running": is_running,
            "open": questions(left),
        }
        print_json(document)
        return
    by = f", by {visible_line(options.by)}" if options.by else ""
    print(f"✔ Recorded: {visible_line(json.dumps(value, ensure_ascii=False))}{by}.")
    if is_running:
        print(f"The {'server' if server_url(options) else 'process that runs the session'} picks it up now.")
        return
    if left:
        print(f"Still open: {', '.join(visible_line(each.id) for each in left)}")
    if server_url(options):
        return
    resume = command(options, "resume", "MODULE:ATTRIBUTE", asked.session_id)
    print(f"A worker takes it up by itself. Without one, go on with: {resume}")
