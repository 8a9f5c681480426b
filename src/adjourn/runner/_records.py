"""The records of a live session: what the next one holds, and where it goes."""

from __future__ import annotations

import asyncio

import msgspec
from msgspec.structs import replace

from adjourn._engine.address import parse_segment
from adjourn._engine.proof import Ended, LeftBranch, Proof
from adjourn._engine.questions import Parents
from adjourn._engine.record import FORMAT, Record, decode, too_large
from adjourn._engine.scope import Scope
from adjourn.errors import NotStorable
from adjourn.events import Event, Final
from adjourn.sessions._chain import Chain, ended_by
from adjourn.sessions._log import ended, log_events, saved, stored_question, with_past
from adjourn.stores.types import Answer, Answered, Begun, Committed, Header, Notice, Question, SessionRef, Status, Write

from ._notices import Notify, occasions_of
from ._size import Size

_UNDER_WAY = Committed()


class PendingWrite(msgspec.Struct, eq=False):
    """One record on its way to the store; some of its events were `told` before, the others begin with `first`."""

    write: Write
    after: str
    release: bool
    told: list[Event]
    events: list[Event]
    first: int
    before: str
    """The digest of the record before it."""
    done: bool = False
    result: Committed = _UNDER_WAY
    waiter: asyncio.Future[None] | None = None

    def settle(self, error: Exception | None = None) -> None:
        """Release whoever waits for it."""
        self.done = True
        if self.waiter is None or self.waiter.done():
            return
        if error is None:
            self.waiter.set_result(None)
        else:
            self.waiter.set_exception(error)

    @property
    def new_events(self) -> list[Event]:
        """Its events that were not emitted before, except for the end of the run."""
        write = self.write
        return self.events if write.header.source is None else [*self.events, saved(write.id, write.header)]


