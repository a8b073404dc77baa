"""The SQL that ends a run by its holder: complete, fail, release; alone or with the next claim."""

from dataclasses import dataclass
from functools import cache

from .statements import CLAIM_COLUMNS, CLAIM_FROM, JEOPARDY, UNLIMITED, claim_parts, logged, steady
from .transitions import TASK

BACKOFF_SECONDS = 10
BACKOFF_LIMIT_SECONDS = 600
# So many ends in a row without progress open the `attempts` blocker too.
FRUITLESS_LIMIT = 10

BLOCKED_SENTENCE = (
    "format('%%s of %%s attempts ended without success. An operator can reopen the task.', {count}, {limit})"
)
FINAL_SENTENCE = "'The last attempt failed for good. An operator can reopen the task.'"
FRUITLESS_SENTENCE = (
    f"'{FRUITLESS_LIMIT} runs in a row ended without progress. An operator can reopen the task.'"
)


# An effect without an outcome becomes unknown with its run, in a statement of its own.
SETTLED = "(t.unreported_effects = 0 OR %(settles)s)"


@dataclass(frozen=True)
class Ending:
    """What one verb does to the task, the lease and the run. The SQL reads `t` (task) and `g` (guard)."""

    guard: str
    stuck: str
    sentence: str
    task: str
    lease_end: str
    run_status: str
    run: str


ENDINGS = {
    "complete": Ending(
        guard=f"""(NOT %(certain)s OR NOT {JEOPARDY.format(at="k.at")})
        AND t.open_effects = 0 AND (t.dependent_count = 0 AND t.unused_grants = 0 OR %(frees)s)""",
        stuck="false",
        sentence="''",
        task="""status = 'done', finished_at = g.at, open_blockers = 0, open_effects = 0, unused_grants = 0,
        last_run_end = 'succeeded', fruitless_ends = 0,
        summary = %(summary)s, result = %(result)s, evidence = %(evidence)s""",
        lease_end="completed",
        run_status="succeeded",
        run="",
    ),
    "fail": Ending(
        guard=SETTLED,
        stuck="(NOT %(retryable)s OR t.attempt_count + 1 >= t.max_attempts)",
        sentence=f"CASE WHEN %(retryable)s THEN {BLOCKED_SENTENCE.format(count='t.attempt_count + 1', limit='t.max_attempts')}"
        f" ELSE {FINAL_SENTENCE} END",
        task=f"""attempt_count = t.attempt_count + 1, last_run_end = 'failed', last_error = %(error)s, fruitless_ends = 0,
        backoff_until = g.at + least({BACKOFF_SECONDS} * power(2, least(t.attempt_count, 10)), {BACKOFF_LIMIT_SECONDS})
            * interval '1 s'""",
        lease_end="failed",
        run_status="failed",
        run=", error = %(error)s",
    ),
    "release": Ending(
        guard=SETTLED,
        stuck=f"(g.fruitless AND t.fruitless_ends + 1 >= {FRUITLESS_LIMIT})",
        sentence=FRUITLESS_SENTENCE,
        task="""last_run_end = 'released',
        fruitless_ends = CASE WHEN g.fruitless THEN t.fruitless_ends + 1 ELSE 0 END""",
        lease_end="released",
        run_status="released",
        run=", error = %(reason)s",
    ),
}
KINDS = {"complete": "task.completed", "fail": "task.failed", "release": "task.released"}


