"""`adjourn chat`, `resume`, `recover` and `edit`: sessions that their programs continue, here or on a server."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from msgspec.structs import replace

from adjourn._documents import plain
from adjourn._engine.address import segment_text
from adjourn._screen import Card, Screen
from adjourn._text import counted, did_you_mean, visible_line
from adjourn.errors import (
    AdjournError,
    AlreadyResumed,
    CheckpointNotFound,
    InterruptExpired,
    InvalidAnswer,
    StaleCheckpoint,
    UsageError,
)
from adjourn.events import (
    CheckpointSaved,
    Delta,
    Done,
    Event,
    Failed,
    Interrupt,
    Interrupted,
    MessageEvent,
    NodeEnd,
    NodeStart,
    to_json,
)
from adjourn.graph import CompiledGraph
from adjourn.printing import described, end_line, print_event
from adjourn.runner import Run, Runner, RunResult
from adjourn.sessions import SessionStatus
from adjourn.stores import SessionRef
from adjourn.stores.kit import GetHead

from ._asking import LATER, answering, ask, is_terminal, pairs_of, parse_data, person, typed
from ._errors import INTERRUPTED, advice
from ._options import A_PROGRAM, ALLOW, JSON, PROGRAM, PROGRAM_NAME, SERVER, SESSION, STORE, USER, arg, takes
from ._printing import hint, print_each, print_json, say
from ._programs import deps_of, named_in, runner_of, values_of
from ._stores import AnyStatus, check_token, client_of, closing, command, server_url

if TYPE_CHECKING:
    from adjourn.client import AgentInfo, Client, RemoteResult, RemoteRun


SHOWN_RUN = (arg("--verbose", "-v", action="store_true", help="show every event"), JSON)


class Ending(NamedTuple):
    """How a run ended."""

    status: Literal["done", "interrupted", "cancelled", "failed"]
    interrupts: tuple[Interrupt, ...] = ()


class Follower:
    """Shows runs. For a person, engine details are left out unless every event is wanted."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._as_json: bool = options.json
        self._verbose: bool = options.verbose
        self._said = ""

    async def follow(self, run: Run | RemoteRun) -> Ending:
        """Show a run to its end.

        Raises:
            AdjournError: it was refused before it began.
        """
        self._said, failed = "", False
        try:
            async for event in run:
                failed = failed or isinstance(event, Failed)
                self._show(event)
            result = await run
        except asyncio.CancelledError:
            # Ctrl-C: the run is stopped for good before anything else is asked of the session. Others' go on.
            if not run.is_attached:
                await run.cancel()
            end_line()  # When the turn goes on, the answer begins anew.
            raise
        except Exception as error:  # protects the person: what their program raised was shown as its last event
            if not failed and isinstance(error, AdjournError):
                raise
            return self._failed(error, told=failed)
        if not self._as_json:
            self._show_result(result)
        return Ending(result.status, result.interrupts)

    def _failed(self, error: Exception, *, told: bool) -> Ending:
        if os.environ.get("ADJOURN_DEBUG"):
            raise error
        if not told:
            self._show(Failed(error=type(error).__name__, message=str(error)))
        return Ending("failed")

    def _show(self, event: Event) -> None:
        if self._as_json:
            sys.stdout.write(to_json(event).decode() + "\n")
            sys.stdout.flush()
            return
        if isinstance(event, MessageEvent) and event.message.role == "assistant":
            self._said = event.message.text
        if self._verbose:
            print_event(event)
        else:
            print_talk(event)

    def _show_result(self, result: RunResult | RemoteResult) -> None:
        if result.status != "done" or (self._said and result.output in ("", self._said)):
            return
        value = result.value if isinstance(result, RunResult) else None
        shown = result.output or _described(plain(result.state if value is None else value))
        Screen(sys.stdout).show(Card("✔", "green", "done", (("", shown),) if shown else ()))


