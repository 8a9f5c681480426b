"""The checker: what must hold of ledgers, receipts and the store after the soak (`I1` to `I10`)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from adjourn import Runner
from adjourn.errors import CheckpointNotFound
from adjourn.events import FINAL
from adjourn.sessions import AuditEntry
from adjourn.stores import SessionRef, Store
from adjourn.stores.kit import GetHead, ListRecords
from tests.proof.ledger import Ledger, Line

from .crew import Receipt
from .programs import ledger_of, runners


class History:
    """What is known of one session after the soak."""

    def __init__(self, folder: Path, store: Store, runner: Runner, session: str, receipts: list[Receipt]) -> None:
        self.session = session
        self.app = runner.app_name
        self.ledger: Ledger = ledger_of(folder, session)
        self.lines: list[Line] = self.ledger.lines()
        self._store = store
        self._runner = runner
        self._receipts = receipts

    async def violations(self) -> AsyncIterator[str]:
        """Check everything, and say what does not hold."""
        audit = {entry.interrupt.id: entry for entry in await self._runner.audit(self.session)}
        for found in [
            *self._of_keys(),
            *self._of_kept_calls(),
            *self._of_fences(),
            *[each async for each in self._of_log()],
            *[each async for each in self._of_events()],
            *self._of_answers(audit),
            *self._of_decisions(audit),
            *self._of_payments(audit),
            *self._of_turns(),
            *[each async for each in self._of_users()],
        ]:
            yield f"{self.app}/{self.session}: {found}"

    def _of_keys(self) -> Iterator[str]:
        """I6: the same idempotency key means the same arguments; and a tool that runs at most once did."""
        arguments: dict[tuple[str, str], Any] = {}
        for line in self.lines:
            if line.kind == "effect" and arguments.setdefault((line.key, line.what), line.arguments) != line.arguments:
                yield f"I6 {line} had other arguments before"
        if len(self.ledger.effects("wire")) > 1:
            yield "rule T6: a tool that runs at most once ran twice"

    def _of_kept_calls(self) -> Iterator[str]:
        """C8: what was kept is not done again, except by a process that lost the session and has not noticed yet."""
        fences: Counter[int] = Counter()
        done: defaultdict[str, set[str]] = defaultdict(set)
        sealed: dict[str, int] = {}
        for line in self.lines:
            call = f"{line.address} {line.what} {line.arguments}"
            if line.kind == "claimed":
                fences[line.pid] = max(fences[line.pid], line.fence)
            elif line.kind == "effect":
                done[call].add(line.key)
                if line.key in sealed and fences[line.pid] >= sealed[line.key] > 0:
                    yield f"C8 {line} was kept under fence {sealed[line.key]}, and was done again"
            elif line.kind == "kept":
                for key in done[call]:
                    sealed[key] = max(sealed.get(key, 0), fences[line.pid])

    def extra_attempts(self) -> int:
        """Count the effects that were begun more than once: allowed, since the key is the same."""
        return sum(count - 1 for count in Counter((line.key, line.what) for line in self.ledger.effects()).values())

    @property
    def was_promised(self) -> bool:
        """Whether the store has acknowledged anything of the session."""
        return bool(self.lines) or any(receipt.outcome == "accepted" for receipt in self._receipts)

    def takeovers(self) -> int:
        """Count how often another process went on with the session."""
        claims = [line.pid for line in self.lines if line.kind == "claimed"]
        return sum(one != other for one, other in pairwise(claims))

    def _of_fences(self) -> Iterator[str]:
        """I2: one owner writes at a time. Lines of a frozen process come late, so their order says nothing."""
        owners: dict[int, int] = {}
        records: dict[str, int] = {}
        for line in self.lines:
            if line.kind == "claimed" and owners.setdefault(line.fence, line.pid) != line.pid:
                yield f"I2 fence {line.fence} was given to two processes"
            if line.kind == "committed" and records.setdefault(line.what, line.fence) != line.fence:
                yield f"I2 {line.what} was written under two fences"
        newest: dict[str, int] = {}
        for record, fence in sorted(records.items(), key=lambda each: _number(each[0])):
            branch = record.rpartition(".")[0]
            if fence < newest.get(branch, 0):
                yield f"I2 {record} was written under fence {fence}, after {newest[branch]}"
            newest[branch] = fence

    async def _of_log(self) -> AsyncIterator[str]:
        """I1: everything that was acknowledged is there, as it was written, and has its parent."""
        stored = {row.id: row for row in await self._store.read(ListRecords(SessionRef(self.session, self.app)))}
        seen: set[str] = set()
        for row in stored.values():
            if row.damaged:
                yield f"I1 {row.id} is damaged"
            if row.parent is not None and row.parent not in seen:
                yield f"I1 {row.id} has the parent {row.parent}, which is not before it"
            seen.add(row.id)
        for line in self.lines:
            if line.kind == "committed" and line.what not in stored:
                yield f"I1 {line.what} was acknowledged, and is lost"
            elif line.kind == "committed" and sha256(stored[line.what].body).hexdigest() != line.arguments:
                yield f"I1 {line.what} is not what was written"

    async def _of_events(self) -> AsyncIterator[str]:
        """I7: events have no gap, and one end."""
        events = [event async for event in self._runner.attach(self.session)]
        if [event.seq for event in events] != list(range(1, len(events) + 1)):
            yield f"I7 events are numbered {[event.seq for event in events]}"
        if not events or not isinstance(events[-1], FINAL):
            yield "I7 events do not end"

    def _of_answers(self, audit: dict[str, AuditEntry]) -> Iterator[str]:
        """I3: each question ended once, and whoever was promised to be heard was."""
        accepted: dict[str, Receipt] = {}
        tried = {receipt.by: receipt for receipt in self._receipts if receipt.question}
        refused = {receipt.by for receipt in self._receipts if receipt.outcome == "refused"}
        for receipt in self._receipts:
            if receipt.question and receipt.outcome == "accepted":
                other = accepted.setdefault(receipt.question, receipt)
                if other is not receipt:
                    yield f"I3 {receipt.question} was accepted from {other.by} and {receipt.by}"
                entry = audit.get(receipt.question)
                if entry is None or entry.by != receipt.by:
                    yield f"I3 {receipt.question} was accepted from {receipt.by}, and the audit has {entry}"
        for entry in audit.values():
            if entry.outcome is None:
                yield f"I8 {entry.interrupt.id} is open, and the session is done"
            elif entry.outcome == "answered" and (entry.by not in tried or entry.by in refused):
                yield f"I3 {entry.interrupt.id} is answered by {entry.by}, who was not heard"

    def _of_decisions(self, audit: dict[str, AuditEntry]) -> Iterator[str]:
        """I4: code went on with the answer that stands."""
        said = {entry.interrupt.key: entry.answer for entry in audit.values()}
        for line in self.ledger.effects("decided"):
            name, value = line.arguments
            if said.get(name) != value:
                yield f"I4 {name} said {said.get(name)!r}, and the code heard {value!r}"

    def _of_payments(self, audit: dict[str, AuditEntry]) -> Iterator[str]:
        """I4, I5: a tool ran with what was approved, and not after a refusal."""
        for entry in audit.values():
            if entry.interrupt.reason != "need_approval":
                continue
            ran = {tuple(line.arguments) for line in self.ledger.effects("pay")}
            decided = msgspec.to_builtins(entry.answer)
            match decided.get("decision"):
                case "approve":
                    wanted = {("book", 100)}
                case "edit":
                    wanted = {("book", decided["arguments"]["cents"])}
                case _:
                    wanted = set[tuple[str, int]]()
            if ran != wanted:
                yield f"I5 {decided} was decided, and {ran} was done"

    def _of_turns(self) -> Iterator[str]:
        """V11: what was submitted is run once, in its order."""
        if self.app != "errand":
            return
        keys: defaultdict[str, set[str]] = defaultdict(set)
        for line in self.ledger.effects("turn"):
            keys[line.arguments[0]].add(line.key)
        if list(keys) != sorted(keys):
            yield f"V11 turns were run in the order {list(keys)}"
        for receipt in self._receipts:
            if receipt.outcome == "accepted" and len(keys[receipt.input]) != 1:
                yield f"V11 {receipt.input} was submitted once, and run {len(keys[receipt.input])} times"

    async def _of_users(self) -> AsyncIterator[str]:
        """I9: for a user who does not own it, the session does not exist."""
        ref = SessionRef(self.session, self.app, "somebody else")
        if await self._store.read(GetHead(ref)) is not None:
            yield "I9 another user sees the session"
        try:
            await self._store.read(ListRecords(ref))
        except CheckpointNotFound:
            return
        yield "I9 another user reads the records"


async def check_forks(store: Store, runner: Runner, session: str) -> list[str]:
    """I10: what a fork does leaves the records of its origin as they were."""
    ref = SessionRef(session, runner.app_name)
    before = {row.id: row.body for row in await store.read(ListRecords(ref))}
    oldest = (await runner.history(session))[-1]
    await runner.fork(session, checkpoint_id=oldest.id)
    await runner.fork(session, checkpoint_id=oldest.id, to=session)
    after = {row.id: row.body for row in await store.read(ListRecords(ref))}
    changed = [each for each, body in before.items() if after.get(each) != body]
    return [f"I10 {session}: {each} was changed by a fork" for each in changed]


def receipts_in(folder: Path) -> list[Receipt]:
    """Return all receipts; the last line of a person who was killed may be cut off."""
    return [
        msgspec.json.decode(line, type=Receipt)
        for path in sorted((folder / "receipts").iterdir())
        for line in path.read_bytes().split(b"\n")[:-1]
    ]


def histories(folder: Path, store: Store) -> list[History]:
    """Return the history of every session that somebody began."""
    by_session: defaultdict[tuple[str, str], list[Receipt]] = defaultdict(list)
    for receipt in receipts_in(folder):
        by_session[receipt.app, receipt.session].append(receipt)
    by_app = runners(store)
    return [History(folder, store, by_app[app], session, receipts) for (app, session), receipts in by_session.items()]


def _number(record: str) -> int:
    return int(record.rpartition(".")[2])
