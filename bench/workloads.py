"""What is measured, how large, and what must be reached."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

Side = Literal["floor", "ours", "langgraph", "pydantic_ai", "openai_agents", "google_adk", "langgraph_api"]
Family = Literal["graphs", "agents", "servers", "service"]
Server = Literal["postgres", "redis"]
Size = Mapping[str, int]

PEERS: tuple[Side, ...] = ("langgraph", "pydantic_ai", "openai_agents", "google_adk", "langgraph_api")
SIDES: Mapping[Family, tuple[Side, ...]] = {
    "graphs": ("floor", "ours", "langgraph"),
    "agents": ("floor", "ours", "langgraph", "pydantic_ai", "openai_agents", "google_adk"),
    "servers": ("floor", "ours", "langgraph"),
    "service": ("floor", "ours", "google_adk", "langgraph_api"),
}
"""Who takes part in the workloads of a family, and stands in its table."""


@dataclass(frozen=True)
class AtMost:
    """Our figure is no larger than this."""

    limit: float

    def is_reached(self, ours: float, peer: float | None) -> bool | None:
        return ours <= self.limit


@dataclass(frozen=True)
class TimesLess:
    """Our figure is this many times smaller than that of the best rival."""

    factor: float

    def is_reached(self, ours: float, peer: float | None) -> bool | None:
        return None if peer is None else peer >= self.factor * ours


Target = AtMost | TimesLess


@dataclass(frozen=True, kw_only=True)
class Row:
    """A line of the table: one figure of each side. In its label `{turns}` stands for that size."""

    label: str
    figure: str
    unit: str
    peer_figure: str = ""  # where a peer is measured in a way that the others have no need of
    rivals: tuple[Side, ...] = PEERS  # the peers whose best figure is held against ours
    target: Target | None = None
    scales: bool = True  # whether the target holds at any size, or only at the workload's own

    def figure_of(self, side: Side) -> str:
        return self.peer_figure if side in PEERS and self.peer_figure else self.figure


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Work that each side does, in a process of its own, `repeats` times."""

    name: str
    rows: tuple[Row, ...]
    family: Family = "graphs"
    size: Size = field(default_factory=dict[str, int])
    quick: Size = field(default_factory=dict[str, int])  # what differs with --quick
    full: Size = field(default_factory=dict[str, int])  # what differs with --full
    repeats: int = 3
    alone: bool = False  # without peers, who would take too long
    only_ours: bool = False  # even without a floor: there is nothing of the kind elsewhere
    without: tuple[Side, ...] = ()  # those that have nothing of the kind
    servers: tuple[Server, ...] = ()  # those that each repetition gets an empty database on
    timeout: float = 240.0  # seconds for one side and repetition

    @property
    def sides(self) -> tuple[Side, ...]:
        if self.only_ours:
            return ("ours",)
        sides = SIDES[self.family][:2] if self.alone else SIDES[self.family]
        return tuple(side for side in sides if side not in self.without)

    def resized(self, change: Size) -> "Workload":
        """The same work with other sizes; targets that hold only for the old ones go."""
        size = {**self.size, **change}
        rows = (row if row.scales or size == self.size else replace(row, target=None) for row in self.rows)
        return replace(self, size=size, rows=tuple(replace(row, label=row.label.format(**size)) for row in rows))


def _talk(name: str, figure: str, *, peer: str = "") -> tuple[Row, ...]:
    """The rows of one kind of conversation, with LangGraph in its own `peer` kind if that differs."""

    def row(label: str, key: str, unit: str, target: Target | None = None, *, scales: bool = True) -> Row:
        ours, theirs = f"{figure}_{key}", f"{peer or figure}_{key}"
        return Row(label=f"{name}, {label}", figure=ours, peer_figure=theirs, unit=unit, target=target, scales=scales)

    return (
        row("a turn", "turn", "ms"),
        row("on disk, open", "open", "MB", AtMost(2.5), scales=False),
        row("on disk, closed", "closed", "MB", AtMost(2.5), scales=False),
        row("turn {turns} to 10", "growth", "×", AtMost(1.2)),
    )


