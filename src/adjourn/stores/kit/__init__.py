"""The store kit: the decisions that all stores share, without any I/O, and drivers that make a `Store` of them.

A *request* (`Claim`, `Commit`, …) is a pure function of the *facts* that were read, giving *effects* or a refusal. A
store reads facts in one go and applies effects in one go. Effects name their *guard*: what must still hold at the
moment of writing, on the rows that the same write changes. If a guard does not hold, the request is decided
again from new facts; only a decision raises `Conflict`.

What holds between any two writes to a session:

- There is one head, the newest record. Positions of records only grow; a branch is one stretch of them, its numbers
  have no gaps, and once the head has left it, it is never written again.
- The fence grows with every claim and never shrinks. Records are added by whoever holds the lease with the newest
  fence, after the head that it has seen. So a stale owner never writes anything.
- A question is asked once on its branch and ends at most once; its row stays as long as the session, whichever records
  are pruned, because records refer to it by its id. `waiting` is the number of answers on the head's branch
  that no record has taken. A session is not released as waiting while there is one that its owner has not seen.
- An input is submitted once under its id, waits in its session's queue, and then either a record begins its turn, the
  first in the queue first, or it is withdrawn. `inputs` is the number of those that wait. A session without any record
  has at least one of them.
- Answers, submissions, cancels and renewals change only counters that are added to, their own questions and inputs,
  `cancel`, `expires` and `touched`. No commit's guard looks at these, except that of a pause, which looks at `waiting`.
  So they never make a live owner's commit fail, and answers to different questions never make each other fail.
- A lease is taken over only when it has ended by the store's clock at the moment of writing, or while the owner that
  is known to be dead still holds it.

`KitStore` has the writing verbs of a store that decides inside one lock or transaction; `RemoteStore` drives one that
reads and writes in two trips. `docs/stores.md` shows how to write a store.
"""

from .changes import Add, Changes, Expect, Insert, Later, Removal, Update, changed_columns, changes_of, renewal_of
from .effects import Applied, Effects, End, Guard, LeaseChange, Move, advanced, begun, can_end, ended, holds, taken
from .facts import Facts, FactSheet, NotRead, Point, Query, Remembered, removable
from .hints import Fanout, Listener, worth_a_hint
from .inbox import cursor, in_app_of, is_listed, listed, open_question, place_of, selects, terms_in, terms_of
from .paging import Written, written, written_at
from .reading import (
    branch_rows,
    converted,
    input_row,
    points,
    question_row,
    readable,
    record_row,
    session_row,
    taken_notice,
)
from .requests import (
    Cancel,
    Claim,
    Commit,
    Decision,
    Delete,
    GiveAnswers,
    HasInput,
    Prune,
    Renew,
    Request,
    Submit,
    Withdraw,
)
from .rows import (
    Branch,
    InboxRow,
    InputRow,
    NoticeRow,
    QuestionRow,
    RecordRow,
    SessionRow,
    answered,
    asked_row,
    audit_entry,
    can_begin,
    checkpoint_row,
    damaged_record,
    decode_header,
    due,
    due_for,
    encode_header,
    event_batch,
    fits,
    has_status,
    head_of,
    id_at,
    input_digest,
    is_expired,
    is_live,
    is_named,
    is_wanted,
    lies_under,
    listed_row,
    locate,
    may_be_removed,
    notice_of,
    queued_input,
    stored_record,
    stored_statuses,
    submitted_row,
)
from .store import KitStore, RemoteStore
from .tables import (
    BEGUN,
    BRANCHES,
    INBOX,
    INPUTS,
    OUTBOX,
    QUESTIONS,
    RECORDS,
    SESSIONS,
    TABLES,
    Column,
    Columns,
    Index,
    Table,
)

__all__ = [
    "BEGUN",
    "BRANCHES",
    "INBOX",
    "INPUTS",
    "OUTBOX",
    "QUESTIONS",
    "RECORDS",
    "SESSIONS",
    "TABLES",
    "Add",
    "Applied",
    "Branch",
    "Cancel",
    "Changes",
    "Claim",
    "Column",
    "Columns",
    "Commit",
    "Decision",
    "Delete",
    "Effects",
    "End",
    "Expect",
    "FactSheet",
    "Facts",
    "Fanout",
    "GiveAnswers",
    "Guard",
    "HasInput",
    "InboxRow",
    "Index",
    "InputRow",
    "Insert",
    "KitStore",
    "Later",
    "LeaseChange",
    "Listener",
    "Move",
    "NotRead",
    "NoticeRow",
    "Point",
    "Prune",
    "Query",
    "QuestionRow",
    "RecordRow",
    "Remembered",
    "RemoteStore",
    "Removal",
    "Renew",
    "Request",
    "SessionRow",
    "Submit",
    "Table",
    "Update",
    "Withdraw",
    "Written",
    "advanced",
    "answered",
    "asked_row",
    "audit_entry",
    "begun",
    "branch_rows",
    "can_begin",
    "can_end",
    "changed_columns",
    "changes_of",
    "checkpoint_row",
    "converted",
    "cursor",
    "damaged_record",
    "decode_header",
    "due",
    "due_for",
    "encode_header",
    "ended",
    "event_batch",
    "fits",
    "has_status",
    "head_of",
    "holds",
    "id_at",
    "in_app_of",
    "input_digest",
    "input_row",
    "is_expired",
    "is_listed",
    "is_live",
    "is_named",
    "is_wanted",
    "lies_under",
    "listed",
    "listed_row",
    "locate",
    "may_be_removed",
    "notice_of",
    "open_question",
    "place_of",
    "points",
    "question_row",
    "queued_input",
    "readable",
    "record_row",
    "removable",
    "renewal_of",
    "selects",
    "session_row",
    "stored_record",
    "stored_statuses",
    "submitted_row",
    "taken",
    "taken_notice",
    "terms_in",
    "terms_of",
    "worth_a_hint",
    "written",
    "written_at",
]
