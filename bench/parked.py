"""How long lists and lookups take in a store with very many parked sessions: `python -m bench.parked URL --count N`.

It fills an empty store with sessions that wait for an answer, then times the first page of everything that people and
services list, as medians. A store that was filled before is only measured.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable

from adjourn.stores import Header, Question, QuestionFilter, SessionRef, Store, Write, open_store
from adjourn.stores.kit import (
    Claim,
    Commit,
    CountQuestions,
    FindSessions,
    GetHead,
    ListDue,
    ListQuestions,
    ListSessions,
)

_BATCH = 500
_TIMES = 7
_AGENTS = ("teller", "clerk", "boss")


async def fill(store: Store, count: int) -> None:
    """Park sessions: each has asked one question; one in a thousand is urgent, and one in a hundred is Ann's."""
    for start in range(0, count, _BATCH):
        await asyncio.gather(*[_park(store, number) for number in range(start, min(count, start + _BATCH))])


async def _park(store: Store, number: int) -> None:
    user = "ann" if number % 100 == 0 else f"user {number % 10_000}"
    ref = SessionRef(f"session {number}", "adjourn", user)
    first = Write(
        branch="b", number=0, parent=None, full=True, body=b"{}", header=Header(source="input"), status="running"
    )
    claimed = await store.write(Claim(ref=ref, owner="bench", ttl=60.0, after=None, write=first))
    assert claimed.lease is not None
    asks = Write(
        branch="b",
        number=1,
        parent=first.id,
        full=False,
        body=b"{}",
        header=Header(source="interrupt"),
        status="waiting",
        asks=(_question(number),),
    )
    await store.write(Commit(lease=claimed.lease, writes=(asks,), after=first.id, release=True))


def _question(number: int) -> Question:
    agent, now = _AGENTS[number % len(_AGENTS)], time.time()
    address = f"agent:{agent};tool:pay:c{number}"
    return Question(
        id=address,
        body=_BODY % (address.encode(), now),
        expires=now + 3600 if number % 1000 == 1 else now + 86_400 * 365,
        address=address,
        agent=agent,
        reason="need_approval" if number % 2 else "need_input",
        tags=("urgent",) if number % 1000 == 7 else ("money",),
        asked=now,
    )


_BODY = b'{"id":"%b","info":"May it pay?","created":%.6f,"schema":{"type":"boolean"}}'


async def measure(store: Store) -> None:
    """Print how long each call takes."""
    middle = await store.read(ListQuestions(limit=1000))
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "first page of 10": lambda: store.read(ListQuestions(limit=10)),
        "a page behind 1,000 others": lambda: store.read(ListQuestions(limit=10, after=middle[-1].cursor)),
        "of a user": lambda: store.read(ListQuestions(filter=_filter(user="ann"), limit=10)),
        "of an agent": lambda: store.read(ListQuestions(filter=_filter(agent="boss"), limit=10)),
        "under an address": lambda: store.read(ListQuestions(filter=_filter(under="agent:boss"), limit=10)),
        "with a rare tag": lambda: store.read(ListQuestions(filter=_filter(tag="urgent"), limit=10)),
        "with a rare tag, an agent and a reason": lambda: store.read(
            ListQuestions(filter=_filter(tag="urgent", agent="boss", reason="need_approval"), limit=10)
        ),
        "that expire within 2 hours": lambda: store.read(
            ListQuestions(filter=_filter(expires_before=time.time() + 7200), limit=10)
        ),
        "that expire within 2 years": lambda: store.read(
            ListQuestions(filter=_filter(expires_before=time.time() + 86_400 * 730), limit=10)
        ),
        "how many in all": lambda: store.read(CountQuestions()),
        "how many of a user": lambda: store.read(CountQuestions(_filter(user="ann"))),
        "sessions: first page of 20": lambda: store.read(ListSessions(app="adjourn", limit=20)),
        "sessions of a user: first page of 20": lambda: store.read(ListSessions(app="adjourn", user="ann", limit=20)),
        "sessions that wait: first page of 20": lambda: store.read(
            ListSessions(app="adjourn", status="waiting", limit=20)
        ),
        "sessions that failed": lambda: store.read(ListSessions(app="adjourn", status="failed", limit=20)),
        "sessions that run": lambda: store.read(ListSessions(app="adjourn", status="running")),
        "what is due": lambda: store.read(ListDue(limit=20)),
        "one session": lambda: store.read(GetHead(SessionRef("session 7"))),
        "one session, whichever app": lambda: store.read(FindSessions("session 7")),
    }
    for name, call in calls.items():
        print(f"{await _median(call) * 1000:10.2f} ms  {name}")


def _filter(**wanted: object) -> QuestionFilter:
    return QuestionFilter(app="adjourn", **wanted)  # pyright: ignore[reportArgumentType]


async def _median(call: Callable[[], Awaitable[object]]) -> float:
    took: list[float] = []
    for _ in range(_TIMES):
        begun = time.perf_counter()
        await call()
        took.append(time.perf_counter() - begun)
    return statistics.median(took)


async def main() -> None:
    """Fill the store if it is empty, and measure."""
    parser = argparse.ArgumentParser(prog="python -m bench.parked", description=__doc__)
    parser.add_argument("url", help="such as sqlite:////tmp/parked.db")
    parser.add_argument("--count", type=int, default=200_000, help="how many sessions to park (200,000)")
    options = parser.parse_args()
    store = open_store(options.url)
    if not await store.read(ListSessions(limit=1)):
        begun = time.perf_counter()
        await fill(store, options.count)
        print(f"{time.perf_counter() - begun:10.1f} s   parking {options.count:,} sessions")
    await measure(store)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main())