def print_talk(event: Event) -> None:
    """Print an event of a conversation, without engine details and what is shown anyway."""
    match event:
        case CheckpointSaved() | NodeStart() | Interrupted() | Done():
            return  # Questions and results are shown by themselves.
        case NodeEnd(error=str()):
            return  # The failure of the run follows.
        case MessageEvent(message=message):
            # Other messages were typed by the person or returned by a tool; a tool call is shown when it runs.
            if message.role == "assistant" and message.text:
                print_event(replace(event, message=replace(message, tool_calls=())))
            else:
                end_line()  # It may have been streamed that the model calls a tool.
        case Delta(call_id=str()):
            return  # The tool's result includes it.
        case _:
            print_event(event)


def _described(value: Any) -> str:
    """Return a result for people; of a state, the fields that are not empty."""
    if isinstance(value, dict):
        value = {name: each for name, each in cast("dict[str, Any]", value).items() if each not in (None, "", [], {})}
    return described(value) if value not in (None, {}) else ""


IN_MEMORY = "The session was kept in memory only, and ends here. With --store URL it outlives this command."


class Session(ABC):
    """One session, driven from the command line: of a program here, or of an agent on a server.

    The event loop runs only while the program does: a person who is asked can be interrupted with Ctrl-C at any time.
    """

    name: str
    """What is talked to."""
    is_kept: bool = True
    """Whether the session outlives this command."""
    _source: Runner | Client
    """What runs it."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.id: str = options.session or f"chat-{uuid.uuid4().hex[:8]}"
        self.is_asked_here: bool = is_terminal() and not options.json
        self._options = options
        self._follower = Follower(options)
        self._loop = asyncio.Runner()

    def close(self) -> None:
        """Close what it uses, and the event loop."""
        self._loop.run(self._source.close())
        self._loop.close()

    def turn(self, text: str, *, gives_up: bool = False) -> Ending:
        """Begin a turn with a message, and show it to its end; it may give up one that has not ended."""
        return self.follow(self._begun(text, values_of(self._options.value), "abandon" if gives_up else "error"))

    @abstractmethod
    def _begun(
        self, text: str, values: dict[str, Any] | None, on_pending: Literal["abandon", "error"]
    ) -> Run | RemoteRun: ...

    def status(self) -> str | None:
        """Return the session's status; None if it has not started."""
        try:
            return self._loop.run(self._source.status(self.id)).status
        except CheckpointNotFound:
            return None

    def failed(self, agent: str | None) -> list[str]:
        """Return the sessions of what is talked to, or of all on a server, that have failed; or only of this agent."""
        found = self._loop.run(self._source.sessions(status="failed"))
        return [each.session_id for each in found if self._is_own(each, agent)]

    @abstractmethod
    def _is_own(self, found: AnyStatus, agent: str | None) -> bool: ...

    def pending(self) -> list[Interrupt]:
        """Return the open questions."""
        return self._loop.run(self._source.pending(self.id))

    def recover(self) -> Ending:
        """Continue without answering anything: after a crash, or with answers that were recorded elsewhere."""
        status = self._loop.run(self._source.status(self.id))
        if status.status != "running":
            return self.follow(self._source.recover(self.id))
        by = f" being run by {visible_line(status.owner or '')}" if isinstance(status, SessionStatus) else " running"
        hint(f"Session {visible_line(self.id)} is{by}; following it.")
        return self.follow(self._attached())

    @abstractmethod
    def _attached(self) -> Run | RemoteRun:
        """Return the run that another process drives, from now on."""

    def follow(self, run: Run | RemoteRun) -> Ending:
        """Show a run to its end; Ctrl-C stops it where it can be recovered."""
        return self._loop.run(self._follower.follow(run))

    def settle(self, ending: Ending) -> Ending:
        """Ask the person at the terminal the open questions, as long as they answer."""
        while ending.status == "interrupted" and self.is_asked_here:
            asked = self.pending()
            answers = self._answers(asked)
            if asked and not answers:
                break
            # If none is open, somebody else has answered in the meantime.
            ending = self._resume(answers) if asked else self.recover()
            if not asked and not self.pending():
                break
        return ending

    def _answers(self, asked: list[Interrupt]) -> dict[Interrupt, Any]:
        """Ask each question and return the answers; those left for later are missing."""
        answers: dict[Interrupt, Any] = {}
        for position, each in enumerate(asked, 1):
            value = ask(each, f", {position} of {len(asked)}" if len(asked) > 1 else "")
            if value is not LATER:
                answers[each] = value  # as it was shown, by its token
        return answers

    def _resume(self, answers: dict[Interrupt, Any]) -> Ending:
        try:
            return self.follow(self._source.resume(self.id, answers, by=self._options.by))
        except (InvalidAnswer, AlreadyResumed, InterruptExpired, StaleCheckpoint) as error:
            say(visible_line(advice(error, self._options)), "red")
            return self.recover()

    def print_next_steps(self, ending: Ending) -> None:
        """Print what the session waits for, and how to continue."""
        if self._options.json or ending.status == "done":
            return
        if ending.status == "interrupted" and not self.is_asked_here:
            print_each(self.pending())
        hint(f"\n{self.next_steps(ending)}")

    def next_steps(self, ending: Ending) -> str:
        """Return how to continue the session later."""
        if not self.is_kept:
            return IN_MEMORY
        if ending.status == "interrupted":
            answer = answering(self._options, self.id, self.pending())
            go_on = command(self._options, "resume", *self._words, self.id)
            return f"Answer with:     {answer}\nThen go on with: {go_on}"
        return f"Go on with: {command(self._options, 'recover', *self._words, self.id)}"

    def way_back(self) -> str:
        """Return how to come back to the conversation."""
        if not self.is_kept:
            return IN_MEMORY
        chat = command(self._options, "chat", *self._words, "--session", self.id)
        return f"The session is kept. Go on with: {chat}"

    @property
    def _words(self) -> list[str]:
        """How a command names what runs the session."""
        return [] if server_url(self._options) else [self._options.program]


