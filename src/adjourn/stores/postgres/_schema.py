"""The tables of the Postgres store, and bringing a database to the newest version of them.

Four things shape the tables:

- A step of a run changes no column that an index covers, so that Postgres can update the session's row in place
  (`rested` stands in for `updated` in listings: it changes when a lease begins or ends, not with every commit).
- Records, questions and events are kept as the bytes that were written. `jsonb` would reorder keys and drop
  duplicates; for people there are views.
- What is set up in each transaction, a query with several parts or even an expression of a function, costs more than to
  carry it out: most writes come by few of them.
- What a write does is a function, not a statement with several parts: Postgres runs each statement of a function on
  what is committed by then. A statement that waited for the row of a session would still see the *questions* as they
  were before it waited.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adjourn.errors import CheckpointTooNew, StoreUnavailable

from . import _outbox as outbox

if TYPE_CHECKING:
    from psycopg import AsyncConnection

_TABLES = (
    # All times are these: that of a statement, and that of the very moment, for what has waited for a row.
    """CREATE FUNCTION {schema}.moment() RETURNS double precision LANGUAGE sql STABLE AS
        'SELECT date_part(''epoch'', statement_timestamp())'""",
    """CREATE FUNCTION {schema}.clock() RETURNS double precision LANGUAGE sql VOLATILE AS
        'SELECT date_part(''epoch'', clock_timestamp())'""",
    """CREATE TABLE {schema}.sessions (
        no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        id text COLLATE "C" NOT NULL, app text COLLATE "C" NOT NULL, "user" text COLLATE "C",
        created double precision NOT NULL,
        branch text COLLATE "C" NOT NULL DEFAULT '', branch_no bigint NOT NULL DEFAULT -1,
        number bigint NOT NULL DEFAULT -1, pos bigint NOT NULL DEFAULT -1, full_pos bigint NOT NULL DEFAULT -1,
        size bigint NOT NULL DEFAULT 0, status text COLLATE "C" NOT NULL DEFAULT 'queued',
        owner text COLLATE "C", expires double precision NOT NULL DEFAULT 0,
        fence bigint NOT NULL DEFAULT 0, claims bigint NOT NULL DEFAULT 0, seq bigint NOT NULL DEFAULT 0,
        updated double precision NOT NULL DEFAULT 0, touched double precision NOT NULL DEFAULT 0,
        cancel text COLLATE "C", waiting bigint NOT NULL DEFAULT 0,
        program text COLLATE "C" NOT NULL DEFAULT '', inputs bigint NOT NULL DEFAULT 0,
        rested double precision, -- `updated` while nobody has the lease, else null
        queued double precision, abandons boolean, -- since when its first input waits, and whether that abandons
        UNIQUE (id, app)
    ) WITH (fillfactor = 70)""",
    "CREATE INDEX sessions_held ON {schema}.sessions (no) WHERE owner IS NOT NULL",
    "CREATE INDEX sessions_cancelled ON {schema}.sessions (no) WHERE cancel IS NOT NULL",
    "CREATE INDEX sessions_answered ON {schema}.sessions (no) WHERE waiting > 0",
    # In their order: there may be many thousands, of which a worker wants the first.
    "CREATE INDEX sessions_queued ON {schema}.sessions (queued, no) WHERE queued IS NOT NULL AND owner IS NULL",
    "CREATE INDEX sessions_rested ON {schema}.sessions (rested, app, id) WHERE owner IS NULL",
    "CREATE INDEX sessions_by_status ON {schema}.sessions (app, status, rested, id) WHERE owner IS NULL",
    'CREATE INDEX sessions_by_user ON {schema}.sessions ("user", rested, app, id) WHERE owner IS NULL',
    """CREATE TABLE {schema}.branches (
        session bigint NOT NULL, no bigint NOT NULL, name text COLLATE "C" NOT NULL, start bigint NOT NULL,
        first bigint NOT NULL, parent text COLLATE "C", PRIMARY KEY (session, no))""",
    """CREATE TABLE {schema}.records (
        session bigint NOT NULL, pos bigint NOT NULL, "full" boolean NOT NULL, at double precision NOT NULL,
        seq bigint NOT NULL, count bigint NOT NULL, source text COLLATE "C",
        header bytea NOT NULL, events bytea NOT NULL, body bytea NOT NULL, PRIMARY KEY (session, pos))""",
    """CREATE TABLE {schema}.questions (
        no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        session bigint NOT NULL, branch bigint NOT NULL, id text COLLATE "C" NOT NULL,
        how text COLLATE "C", taken boolean NOT NULL DEFAULT false, expires double precision,
        at double precision, by text COLLATE "C", value bytea, body bytea NOT NULL,
        UNIQUE (session, branch, id))""",
    "CREATE INDEX questions_expiring ON {schema}.questions (expires) WHERE how IS NULL AND expires IS NOT NULL",
    # The digest stays when a turn has begun with the input, so that nobody begins it again.
    """CREATE TABLE {schema}.inputs (
        no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        session bigint NOT NULL, id text COLLATE "C" NOT NULL, digest text COLLATE "C" NOT NULL,
        program text COLLATE "C" NOT NULL, "user" text COLLATE "C", abandons boolean NOT NULL,
        at double precision NOT NULL, taken boolean NOT NULL DEFAULT false, body bytea NOT NULL,
        UNIQUE (session, id))""",
    "CREATE INDEX inputs_waiting ON {schema}.inputs (session, no) WHERE NOT taken",
    # What has begun and must not happen twice. It does not belong to a session, so that it outlives them all.
    """CREATE TABLE {schema}.begun (
        digest text COLLATE "C" NOT NULL, place text COLLATE "C" NOT NULL, number bigint NOT NULL,
        PRIMARY KEY (digest, place, number))""",
)

# The inbox has the open questions of the branch of each session's head, once for each of their terms (what a filter may
# name of them: see `kit/inbox.py`), in the order in which they are listed. So every filter walks a list in its order.
_INBOX = (
    """ALTER TABLE {schema}.questions
        ADD COLUMN address text COLLATE "C" NOT NULL DEFAULT '', ADD COLUMN agent text COLLATE "C" NOT NULL DEFAULT '',
        ADD COLUMN reason text COLLATE "C" NOT NULL DEFAULT '', ADD COLUMN tags text[] NOT NULL DEFAULT '{}',
        ADD COLUMN asked double precision NOT NULL DEFAULT 0, ADD COLUMN terms text[] NOT NULL DEFAULT '{}'""",
    """CREATE TABLE {schema}.inbox (
        term text COLLATE "C" NOT NULL, asked double precision NOT NULL, no bigint NOT NULL, expires double precision,
        PRIMARY KEY (term, asked, no) INCLUDE (expires))""",
    # An index does not take long texts.
    """CREATE FUNCTION {schema}.term(kind text, name text, value text) RETURNS text LANGUAGE sql STABLE AS $$
        SELECT kind || name || CASE WHEN octet_length(value) <= 500 THEN '=' || value
            ELSE '#' || encode(sha256(convert_to(value, 'UTF8')), 'hex') END $$""",
    # Not a query: to set one up would take longer than all of this.
    """CREATE FUNCTION {schema}.terms(
            app text, "user" text, agent text, reason text, tags text[], address text
        ) RETURNS text[] LANGUAGE plpgsql STABLE AS $$
    DECLARE
        kind text := CASE WHEN left(app, 1) = '~' THEN 'own:' ELSE 'all:' END;
        terms text[] := ARRAY[kind, {schema}.term(kind, 'app', app), {schema}.term(kind, 'agent', agent),
            {schema}.term(kind, 'reason', reason)];
        above text;
        each text;
    BEGIN
        IF "user" IS NOT NULL THEN terms := terms || {schema}.term(kind, 'user', "user"); END IF;
        FOREACH each IN ARRAY tags LOOP
            each := {schema}.term(kind, 'tag', each);
            IF each <> ALL (terms) THEN terms := terms || each; END IF;
        END LOOP;
        FOREACH each IN ARRAY string_to_array(address, ';') LOOP
            above := concat_ws(';', above, each);
            terms := terms || {schema}.term(kind, 'under', above);
        END LOOP;
        RETURN terms;
    END $$""",
    # For a few questions at a time. With terms at hand, each is found in the index, however long the inbox is.
    """CREATE FUNCTION {schema}.unlist(q {schema}.questions) RETURNS void LANGUAGE sql AS $$
        DELETE FROM {schema}.inbox AS i WHERE i.term = ANY (q.terms) AND i.asked = q.asked AND i.no = q.no $$""",
    """UPDATE {schema}.questions AS q SET terms =
            {schema}.terms(s.app, s."user", q.agent, q.reason, q.tags, q.address)
        FROM {schema}.sessions AS s WHERE s.no = q.session AND s.branch_no = q.branch AND q.how IS NULL""",
    """INSERT INTO {schema}.inbox SELECT t.term, q.asked, q.no, q.expires
        FROM {schema}.questions AS q CROSS JOIN unnest(q.terms) AS t (term)""",
)

# Guards are checked on the locked row, with the time after the wait for it. Whoever changes anything of a session
# locks its row first, so nothing that is checked here can change before it is written.
_APPLY = """CREATE FUNCTION {schema}.apply(
        in_app text, in_id text, in_user text DEFAULT NULL,
        g_exists boolean DEFAULT true, g_checkpoint text DEFAULT NULL, g_branch text DEFAULT NULL,
        g_fence bigint DEFAULT NULL, g_owner text DEFAULT NULL, g_live boolean DEFAULT NULL,
        g_replaces text DEFAULT NULL, g_waiting bigint DEFAULT NULL, g_inputs bigint DEFAULT NULL,
        g_idle double precision DEFAULT NULL,
        m_branch text DEFAULT NULL, m_branch_no bigint DEFAULT NULL, m_number bigint DEFAULT NULL,
        m_pos bigint DEFAULT NULL, m_full_pos bigint DEFAULT NULL, m_size bigint DEFAULT NULL,
        m_status text DEFAULT NULL, m_seq bigint DEFAULT NULL,
        l_fence bigint DEFAULT NULL, l_owner text DEFAULT NULL, l_claims bigint DEFAULT NULL,
        l_ttl double precision DEFAULT 0,
        sets_cancel boolean DEFAULT false, to_cancel text DEFAULT NULL, add_waiting bigint DEFAULT 0,
        b_start bigint DEFAULT NULL, b_first bigint DEFAULT NULL, b_parent text DEFAULT NULL,
        last_source text DEFAULT NULL, last_count bigint DEFAULT NULL, last_header bytea DEFAULT NULL,
        last_events bytea DEFAULT NULL, last_body bytea DEFAULT NULL,
        r_pos bigint[] DEFAULT NULL, r_full boolean[] DEFAULT NULL, r_seq bigint[] DEFAULT NULL,
        r_count bigint[] DEFAULT NULL, r_source text[] DEFAULT NULL, r_header bytea[] DEFAULT NULL,
        r_events bytea[] DEFAULT NULL, r_body bytea[] DEFAULT NULL,
        a_id text[] DEFAULT NULL, a_body bytea[] DEFAULT NULL, a_expires double precision[] DEFAULT NULL,
        a_how text[] DEFAULT NULL, a_at double precision[] DEFAULT NULL, a_by text[] DEFAULT NULL,
        a_value bytea[] DEFAULT NULL, a_address text[] DEFAULT NULL, a_agent text[] DEFAULT NULL,
        a_reason text[] DEFAULT NULL, a_tags bytea[] DEFAULT NULL, a_asked double precision[] DEFAULT NULL,
        e_branch_no bigint[] DEFAULT NULL, e_id text[] DEFAULT NULL, e_how text[] DEFAULT NULL,
        e_taken boolean[] DEFAULT NULL, e_by text[] DEFAULT NULL, e_value bytea[] DEFAULT NULL,
        takes text[] DEFAULT NULL,
        to_program text DEFAULT '', add_inputs bigint DEFAULT 0, begins_input text DEFAULT NULL,
        withdraws text DEFAULT NULL, i_id text DEFAULT NULL, i_digest text DEFAULT NULL, i_program text DEFAULT NULL,
        i_user text DEFAULT NULL, i_abandons boolean DEFAULT NULL, i_body bytea DEFAULT NULL,
        d_digest text[] DEFAULT NULL, d_place text[] DEFAULT NULL, d_number bigint[] DEFAULT NULL,
        drops bigint[] DEFAULT NULL, removes boolean DEFAULT false
    ) RETURNS TABLE (was_cancel text, written double precision, left_inputs bigint) LANGUAGE plpgsql AS $$
    #variable_conflict use_column
    DECLARE
        s {schema}.sessions%ROWTYPE;
        q {schema}.questions%ROWTYPE;
        clock double precision;
        tries boolean;
        -- Each expression takes some microseconds, even one that says that there is nothing to do.
        writes_more boolean := num_nonnulls(
            b_start, r_pos, a_id, e_id, takes, i_id, begins_input, withdraws, d_digest, drops) > 0 OR removes;
    BEGIN
        IF g_exists THEN
            SELECT * INTO s FROM {schema}.sessions AS t
                WHERE t.app = in_app AND t.id = in_id AND (in_user IS NULL OR t."user" = in_user) FOR UPDATE;
            IF NOT FOUND THEN RETURN; END IF;
            clock := {schema}.clock();
            IF g_checkpoint <> (CASE WHEN s.pos < 0 THEN '' ELSE s.branch || '.' || s.number END)
                OR g_branch <> s.branch OR g_fence <> s.fence
                OR (g_owner IS NOT NULL AND g_owner IS DISTINCT FROM s.owner)
                OR g_live <> (s.owner IS NOT NULL AND s.expires > clock AND s.owner IS DISTINCT FROM g_replaces)
                OR g_waiting <> s.waiting OR g_inputs <> s.inputs OR s.touched >= clock - g_idle
            THEN RETURN; END IF;
        ELSE
            clock := {schema}.clock();
            -- Long names are tried in all indexes, as they will be with the longest status once the run has ended.
            tries := octet_length(concat(in_id, in_app, in_user)) > 500;
            INSERT INTO {schema}.sessions AS t (id, app, "user", created, owner, status, branch, branch_no, number, pos,
                    full_pos, size, seq, expires, fence, claims, updated, touched, program, inputs, rested,
                    queued, abandons)
                VALUES (in_id, in_app, in_user, clock, CASE WHEN NOT tries THEN l_owner END,
                    CASE WHEN tries THEN 'cancelled' ELSE coalesce(m_status, 'queued') END,
                    coalesce(m_branch, ''), coalesce(m_branch_no, -1), coalesce(m_number, -1), coalesce(m_pos, -1),
                    coalesce(m_full_pos, -1), coalesce(m_size, 0), coalesce(m_seq, 0),
                    CASE WHEN l_owner IS NULL THEN 0 ELSE clock + l_ttl END, coalesce(l_fence, 0),
                    coalesce(l_claims, 0), clock, clock, to_program, add_inputs,
                    CASE WHEN tries OR l_owner IS NULL THEN clock END, CASE WHEN i_id IS NOT NULL THEN clock END,
                    i_abandons)
                ON CONFLICT (app, id) DO NOTHING RETURNING t.no INTO s.no;
            IF NOT FOUND THEN RETURN; END IF;
            IF tries THEN
                UPDATE {schema}.sessions AS t SET owner = l_owner, status = coalesce(m_status, 'queued'),
                    rested = CASE WHEN l_owner IS NULL THEN clock END WHERE t.no = s.no;
            END IF;
            s.app := in_app;
            s."user" := in_user;
            s.inputs := 0;
        END IF;

        IF writes_more THEN
            IF removes THEN
                PERFORM {schema}.unlist(q) FROM {schema}.questions AS q
                    WHERE q.session = s.no AND q.branch = s.branch_no AND q.how IS NULL;
                DELETE FROM {schema}.records AS t WHERE t.session = s.no;
                DELETE FROM {schema}.questions AS t WHERE t.session = s.no;
                DELETE FROM {schema}.branches AS t WHERE t.session = s.no;
                DELETE FROM {schema}.inputs AS t WHERE t.session = s.no;
                DELETE FROM {schema}.sessions AS t WHERE t.no = s.no;
                was_cancel := s.cancel; written := clock; left_inputs := 0;
                RETURN NEXT;
                RETURN;
            END IF;
            IF a_id IS NOT NULL OR e_id IS NOT NULL THEN
                IF a_id IS NOT NULL AND EXISTS (
                    SELECT FROM {schema}.questions AS q
                    WHERE q.session = s.no AND q.branch = m_branch_no AND q.id = ANY (a_id))
                THEN RETURN; END IF;
                FOR n IN 1 .. coalesce(cardinality(e_id), 0) LOOP
                    PERFORM FROM {schema}.questions AS q
                        WHERE q.session = s.no AND q.branch = coalesce(e_branch_no[n], s.branch_no) AND q.id = e_id[n]
                        AND q.how IS NULL AND (e_how[n] <> 'answered' OR coalesce(q.expires > clock, true));
                    IF NOT FOUND AND NOT e_id[n] = ANY (coalesce(a_id, '{}')) THEN RETURN; END IF;
                END LOOP;
            END IF;
            IF i_id IS NOT NULL OR begins_input IS NOT NULL OR withdraws IS NOT NULL THEN
                IF EXISTS (SELECT FROM {schema}.inputs AS i WHERE i.session = s.no AND i.id = i_id)
                THEN RETURN; END IF;
                IF begins_input <> coalesce((SELECT i.id FROM {schema}.inputs AS i
                    WHERE i.session = s.no AND NOT i.taken ORDER BY i.no LIMIT 1), begins_input || '?')
                THEN RETURN; END IF;
                IF withdraws IS NOT NULL AND NOT EXISTS (
                    SELECT FROM {schema}.inputs AS i WHERE i.session = s.no AND i.id = withdraws AND NOT i.taken)
                THEN RETURN; END IF;
                IF i_id IS NULL THEN
                    SELECT i.at, i.abandons INTO s.queued, s.abandons FROM {schema}.inputs AS i
                        WHERE i.session = s.no AND NOT i.taken AND i.id <> coalesce(begins_input, withdraws)
                        ORDER BY i.no LIMIT 1;
                ELSIF s.queued IS NULL THEN
                    s.queued := clock;
                    s.abandons := i_abandons;
                END IF;
            END IF;
        END IF;

        IF g_exists THEN
            UPDATE {schema}.sessions AS t SET
                branch = coalesce(m_branch, t.branch), branch_no = coalesce(m_branch_no, t.branch_no),
                number = coalesce(m_number, t.number), pos = coalesce(m_pos, t.pos),
                full_pos = coalesce(m_full_pos, t.full_pos), size = coalesce(m_size, t.size),
                status = coalesce(m_status, t.status), seq = coalesce(m_seq, t.seq),
                owner = CASE WHEN l_fence IS NULL THEN t.owner ELSE l_owner END,
                expires = CASE WHEN l_fence IS NULL THEN t.expires WHEN l_owner IS NULL THEN 0 ELSE clock + l_ttl END,
                fence = coalesce(l_fence, t.fence), claims = coalesce(l_claims, t.claims),
                updated = CASE WHEN m_branch IS NOT NULL OR t.pos < 0 THEN clock ELSE t.updated END,
                touched = CASE WHEN m_branch IS NULL AND l_fence IS NULL AND e_id IS NULL AND i_id IS NULL
                    THEN t.touched ELSE clock END,
                cancel = CASE WHEN sets_cancel THEN to_cancel ELSE t.cancel END,
                waiting = CASE WHEN b_start IS NULL THEN t.waiting ELSE 0 END + add_waiting,
                program = CASE WHEN t.program = '' THEN to_program ELSE t.program END, inputs = t.inputs + add_inputs,
                rested = CASE WHEN l_owner IS NOT NULL OR l_fence IS NULL AND t.owner IS NOT NULL THEN NULL
                    WHEN m_branch IS NOT NULL OR t.pos < 0 THEN clock ELSE t.updated END,
                queued = s.queued, abandons = s.abandons
                WHERE t.no = s.no;
        END IF;

        IF last_body IS NOT NULL THEN
            INSERT INTO {schema}.records VALUES (s.no, m_pos, m_full_pos = m_pos, clock, m_seq,
                last_count, last_source, last_header, last_events, last_body);
        END IF;
        IF writes_more THEN
            IF b_start IS NOT NULL THEN
                IF g_exists THEN
                    PERFORM {schema}.unlist(q) FROM {schema}.questions AS q
                        WHERE q.session = s.no AND q.branch = s.branch_no AND q.how IS NULL;
                END IF;
                INSERT INTO {schema}.branches VALUES (s.no, m_branch_no, m_branch, b_start, b_first, b_parent);
            END IF;
            IF r_pos IS NOT NULL THEN
                INSERT INTO {schema}.records (session, at, pos, "full", seq, count, source, header, events, body)
                    SELECT s.no, clock, r.*
                    FROM unnest(r_pos, r_full, r_seq, r_count, r_source, r_header, r_events, r_body) AS r;
            END IF;
            FOR n IN 1 .. coalesce(cardinality(a_id), 0) LOOP
                INSERT INTO {schema}.questions AS t (session, branch, id, body, expires, how, at, by, value, taken,
                        address, agent, reason, tags, asked, terms)
                    VALUES (s.no, m_branch_no, a_id[n], a_body[n], a_expires[n], a_how[n], a_at[n], a_by[n], a_value[n],
                        a_how[n] IS NOT NULL, a_address[n], a_agent[n], a_reason[n],
                        convert_from(a_tags[n], 'UTF8')::text[], a_asked[n],
                        CASE WHEN a_how[n] IS NOT NULL THEN '{}' ELSE {schema}.terms(s.app, s."user", a_agent[n],
                            a_reason[n], convert_from(a_tags[n], 'UTF8')::text[], a_address[n]) END)
                    RETURNING * INTO q;
                IF q.how IS NULL THEN
                    INSERT INTO {schema}.inbox SELECT unnest(q.terms), q.asked, q.no, q.expires;
                END IF;
            END LOOP;
            FOR n IN 1 .. coalesce(cardinality(e_id), 0) LOOP
                UPDATE {schema}.questions AS t
                    SET how = e_how[n], taken = e_taken[n], at = clock, by = e_by[n], value = e_value[n]
                    WHERE t.session = s.no AND t.branch = coalesce(e_branch_no[n], s.branch_no) AND t.id = e_id[n]
                    RETURNING * INTO q;
                DELETE FROM {schema}.inbox AS i
                    WHERE i.term = ANY (q.terms) AND i.asked = q.asked AND i.no = q.no;
            END LOOP;
            IF takes IS NOT NULL THEN
                UPDATE {schema}.questions AS q SET taken = true
                    WHERE q.session = s.no AND q.branch = s.branch_no AND q.id = ANY (takes);
            END IF;
            IF i_id IS NOT NULL THEN
                INSERT INTO {schema}.inputs (session, id, digest, program, "user", abandons, at, body)
                    VALUES (s.no, i_id, i_digest, i_program, i_user, i_abandons, clock, i_body);
            END IF;
            IF begins_input IS NOT NULL THEN
                UPDATE {schema}.inputs AS i SET taken = true, body = '' WHERE i.session = s.no AND i.id = begins_input;
            END IF;
            IF withdraws IS NOT NULL THEN
                DELETE FROM {schema}.inputs AS i WHERE i.session = s.no AND i.id = withdraws;
            END IF;
            IF d_digest IS NOT NULL THEN
                -- In a fixed order: two that begin the same things must not wait for each other.
                INSERT INTO {schema}.begun
                    SELECT * FROM unnest(d_digest, d_place, d_number) AS d (digest, place, number)
                    ORDER BY d.digest, d.place, d.number ON CONFLICT DO NOTHING;
            END IF;
            IF drops IS NOT NULL THEN
                DELETE FROM {schema}.records AS t WHERE t.session = s.no AND t.pos = ANY (drops);
            END IF;
        END IF;
        was_cancel := s.cancel; written := clock; left_inputs := s.inputs + add_inputs;
        RETURN NEXT;
    END $$"""

_VIEWS = (
    # An encrypted store keeps bytes that are not text.
    """CREATE FUNCTION {schema}.readable(content bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT AS $$
    BEGIN
        RETURN convert_from(content, 'UTF8');
    EXCEPTION WHEN OTHERS THEN
        RETURN encode(content, 'hex');
    END $$""",
    """CREATE VIEW {schema}.readable_sessions AS SELECT
        id, app, "user", program, CASE WHEN pos >= 0 THEN branch || '.' || number END AS checkpoint, status,
        CASE WHEN expires > {schema}.moment() THEN owner END AS run_by,
        (SELECT count(*) FROM {schema}.questions AS q
            WHERE q.session = s.no AND q.branch = s.branch_no AND q.how IS NULL) AS open_questions,
        waiting AS new_answers, inputs AS queued_inputs,
        to_timestamp(created) AS created, to_timestamp(updated) AS updated
        FROM {schema}.sessions AS s""",
    """CREATE VIEW {schema}.readable_questions AS SELECT
        s.id AS session, s.app, s."user", b.name AS branch, q.id, q.address, q.agent, q.reason, q.tags,
        to_timestamp(q.asked) AS asked, {schema}.readable(q.body) AS question,
        to_timestamp(q.expires) AS expires, q.how, {schema}.readable(q.value) AS answer, q.by AS answered_by,
        to_timestamp(q.at) AS answered
        FROM {schema}.questions AS q JOIN {schema}.sessions AS s ON s.no = q.session
        JOIN {schema}.branches AS b ON b.session = q.session AND b.no = q.branch""",
    """CREATE VIEW {schema}.readable_records AS SELECT
        s.id AS session, s.app, s."user", b.name || '.' || b.first + r.pos - b.start AS checkpoint,
        r."full", to_timestamp(r.at) AS written, r.source, {schema}.readable(r.header) AS header,
        {schema}.readable(r.events) AS events, {schema}.readable(r.body) AS body
        FROM {schema}.records AS r JOIN {schema}.sessions AS s ON s.no = r.session
        JOIN LATERAL (SELECT * FROM {schema}.branches AS b
            WHERE b.session = r.session AND b.start <= r.pos ORDER BY b.no DESC LIMIT 1) AS b ON true""",
)

# Number n brings the tables to version n; none is ever changed once released. Each runs in one transaction, so one that
# was interrupted has not happened.
MIGRATIONS: tuple[tuple[str, ...], ...] = (_TABLES, (*_INBOX, _APPLY, *_VIEWS), outbox.TABLES)

LOCK = 0x61646A6F75726E  # "adjourn": whoever changes the tables waits here for others who do


def quoted(name: str) -> str:
    """Return a name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


async def prepare(connection: AsyncConnection[Any], store: str, schema: str, patience: float) -> None:
    """Bring the tables of a schema to the newest version; create them if there are none.

    The server itself gives up waiting for a lock before `patience` seconds have passed, and says so.

    Any number of processes may do this at once, and any of them may be killed.

    Raises:
        CheckpointTooNew: a newer version of Adjourn has migrated them.
        StoreUnavailable: the database cannot hold every text.
        psycopg.Error: anything else.
    """
    from psycopg.errors import InsufficientPrivilege  # noqa: PLC0415 - an extra

    (encoding,) = await _one(connection, "SHOW server_encoding")
    if encoding != "UTF8":
        detail = f"the database has the encoding {encoding}; create one with `CREATE DATABASE … ENCODING 'UTF8'`"
        raise StoreUnavailable(store, detail, is_lasting=True)
    version = await _version(connection, schema)
    while version < len(MIGRATIONS):
        try:
            version = await _migrate(connection, schema, patience)
        except InsufficientPrivilege as error:
            if not version:
                raise
            detail = await _migration_refused(connection, schema, version)
            raise StoreUnavailable(store, detail, is_lasting=True) from error
    if version > len(MIGRATIONS):
        raise CheckpointTooNew(version, len(MIGRATIONS))


async def _migrate(connection: AsyncConnection[Any], schema: str, patience: float) -> int:
    """Make the next step, unless another process has made it meanwhile; return the version that is reached."""
    name = quoted(schema)
    milliseconds = int(max(1, min(800 * patience, 2**31 - 1)))
    async with connection.transaction():
        # Whoever has waited for the lock must see what was done meanwhile.
        await connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        await connection.execute(f"SET LOCAL lock_timeout = {milliseconds}".encode())
        await connection.execute(f"SELECT pg_advisory_xact_lock({LOCK})".encode())
        version = await _version(connection, schema)
        if version >= len(MIGRATIONS):
            return version
        if version == 0:
            # Asking first: whoever may use a schema, but not create one, need not have the right to.
            if not await _one(connection, "SELECT 1 FROM pg_namespace WHERE nspname = %s", schema):
                await connection.execute(f"CREATE SCHEMA {name}".encode())
            await connection.execute(
                f"CREATE TABLE {name}.versions (number bigint PRIMARY KEY, at timestamptz DEFAULT now())".encode()
            )
        for statement in MIGRATIONS[version]:
            await connection.execute(statement.replace("{schema}", name).encode())
        await connection.execute(f"INSERT INTO {name}.versions VALUES ({version + 1})".encode())
    return version + 1


async def _migration_refused(connection: AsyncConnection[Any], schema: str, version: int) -> str:
    (owner,) = await _one(
        connection, "SELECT tableowner FROM pg_tables WHERE schemaname = %s AND tablename = 'versions'", schema
    )
    return (
        f"its tables are of version {version}, this version of Adjourn needs {len(MIGRATIONS)}, and this role may not "
        f"migrate them; run `adjourn sessions --store` once with a URL of their owner, '{owner}', and repeat the "
        "grants of the tables"
    )


async def _version(connection: AsyncConnection[Any], schema: str) -> int:
    found = await _one(
        connection,
        """SELECT 1 FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
           WHERE n.nspname = %s AND c.relname = 'versions'""",
        schema,
    )
    if not found:
        return 0
    (version,) = await _one(connection, f"SELECT coalesce(max(number), 0) FROM {quoted(schema)}.versions")
    return version


async def _one(connection: AsyncConnection[Any], query: str, *values: object) -> tuple[Any, ...]:
    """Return the first row, an empty one if there is none."""
    cursor = await connection.execute(query.encode(), values or None)
    return await cursor.fetchone() or ()