def _grown(name: str, size: Size, quick: Size, *rows: tuple[str, str, str]) -> Workload:
    """The CPU time that one of few takes us, each with how many times as much one of many takes."""

    def row(label: str, took: str, growth: str) -> tuple[Row, Row]:
        unit = "" if took.endswith("calls") else "µs"
        return (
            Row(label=label, figure=took, unit=unit),
            Row(label="{many:,} to {few:,}", figure=growth, unit="×", target=AtMost(1.2)),
        )

    listed = tuple(each for label, took, growth in rows for each in row(label, took, growth))
    return Workload(name=name, size=size, quick=quick, repeats=2, only_ours=True, rows=listed)


def _stored_on(server: Server, *, quick: Size) -> tuple[Workload, ...]:
    """Steps and questions on a server."""
    return (
        Workload(
            name=f"steps_{server}",
            family="servers",
            servers=(server,),
            size={"steps": 200},
            quick=quick,
            rows=(
                Row(label="a step, both sync", figure="sync", unit="µs", target=TimesLess(5)),
                Row(label="a step, both async", figure="async", unit="µs"),
            ),
        ),
        Workload(
            name=f"hitl_{server}",
            family="servers",
            servers=(server,),
            rows=(Row(label="pause and resume", figure="round_trip", unit="µs", target=TimesLess(5)),),
        ),
    )


def _talk_on_servers() -> tuple[Row, ...]:
    """The rows of a conversation on both servers, each beside LangGraph's on Postgres."""
    return tuple(
        row
        for name, server in (("Postgres", "postgres"), ("Redis", "redis"))
        for row in (
            Row(label=f"{name}, a turn", figure=f"{server}_turn", peer_figure="postgres_turn", unit="ms"),
            Row(
                label=f"{name}, kept by the server",
                figure=f"{server}_kept",
                peer_figure="postgres_kept",
                unit="MB",
                target=TimesLess(100),
                scales=False,
            ),
            Row(
                label=f"{name}, turn {{turns}} to 10",
                figure=f"{server}_growth",
                peer_figure="postgres_growth",
                unit="×",
                target=AtMost(1.2),
            ),
        )
    )


_SERVED = (
    Row(label="a chat of {words} tokens", figure="chat", unit="ms", target=TimesLess(3)),
    Row(label="the same, CPU of the server", figure="cpu", unit="ms", target=TimesLess(3)),
    Row(label="chats, {clients} clients", figure="chats", unit="/s"),
    Row(label="p50 of a chat", figure="p50", unit="ms"),
    Row(label="p99 of a chat", figure="p99", unit="ms"),
    Row(label="a token, {streams} streams", figure="token", unit="µs", target=TimesLess(3)),
    Row(label="the same, CPU of the server", figure="token_cpu", unit="µs", target=TimesLess(3)),
    Row(label="tokens", figure="tokens", unit="/s"),
    Row(label="replies that were wrong", figure="wrong", unit="", target=AtMost(0)),
)