class LocalSession(Session):
    """A session of a program that runs in this process."""

    def __init__(self, options: argparse.Namespace, *, existing: bool) -> None:
        super().__init__(options)
        deps = deps_of(options)
        runner = runner_of(
            named_in(options).program, options, {} if deps is None else {"deps": deps}, existing=existing
        )
        self._source = self._runner = runner if options.user is None else runner.for_user(options.user)
        options.app = runner.app_name  # for the commands that are printed: those without a program must name it
        self.name = runner.program.name
        self.is_kept = runner.has_store

    def _begun(self, text: str, values: dict[str, Any] | None, on_pending: Literal["abandon", "error"]) -> Run:
        return self._runner.run(self._input(text), session_id=self.id, values=values, on_pending=on_pending)

    def _input(self, text: str) -> Any:  # Any: what the program takes
        """Return the text; for a graph, a state if it is a JSON object.

        Raises:
            UsageError: the graph takes nothing else.
        """
        program = self._runner.program
        if not isinstance(program, CompiledGraph):
            return text
        data = parse_data(text)
        if isinstance(data, dict):
            return cast("dict[str, Any]", data)
        if "user_input" not in program.schema.channels:
            fields = ", ".join(program.schema.channels)
            raise UsageError(f"Graph '{program.name}' takes a JSON object here, in braces, with some of: {fields}.")
        return text

    def _is_own(self, found: AnyStatus, agent: str | None) -> bool:
        program = self._runner.program
        address = segment_text(program.kind, program.name)
        return isinstance(found, SessionStatus) and found.program == address and agent in (None, program.name)

    def _attached(self) -> Run:
        ref = SessionRef(self.id, self._runner.app_name, self._runner.user_id)
        head = self._loop.run(self._runner.store.read(GetHead(ref)))
        return self._runner.attach(self.id, after=head.seq if head else 0)


