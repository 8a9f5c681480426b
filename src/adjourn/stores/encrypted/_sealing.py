"""What of each row is sealed, and what it is bound to: made from the tables, which say what is secret.

A request decides on rows that were opened, and what it writes is sealed. So nothing else in a store knows of keys, and
what a store finds and compares rows by stays readable. Of a question, the agent, the reason and the tags are sealed
with its body; listings select by keyed digests in their places.
"""

# An override is documented where it is declared.

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

import msgspec
from msgspec.structs import asdict, replace

from adjourn.errors import CheckpointCorrupt, MissingKey
from adjourn.stores.kit import (
    INPUTS,
    OUTBOX,
    QUESTIONS,
    RECORDS,
    Branch,
    Decision,
    Effects,
    Facts,
    FactsWanted,
    Folded,
    InputRow,
    Insert,
    Logged,
    QuestionRow,
    RecordRow,
    SessionQuery,
    SessionRequest,
    SessionRow,
    Span,
    StoreRequest,
    Table,
    Update,
    readable,
    terms_of,
)
from adjourn.stores.types import Decided, OpenQuestion, SessionRef, TakenNotice

from ._keys import Key, Keys, Place, from_text, key_id, to_text

T = TypeVar("T")
R = TypeVar("R", bound=msgspec.Struct)

_SELECTED = (("agent", "reason", "tag", "group", "taker"), ("by",))
"""What filters select by digests. Those of a question are all made with one key; who decided it, maybe with another."""

_KINDS = {RECORDS: "record", QUESTIONS: "question", INPUTS: "input", OUTBOX: "notice"}


_types = {each.name: each.type for each in msgspec.structs.fields(QUESTIONS.row)}
_Labelled = msgspec.defstruct(  # a question as it is sealed, together with what of it is stored only as digests
    "_Labelled", [(name, _types[name]) for name in (*QUESTIONS.labels, "body")], frozen=True, array_like=True, gc=False
)
_labelled = msgspec.msgpack.Encoder()
_labels = msgspec.msgpack.Decoder(_Labelled)


class SealedRequest(StoreRequest[T], frozen=True, gc=False):
    """A request that reads and writes sealed rows."""

    request: SessionRequest[T]
    sealing: Sealing

    @property
    def plain(self) -> Any:
        return self.request

    @property
    def ref(self) -> SessionRef:
        """Which session it concerns."""
        return self.request.ref

    def wanted(self) -> FactsWanted:
        """Return which facts are wanted."""
        return self.request.wanted()

    def decide(self, facts: Facts) -> Decision[T]:
        """Decide from facts, opened."""
        effects, result = self.request.decide(OpenedFacts(facts, self.sealing))
        return (None if effects is None else self.sealing.sealed(effects, facts), result)


class SealedQuery(SessionQuery[T], frozen=True, gc=False):
    """A query that reads sealed rows."""

    query: SessionQuery[T]
    sealing: Sealing

    def wanted(self) -> FactsWanted:
        return self.query.wanted()

    def answer(self, facts: Facts) -> T:
        return self.query.answer(OpenedFacts(facts, self.sealing))