WORKLOADS = (
    Workload(
        name="steps",
        size={"steps": 500},
        rows=(
            Row(label="a step, no store", figure="step", unit="µs", target=TimesLess(42)),
            Row(label="a step, peer without asyncio", figure="step", peer_figure="blocking", unit="µs"),
            Row(label="a step, kept in memory", figure="memory", unit="µs", target=TimesLess(16)),
            Row(label="its Python calls, no store", figure="calls", unit=""),
            Row(label="its Python calls, kept", figure="memory_calls", unit="", target=AtMost(70)),
        ),
    ),
    Workload(
        name="steps_sqlite",
        size={"steps": 500},
        quick={"steps": 200},
        rows=(
            Row(label="a step, both sync", figure="sync", unit="µs", target=TimesLess(6)),
            Row(label="a step, peer's default", figure="sync", peer_figure="async", unit="µs", target=TimesLess(6)),
            Row(label="a step, peer without asyncio", figure="sync", peer_figure="blocking", unit="µs"),
            Row(label="a step, both async", figure="async", unit="µs", target=TimesLess(40)),
        ),
    ),
    Workload(
        name="fan1000",
        size={"tasks": 1000},
        rows=(
            Row(label="a task, no store", figure="memory", unit="µs", target=TimesLess(16)),
            Row(label="a task, SQLite", figure="sqlite", unit="µs", target=TimesLess(16)),
        ),
    ),
    Workload(
        name="chain",
        size={"short": 10, "long": 2000},
        quick={"long": 1000},
        repeats=2,
        rows=(
            Row(label="a step of {short}", figure="short", unit="µs"),
            Row(label="a step of {long:,}", figure="long", unit="µs"),
            Row(label="{long:,} to {short}", figure="growth", unit="×", target=AtMost(1.2)),
        ),
    ),
    Workload(
        name="hitl_memory",
        rows=(
            Row(label="pause and resume", figure="round_trip", unit="µs", target=TimesLess(6.5)),
            Row(label="its Python calls", figure="calls", unit="", target=AtMost(450)),
        ),
    ),
    Workload(
        name="hitl_sqlite",
        rows=(Row(label="pause and resume", figure="round_trip", unit="µs", target=TimesLess(5)),),
    ),
    Workload(
        name="once",
        size={"few": 250, "many": 4000},
        quick={"many": 1000},
        repeats=2,
        alone=True,
        rows=(
            Row(label="a kept call of {few}, no store", figure="memory_few", unit="µs"),
            Row(label="{many:,} to {few}", figure="memory_growth", unit="×", target=AtMost(1.2)),
            Row(label="given back, one of {few}", figure="memory_replay_few", unit="µs"),
            Row(label="{many:,} to {few}", figure="memory_replay_growth", unit="×", target=AtMost(1.2)),
            Row(label="a kept call of {few}, SQLite", figure="sqlite_few", unit="µs"),
            Row(label="{many:,} to {few}", figure="sqlite_growth", unit="×", target=AtMost(1.2)),
            Row(label="given back, one of {few}", figure="sqlite_replay_few", unit="µs"),
            Row(label="{many:,} to {few}", figure="sqlite_replay_growth", unit="×", target=AtMost(1.2)),
        ),
    ),
    Workload(
        name="merge",
        size={"few": 125, "many": 2000},
        quick={"many": 1000},
        repeats=2,
        alone=True,  # peers store the whole dict at every step
        rows=(
            Row(label="a step that merges, of {few}", figure="few", unit="µs"),
            Row(label="{many:,} to {few}", figure="growth", unit="×", target=AtMost(1.2)),
            Row(label="on disk, {many:,} × 100 letters", figure="disk", unit="MB"),
        ),
    ),
    Workload(
        name="attach",
        size={"few": 250, "many": 4000},
        quick={"many": 1000},
        repeats=2,
        alone=True,
        rows=(
            Row(label="a turn of {few}, SQLite", figure="few", unit="µs"),
            Row(label="{many:,} to {few}", figure="growth", unit="×", target=AtMost(1.2)),
        ),
    ),
    Workload(
        name="many_questions",
        size={"few": 250, "many": 4000},
        quick={"many": 1000},
        repeats=2,
        alone=True,
        rows=(
            Row(label="an answer, {few} open", figure="answer_few", unit="µs"),
            Row(label="{many:,} to {few}", figure="answer_growth", unit="×", target=AtMost(1.2)),
            Row(label="pause and resume, {few} open", figure="resume_few", unit="µs"),
            Row(label="{many:,} to {few}", figure="resume_growth", unit="×"),
            Row(label="loaded again, one of {few}", figure="load_few", unit="µs"),
            Row(label="{many:,} to {few}", figure="load_growth", unit="×", target=AtMost(1.2)),
        ),
    ),
    _grown(
        "turns",
        {"few": 10, "many": 3000},
        {"many": 1000},
        ("a turn after {few}, texts", "texts_few", "texts_growth"),
        ("the same, messages", "messages_few", "messages_growth"),
        ("the same, an agent", "agent_few", "agent_growth"),
    ),
    _grown(
        "one_answer",
        {"few": 1, "many": 1000},
        {"many": 300},
        ("resume, {few} other is open", "few", "growth"),
        ("the same, calls", "few_calls", "calls_growth"),
    ),
    _grown(
        "branches",
        {"few": 5, "many": 200},
        {"many": 50},
        ("a branch after {few} others", "branch", "branch_growth"),
        ("a turn on it", "branch_turn", "branch_turn_growth"),
        ("a fork of fork {few}", "fork", "fork_growth"),
        ("a turn of it", "fork_turn", "fork_turn_growth"),
    ),
    _grown(
        "nesting",
        {"few": 5, "many": 50},
        {"many": 20},
        ("a level of {few}, pause, resume", "here", "here_growth"),
        ("the same, another process", "elsewhere", "elsewhere_growth"),
    ),
    _grown(
        "inbox_here",
        {"few": 1000, "many": 100_000},
        {"many": 5000},
        ("a page of {few:,}, memory", "memory_page", "memory_page_growth"),
        ("an answer", "memory_answer", "memory_answer_growth"),
        ("a page of {few:,}, SQLite", "sqlite_page", "sqlite_page_growth"),
        ("an answer", "sqlite_answer", "sqlite_answer_growth"),
    ),
    Workload(
        name="convo",
        size={"turns": 300},
        quick={"turns": 100},
        repeats=2,
        rows=(
            *_talk("messages", "messages"),
            *_talk("peer's delta", "messages", peer="delta"),
            *_talk("strings", "append"),
        ),
    ),
    Workload(
        name="convo_long",
        size={"turns": 3000},
        quick={"turns": 1000},
        full={"turns": 10_000},
        repeats=1,
        alone=True,
        rows=(
            Row(label="a turn", figure="turn", unit="ms"),
            Row(label="on disk, closed", figure="closed", unit="MB"),
            Row(label="turn {turns:,} to 10", figure="growth", unit="×", target=AtMost(1.2)),
        ),
    ),
    Workload(
        name="resume_deep",
        size={"messages": 10_000},
        repeats=2,
        rows=(Row(label="{messages:,} messages", figure="restore", unit="ms", target=AtMost(30)),),
    ),
    Workload(
        name="parked",
        size={"runs": 1000},
        quick={"runs": 300},
        repeats=1,
        rows=(Row(label="a paused run", figure="parked", unit="KiB", target=AtMost(3)),),
    ),
    Workload(
        name="import",
        size={"times": 7},
        quick={"times": 3},
        repeats=1,
        rows=(
            Row(label="the package", figure="import", unit="ms", target=AtMost(100)),
            Row(label="with graphs", figure="graph", peer_figure="import", unit="ms"),
            Row(label="packages of others", figure="packages", unit="", target=AtMost(1)),
        ),
    ),
    Workload(
        name="react",
        family="agents",
        rows=(
            Row(label="model, tool, model", figure="run", unit="µs", target=TimesLess(15)),
            Row(label="its Python calls", figure="calls", unit=""),
        ),
    ),
    Workload(
        name="react_long",
        family="agents",
        size={"calls": 200},
        quick={"calls": 100},
        repeats=2,
        rows=(
            Row(label="{calls} tool calls", figure="total", unit="ms"),
            Row(label="the first calls, one", figure="first", unit="µs"),
            Row(label="the last calls, one", figure="last", unit="µs"),
            Row(label="the last to the first", figure="growth", unit="×", target=AtMost(1.3)),
        ),
    ),
    Workload(
        name="approval",
        family="agents",
        rows=(
            Row(label="pause, resume, done", figure="stored", unit="µs", target=TimesLess(13)),
            Row(label="its Python calls", figure="calls", unit="", target=AtMost(850)),
            Row(label="peer's pause kept as objects", figure="stored", peer_figure="held", unit="µs"),
        ),
    ),
    Workload(
        name="stream",
        family="agents",
        size={"count": 20_000},
        quick={"count": 5000},
        repeats=2,
        rows=(
            Row(
                label="a token of {count:,} (LangGraph)",
                figure="token",
                unit="µs",
                rivals=("langgraph",),
                target=TimesLess(26),
            ),
            Row(label="the same, beside all", figure="token", unit="µs"),
        ),
    ),
    Workload(
        name="serve",
        family="service",
        size={"chats": 600, "clients": 16, "words": 20, "tokens": 2500, "streams": 8, "open": 1000},
        quick={"chats": 100, "tokens": 500, "open": 100},
        rows=(
            *_SERVED,
            Row(label="memory, nobody there", figure="idle", unit="MB"),
            Row(label="memory, {open:,} open streams", figure="open", unit="MB"),
            Row(label="memory of one of them", figure="stream", unit="kB"),
            Row(label="streams that failed, of {open:,}", figure="failed", unit="", target=AtMost(0)),
        ),
    ),
    Workload(
        name="serve_sqlite",
        family="service",
        size={"chats": 300, "clients": 16, "words": 20, "tokens": 1000, "streams": 8, "open": 0},
        quick={"chats": 50, "tokens": 500},
        without=("floor", "langgraph_api"),
        rows=_SERVED,
    ),
    *_stored_on("postgres", quick={"steps": 50}),
    *_stored_on("redis", quick={"steps": 50}),
    Workload(
        name="convo_servers",
        family="servers",
        servers=("postgres", "redis"),
        size={"turns": 300},
        quick={"turns": 50},
        repeats=1,
        timeout=900.0,
        rows=_talk_on_servers(),
    ),
    Workload(
        name="resume_postgres",
        family="servers",
        servers=("postgres",),
        size={"messages": 2000},
        quick={"messages": 200},
        full={"messages": 10_000},
        repeats=1,
        rows=(Row(label="{messages:,} messages", figure="restore", unit="ms"),),
    ),
    Workload(
        name="workers",
        family="servers",
        servers=("postgres", "redis"),
        size={"sessions": 2000},
        quick={"sessions": 400},
        repeats=1,
        only_ours=True,
        timeout=900.0,
        rows=tuple(
            Row(label=f"sessions, {name}, {number} worker{'s'[: number - 1]}", figure=f"{key}_{number}", unit="/s")
            for name, key in (("Postgres", "postgres"), ("Redis", "redis"), ("SQLite", "sqlite"))
            for number in (1, 2, 4)
        ),
    ),
    Workload(
        name="inbox",
        family="servers",
        servers=("postgres",),
        size={"sessions": 100_000},
        quick={"sessions": 5000},
        full={"sessions": 1_000_000},
        repeats=1,
        only_ours=True,
        timeout=1800.0,
        rows=(
            Row(label="first page, {sessions:,} wait", figure="first page, all", unit="ms", target=AtMost(50)),
            Row(label="of one of 10,000 users", figure="first page, one of 10,000 users", unit="ms"),
            Row(label="an agent with a rare tag", figure="first page, a common agent and a rare tag", unit="ms"),
            Row(label="a page in the middle", figure="a page in the middle", unit="ms", target=AtMost(50)),
            Row(label="how many of a user", figure="how many of a user", unit="ms"),
            Row(label="how many in all", figure="how many in all", unit="ms"),
            Row(label="what is due", figure="what is due", unit="ms", target=AtMost(50)),
        ),
    ),
)