class ServerSession(Session):
    """A session of an agent that a server runs."""

    def __init__(self, options: argparse.Namespace, *, existing: bool) -> None:
        super().__init__(options)
        self._source = self._client = client_of(options)
        self.name = options.program or ""
        if existing and options.session is None:
            return  # It is for all sessions that there are.
        try:
            found = self._loop.run(self._found(existing=existing))
        except BaseException:
            self.close()
            raise
        self.name = found.name
        self._takes_state = found.kind == "runnable"

    async def _found(self, *, existing: bool) -> AgentInfo:
        """Return the agent that is named, or that the session belongs to, or the only one."""
        name: str | None = self._options.program
        if name is None or existing:
            try:
                name = (await self._client.status(self.id)).agent or name
            except CheckpointNotFound:
                if existing:
                    raise
        agents = {agent.name: agent for agent in await self._client.agents()}
        if name is None and len(agents) == 1:
            (name,) = agents
        if name is None or name not in agents:
            what = "Which agent?" if name is None else f"There is no agent '{name}'.{did_you_mean(name, agents)}"
            raise UsageError(f"{what} {self._client.url} has: {', '.join(agents) or 'none that you may use'}.")
        return agents[name]

    def _begun(self, text: str, values: dict[str, Any] | None, on_pending: Literal["abandon", "error"]) -> RemoteRun:
        data = parse_data(text) if self._takes_state else text
        message = cast("dict[str, Any]", data) if isinstance(data, dict) else text
        return self._client.chat(message, agent=self.name, session_id=self.id, values=values, on_pending=on_pending)

    def _is_own(self, found: AnyStatus, agent: str | None) -> bool:
        return isinstance(found, SessionStatus) or found.agent == (agent or self.name or found.agent)

    def _attached(self) -> RemoteRun:
        return self._client.attach(self.id, after=None)


def session_of(options: argparse.Namespace, *, existing: bool) -> Session:
    """Return the session that a command is about: of a server if one is named, else of a program.

    Raises:
        UsageError: there is no such program or agent, or options do not go together.
    """
    if server_url(options) is not None:
        return ServerSession(options, existing=existing)
    check_token(options)
    return LocalSession(options, existing=existing)


_HELP = "Type a message and Enter. Ctrl-C stops an answer; /quit, Ctrl-D or Ctrl-C here ends it; the session stays."
_UNFINISHED = "The turn has not ended: /continue goes on with it, and a new message gives it up."


@takes(
    *PROGRAM,
    arg("--session", metavar="ID", help="continue this session, or start it (default: a new one)"),
    arg("--message", "-m", metavar="TEXT", help="send this (to a graph, also a JSON object of its state), and exit"),
    arg("--user", metavar="ID", help="whose session it is; that of another user is not found"),
    arg("--value", metavar="NAME=VALUE", action="append", help="a session value; may be repeated"),
    arg("--by", metavar="NAME", default=person, help="who answers here (your login name)"),
    *SHOWN_RUN,
)
def chat(options: argparse.Namespace) -> int:
    """Hold the conversation and return the exit code."""
    if options.message is None and (options.json or not is_terminal()):
        raise UsageError("There is no terminal to talk in. Send one message with --message TEXT, or -m TEXT.")
    values_of(options.value)
    session = session_of(options, existing=False)
    try:
        return _say_once(session, options) if options.message is not None else _talk(session, options)
    except (EOFError, KeyboardInterrupt) as end:
        was_stopped = isinstance(end, KeyboardInterrupt)
        print("\nStopped." if was_stopped else "")
        _print_way_back(session)
        return INTERRUPTED if was_stopped else 0
    finally:
        session.close()


def _say_once(session: Session, options: argparse.Namespace) -> int:
    if options.json:
        print_json({"type": "session", "session_id": session.id})
    ending = session.settle(session.turn(options.message))
    if not options.json:
        hint(f"session {visible_line(session.id)}")
    session.print_next_steps(ending)
    return 1 if ending.status == "failed" else 0


