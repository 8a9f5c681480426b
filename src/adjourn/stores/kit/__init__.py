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
- Answers, cancels and renewals change only counters that are added to, their own questions, `cancel`, `expires` and
  `touched`. No commit's guard looks at these, except that of a pause, which looks at `waiting`. So they never make a
  live owner's commit fail, and answers to different questions never make each other fail.
- A lease is taken over only when it has ended by the store's clock at the moment of writing, or while the owner that
  is known to be dead still holds it.

`KitStore` has the writing verbs of a store that decides inside one lock or transaction; `RemoteStore` drives one that
reads and writes in two trips. `docs/stores.md` shows how to write a store.
"""

from .effects import Applied, Effects, End, Guard, LeaseChange, Move, advanced, ended, holds, taken
from .facts import Facts, FactSheet, NotRead, Point, Query, Remembered, removable
from .reading import Columns, branch_rows, converted, points, question_row, readable, record_row, session_row
from .requests import Cancel, Claim, Commit, Decision, Delete, GiveAnswers, Prune, Renew, Request
from .rows import (
    Branch,
    QuestionRow,
    RecordRow,
    SessionRow,
    answered,
    asked_row,
    audit_entry,
    checkpoint_row,
    decode_header,
    due,
    encode_header,
    event_batch,
    fits,
    head_of,
    id_at,
    is_expired,
    is_live,
    is_named,
    lies_under,
    listed_row,
    locate,
    open_question,
)
from .store import KitStore, RemoteStore

__all__ = [
    "Applied",
    "Branch",
    "Cancel",
    "Claim",
    "Columns",
    "Commit",
    "Decision",
    "Delete",
    "Effects",
    "End",
    "FactSheet",
    "Facts",
    "GiveAnswers",
    "Guard",
    "KitStore",
    "LeaseChange",
    "Move",
    "NotRead",
    "Point",
    "Prune",
    "Query",
    "QuestionRow",
    "RecordRow",
    "Remembered",
    "RemoteStore",
    "Renew",
    "Request",
    "SessionRow",
    "advanced",
    "answered",
    "asked_row",
    "audit_entry",
    "branch_rows",
    "checkpoint_row",
    "converted",
    "decode_header",
    "due",
    "encode_header",
    "ended",
    "event_batch",
    "fits",
    "head_of",
    "holds",
    "id_at",
    "is_expired",
    "is_live",
    "is_named",
    "lies_under",
    "listed_row",
    "locate",
    "open_question",
    "points",
    "question_row",
    "readable",
    "record_row",
    "removable",
    "session_row",
    "taken",
]
