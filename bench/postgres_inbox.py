"""The inbox with many parked sessions on Postgres: how long a page takes, and how the server finds it.

`python -m bench.postgres_inbox [--sessions 1000000] [--url postgresql://…]`. Without a URL it starts its own server.
"""

import argparse
import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import psycopg

from adjourn.stores import PostgresStore, QuestionFilter
from adjourn.stores.kit import CountQuestions, ListBegun, ListDue, ListQuestions, ListSessions, StoreQuery
from adjourn.stores.kit.inbox import Stretch, terms_in
from adjourn.stores.postgres._inbox import list_of, values
from tests.servers import Postgres

SCHEMA = "inbox_bench"

# Sessions as runs leave them: a record, and one question in a thousand kinds of places.
FILL = """
INSERT INTO {schema}.sessions (id, app, "user", created, branch, branch_no, number, pos, full_pos, size, status, seq,
        fence, updated, touched, rested, program)
    SELECT 's' || n, 'app' || n % 10, 'user' || n % 10000, n, 'b', 0, 0, 0, 0, 400, 'waiting', 1, 1, n, n, n,
        'agent:Desk'
    FROM generate_series(1, {count}) AS n;
INSERT INTO {schema}.branches (session, name, start, first) SELECT n, 'b', 0, 0 FROM generate_series(1, {count}) AS n;
INSERT INTO {schema}.records (session, pos, "full", at, seq, count, source, header, events, body)
    SELECT n, 0, true, n, 1, 1, 'interrupt', '{}', '[]', convert_to(repeat('x', 400), 'UTF8')
    FROM generate_series(1, {count}) AS n;
INSERT INTO {schema}.questions (session, branch, id, expires, body, address, agent, reason, tags, asked)
    SELECT n, 0, 'q', CASE WHEN n % 3 = 0 THEN 4e9 + n END, convert_to('{"prompt":"May I?"}', 'UTF8'),
        'agent:Desk;tool:pay' || n % 1000 || ':call_' || n, 'Desk', 'approval',
        ARRAY['team' || n % 100] || CASE WHEN n % 50000 = 0 THEN ARRAY['rare'] ELSE '{}' END, n
    FROM generate_series(1, {count}) AS n;
INSERT INTO {schema}.inbox SELECT term, q.asked, q.no, q.expires
    FROM {schema}.questions AS q JOIN {schema}.sessions AS s ON s.no = q.session
    CROSS JOIN unnest(ARRAY['all:', 'all:app=' || s.app, 'all:user=' || s."user", 'all:agent=' || q.agent,
        'all:reason=' || q.reason, 'all:under=' || split_part(q.address, ';', 1), 'all:under=' || q.address]
        || ARRAY(SELECT 'all:tag=' || tag FROM unnest(q.tags) AS tag)) AS term;
"""


async def timed(name: str, call: Callable[[], Awaitable[object]], times: int = 9) -> float:
    """Print how long a call takes: the middle of so many, and the longest; return the middle."""
    taken: list[float] = []
    result: Any = None
    for _ in range(times):
        began = time.perf_counter()
        result = await call()
        taken.append(1000 * (time.perf_counter() - began))
    size = result if isinstance(result, int) else len(result)
    typical = sorted(taken)[times // 2]
    print(f"{name:46} {typical:8.1f} ms   at most {max(taken):8.1f} ms   -> {size}")
    return typical


async def measure(url: str, count: int) -> None:
    """Fill the tables, and ask what people and workers ask."""
    store = PostgresStore(url, schema=SCHEMA)
    await fill(store, url, count)
    await ask(store, count)
    print(*plan(url), sep="\n")
    await store.close()


async def fill(store: PostgresStore, url: str, count: int) -> None:
    """Park so many sessions in an empty database, by SQL: runs would take hours."""
    await store.read(ListBegun(""))
    with psycopg.connect(url, autocommit=True) as connection:
        began = time.perf_counter()
        for statement in filter(str.strip, FILL.split(";\n")):
            connection.execute(statement.replace("{schema}", SCHEMA).replace("{count}", str(count)).encode())
        connection.execute("VACUUM ANALYZE")
        print(f"{count} parked sessions, filled in {time.perf_counter() - began:.0f} s")
        sizes = "SELECT relname, pg_size_pretty(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r'"
        named = f"{sizes} AND relnamespace = '{SCHEMA}'::regnamespace ORDER BY pg_total_relation_size(oid) DESC LIMIT 4"
        print("  ".join(f"{name} {size}" for name, size in connection.execute(named.encode())))


async def ask(store: PostgresStore, count: int) -> dict[str, float]:
    """Make the calls, most of them for a first page of 50, and return the milliseconds of each."""
    page = await store.read(ListQuestions(limit=50))
    middle = (await store.read(ListQuestions(filter=QuestionFilter(asked_after=count / 2), limit=1)))[0].cursor
    filters = {
        "all": QuestionFilter(),
        "one of 10 apps": QuestionFilter(app="app3"),
        "one of 10,000 users": QuestionFilter(user="user77"),
        "one of 1,000 tools, by address": QuestionFilter(under="agent:Desk;tool:pay7:call_7"),
        "a common agent and a rare tag": QuestionFilter(agent="Desk", tag="rare"),
        "two that never meet": QuestionFilter(app="app3", tag="team4"),
        "expires soon": QuestionFilter(expires_before=4e9 + 100),
    }
    queries: dict[str, StoreQuery[Any]] = {
        f"first page, {name}": ListQuestions(filter=wanted, limit=50) for name, wanted in filters.items()
    }
    queries |= {
        "a page in the middle": ListQuestions(after=middle, limit=50),
        "the page after the first": ListQuestions(after=page[-1].cursor, limit=50),
        "the page that expires first": ListQuestions(order="expiry", limit=50),
        "of a tag, the page that expires first": ListQuestions(
            filter=QuestionFilter(app="app0", tag="team10"), order="expiry", limit=50
        ),
        "how many of a user": CountQuestions(QuestionFilter(user="user77")),
        "how many in all": CountQuestions(),
        "what is due": ListDue(),
        "sessions, newest first": ListSessions(limit=50),
        "sessions of a user": ListSessions(app="app7", user="user77", limit=50),
        "sessions that failed": ListSessions(app="app7", status="failed", limit=50),
    }
    return {name: await timed(name, partial(store.read, query)) for name, query in queries.items()}


def plan(url: str) -> list[str]:
    """Return how the server finds the first page in either order."""
    wanted = QuestionFilter(app="app0", tag="team10")
    found: list[str] = []
    with psycopg.connect(url, autocommit=True, prepare_threshold=None) as connection:
        for stretch in (Stretch.ASKED, Stretch.EXPIRING):
            given = values(wanted, stretch.begin, terms_in(wanted)) | {"limit": 50}
            query = f"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) {list_of(stretch, is_expiring_shorter=False)}".replace(
                "{schema}", SCHEMA
            )
            found += [line for (line,) in connection.execute(query.encode(), given)]
    return found


def main() -> None:
    """Run the bench."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--sessions", type=int, default=1_000_000)
    options.add_argument("--url")
    given = options.parse_args()
    with contextlib.ExitStack() as stack:
        url = given.url or stack.enter_context(Postgres()).fresh()
        asyncio.run(measure(url, given.sessions))


if __name__ == "__main__":
    main()
