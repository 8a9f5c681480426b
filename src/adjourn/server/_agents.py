"""The agents that a server serves, each with its runner, all on one store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, Unpack

import msgspec

from adjourn._engine.address import parse_segment, segment_text
from adjourn._engine.program import Program
from adjourn._engine.record import APPROVALS
from adjourn._text import did_you_mean
from adjourn.errors import CheckpointNotFound, ProgramChanged, UsageError
from adjourn.events import Interrupt
from adjourn.runner import Notify, Options, Runner
from adjourn.spec import Served
from adjourn.stores import Head, MemoryStore, SessionRef, Store, open_store
from adjourn.stores.kit import GetHead, HasInput

from ._api import AgentEntry
from ._callers import Caller
from ._errors import ApiError
from ._limits import CallerLimits, too_much


class MakeRunner(Protocol):
    """Makes a runner of a program."""

    def __call__(self, agent: Program, /, **options: Unpack[Options]) -> Runner: ...


class ServedAgent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent as the server has it."""

    name: str
    runner: Runner
    served: Served

    def check_values(self, given: Mapping[str, Any] | None, caller: Caller) -> None:
        """Refuse session values that a caller may not set.

        Raises:
            ApiError: the agent does not declare them, or they are the library's own.
        """
        allowed, is_admin = list(self.served.caller_values), caller.has("admin")
        refused = [name for name in given or () if name.startswith("~") or not (is_admin or name in allowed)]
        if not refused:
            return
        may = "any whose name does not begin with '~'" if is_admin else ", ".join(allowed) or "none"
        raise ApiError(
            "values_refused",
            f"Agent '{self.name}' does not let you set the session values {', '.join(map(repr, refused))}.",
            f"You may set {may}. The operator of the server lists them as `caller_values` of the agent.",
            refused=refused,
            allowed=allowed,
        )

    def takes_as_answer(self, asked: Sequence[Interrupt]) -> bool:
        """Return whether a message that comes while these questions are open is the answer to the only one of them.

        It names nothing that was shown, so where approvals have to, it is none of them.
        """
        if not self.served.answer_pending or len(asked) != 1:
            return False
        return asked[0].reason not in APPROVALS or not self.runner.options.get("require_token", False)

    def author(self, caller: Caller, by: str | None) -> str | None:
        """Return who gives an answer: the caller; one without a name may say who, unless that would let them be two."""
        return by if caller.name is None and self.runner.options.get("self_approval", True) else caller.name


def described(agent: ServedAgent) -> AgentEntry:
    """Return an agent as a client may choose it."""
    program, served = agent.runner.program, agent.served
    said = served.description or getattr(program, "description", "")
    return AgentEntry.of(served, name=agent.name, kind=program.kind, description=said)


