"""`adjourn answer`: answers a question with only its store."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from adjourn._engine.record import APPROVALS
from adjourn._text import visible_line
from adjourn.cli._stores import add_store_option, add_whose_options, command, with_sessions
from adjourn.cli.ask.asking import LATER, ask, confirms, is_terminal, person
from adjourn.cli.ask.parsing import find_question, parse
from adjourn.cli.output.documents import add_json_option, plain, print_json, questions
from adjourn.cli.output.questions import print_question
from adjourn.errors import UsageError
from adjourn.events import Interrupt
from adjourn.sessions import Sessions, SessionStatus


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
    parser.add_argument("--checkpoint", metavar="ID", help="count only if the session is still at this checkpoint")
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--data", metavar="JSON", help="the answer as JSON, whatever it looks like")
    forms.add_argument("--text", metavar="TEXT", help="the answer as text, whatever it looks like")
    forms.add_argument("--approve", action="store_true", help="approve a tool call as it is, as yes does")
    forms.add_argument("--refuse", metavar="REASON", help="refuse a tool call; the model sees the reason")
    forms.add_argument("--edit", metavar="JSON", help="approve a tool call with these arguments instead (all of them)")
    forms.add_argument("--respond", metavar="TEXT", help="do not run the tool; the model gets this as its result")
    parser.add_argument("--remember", choices=("session", "always"), help="with --approve: approve later calls too")
    add_whose_options(parser)
    add_store_option(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Record the answer and print what comes next."""
    forms = [options.data, options.text, options.refuse, options.edit, options.respond, options.answer]
    given = [form for form in [*forms, options.approve or None] if form is not None]
    if options.remember and not options.approve:
        raise UsageError("--remember goes with --approve.")
    if len(given) > 1:
        raise UsageError("Give one answer: either ANSWER, or one of the options for it.")
    if not given and (options.json or not is_terminal()):
        raise UsageError("What is the answer? Give it after the session, or as - to read it from the standard input.")
    # A person may take their time between these two, and Ctrl-C must work: no event loop is running.
    asked = with_sessions(options, lambda sessions: find_question(sessions, options.session, options.question))
    try:
        value = _value(options, asked) if not given or _is_seen(options, asked) else LATER
    except EOFError:
        value = LATER
    if value is LATER:
        print("It stays open.")
        return 0
    status = with_sessions(options, lambda sessions: _record(sessions, options, asked, value))
    _report(options, asked, value, status)
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
        again = command(options, "answer", asked.session_id, "--question", asked.token, "ANSWER")
        raise UsageError(
            "An approval counts for what was shown, so name it by its token. Look at it with "
            f"`{command(options, 'pending', asked.session_id)}`, then: {again}"
        )
    return True


async def _record(sessions: Sessions, options: argparse.Namespace, asked: Interrupt, value: Any) -> SessionStatus:
    return await sessions.answer(options.session, {asked: value}, by=options.by, checkpoint_id=options.checkpoint)


def _value(options: argparse.Namespace, asked: Interrupt) -> Any:  # Any: what the schema takes
    if options.data is not None:
        return _json("--data", options.data)
    if options.text is not None:
        return options.text
    if options.answer is not None:
        return parse(_read_input() if options.answer == "-" else options.answer, asked)
    decision = _decision(options)
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


def _json(option: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{option} {text!r} is not JSON: {error}.") from None


def _report(options: argparse.Namespace, asked: Interrupt, value: Any, status: SessionStatus) -> None:
    is_running = status.owner is not None
    if options.json:
        document = {
            "session_id": asked.session_id,
            "id": asked.id,
            "answer": plain(value),
            "by": options.by,
            "running": is_running,
            "open": questions(status.interrupts),
        }
        print_json(document)
        return
    by = f", by {visible_line(options.by)}" if options.by else ""
    print(f"✔ Recorded: {visible_line(json.dumps(value, ensure_ascii=False))}{by}.")
    if is_running:
        print("The process that runs the session picks it up now.")
        return
    if status.interrupts:
        print(f"Still open: {', '.join(visible_line(each.id) for each in status.interrupts)}")
    print(f"Go on with: {command(options, 'resume', 'MODULE:ATTRIBUTE', asked.session_id)}")
