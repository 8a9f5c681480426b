"""`adjourn pending`, `answer` and `approvals`: what waits for somebody, and what they decide."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from adjourn._documents import plain, questions
from adjourn._engine.record import APPROVALS
from adjourn._screen import Card, Screen
from adjourn._text import visible_line
from adjourn.errors import UsageError
from adjourn.events import Interrupt
from adjourn.printing import described, tool_request
from adjourn.sessions import Page, SessionSummary
from adjourn.sessions._inbox import TEXTS, TIMES
from adjourn.stores import Store

from ._asking import LATER, accepts, ask, confirms, find_question, is_terminal, pairs_of, parse, parse_data, person
from ._errors import REFUSED
from ._options import JSON, OF_APP, SERVER, SESSION, STORE, WHOSE, arg, either, takes
from ._printing import duration, form_of, hint, print_each, print_json, print_question, print_questions
from ._sessions import count
from ._stores import AnySessions, command, server_url, with_sessions, with_store

if TYPE_CHECKING:
    from adjourn.client import SessionInfo


@takes(
    arg("session", metavar="SESSION", nargs="?", help="only this session's"),
    *WHOSE,
    arg("--agent", metavar="NAME", help="only what this agent asks"),
    arg("--under", metavar="ADDRESS", help="only what is asked at this address or below it"),
    arg("--reason", help="only those with this reason, such as need_approval"),
    arg("--tag", help="only those with this tag"),
    arg("--requested-by", metavar="USER", help="only those that this user's turns ask"),
    arg("--older-than", metavar="TIME", help="only those that have been open for longer, such as 2h"),
    arg("--expires-within", metavar="TIME", help="only those that expire within this time, such as 1d"),
    arg("--limit", type=count, help="at most this many, oldest first"),
    arg("--after", metavar="CURSOR", help="go on where a page ended"),
    arg("--count", action="store_true", help="print only how many there are"),
    STORE,
    *SERVER,
    JSON,
)
def pending(options: argparse.Namespace) -> int:
    """List the questions, or count them."""
    if options.count:
        if options.limit is not None or options.after is not None:
            raise UsageError("--count counts all of them: leave out --limit and --after.")
        number = with_sessions(options, lambda sessions: _count(sessions, options))
        if options.json:
            print_json({"count": number})
        else:
            print(number)
        return 0
    found, total = with_sessions(options, lambda sessions: _read_page(sessions, options))
    if options.json:
        print_json(questions(found))
    elif not found:
        print("Nothing waits for an answer." if not _filters(options) else "Nothing like that waits for an answer.")
    elif options.session is not None:
        print_each(found)
        answer = command(options, "answer", options.session, "--question", "TOKEN", "ANSWER")
        print(f"\nAnswer with: {answer}", file=sys.stderr)
    else:
        print_questions(found)
        print(f"\nRead one in full, and see how to answer it: {_one(options, found)}", file=sys.stderr)
    if found.next is not None:
        more = _next_page(options, found.next)
        print(f"{len(found)} of {total} questions. There are more: {more}", file=sys.stderr)
    return 0


def _one(options: argparse.Namespace, found: Page[Interrupt]) -> str:
    """Return the command that shows the questions of a session."""
    sessions = {asked.session_id for asked in found}
    return command(options, "pending", sessions.pop() if len(sessions) == 1 else "SESSION")


def _filters(options: argparse.Namespace) -> dict[str, str]:
    """Return the filters that were given, by their names."""
    return {name: value for name in (*TEXTS, *TIMES) if (value := getattr(options, name)) is not None}


def _next_page(options: argparse.Namespace, cursor: str) -> str:
    words = [f"--{name.replace('_', '-')}={value}" for name, value in _filters(options).items()]
    session = [] if options.session is None else [options.session]
    json = ["--json"] if options.json else []
    return command(options, "pending", *session, *words, "--limit", str(options.limit), "--after", cursor, *json)


async def _read_page(sessions: AnySessions, options: argparse.Namespace) -> tuple[Page[Interrupt], int]:
    """Return the questions, and how many there are in all, other pages included."""
    await _check(sessions, options)
    found = await sessions.pending(options.session, **_wanted(options), after=options.after, limit=options.limit)
    if not found:
        await _check_readable(sessions, options)
    if found.next is None:
        return found, len(found)
    return found, await sessions.count_pending(options.session, **_wanted(options))


async def _count(sessions: AnySessions, options: argparse.Namespace) -> int:
    await _check(sessions, options)
    number = await sessions.count_pending(options.session, **_wanted(options))
    if not number:
        await _check_readable(sessions, options)
    return number


async def _check_readable(sessions: AnySessions, options: argparse.Namespace) -> None:
    """Raise if nothing was found because the store is encrypted: no filter finds anything without its keys."""
    if _filters(options):
        await sessions.pending(options.session, limit=1)


def _wanted(options: argparse.Namespace) -> dict[str, Any]:  # Any: texts and lengths of time
    return {name: duration(text) if name in TIMES else text for name, text in _filters(options).items()}


async def _check(sessions: AnySessions, options: argparse.Namespace) -> None:
    if options.session is not None:
        await sessions.status(options.session)  # Raises if there is no such session.


@takes(
    SESSION,
    arg(
        "answer",
        metavar="ANSWER",
        nargs="?",
        help="yes or no, a choice or its number, JSON if the question expects it, else text; - reads standard "
        "input; without it you are asked",
    ),
    arg("--question", metavar="NAME", help="which question: its token, as `pending` shows it, or its id or key"),
    arg("--by", metavar="NAME", default=person, help="who answers (your login name)"),
    arg("--message", metavar="TEXT", help="say this, too: the model reads it after the tool's result"),
    arg("--checkpoint", metavar="ID", help="count only if the session is still at this checkpoint"),
    either(
        arg("--data", metavar="JSON", help="the answer as JSON, whatever it looks like"),
        arg("--text", metavar="TEXT", help="the answer as text, whatever it looks like"),
        arg("--approve", action="store_true", help="approve a tool call as it is, as yes does"),
        arg("--refuse", metavar="REASON", help="refuse a tool call; the model sees the reason"),
        arg("--edit", metavar="JSON", help="approve a tool call with these arguments instead (all of them)"),
        arg(
            "--set",
            metavar="NAME=VALUE",
            action="append",
            help="approve a tool call with this argument changed and the others as they are; may be repeated",
        ),
        arg("--respond", metavar="TEXT", help="do not run the tool; the model gets this as its result"),
    ),
    arg("--remember", choices=("session", "always"), help="with --approve: approve later calls too"),
    *WHOSE,
    STORE,
    *SERVER,
    JSON,
)
def answer(options: argparse.Namespace) -> int:
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
    asked = with_sessions(options, lambda sessions: find_question(sessions, options.session, options.question))
    try:
        value = _value(options, asked) if not given or _is_seen(options, asked) else LATER
    except EOFError:
        value = LATER
    if value is LATER:
        print("It stays open.")
        return 0
    status, left = with_sessions(options, lambda sessions: _record(sessions, options, asked, value))
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
    sessions: AnySessions, options: argparse.Namespace, asked: Interrupt, value: Any
) -> tuple[SessionSummary | SessionInfo, list[Interrupt]]:
    """Record the answer; return the status of the session, and the questions that are left."""
    status = await sessions.answer(
        options.session, {asked: value}, by=options.by, message=options.message, checkpoint_id=options.checkpoint
    )
    left = await sessions.pending(options.session)
    if server_url(options) is not None:
        # Where callers have tokens, the name of the token counts, and not what was given.
        entries = await sessions.audit(options.session)
        options.by = next((each.by for each in reversed(entries) if each.interrupt.token == asked.token), options.by)
    return status, left


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


@takes(
    arg("user_id", metavar="USER", help="who approved: the user_id of the sessions"),
    OF_APP,
    arg("--tool", metavar="NAME", help="only approvals of this tool"),
    arg("--agent", metavar="NAME", help="only approvals of calls by this agent"),
    arg("--revoke", action="store_true", help="revoke them: the next call is asked about again"),
    arg("--all", action="store_true", help="with --revoke: all, of every tool and agent"),
    STORE,
    JSON,
)
def approvals(options: argparse.Namespace) -> int:
    """List what somebody has approved for always, or revoke it."""
    if options.revoke and not options.all and options.tool is None and options.agent is None:
        raise UsageError("--revoke: say which ones with --tool NAME or --agent NAME, or all of them with --all.")
    from adjourn.agents import Approvals  # noqa: PLC0415 - all agents come with it, which no other command here needs

    def approved(store: Store) -> Approvals:
        return Approvals(store, app_name=options.app)

    user, tool, agent = options.user_id, options.tool, options.agent
    if options.revoke:
        count = with_store(options, lambda store: approved(store).revoke(user, tool, agent=agent))
        if options.json:
            print_json({"user_id": user, "revoked": count})
        elif count:
            print(f"Revoked {count}. The next such call is asked about again.")
        else:
            print("Nothing like that is approved, so nothing was revoked.")
        return 0 if count else REFUSED
    every = with_store(options, lambda store: approved(store).list(user))
    found = [each for each in every if tool in (None, each.tool) and agent in (None, each.agent)]
    if options.json:
        print_json([plain(each) for each in found])
    elif not found:
        print(f"Nothing is approved for always by '{visible_line(user)}' in '{visible_line(options.app)}'.")
    else:
        for each in found:
            limits = [] if each.pattern is None else [("with", described(each.pattern))]
            rows = (*limits, ("by", visible_line(each.by or "(nobody was named)")))
            Screen(sys.stdout).show(Card("✔", "green", f"{each.agent} may call {each.tool}", rows))
        hint(f"\nRevoke with: {command(options, 'approvals', user, '--revoke', '--tool', found[0].tool)}")
    return 0