class Sealing:
    """Seals what is written to a store, and opens what is read."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def sealed(self, effects: Effects, facts: Facts) -> Effects:
        """Return effects with everything secret in them sealed, from the facts as they are stored."""
        session, before = effects.after, effects.before
        if session is None:
            return effects
        branches = {session.branch_no: session.branch}
        if before is not None:
            branches[before.branch_no] = before.branch
        inserts = [
            Insert(each.table, tuple([self._sealed_row(each.table, session, row) for row in each.rows]))
            if each.table.secret
            else each
            for each in effects.inserts
        ]
        updates = [
            self._sealed_mark(each, session, facts)
            if each.row is not None
            else self._sealed_update(each, session, branches)
            for each in effects.updates
        ]
        return replace(effects, inserts=tuple(inserts), updates=tuple(updates), summary=b"")

    def _sealed_row(self, table: Table[Any], session: SessionRow, row: Any) -> Any:
        if table is not QUESTIONS:
            return replace(row, **self._seal(table, session, row.id, asdict(row)))
        values = asdict(row)
        labelled = _labelled.encode([values[name] for name in (*table.labels, "body")])
        sealed = self._seal(table, session, _question(session.branch, row.id), values | {"body": labelled})
        row = replace(row, **_digests(self._keys.current, table, values), **sealed)
        return replace(row, terms=tuple(terms_of(session, row))) if row.terms else row

    def _sealed_update(self, update: Update, session: SessionRow, branches: Mapping[int, str]) -> Update:
        secret = update.table.secret.keys() & update.values.keys()
        if not secret:
            return update
        name: str = update.key[-1]
        if update.table is QUESTIONS:
            name = _question(branches[update.key[0]], name)
        sealed = self._seal(update.table, session, name, update.values)
        return replace(
            update, values=update.values | _digests(self._keys.current, update.table, update.values) | sealed
        )

    def _sealed_mark(self, update: Update, session: SessionRow, facts: Facts) -> Update:
        """Return a change of what a question is filed under: all of that is digested with the key of its labels."""
        stored = next(each for each in facts.waiting() if each.id == update.key[-1])
        values = {name: value for name, value in update.values.items() if name != "terms"}
        values |= _digests(self._keys.of(stored.body), QUESTIONS, values)
        values |= self._seal(QUESTIONS, session, _question(session.branch, stored.id), values)
        row = replace(stored, **values)
        return replace(update, values=values | {"terms": tuple(terms_of(session, row))}, was=stored, row=row)

    def _seal(self, table: Table[Any], session: SessionRow, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for column, bound in table.secret.items():
            value = values.get(column)
            if value is None or _is_empty(table, column, values):
                continue
            place = _place(table, session.ref, name, column, [values[each] for each in bound])
            data = value.encode() if isinstance(value, str) else value
            sealed = self._keys.current.seal(place, data)
            found[column] = to_text(sealed) if isinstance(value, str) else sealed
        return found

    def opened(self, table: Table[Any], ref: SessionRef, name: str, row: R, columns: Collection[str] = ()) -> R:
        """Return a row with what is secret in it opened; with `columns`, only these of it."""
        values = asdict(row)
        opened = [each for each in table.secret if not columns or each in columns]
        for column in opened:
            value, bound = values[column], table.secret[column]
            if value is None or _is_empty(table, column, values):
                continue
            place = _place(table, ref, name, column, [values[each] for each in bound])
            if isinstance(value, str):
                values[column] = self._keys.open(place, from_text(place, value)).decode()
            else:
                values[column] = self._keys.open(place, value)
        return replace(row, **{column: values[column] for column in opened})

    def question(self, session: SessionRow, branch: str, row: QuestionRow) -> QuestionRow:
        """Return a question of a branch by its name, opened."""
        found = self.opened(QUESTIONS, session.ref, _question(branch, row.id), row)
        labels = _read_labels(found.body, session.session, row.id)
        if row.asked:  # otherwise the labels were not read
            self._check_labels(row.body, row, labels, session.session)
        return replace(found, **labels)

    def listed(self, row: OpenQuestion | Decided) -> OpenQuestion | Decided:
        """Return a question of any session, opened."""
        branch = row.branch if isinstance(row, Decided) else row.checkpoint.rpartition(".")[0]
        ref, name = SessionRef(row.session, row.app, row.user), _question(branch, row.id)
        found = self.opened(QUESTIONS, ref, name, row, [each for each in QUESTIONS.secret if hasattr(row, each)])
        labels = _read_labels(found.body, row.session, row.id)
        self._check_labels(row.body, row, labels, row.session)
        return replace(found, **{name: value for name, value in labels.items() if hasattr(row, name)})

    def _check_labels(
        self, sealed: bytes, row: QuestionRow | OpenQuestion | Decided, labels: Mapping[str, Any], session: str
    ) -> None:
        for name, digest in _digests(self._keys.of(sealed), QUESTIONS, labels).items():
            if getattr(row, name, digest) != digest:
                raise CheckpointCorrupt(f"the question '{row.id}' is listed with labels that it was not given", session)

    def notice(self, row: TakenNotice) -> TakenNotice:
        """Return a notice that was taken, opened."""
        place = _place(OUTBOX, SessionRef(row.session, row.app), row.id, "body", [row.to])
        return replace(row, body=self._keys.open(place, row.body))

    def body(self, ref: SessionRef, id: str, *, full: bool, sealed: bytes) -> bytes:
        """Return the body of a record, opened."""
        return self._keys.open(_place(RECORDS, ref, id, "body", [full]), sealed)

    def filters(self, wanted: R) -> list[R]:
        """Return the filters that together select the same of what is stored, whichever keys were used."""
        found = [wanted]
        for names in _SELECTED:
            named = {name: text for name in names if (text := getattr(wanted, name, None))}
            if named:
                digested = [{name: key.digest(text) for name, text in named.items()} for key in self._keys]
                found = [replace(each, **digests) for each in found for digests in digested]
        return found


class OpenedFacts:
    """Facts of a session whose rows are sealed, opened."""

    def __init__(self, facts: Facts, sealing: Sealing) -> None:
        self._facts = facts
        self._sealing = sealing
        self.now: float = facts.now
        self.row: SessionRow | None = facts.row
        self.ttl: float | None = facts.ttl
        self.assumed: bool = facts.assumed
        self.has_inbox: bool = facts.has_inbox

    @property
    def _session(self) -> SessionRow:
        assert self.row is not None
        return self.row

    def question(self, id: str) -> QuestionRow | None:
        found = self._facts.question(id)
        return None if found is None else self._sealing.question(self._session, self._session.branch, found)

    def waiting(self) -> Sequence[QuestionRow]:
        session = self._session
        return [self._sealing.question(session, session.branch, each) for each in self._facts.waiting()]

    def asked(self, branch: str, ids: Collection[str] | None = None) -> Sequence[QuestionRow]:
        rows, session = self._facts.asked(branch, ids), self._session
        if ids is not None:
            return [self._sealing.question(session, branch, each) for each in rows]
        return list(readable(rows, lambda row: self._sealing.question(session, branch, row)))

    def asking(self) -> Sequence[int]:
        return self._facts.asking()

    def input(self, id: str) -> InputRow | None:
        found = self._facts.input(id)
        try:
            return None if found is None else self._sealing.opened(INPUTS, self._session.ref, id, found, ("digest",))
        except MissingKey:
            return found  # that it is there counts all the same, and what it was equals nothing

    def first_input(self) -> InputRow | None:
        return self._facts.first_input()  # decisions look at nothing that is sealed

    def queue(self, limit: int | None) -> Sequence[InputRow]:
        ref = self._session.ref
        return [self._sealing.opened(INPUTS, ref, each.id, each) for each in self._facts.queue(limit)]

    def branches(self) -> Sequence[Branch]:
        return self._facts.branches()

    def record(self, id: str) -> RecordRow | None:
        found = self._facts.record(id)
        return None if found is None else self._sealing.opened(RECORDS, self._session.ref, id, found)

    def log(self, span: Span) -> Iterable[Logged]:
        parts = [name for name in ("header", "events", "body") if getattr(span, name)]
        return (self._logged(each, parts) for each in self._facts.log(span))

    def _logged(self, found: Logged, parts: Collection[str]) -> Logged:
        if isinstance(found.row, CheckpointCorrupt) or not parts:
            return found
        try:
            row = self._sealing.opened(RECORDS, self._session.ref, found.id, found.row, parts)
        except CheckpointCorrupt as damage:
            return replace(found, row=damage)
        return replace(found, row=row)

    def fold(self, checkpoint: str | None) -> Folded | None:
        found = self._facts.fold(checkpoint)
        if found is None:
            return None
        ref, (branch, _, number) = self._session.ref, (checkpoint or self._session.checkpoint).rpartition(".")
        first = int(number) - len(found.rows) + 1  # a full record and those that follow it on the same branch
        rows = [
            self._sealing.body(ref, f"{branch}.{first + place}", full=not place, sealed=sealed)
            for place, sealed in enumerate(found.rows)
        ]
        return Folded(found.at, tuple(rows))


class KeysInUse(SessionQuery[set[str]], frozen=True, gc=False):
    """The ids of the keys that what is stored of a session was sealed with."""

    def wanted(self) -> FactsWanted:
        return FactsWanted(ref=self.ref, branches=True, span=_WHOLE, every=True, all_branches=True, queue=-1)

    def answer(self, facts: Facts) -> set[str]:
        if facts.row is None:
            return set()
        found: list[bytes] = []
        for each in facts.log(_WHOLE):
            if isinstance(each.row, RecordRow):
                found += [each.row.header, each.row.events, each.row.body]
        for branch in facts.branches():
            for asked in facts.asked(branch.name):
                found += [asked.body, asked.notes, asked.value or b"", b"" if asked.by is None else _bytes_of(asked.by)]
        found += [each.body for each in facts.queue(None)]
        return {name for sealed in found if (name := key_id(sealed)) is not None}


_WHOLE = Span(header=True, events=True, body=True)


def _is_empty(table: Table[Any], column: str, values: Mapping[str, Any]) -> bool:
    """Return whether there is nothing in a column, in a row that has nothing there."""
    if table is RECORDS and column == "events":
        return not values["count"]
    if column == "notes":
        return not values["notes"]
    return table is INPUTS and column == "body" and values["taken"]


def _question(branch: str, id: str) -> str:
    return f"{branch} {id}"


def _digests(key: Key, table: Table[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the digests that stand in the place of some values of a row; none for what is empty."""
    found: dict[str, Any] = {}
    for name in table.digested & values.keys():
        value = cast("str | tuple[str, ...] | None", values[name])
        found[name] = tuple(map(key.digest, value)) if isinstance(value, tuple) else value and key.digest(value)
    return found


def _read_labels(opened: bytes, session: str, id: str) -> dict[str, Any]:
    """Return the labels that were sealed with a question, and its body."""
    try:
        return asdict(_labels.decode(opened))
    except msgspec.DecodeError as error:
        raise CheckpointCorrupt(f"what was sealed as question '{id}' is not one ({error})", session) from error


def _bytes_of(text: str) -> bytes:
    try:
        return from_text(Place("", "", "", ""), text)
    except CheckpointCorrupt:
        return b""  # whoever reads it is told


def _place(table: Table[Any], ref: SessionRef, name: str, column: str, bound: Sequence[Any]) -> Place:
    # A notice outlives its session, and so does not depend on whose that is.
    user = None if table is OUTBOX else ref.user
    # Stores keep numbers in types of their own: one that comes back equal is the same.
    more = [repr(float(each)) if isinstance(each, int | float) else each for each in bound]
    return Place(ref.app, ref.id, _KINDS[table], name, (user, column, *more))