class Records:
    """Makes the records of one session, each after the one before it, whether or not that is stored yet.

    `head` is the record that was made last, `number` that of the next on its branch, and `seq` that of the last event.
    `events` wait for the next record; those in `told` do, too, but were already emitted.
    """

    # Slots, as every record reads all of them.
    __slots__ = (
        "_begins",
        "_closes",
        "_ended",
        "_max_bytes",
        "_parent",
        "_past",
        "_program",
        "_refusal",
        "_takes",
        "asked_ids",
        "chain",
        "events",
        "head",
        "notify",
        "number",
        "ref",
        "scope",
        "seq",
        "size",
        "told",
    )

    def __init__(self, scope: Scope, ref: SessionRef, program: str, *, max_bytes: int, chain: Chain) -> None:
        self.ref: SessionRef = ref
        self.chain: Chain = chain
        self.head: str | None = None
        self.number: int = 0
        self.seq: int = 0
        self.size: Size = Size()
        self.asked_ids: set[str] = set()
        """The open questions that have a row on this branch."""
        self.events: list[Event] = []
        self.told: list[Event] = []
        self.scope: Scope = scope
        self._program = program
        self._max_bytes = max_bytes
        self._ended: dict[str, Ended] = {}
        self._parent: str | None = None
        self._takes: tuple[str, ...] = ()
        self._begins: tuple[str, ...] = ()
        self._closes: tuple[Answer, ...] = ()
        self._past: tuple[Question, ...] = ()
        self._refusal: NotStorable | None = None
        self.notify: Notify | None = None
        """Who decides which notices are stored with a record."""

    # Where they go

    def stand(self, head: str | None, seq: int) -> None:
        """Start at the head of a session that was loaded, or (None) before a new one."""
        self.head, self.seq = head, seq
        self.number = 0 if head is None else int(head.rpartition(".")[2]) + 1

    def branch_off(self, branch: str, parent: str, past: tuple[Question, ...], left: LeftBranch | None) -> None:
        """Continue on a new branch that begins after the checkpoint `parent`; `past` had been asked and had ended."""
        self.chain.leave(left)
        self.scope.leave_branch(branch)
        self._parent, self.number = parent, 0
        self.size = Size()
        self.asked_ids = set()
        self._past = past

    # What the next one holds

    @property
    def has_news(self) -> bool:
        """Whether anything marked is not in a record yet."""
        return bool(self.scope.changes or self._takes or self._closes)

    def take_up(self, answers: tuple[Answer | Answered, ...]) -> None:
        """Note answers for the next record to hold."""
        self._takes += tuple([answer.id for answer in answers])
        self._ended.update((answer.id, ended_by(answer)) for answer in answers)

    def close_questions(self, closes: list[Answer]) -> None:
        """Note questions for the next record to end."""
        self._closes += tuple(closes)
        self.asked_ids -= {answer.id for answer in closes}

    def note_begin(self, digest: str) -> None:
        """Note something that begins with the next record."""
        self._begins += (digest,)

    def let_out(self) -> list[Event]:
        """Return the events that wait for the next record, which are numbered and emitted before it."""
        events, self.events = self.events, []
        self.told += events
        self.seq += len(events)
        return events

    def take_back(self, pending: PendingWrite) -> None:
        """Keep the events of a record for the next one: the run was to pause with it, and went on instead."""
        self.chain.unpaused = True
        self.seq -= pending.write.event_count - len(pending.told)
        self.told = pending.told
        self.events = pending.new_events

    def check_storable(self) -> None:
        """Refuse what is marked if no record could hold it.

        Raises:
            NotStorable: with it, the session could not be loaded again.
        """
        self._record()

    # Making them

    def make(
        self,
        header: Header,
        status: Status,
        *,
        last: Final | None = None,
        release: bool = False,
        taken: tuple[Answer, ...] = (),
    ) -> PendingWrite:
        """Return a record of what is marked; `last` is the event that comes after the record's own.

        Raises:
            NotStorable: what it holds cannot be stored, or with it, the session could not be loaded again.
        """
        scope, chain, number, after = self.scope, self.chain, self.number, self.head
        record = self._record() if self._refusal is None else self._empty_record(status)
        questions = scope.questions
        asks = self._asks() if questions.opened or number == 0 else ()
        if taken:
            self.take_up(taken)
        if questions.closed and self._refusal is None:
            self._close_given_up()
        told, events = self.told, self.events
        logged = told + events if last is None else [*told, *events, last]
        count = len(logged) + (header.source is not None)
        noted = log_events(logged) if logged else b""
        if self._closes:
            self._ended.update((answer.id, ended_by(answer)) for answer in self._closes)
        proof = chain.proof(status, asks, self._ended, noted if release and status == "waiting" else None)
        checkpoint, parent, before = f"{scope.branch}.{number}", self._parent or after, chain.digest
        record, body = self._encoded(record, proof, checkpoint, parent, header, noted)
        write = Write(
            branch=scope.branch,
            number=number,
            parent=parent,
            full=record.full,
            body=body,
            header=header,
            status=status,
            asks=asks,
            takes=self._takes,
            closes=self._closes,
            events=noted,
            event_count=count,
            program=self._program,
            overtakes=header.source != "input",
        )
        # Apart, as most records have none of these: with more than 15 keywords, Python makes a dict for every call.
        if self._begins or header.input is not None:
            write = replace(write, begins=self._begun_now(), input=header.input)
        if self.notify is not None:
            write = replace(write, notices=self._notices(self.notify, checkpoint, status, last, asks))
        first = self.seq + 1
        # The next one goes on after it, whether or not it is stored yet.
        chain.move()
        self.head, self.number, self.seq = checkpoint, number + 1, self.seq + count - len(told)
        self.events, self.told, self._takes, self._closes, self._parent, self._ended = [], [], (), (), None, {}
        return PendingWrite(write, after or "", release, told, events, first, before)

    def _notices(
        self, notify: Notify, checkpoint: str, status: Status, last: Final | None, asks: tuple[Question, ...]
    ) -> tuple[Notice, ...]:
        """Return what others are told as soon as the record that is being made is stored."""
        if last is None and not asks:
            return ()  # It is a step.
        name, waiting = parse_segment(self._program).id, tuple(self.scope.questions.open)
        occasions = occasions_of(name, checkpoint, status, last, asks, waiting)
        return tuple([notice for each in occasions for notice in notify.notices(each)])

    def _begun_now(self) -> tuple[Begun, ...]:
        """Return what begins with the record that is being made."""
        place = self.scope.place
        digests, self._begins = self._begins, ()
        return tuple([Begun(digest, place, self.number) for digest in digests])

    def _record(self) -> Record:
        """Make a record of what is marked.

        Raises:
            NotStorable: what it holds cannot be stored.
        """
        try:
            return self.scope.build_record(full=self.size.full_is_due())
        except NotStorable as refusal:
            self._refuse(refusal)
            raise

    def _encoded(
        self, record: Record, proof: Proof, id: str, parent: str | None, header: Header, events: bytes
    ) -> tuple[Record, bytes]:
        """Return a record and its bytes.

        Raises:
            NotStorable: with it, the session could not be loaded again.
        """
        try:
            body = self.chain.encode(record, proof, self.ref, id, parent, header, events)
            if not record.full and self.size.stored + len(body) > self._max_bytes:
                # Values that were replaced no longer count in a full one.
                record = self.scope.build_record(full=True)
                body = self.chain.encode(record, proof, self.ref, id, parent, header, events)
            if len(body) > self._max_bytes:
                raise too_large(len(body), self._max_bytes)
        except NotStorable as refusal:
            self._refuse(refusal)
            raise
        self.size.count(len(body), record)
        return record, body

    def _refuse(self, refusal: NotStorable) -> None:
        """Let nothing that the refused record holds be stored or reported."""
        self._refusal = refusal
        self.events, self._takes, self._closes, self._ended = [], (), (), {}

    def _empty_record(self, status: Status) -> Record:
        """Make a record without content, for a run that ends because one was refused: stored data stays as it is."""
        assert self._refusal is not None
        if status not in ("failed", "cancelled"):
            raise self._refusal
        self.scope.changes.clear()
        self._takes, self._closes, self._ended = (), (), {}
        return Record(v=FORMAT)

    def _close_given_up(self) -> None:
        """Close questions that nobody waits for any more: what asked them has gone on, or failed, without an answer."""
        questions, known = self.scope.questions, self.asked_ids
        closed, questions.closed = known.intersection(questions.closed).difference(questions.open), []
        gone = closed.difference(self._takes)
        if gone:
            self._closes += tuple(Answer(id=each, value=b"", how="abandoned") for each in sorted(gone))
        known -= closed

    def _asks(self) -> tuple[Question, ...]:
        """Return the questions that the record asks; the first of a branch also those that had ended before."""
        questions, begins = self.scope.questions, self.number == 0
        asks = ()
        if (questions.opened or (begins and questions.all)) and self._refusal is None:
            asks = self._new_questions(begins=begins)
        if self._past:
            asks, self._past = with_past(self._past, asks), ()
        return asks

    def _new_questions(self, *, begins: bool) -> tuple[Question, ...]:
        """Return the questions without a row on this branch yet; if it `begins`, including those that have ended."""
        questions, known = self.scope.questions, self.asked_ids
        if begins:
            new = [question for question in questions.all.values() if question.id not in known]
        else:
            new = [question for question in questions.opened.values() if question.id not in known]
        questions.opened = {}
        if not new:
            return ()
        known.update([question.id for question in new if question.how is None])
        if not questions.has_composites:
            return tuple([stored_question(q, None, ended(q)) for q in new])
        parents = Parents(self.scope)
        return tuple([stored_question(q, parents.above(q.id), ended(q)) for q in new])

    def make_again(self, batch: list[PendingWrite], given: Answered) -> None:
        """Make the bytes of records again, the first of which takes an answer up instead of closing its question."""
        self.chain.digest = batch[0].before
        for pending in batch:
            write, record = pending.write, decode(pending.write.body)
            assert record.proof is not msgspec.UNSET
            if pending is batch[0]:
                record.proof.ended[given.id] = ended_by(given)
            pending.before = self.chain.digest
            body = self.chain.encode(record, record.proof, self.ref, write.id, write.parent, write.header, write.events)
            pending.write = replace(write, body=body)
            self.chain.move()