class Agents:
    """The agents of a server by name, and by the programs of sessions."""

    def __init__(
        self,
        given: Iterable[Program | Runner | Served],
        store: Store | str | None,
        app_name: str,
        deps: Any = None,
        *,
        self_approval: bool = True,
        runner: MakeRunner = Runner,
        notify: Notify | None = None,
        inputs: int = CallerLimits().inputs,
    ) -> None:
        """Make a runner for each on one store: the one that is named, else that of the runners, else memory.

        `inputs` is how many may wait in the queue of a session.

        Raises:
            UsageError: there are none, two have the same name or different stores, or something cannot be served.
        """
        served = [each if isinstance(each, Served) else Served(program=each) for each in given]
        if not served:
            raise UsageError("App: give it at least one agent, such as App([agent]).")
        self.store: Store = open_store(store) if isinstance(store, str) else store or _store_of(served)
        self.app_name = app_name
        self._deps = deps
        self._self_approval = self_approval
        self._make_runner = runner
        self._notify = notify
        self._inputs = inputs
        self._by_name: dict[str, ServedAgent] = {}
        self._by_program: dict[str, ServedAgent] = {}
        for each in served:
            self._add(each)

    def _add(self, served: Served) -> None:
        runner = self._runner(served)
        name = runner.program.name
        if name in self._by_name:
            raise UsageError(f"App: two agents are called '{name}'. Give one of them another name.")
        agent = ServedAgent(name=name, runner=runner, served=served)
        self._by_name[name] = agent
        self._by_program[segment_text(runner.program.kind, name)] = agent

    def replace(self, given: Iterable[Program | Runner | Served]) -> None:
        """Serve these from now on, on the same store.

        Raises:
            UsageError: they cannot be served; nothing has changed then.
        """
        others = Agents(
            given,
            self.store,
            self.app_name,
            self._deps,
            self_approval=self._self_approval,
            runner=self._make_runner,
            notify=self._notify,
        )
        self._by_name, self._by_program = others._by_name, others._by_program

    def _runner(self, served: Served) -> Runner:
        program, options = served.program, self._options(served)
        if not isinstance(program, Runner):
            if not isinstance(program, Program):  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
                raise UsageError(
                    f"App: {program!r} is not an agent, a compiled graph, a @workflow function or a Runner."
                )
            return self._make_runner(program, **options)
        given = program.options
        given.update(options)
        return self._make_runner(program.program, **given)

    def _options(self, served: Served) -> Options:
        options: Options = {"store": self.store, "app_name": self.app_name}
        if self._deps is not None:
            options["deps"] = self._deps
        if self._notify is not None:
            options["notify"] = self._notify
        if not (self._self_approval and served.self_approval):
            options["self_approval"] = False
        if served.values:
            options["values"] = served.values
        if served.require_token:
            options["require_token"] = True
        if not served.interrupts:
            options["interrupts"] = False
        return options

    def __iter__(self) -> Iterator[ServedAgent]:
        return iter(self._by_name.values())

    @property
    def runners(self) -> list[Runner]:
        """The runners of all agents."""
        return [agent.runner for agent in self._by_name.values()]

    def programs(self, caller: Caller) -> list[str]:
        """Return the programs of the agents that a caller may use, by their addresses."""
        return [program for program, agent in self._by_program.items() if caller.may_use(agent.name)]

    def named(self, name: str | None, caller: Caller) -> ServedAgent:
        """Return the agent that a request names; it need not if there is only one that its caller may use."""
        names = [each for each in self._by_name if caller.may_use(each)]
        if name is None and len(names) == 1:
            return self._by_name[names[0]]
        if name is None:
            raise ApiError("invalid_request", "The request names no agent.", _choose(names), agents=names)
        if name not in names:
            meant = did_you_mean(name, names)
            raise ApiError("agent_not_found", f"There is no agent '{name}'.{meant}", _choose(names), agents=names)
        return self._by_name[name]

    async def check_open_to(self, caller: Caller, session_id: str | None) -> None:
        """Refuse the session of an agent that a caller may not use, as if there were none; there need not be one.

        Raises:
            CheckpointNotFound: it is.
        """
        if caller.is_limited and session_id is not None:
            head = await self.store.read(GetHead(SessionRef(session_id, self.app_name, caller.user_id)))
            if head is not None and head.program and not caller.may_use(agent_name(head.program)):
                raise CheckpointNotFound(session_id)

    async def check_room(self, caller: Caller, session_id: str, input_id: str | None) -> None:
        """Refuse one more input for a session in which too many wait; one that is there already may come again.

        Raises:
            ApiError: too many do.
        """
        ref = SessionRef(session_id, self.app_name, caller.user_id)
        head = await self.store.read(GetHead(ref))
        if head is None or head.inputs < self._inputs:
            return
        if input_id is None or not await self.store.read(HasInput(ref, input_id)):
            hint = "Wait until some have begun, or remove them with DELETE /api/v1/sessions/{id}/inputs/{input}."
            raise too_much("inputs", self._inputs, "inputs wait in this session", hint, 2)

    async def of_session(self, session_id: str, caller: Caller) -> ServedAgent:
        """Return the agent that a session belongs to.

        Raises:
            CheckpointNotFound: there is no such session that the caller may see.
            ProgramChanged: its agent is not served here.
        """
        head = await self._seen(session_id, caller)
        if not head.program and len(self._by_name) == 1:
            return next(iter(self._by_name.values()))
        if head.program not in self._by_program:
            raise ProgramChanged(head.program, "this server does not serve it")
        return self._by_program[head.program]

    async def reader_of(self, session_id: str, caller: Caller) -> Runner:
        """Return a runner that can read, cancel and delete a session: its agent's, or any if that is not served here.

        Raises:
            CheckpointNotFound: there is no such session that the caller may see.
        """
        head = await self._seen(session_id, caller)
        return self._by_program.get(head.program, next(iter(self._by_name.values()))).runner

    async def _seen(self, session_id: str, caller: Caller) -> Head:
        head = await self.store.read(GetHead(SessionRef(session_id, self.app_name, caller.user_id)))
        if head is None or (caller.is_limited and not caller.may_use(agent_name(head.program))):
            raise CheckpointNotFound(session_id)
        return head


def agent_name(program: str) -> str:
    """Return the name of the agent whose program this is; a session that no turn has begun in has none."""
    return parse_segment(program).id if program else ""


def _store_of(served: list[Served]) -> Store:
    """Return the store that the runners share.

    Raises:
        UsageError: they have different ones, each of which would hide sessions of the others.
    """
    stores: list[Store] = []
    for each in served:
        program = each.program
        if isinstance(program, Runner) and program.has_store and program.store not in stores:
            stores.append(program.store)
    if len(stores) > 1:
        listed = " and ".join(map(repr, stores))
        raise UsageError(f"App: all agents of a server share one store, but these have {listed}. Give App(store=...).")
    return stores[0] if stores else MemoryStore()


def _choose(names: list[str]) -> str:
    return f"Choose one of: {', '.join(names)}."
