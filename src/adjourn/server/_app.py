"""App: the server as an ASGI application, for any server of such applications."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterable
from os import PathLike
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from adjourn._checks import is_positive
from adjourn._engine.program import Program
from adjourn._hiding import logger
from adjourn._text import visible_line
from adjourn.errors import AdjournError, UsageError, text_of
from adjourn.runner import Runner
from adjourn.sessions import Sessions
from adjourn.spec import Loaded, Served
from adjourn.stores import SessionRef, Store
from adjourn.stores.kit import GetHead
from adjourn.webhooks import Webhook, Webhooks

from ._agents import Agents, described
from ._agui import AgUi
from ._api import ROWS, AgentList, Row, State
from ._backlog import Backlog
from ._callers import Callers
from ._chat import Chats
from ._errors import HANDLERS, ApiError
from ._folders import Folders, expanded, store_for
from ._guards import Endpoint, Fence, Guard, Identify
from ._idempotency import Idempotency
from ._inbox import Inbox
from ._limits import CallerLimits, Usage
from ._media import MediaHosts
from ._metrics import CONTENT_TYPE, Metrics
from ._openapi import document
from ._runs import Runs
from ._sessions import SessionRoutes
from ._signals import on_signals
from ._streams import Streams
from ._tokens import Tokens
from ._wire import respond

log = logger("adjourn.server")

ASKING = 3.0
"""Seconds in which the store has to answer a server that is asked whether it is ready: probes do not wait for long."""

HOUR = 3600.0
"""Seconds between two times that old answers are forgotten."""


class App:
    """Serves agents over HTTP.

    Give it to a server of ASGI applications, such as uvicorn, or use `adjourn serve`. All agents share one store.
    """

    def __init__(
        self,
        agents: Iterable[Program | Runner | Served | Loaded],
        *,
        store: Store | str | None = None,
        deps: Any = None,
        reload: float | None = None,
        app_name: str = "adjourn",
        tokens: Tokens | str | PathLike[str] | None = None,
        identify: Identify | None = None,
        self_approval: bool = True,
        open_metrics: bool = False,
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
        media_hosts: Iterable[str] = (),
        limits: CallerLimits | None = None,
        webhooks: Webhooks | Iterable[Webhook] | None = None,
        public_url: str | None = None,
        concurrency: int = 100,
        keep_alive: float = 15.0,
        max_body: int = 1024 * 1024,
        grace: float = 10.0,
    ) -> None:
        """Make an application that serves these agents.

        agents: agents, compiled graphs, @workflow functions, runners, or any of them as `Served`; and folders of YAML
            files, as `adjourn.spec.load` returns them.
        store: where sessions are kept, as a store or its URL; by default that of the files or runners, else memory.
        deps: what the code of all agents finds as `current().deps`.
        reload: seconds between looks at the folders; what has changed is served, and what has begun goes on as it
            began. None never looks.
        app_name: whose sessions these are, as the same id in another app is another session.
        tokens: who may make requests, as a file that `adjourn token` writes; without it and `identify`, everybody may
            do everything.
        identify: a function of a request that returns its `Caller`, or None for somebody who is not known.
        self_approval: False if an approval counts only by somebody who is none of its requesters (rule V19).
        open_metrics: True if anybody may read `GET /metrics`; else it takes a token of the role `metrics` or `admin`.
        hosts: names that clients reach the server by, besides localhost and addresses; "*" for any.
        origins: origins whose pages may use it, such as "https://desk.example.com"; those of its own always may.
        media_hosts: hosts that callers may name in the URLs of images, audio and files, such as "images.example.com": a
            model's server fetches them. They have to be https.
        limits: how much each caller may do at a time; by default, what `CallerLimits()` says.
        webhooks: who is told when a run waits or has ended, or a question is about to expire.
        public_url: where clients reach the server, such as "https://desk.example.com", for the links in webhooks.
        concurrency: how many sessions that others have left, or answered, it takes up at once.
        keep_alive: seconds after which a silent stream gets a comment, so that nobody cuts it.
        max_body: bytes that the body of a request may have.
        grace: seconds that runs have to end their steps when the server stops.

        Raises:
            UsageError: there are no agents, or they cannot be served together; or the file of tokens cannot be used.
            SpecInvalid: YAML files have mistakes.
        """
        given = list(agents)
        if reload is not None and not is_positive(reload):
            raise UsageError(f"App(reload={reload!r}): give a number of seconds above zero, or None.")
        chosen = store_for(given, store)
        limits = limits or CallerLimits()
        usage = Usage(limits)
        self._metrics = Metrics(usage)
        self.webhooks: Webhooks | None = _webhooks(webhooks, public_url)
        self.agents: Agents = Agents(
            expanded(given),
            chosen,
            app_name,
            deps,
            self_approval=self_approval,
            runner=self._metrics.runner,
            notify=self.webhooks,
            inputs=limits.inputs,
        )
        self._callers = Callers()
        opened = frozenset(["metrics"] if open_metrics else [])
        self._guard = Guard(self.agents, self._callers, usage, _tokens(tokens), identify, opened)
        if not self.is_closed and any(runner.options.get("self_approval") is False for runner in self.agents.runners):
            raise UsageError("App with self_approval=False: without tokens or identify, nobody knows who approves.")
        self._folders = Folders(given, self.replace)
        self._reload = reload
        self.grace = grace
        self.stall: float = limits.stall
        self._sessions = Sessions(self.agents.store, app_name=app_name)
        self._runs = Runs(self.agents.runners, self._metrics, concurrency=concurrency)
        self._streams = Streams(keep_alive=keep_alive, stall=limits.stall)
        media = MediaHosts(media_hosts)
        chats = Chats(self.agents, self._runs, self._streams, self._callers, self._sessions, media, max_body=max_body)
        self._keys = Idempotency(self.agents, self._streams, self._callers, max_body=max_body)
        places = (
            _OfServer(self.agents, self._runs, self._callers, self._metrics, self._guard),
            chats,
            SessionRoutes(self.agents, self._sessions, self._runs, self._callers, media, max_body=max_body),
            Inbox(self._sessions, self.agents, self._streams, self._callers),
            AgUi(self.agents, self._runs, self._streams, self._callers, media, usage, max_body=max_body),
        )
        self._draining: asyncio.Task[None] | None = None
        self.routes: list[BaseRoute] = [self._route(row, _handler(row, places)) for row in ROWS]
        starlette = Starlette(routes=self.routes, exception_handlers=HANDLERS, lifespan=self._lifespan)
        self.fence: Fence = Fence(starlette, hosts=hosts, origins=origins, upload=limits.upload)
        self._measured = self._metrics.measured(self.fence, self.routes)

    @property
    def store(self) -> Store:
        """The store that the sessions are in."""
        return self.agents.store

    @property
    def is_closed(self) -> bool:
        """Whether callers have to say who they are."""
        return self._guard.is_closed

    def replace(self, agents: Iterable[Program | Runner | Served | Loaded]) -> None:
        """Serve these agents from now on, on the same store; what has begun goes on as it began.

        It is called on the event loop of the server.

        Raises:
            UsageError: they cannot be served; nothing has changed then.
        """
        self.agents.replace(expanded(agents))
        self._runs.replace(self.agents.runners)

    def _route(self, row: Row, handler: Endpoint) -> Route:
        return Route(row.path, self._guard.closed(row, self._keys.once(row, handler)), methods=[row.method])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if raw := scope.get("raw_path"):
            # Decoded, an id with slashes would be several parts.
            scope = {**scope, "path": raw.decode("ascii", "replace")}
        await self._measured(scope, receive, send)

    # Starting and stopping

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncGenerator[None]:
        await self._runs.work()
        self._metrics.serve()
        sending = contextlib.AsyncExitStack()
        if self.webhooks is not None:
            await sending.enter_async_context(
                self.webhooks.delivering(self.store, app_name=self.agents.app_name, on_outcome=self._metrics.deliver)
            )
        beside = [asyncio.create_task(self._clean_up())]
        if self._reload is not None:
            beside.append(asyncio.create_task(self._folders.keep_up(self._reload)))
        try:
            with on_signals(self._begin_draining):
                yield
        finally:
            for task in beside:
                task.cancel()
            await asyncio.wait(beside)
            await self.drain()
            await sending.aclose()
            self._metrics.stop()
            await self.store.close()

    async def _clean_up(self) -> None:
        while True:
            try:
                await self._keys.clean_up()
            except AdjournError as error:
                log.warning("old keys stay for now: %s", visible_line(text_of(error)))
            await asyncio.sleep(HOUR)

    async def drain(self) -> None:
        """Begin nothing more, hand over what runs, and end every stream; for a process that is about to end."""
        await asyncio.shield(self._begin_draining())

    def _begin_draining(self) -> asyncio.Task[None]:
        if self._draining is None:
            self._draining = asyncio.create_task(self._drain())
        return self._draining

    async def _drain(self) -> None:
        self._metrics.drain()
        await self._runs.stop(self.grace)
        self._streams.closes.set()


class _OfServer:
    """The routes about the server itself."""

    def __init__(self, agents: Agents, runs: Runs, callers: Callers, metrics: Metrics, guard: Guard) -> None:
        self._agents = agents
        self._runs = runs
        self._callers = callers
        self._metrics = metrics
        self._guard = guard
        self._backlog = Backlog(agents.store, agents.app_name)

    async def health(self, _: Request) -> State:
        """Say that the process works."""
        return State(status="ok")

    async def readiness(self, _: Request) -> State:
        """Say whether requests should be sent here."""
        self._runs.check_open()
        try:
            async with asyncio.timeout(ASKING):
                await self._agents.store.read(GetHead(SessionRef("-", self._agents.app_name, None)))
        except TimeoutError:
            message = f"The store has not answered within {ASKING:g} s."
            raise ApiError("store_unavailable", message, "Try again soon.") from None
        return State(status="ready")

    async def metrics(self, _: Request) -> Response:
        """Count what the server does."""
        await self._backlog.look()
        return Response(await self._metrics.text(self._backlog), headers={"content-type": CONTENT_TYPE})

    async def describe(self, _: Request) -> Response:
        """Describe the API."""
        return respond(document(ROWS, self._guard.is_open if self._guard.is_closed else None))

    async def list_agents(self, request: Request) -> AgentList:
        """List the agents."""
        caller = self._callers.of(request)
        return AgentList(agents=[described(agent) for agent in self._agents if caller.may_use(agent.name)])


def _handler(row: Row, places: Iterable[object]) -> Endpoint:
    """Return what handles the requests to a route: the method of one of these objects that has its name.

    Most return the struct that the row names, or None where it names none; those that add headers, a response.
    """
    (handle,) = (found for each in places if (found := getattr(each, row.name, None)) is not None)

    async def handler(request: Request) -> Response:
        answer = await handle(request)
        if isinstance(answer, Response):
            return answer
        if answer is None:
            return Response(status_code=row.status)
        assert type(answer) in row.answers  # What is documented is what is sent.
        return respond(answer, row.status)

    return handler


def _webhooks(given: Webhooks | Iterable[Webhook] | None, public_url: str | None) -> Webhooks | None:
    if given is None:
        if public_url is not None:
            raise UsageError(
                "App(public_url=...) is for the links in webhooks, and there are none. Give App(webhooks=...)."
            )
        return None
    if not isinstance(given, Webhooks):
        return Webhooks(given, public_url=public_url)
    if public_url is not None:
        raise UsageError("App(public_url=...): the webhooks have their own. Give it once.")
    return given


def _tokens(given: Tokens | str | PathLike[str] | None) -> Tokens | None:
    """Return the tokens that may be used; a server to which there are none lets nobody in, until one is made.

    Raises:
        UsageError: the file cannot be used.
    """
    if given is None:
        return None
    found = given if isinstance(given, Tokens) else Tokens(given)
    found.all()
    return found