@cache
def end_run(verb: str, *, caller: str, claim_next: bool = False) -> str:
    """End `%(run)s` under `%(epoch)s`. One row when it moved (with the next claim), none when refused."""
    ending = ENDINGS[verb]
    sources = ", ".join(f"'{state}'" for state in TASK.sources(verb))
    # The counter and the status change together, or the table's check refuses the row.
    # A run that is open was claimed while nothing blocked the task, so the blocker is not open yet.
    status = (
        ""
        if verb == "complete"
        else (
            """open_blockers = t.open_blockers + g.stuck::int,
        status = CASE WHEN g.stuck OR t.status = 'blocked' THEN 'blocked' ELSE 'todo' END, """
        )
    )
    following = claim_parts(after="end_event") if claim_next else ""
    answer = (
        f"""SELECT e.*, c.principal_id AS caller_id, c.organization_id, ({UNLIMITED}) AS unlimited, x.*
    FROM answer e CROSS JOIN caller c LEFT JOIN (SELECT {CLAIM_COLUMNS} FROM {CLAIM_FROM}) x ON true"""
        if claim_next
        else "SELECT * FROM answer"
    )
    return f"""WITH {steady(caller) if claim_next else caller}, mine AS MATERIALIZED (
    SELECT r.id, r.task_id, r.lease_id, r.progress FROM coordination_run r JOIN caller c
        ON r.organization_id = c.organization_id AND r.principal_id = c.principal_id AND c.within
    WHERE r.id = %(run)s
), task_held AS MATERIALIZED (
    SELECT t.* FROM coordination_task t WHERE t.id = (SELECT task_id FROM mine) FOR NO KEY UPDATE
), lease_held AS MATERIALIZED (
    SELECT l.* FROM task_held h JOIN mine m ON m.task_id = h.id JOIN coordination_lease l ON l.id = m.lease_id
    FOR NO KEY UPDATE OF l
), ended_clock AS MATERIALIZED (
    SELECT id, clock_timestamp() AS at FROM lease_held
), guarded AS MATERIALIZED (
    SELECT t.id AS task_id, l.id AS lease_id, m.id AS run_id, k.at,
        (m.progress = 0 AND NOT %(leaves)s) AS fruitless
    FROM task_held t CROSS JOIN lease_held l CROSS JOIN mine m JOIN ended_clock k ON k.id = l.id
    WHERE l.ended_at IS NULL AND l.expires_at > k.at AND l.epoch = %(epoch)s
        AND t.status IN ({sources}) AND {ending.guard}
), allowed AS MATERIALIZED (
    SELECT g.*, {ending.stuck} AS stuck, {ending.sentence} AS sentence
    FROM guarded g JOIN task_held t ON t.id = g.task_id
), task_moved AS (
    UPDATE coordination_task t SET unreported_effects = 0, {status}{ending.task}
    FROM allowed g WHERE t.id = g.task_id
    RETURNING t.id, t.organization_id, t.status, t.attempt_count, t.finished_at, t.backoff_until, t.title
), blocker AS (
    INSERT INTO coordination_blocker (organization_id, task_id, kind, sentence, opened_at)
    SELECT m.organization_id, m.id, 'attempts', g.sentence, g.at
    FROM task_moved m CROSS JOIN allowed g WHERE g.stuck
    RETURNING task_id
), lease_ended AS (
    UPDATE coordination_lease l SET ended_at = g.at, end_reason = '{ending.lease_end}'
    FROM allowed g WHERE l.id = g.lease_id
), run_ended AS (
    UPDATE coordination_run r SET status = '{ending.run_status}', ended_at = g.at{ending.run}
    FROM allowed g WHERE r.id = g.run_id
    RETURNING r.id, r.number, r.task_id, r.lease_id, r.principal_id, r.epoch, r.status, r.progress, r.started_at, r.ended_at
), {
        logged(
            "end_event",
            f'''
    SELECT m.organization_id, v.kind, r.principal_id, r.task_id, r.id, r.lease_id, NULL::uuid, r.epoch, v.data
    FROM task_moved m CROSS JOIN run_ended r CROSS JOIN LATERAL (
        SELECT 1, '{KINDS[verb]}', jsonb_build_object('status', m.status, 'run', r.number, 'attempt_count', m.attempt_count)
        UNION ALL SELECT 2, 'task.blocked', jsonb_build_object(
            'status', m.status, 'blocker', 'attempts', 'attempt_count', m.attempt_count) FROM blocker
    ) v (n, kind, data) ORDER BY v.n''',
        )
    },
answer AS MATERIALIZED (
    SELECT m.id AS ended_task_id, m.title AS ended_title, m.status AS ended_task_status,
        m.attempt_count AS ended_attempt_count, m.finished_at, m.backoff_until,
        r.id AS ended_run_id, r.number AS ended_number, r.status AS ended_run_status, r.epoch AS ended_epoch,
        r.principal_id AS ended_principal_id,
        r.progress AS ended_progress, r.started_at AS ended_started_at, r.ended_at
    FROM task_moved m CROSS JOIN run_ended r
){"," + following if following else ""}
{answer}"""
