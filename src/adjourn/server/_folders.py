"""Agents that folders of YAML files describe, and what happens when the files change."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from adjourn._engine.program import Program
from adjourn._hiding import logger
from adjourn._text import visible
from adjourn.errors import UsageError
from adjourn.runner import Runner
from adjourn.spec import Checkpoint, Loaded, Served
from adjourn.stores import Store
from adjourn.stores.urls import shown_url

log = logger("adjourn.server")
Given: TypeAlias = Program | Runner | Served | Loaded


def expanded(given: Iterable[Given]) -> list[Program | Runner | Served]:
    """Return what is served, with the agents of folders in their places.

    Raises:
        SpecInvalid: a folder has mistakes.
    """
    found: list[Program | Runner | Served] = []
    for each in given:
        found += each.check().served.values() if isinstance(each, Loaded) else [each]
    return found


def store_for(given: Iterable[Given], store: Store | str | None) -> Store | str | None:
    """Return the store that is named, else the one that files name, with the time to live that they name.

    Raises:
        UsageError: files name different stores, or not where theirs is.
    """
    named = _checkpoints(given)
    if len(named) > 1:
        listed = " and ".join(f"{each.backend} {shown_url(each.url or '')}".strip() for each in named)
        raise UsageError(f"App: all agents of a server share one store, but the folders name {listed}.")
    return named[0].store_url(store) if named and isinstance(store, str | None) else store


def _checkpoints(given: Iterable[Given]) -> list[Checkpoint]:
    return list({each.checkpoint: None for each in given if isinstance(each, Loaded) and each.checkpoint is not None})


class Folders:
    """Looks for changes of the folders among what is served."""

    def __init__(self, given: Sequence[Given], replace: Callable[[Sequence[Given]], None]) -> None:
        self._given = list(given)
        self._replace = replace
        self._checkpoints = _checkpoints(given)
        self._wrong = ""
        """Why the files are not served as they are, if they are not."""

    async def keep_up(self, every: float) -> None:
        """Look now and then, until it is cancelled."""
        while True:
            await asyncio.sleep(every)
            try:
                await self._look()
            except Exception as error:  # noqa: BLE001  # protects what is served: it stays as it is until the files are right
                self._report(str(error))

    def _report(self, wrong: str) -> None:
        if wrong == self._wrong:
            return  # A folder that is gone is so at every look.
        self._wrong = wrong
        log.warning("the files have changed, and are not served yet: %s", visible(wrong))

    async def _look(self) -> None:
        is_changed = False
        for number, each in enumerate(self._given):
            if isinstance(each, Loaded) and await asyncio.to_thread(_is_outdated, each):
                self._given[number] = await asyncio.to_thread(each.reload)
                is_changed = True
        if not is_changed:
            return
        if _checkpoints(self._given) != self._checkpoints:
            raise UsageError("They name another store. Restart the server to use it.")
        self._replace(self._given)
        # Who was told that something is wrong is told that it is right again.
        level, self._wrong = (logging.WARNING if self._wrong else logging.INFO), ""
        log.log(level, "the files have changed, and are served as they are now")


def _is_outdated(loaded: Loaded) -> bool:
    return loaded.is_outdated
