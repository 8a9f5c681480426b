"""The backlog: what waits in the store, for people and for workers, as metrics. It is the same for all processes."""

from __future__ import annotations

import asyncio
import platform
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from importlib.metadata import version

import msgspec
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from adjourn._hiding import logger
from adjourn._text import visible_line
from adjourn.errors import AdjournError, text_of
from adjourn.stores import Store
from adjourn.stores.kit import CountQuestions, ListDue, ListQuestions
from adjourn.stores.types import QuestionFilter

log = logger("adjourn.server")

FRESH = 5.0
"""Seconds for which what was seen in the store is told again: no scrape makes it work more often."""

PATIENCE = 3.0
"""Seconds that the store has to say what waits; a scrape must not hang with it."""

MOST_DUE = 1000
"""Up to how many sessions that are due are counted."""


class _Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """What waits in the store."""

    questions: int
    oldest: float | None
    due: Mapping[str, int]
    seconds: float


class Backlog(Collector):
    """What waits in the store, as it was seen a moment ago."""

    def __init__(self, store: Store, app_name: str) -> None:
        self._store = store
        self._app = app_name
        self._build = {"version": version("adjourn"), "python": platform.python_version()}
        self._found: _Waiting | None = None
        self._at = -FRESH
        self._looking = asyncio.Lock()

    async def look(self) -> None:
        """Look at the store, unless somebody just has."""
        async with self._looking:
            if time.monotonic() - self._at < FRESH:
                return
            try:
                async with asyncio.timeout(PATIENCE):
                    self._found = await self._look()
            except (AdjournError, TimeoutError) as error:
                self._found = None
                why = text_of(error) if isinstance(error, AdjournError) else f"it took more than {PATIENCE:g} s"
                log.warning("metrics: the store does not say what waits: %s", visible_line(why))
            self._at = time.monotonic()

    async def _look(self) -> _Waiting:
        began = time.perf_counter()
        wanted = QuestionFilter(app=self._app)
        count = await self._store.read(CountQuestions(wanted))
        first = await self._store.read(ListQuestions(filter=wanted, limit=1)) if count else []
        due = await self._store.read(ListDue(app=self._app, limit=MOST_DUE))
        return _Waiting(
            questions=count,
            oldest=first[0].asked if first else None,
            due=Counter(each.why for each in due),
            seconds=time.perf_counter() - began,
        )

    def collect(self) -> Iterable[Metric]:
        """Return what was seen."""
        build = GaugeMetricFamily("adjourn_build_info", "What runs.", labels=list(self._build))
        build.add_metric(list(self._build.values()), 1)
        yield build
        found = self._found
        yield GaugeMetricFamily("adjourn_store_up", "Whether the store answers.", 0 if found is None else 1)
        if found is None:
            return
        yield GaugeMetricFamily(
            "adjourn_store_look_seconds", "Seconds that it took to look at the store.", found.seconds
        )
        yield GaugeMetricFamily("adjourn_questions_open", "Questions that wait for people.", found.questions)
        age = 0.0 if found.oldest is None else max(0.0, time.time() - found.oldest)
        yield GaugeMetricFamily("adjourn_questions_oldest_seconds", "For how long the oldest has been open.", age)
        due = GaugeMetricFamily(
            "adjourn_sessions_due", f"Sessions that somebody should go on with; {MOST_DUE} at most.", labels=["why"]
        )
        for why in ("answer", "question", "lease", "input"):
            due.add_metric([why], found.due.get(why, 0))
        yield due
