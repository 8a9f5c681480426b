"""The tables of every store, declared once: what their rows have, how rows are found, and what of them is secret.

A table is made from the struct of its row: the fields are its columns, and their types say what may be in a column, in
whichever database. Stores make their schemas, statements and packed rows from this, `reading` checks what they read
against it, and `EncryptedStore` seals what is secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType, UnionType
from typing import Annotated, Any, Generic, Literal, TypeVar, Union, cast, get_args, get_origin

import msgspec
from msgspec import Meta

from adjourn.stores.types import Begun

from .rows import Branch, InboxRow, InputRow, NoticeRow, QuestionRow, RecordRow, SessionRow

R = TypeVar("R", bound=msgspec.Struct)

Kind = Literal["int", "float", "text", "bytes", "flag", "texts"]


class Columns(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """The columns of a row, in order, and what may be in them."""


class Column(msgspec.Struct, frozen=True):
    """One column: the field of the row that it stores, what kind of values it has, and whether it may have none."""

    field: str
    name: str
    kind: Kind
    is_optional: bool = False


class Index(msgspec.Struct, frozen=True):
    """An index that databases keep of the rows for which a condition holds; the condition is plain SQL."""

    name: str
    columns: tuple[str, ...]
    where: str = ""


class Table(Generic[R]):
    """One table.

    `key` is what a row is found by. With `of_session`, rows belong to a session, whose number comes before the rest of
    the key in a column `session`, and are removed with it. `serial` is a column that the store numbers in the order of
    writing. `derived` are fields of the row that follow from where it stands, and are not stored. `names` are columns
    that are not called as their field. Of the columns in `counters`, a write says how much it adds, since others add to
    them meanwhile; those in `lasting` keep the first text that is written. An `EncryptedStore` seals the columns in
    `secret`, in this order, each bound to its row and to other columns of that. Of `labels` it keeps keyed digests, by
    which listings select, and seals what they say with the body; of those in `digested` it keeps digests alone. All
    others stay readable, those of sessions always: their row is what every decision and listing compares.
    """

    def __init__(
        self,
        name: str,
        row: type[R],
        *,
        key: tuple[str, ...],
        of_session: bool = True,
        serial: str | None = None,
        derived: tuple[str, ...] = (),
        names: Mapping[str, str] = MappingProxyType({}),
        counters: tuple[str, ...] = (),
        lasting: tuple[str, ...] = (),
        secret: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
        labels: tuple[str, ...] = (),
        digested: tuple[str, ...] = (),
        indexes: tuple[Index, ...] = (),
    ) -> None:
        self.name = name
        self.row = row
        self.key = key
        self.of_session = of_session
        self.serial = serial
        self.counters: frozenset[str] = frozenset(counters)
        self.lasting: frozenset[str] = frozenset(lasting)
        self.secret = secret
        self.labels = labels
        self.digested: frozenset[str] = frozenset((*labels, *digested))
        self.indexes = indexes
        fields = [each for each in msgspec.structs.fields(row) if each.name not in derived]
        self.fields: tuple[str, ...] = tuple([each.name for each in fields])
        """The fields of the row that are stored, in their order."""
        self.columns: tuple[Column, ...] = tuple(
            [_column(each.name, names.get(each.name, each.name), each.type) for each in fields]
        )
        """Their columns."""
        self.checked: type[Columns] = cast(
            "type[Columns]",
            msgspec.defstruct(f"_{row.__name__}", map(_field, fields), bases=(Columns,), frozen=True, gc=False),
        )
        """The stored fields in their order, with what may be in them: see `converted`."""

    def __repr__(self) -> str:
        return f"<table {self.name}>"


def quoted(name: str) -> str:
    """Return the name of a column as SQL has it."""
    return f'"{name}"' if name in ("full", "to", "user") else name


def _column(field: str, name: str, hint: Any) -> Column:
    plain, is_optional = _plain(hint)
    kinds: dict[Any, Kind] = {int: "int", float: "float", str: "text", bytes: "bytes", bool: "flag"}
    kinds |= {tuple: "texts", Literal: "text"}
    return Column(field, name, kinds[get_origin(plain) or plain], is_optional)


def _plain(hint: Any) -> tuple[Any, bool]:
    """Return a type without its bounds, and whether it may be None."""
    if get_origin(hint) is Annotated:
        return _plain(get_args(hint)[0])
    if get_origin(hint) in (UnionType, Union):
        (some,) = [each for each in get_args(hint) if each is not type(None)]
        return _plain(some)[0], True
    return hint, False


def _field(found: msgspec.structs.FieldInfo) -> tuple[str, Any, Any] | tuple[str, Any]:
    # Not every database has a type for truth; those without keep 0 and 1.
    hint = bool | Annotated[int, Meta(ge=0, le=1)] if found.type is bool else found.type
    return (found.name, hint) if found.required else (found.name, hint, found.default)


SESSIONS = Table(
    "sessions",
    SessionRow,
    key=("app", "session"),
    of_session=False,
    serial="no",
    names={"session": "id"},
    counters=("waiting", "inputs", "input_bytes"),
    lasting=("program",),
    indexes=(
        # These change only when a lease or an answer comes or goes, not with every commit.
        Index("sessions_held", ("no",), "owner IS NOT NULL"),
        Index("sessions_answered", ("no",), "waiting > 0"),
        Index("sessions_idle", ("app", "status", "updated", "id"), "owner IS NULL"),
        Index("sessions_of_user", ("user", "updated", "app", "id"), 'owner IS NULL AND "user" IS NOT NULL'),
    ),
)

BRANCHES = Table("branches", Branch, key=("no",))

RECORDS = Table(
    "records",
    RecordRow,
    key=("pos",),
    derived=("id", "parent"),
    secret={"header": ("source",), "events": ("seq", "count"), "body": ("full",)},
)

QUESTIONS = Table(
    "questions",
    QuestionRow,
    key=("branch", "id"),
    serial="no",
    # Nobody can let a question expire earlier or later, or turn an answer into an expiry, or into another person's.
    secret={"body": ("expires",), "by": ("how",), "value": ("how", "by"), "notes": ()},
    labels=("agent", "reason", "tags", "requesters"),
    digested=("decided_by", "groups", "taker"),
    indexes=(
        Index("questions_due", ("due",), "how IS NULL AND due IS NOT NULL"),
        Index("questions_decided", ("at", "no"), "decided_by IS NOT NULL"),
        Index("questions_decided_by", ("decided_by", "at", "no"), "decided_by IS NOT NULL"),
        Index("questions_decided_for", ("agent", "at", "no"), "decided_by IS NOT NULL"),
        Index("questions_decided_how", ("how", "at", "no"), "decided_by IS NOT NULL"),
    ),
)

LABELS_FROM = "address"
"""The column of a question from which on it is what listings select by and show; decisions do without."""

INBOX = Table(
    "inbox",
    InboxRow,
    key=("term", "asked", "no"),
    of_session=False,
    indexes=(Index("inbox_expiring", ("term", "expires", "no"), "expires IS NOT NULL"),),
)
"""The open questions of the heads' branches, once for each of their terms: see `inbox`."""

INPUTS = Table(
    "inputs",
    InputRow,
    key=("id",),
    serial="no",
    # Nobody can make an input another user's, or give it to another program.
    secret={"digest": (), "body": ("program", "user", "abandons")},
    indexes=(
        Index("inputs_waiting", ("session", "no"), "NOT taken"),
        Index("inputs_next", ("no",), "NOT taken"),
    ),
)

BEGUN = Table("begun", Begun, key=("digest", "place", "number"), of_session=False)
"""What has begun and must not happen twice. It belongs to no session, so that it outlives them all."""

OUTBOX = Table(
    "outbox",
    NoticeRow,
    key=("id",),
    of_session=False,
    secret={"body": ("to",)},  # nobody can have it sent to somebody else
    indexes=(Index("outbox_due", ("app", "to", "due")),),
)
"""Notices that nobody has sent yet. They outlive their sessions, too."""

assert not SESSIONS.secret, "no store could compare a session's row that is sealed"

TABLES: tuple[Table[Any], ...] = (SESSIONS, BRANCHES, RECORDS, QUESTIONS, INBOX, INPUTS, BEGUN, OUTBOX)