def _talk(session: Session, options: argparse.Namespace) -> int:
    _print_heading(session)
    ending = _uncut(session, partial(_take_up, session))
    while ending.status != "interrupted":
        is_unfinished = ending.status != "done"
        if is_unfinished:
            say(f"\n{_UNFINISHED}", "dim")
        text = _message(can_continue=is_unfinished)
        if text in ("/quit", "/exit"):
            raise EOFError
        ending = _uncut(session, partial(_go_on, session, options, text, is_unfinished=is_unfinished))
    session.print_next_steps(ending)
    return 0


def _uncut(session: Session, turn: Callable[[], Ending]) -> Ending:
    """Return how a turn ended, with its questions; Ctrl-C ends the turn, and not the conversation."""
    try:
        return session.settle(turn())
    except KeyboardInterrupt:
        print("\nStopped.")
        return Ending("cancelled")


def _message(*, can_continue: bool) -> str:
    prompt = Screen(sys.stdout).painted("›", "bold") + " "
    while True:
        text = typed(f"\n{prompt}")
        if text == "/continue" and not can_continue:
            say("The last turn has ended: there is nothing to continue.", "dim")
        elif text and text != "/help":
            return text
        else:
            say(_HELP)


def _go_on(session: Session, options: argparse.Namespace, text: str, *, is_unfinished: bool) -> Ending:
    try:
        if is_unfinished and text == "/continue":
            return session.recover()
        return session.turn(text, gives_up=is_unfinished)
    except AdjournError as error:
        say(visible_line(f"✘ {advice(error, options)}"), "red")
        return Ending("failed" if is_unfinished else "done")


def _take_up(session: Session) -> Ending:
    """Continue an existing session where it is."""
    status = session.status()
    return Ending("done") if status in (None, "done") else session.recover()


def _print_heading(session: Session) -> None:
    screen = Screen(sys.stdout)
    name = visible_line(session.name)
    kept = "" if session.is_kept else ", in memory only: --store URL keeps it"
    print(f"{screen.painted(name, 'bold')}  session {visible_line(session.id)}{kept}")
    print(screen.painted(_HELP, "dim"))


def _print_way_back(session: Session) -> None:
    if session.status() is not None:
        hint(session.way_back())


@takes(
    *PROGRAM,
    SESSION,
    USER,
    arg("--by", metavar="NAME", default=person, help="who answers here (your login name)"),
    *SHOWN_RUN,
)
def resume(options: argparse.Namespace) -> int:
    """Continue with recorded answers, then with those of the person at the terminal."""
    return go_on(options, ask=True)


def go_on(options: argparse.Namespace, *, ask: bool) -> int:
    """Continue a session and return the exit code."""
    session = session_of(options, existing=True)
    ending = Ending("interrupted")
    try:
        ending = session.recover()
        ending = session.settle(ending) if ask else ending
        session.print_next_steps(ending)
    except EOFError:
        session.print_next_steps(ending)
    except KeyboardInterrupt:
        print("\nStopped.")
        session.print_next_steps(Ending("interrupted" if session.pending() else "cancelled"))
        return INTERRUPTED
    finally:
        session.close()
    return 1 if ending.status == "failed" else 0


