"""What is measured, how large, and what must be reached."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

Side = Literal["floor", "ours", "langgraph", "pydantic_ai", "openai_agents", "google_adk"]
Family = Literal["graphs", "agents"]
Size = Mapping[str, int]

PEERS: tuple[Side, ...] = ("langgraph", "pydantic_ai", "openai_agents", "google_adk")
SIDES: Mapping[Family, tuple[Side, ...]] = {
    "graphs": ("floor", "ours", "langgraph"),
    "agents": ("floor", "ours", *PEERS),
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

    @property
    def sides(self) -> tuple[Side, ...]:
        return SIDES[self.family][:2] if self.alone else SIDES[self.family]

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


WORKLOADS = (
    Workload(
        name="steps",
        size={"steps": 500},
        rows=(
            Row(label="a step, no store", figure="step", unit="µs", target=TimesLess(40)),
            Row(label="a step, peer without asyncio", figure="step", peer_figure="blocking", unit="µs"),
        ),
    ),
    Workload(
        name="steps_sqlite",
        size={"steps": 500},
        quick={"steps": 200},
        rows=(
            Row(label="a step, both sync", figure="sync", unit="µs", target=TimesLess(5)),
            Row(label="a step, peer's default", figure="sync", peer_figure="async", unit="µs", target=TimesLess(5)),
            Row(label="a step, peer without asyncio", figure="sync", peer_figure="blocking", unit="µs"),
            Row(label="a step, both async", figure="async", unit="µs", target=TimesLess(40)),
        ),
    ),
    Workload(
        name="fan1000",
        size={"tasks": 1000},
        rows=(
            Row(label="a task, no store", figure="memory", unit="µs", target=TimesLess(20)),
            Row(label="a task, SQLite", figure="sqlite", unit="µs", target=TimesLess(20)),
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
        rows=(Row(label="pause and resume", figure="round_trip", unit="µs", target=TimesLess(15)),),
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
        rows=(Row(label="a paused run", figure="parked", unit="KiB", target=AtMost(2.5)),),
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
            Row(label="model, tool, model", figure="run", unit="µs", target=TimesLess(10)),
            Row(label="the same, as it is", figure="run", unit="µs", target=AtMost(210)),
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
            Row(label="pause, resume, done", figure="stored", unit="µs", target=TimesLess(40)),
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
                target=TimesLess(15),
            ),
            Row(label="the same, beside all", figure="token", unit="µs", target=AtMost(3)),
        ),
    ),
)
