"""Writing down what has run out.

Nothing depends on it for correctness: an expired holder is refused by the clock wherever its lease
is used. Several sweepers at once share the work, since each passes over what another has locked.
"""

from django.db import transaction

from . import participants
from .database import fetch_all
from .endings import BLOCKED_SENTENCE, FRUITLESS_LIMIT, FRUITLESS_SENTENCE, SETTLED
from .statements import logged

BATCH = 500

# Lock order: tasks in the order of their ids, then leases. Whatever is locked belongs to a move
# that judges the same expiry itself, so it is passed over.
SWEEP = f"""WITH due AS MATERIALIZED (
    SELECT l.id AS lease_id, r.id AS run_id, r.task_id
    FROM coordination_lease l JOIN coordination_run r ON r.lease_id = l.id
    WHERE l.ended_at IS NULL AND l.expires_at <= clock_timestamp() AND (%(task)s::uuid IS NULL OR r.task_id = %(task)s)
        AND (%(organization)s::uuid IS NULL OR l.organization_id = %(organization)s)
    ORDER BY r.task_id LIMIT {BATCH}
), tasks AS MATERIALIZED (
    SELECT t.* FROM coordination_task t WHERE t.id IN (SELECT task_id FROM due)
    ORDER BY t.id FOR NO KEY UPDATE SKIP LOCKED
), leases AS MATERIALIZED (
    SELECT l.id, l.ended_at, l.expires_at, l.answer = 'lost' AS lost, d.run_id, d.task_id
    FROM tasks t JOIN due d ON d.task_id = t.id JOIN coordination_lease l ON l.id = d.lease_id
    FOR NO KEY UPDATE OF l SKIP LOCKED
), runs AS MATERIALIZED (
    SELECT l.*, r.progress, r.number, r.principal_id, r.epoch, p.kind = 'human' AS human
    FROM leases l JOIN coordination_run r ON r.id = l.run_id JOIN coordination_principal p ON p.id = r.principal_id
    JOIN tasks t ON t.id = l.task_id
    WHERE l.ended_at IS NULL AND l.expires_at <= clock_timestamp() AND {SETTLED}
), fates AS MATERIALIZED (
    SELECT r.run_id, r.task_id, r.id AS lease_id, r.expires_at, r.number, r.principal_id, r.epoch,
        CASE WHEN r.human THEN 'released' WHEN t.status = 'blocked' THEN 'parked'
            WHEN r.lost THEN 'released' ELSE 'abandoned' END AS fate,
        r.lost, r.progress = 0 AND NOT r.human AS fruitless, t.status AS was, t.attempt_count, t.max_attempts, t.fruitless_ends
    FROM runs r JOIN tasks t ON t.id = r.task_id
), verdicts AS MATERIALIZED (
    SELECT f.*, CASE
        WHEN f.fate = 'abandoned' AND f.attempt_count + 1 >= f.max_attempts
            THEN {BLOCKED_SENTENCE.format(count="f.attempt_count + 1", limit="f.max_attempts")}
        WHEN f.fate = 'parked' AND f.fruitless AND f.fruitless_ends + 1 >= {FRUITLESS_LIMIT}
            THEN {FRUITLESS_SENTENCE} END AS sentence
    FROM fates f
), task_moved AS (
    UPDATE coordination_task t SET
        attempt_count = t.attempt_count + (v.fate = 'abandoned')::int,
        open_blockers = t.open_blockers + (v.sentence IS NOT NULL)::int,
        status = CASE WHEN v.sentence IS NOT NULL OR t.status = 'blocked' THEN 'blocked' ELSE 'todo' END,
        last_run_end = v.fate, unreported_effects = 0,
        fruitless_ends = CASE WHEN v.fate = 'parked' AND v.fruitless THEN t.fruitless_ends + 1 ELSE 0 END
    FROM verdicts v WHERE t.id = v.task_id
    RETURNING t.id, t.organization_id, t.status, t.attempt_count
), blocker AS (
    INSERT INTO coordination_blocker (organization_id, task_id, kind, sentence, opened_at)
    SELECT m.organization_id, m.id, 'attempts', v.sentence, clock_timestamp()
    FROM task_moved m JOIN verdicts v ON v.task_id = m.id WHERE v.sentence IS NOT NULL
    RETURNING task_id
), lease_ended AS (
    UPDATE coordination_lease l SET ended_at = l.expires_at, end_reason = 'expired'
    FROM verdicts v WHERE l.id = v.lease_id
), run_ended AS (
    UPDATE coordination_run r SET status = v.fate, ended_at = v.expires_at
    FROM verdicts v WHERE r.id = v.run_id
    RETURNING r.id
), {
    logged(
        "end_event",
        '''
    SELECT m.organization_id, e.kind, NULL::uuid, v.task_id, v.run_id, v.lease_id, NULL::uuid, v.epoch, e.data
    FROM verdicts v JOIN task_moved m ON m.id = v.task_id CROSS JOIN LATERAL (
        SELECT 1, 'task.' || v.fate, jsonb_build_object(
            'status', m.status, 'run', v.number, 'attempt_count', m.attempt_count, 'lease', 'expired')
            || CASE WHEN v.lost THEN jsonb_build_object('because', 'answer_lost') ELSE '{}' END
        UNION ALL SELECT 2, 'task.blocked', jsonb_build_object(
            'status', m.status, 'blocker', 'attempts', 'attempt_count', m.attempt_count)
            WHERE v.sentence IS NOT NULL
    ) e (n, kind, data) ORDER BY v.task_id, e.n''',
    )
}
SELECT v.run_id, true AS ended FROM verdicts v
UNION ALL SELECT d.run_id, false FROM tasks t JOIN due d ON d.task_id = t.id WHERE NOT {SETTLED}"""


def sweep_batch(*, task_id: object = None, organization_id: object = None) -> int:
    """Write down up to 500 expired runs in one statement; the number of runs that were.

    Where there are some with effects that have no outcome, another statement ends those, in a transaction
    with what becomes of the effects.
    """
    params = {"task": task_id, "organization": organization_id, "settles": False}
    found = fetch_all(SWEEP, params)
    count: int = len([row for row in found if row["ended"]])
    if count < len(found):
        with transaction.atomic():
            ended = [row["run_id"] for row in fetch_all(SWEEP, {**params, "settles": True})]
            participants.run_ended(ended)
        count += len(ended)
    return count


def sweep() -> int:
    """Write down all that has run out, batch by batch; the number of runs that were."""
    total = 0
    while count := sweep_batch():
        total += count
    return total