@takes(
    *PROGRAM,
    arg("session", metavar="SESSION", nargs="?"),
    arg("--all-failed", action="store_true", help="each session of the program, or on the server, that has failed"),
    arg("--agent", metavar="NAME", help="with --all-failed: only sessions of this agent"),
    USER,
    *SHOWN_RUN,
)
def recover(options: argparse.Namespace) -> int:
    """Continue as far as possible."""
    if not options.all_failed:
        if options.agent is not None:
            raise UsageError("--agent goes with --all-failed.")
        if options.session is None:
            # One word alone is the session.
            options.session, options.program = options.program, None
        if options.session is None:
            raise UsageError("Which session? Give SESSION, or --all-failed for each that has failed.")
        return go_on(options, ask=False)
    if options.session is not None:
        raise UsageError("--all-failed takes no SESSION.")
    session, code = session_of(options, existing=True), 0
    try:
        failed = session.failed(options.agent)
        for session.id in failed:
            if options.json:
                print_json({"type": "session", "session_id": session.id})
            else:
                say(f"Session {visible_line(session.id)}")
            try:
                ending = session.recover()
            except AdjournError as error:
                say(visible_line(f"✘ {advice(error, options)}"), "red")
                ending = Ending("failed")
            session.print_next_steps(ending)
            code = 1 if ending.status == "failed" else code
        if not options.json:
            hint(f"{counted(len(failed), 'session')} had failed." if failed else "No session has failed.")
    except KeyboardInterrupt:
        print("\nStopped.")
        return INTERRUPTED
    finally:
        session.close()
    return code


@takes(
    arg("program", metavar=PROGRAM_NAME, nargs="?", help=f"{A_PROGRAM}; with --server, nothing"),
    ALLOW,
    STORE,
    *SERVER,
    SESSION,
    arg(
        "values",
        metavar="NAME=VALUE",
        nargs="+",
        help="a field and its new value: JSON if it is JSON, else text; NAME:=JSON is always JSON, and @FILE in place "
        "of a value reads it from a file. It goes through the reducer of the field, as what a node returns",
    ),
    arg("--checkpoint", metavar="ID", help="edit this one; see `adjourn tree` (default: the head)"),
    arg("--as-node", metavar="NODE", help="as if this node had returned it: what follows runs next"),
    arg("--at", metavar="ADDRESS", help="the state of the nested graph at this address"),
    arg("--again", action="store_true", help="let approvals that have acted count once more"),
    arg("--by", metavar="NAME", default=person, help="who edits (your login name)"),
    USER,
    JSON,
)
def edit(options: argparse.Namespace) -> int:
    """Write the checkpoint and print how to continue."""
    if server_url(options) and options.program is not None:
        # Without a program, each word stands one place further on.
        options.values, options.session = [options.session, *options.values], options.program
        options.program = None
    values = {name.removesuffix(":"): _value_of(name, text) for name, text in pairs_of("", options.values).items()}
    place = {"checkpoint_id": options.checkpoint, "as_node": options.as_node, "at": options.at, "again": options.again}
    if server_url(options):
        if options.by != person():
            raise UsageError("--by does not go with --server: the server knows who edits.")
        point = asyncio.run(closing(client_of(options), lambda client: client.edit(options.session, values, **place)))
    else:
        check_token(options)
        runner = runner_of(named_in(options).program, options, {}, existing=True)
        runner = runner if options.user is None else runner.for_user(options.user)
        point = asyncio.run(
            closing(runner, lambda runner: runner.edit(options.session, values, **place, by=options.by))
        )
    if options.json:
        print_json({"session_id": options.session, "checkpoint_id": point.id, "next": list(point.next)})
        return 0
    following = f" Next: {visible_line(', '.join(point.next))}." if point.next else ""
    changed = visible_line(", ".join(values))
    print(f"Checkpoint {visible_line(point.id)}, on a new branch, has the new {changed}.{following}")
    if point.next:
        program = [options.program] if options.program is not None else []
        hint(f"Go on with: {command(options, 'recover', *program, options.session)}")
    return 0


def _value_of(name: str, text: str) -> Any:  # Any: JSON
    given = _read_file(name, text[1:]) if text.startswith("@") else text
    if not name.endswith(":"):
        return parse_data(given)
    try:
        return json.loads(given)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name}={text} is not JSON: {error}. NAME=VALUE also takes text.") from None


def _read_file(name: str, file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        remedy = f"Check the name; a text that begins with @ is written as JSON, {name.removesuffix(':')}:='\"@…\"'."
        raise UsageError(f"{name}=@{file} cannot be read: {error}. {remedy}") from None
