"""The partitioned tables, and the role that the application acts as."""

from django.conf import settings
from django.db import migrations

TABLES = """
CREATE SEQUENCE coordination_event_seq;
CREATE TABLE coordination_event (
    id uuid NOT NULL DEFAULT titen_uuid7(),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    seq bigint NOT NULL DEFAULT nextval('coordination_event_seq'),
    organization_id uuid NOT NULL,
    kind varchar(40) NOT NULL,
    actor_id uuid,
    task_id uuid,
    run_id uuid,
    lease_id uuid,
    subject_id uuid,
    epoch bigint,
    data jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (id, created_at)
) PARTITION BY RANGE (created_at);
CREATE TABLE coordination_event_default PARTITION OF coordination_event DEFAULT;
-- The task page and the audit: what happened to one task.
CREATE INDEX events_of_a_task ON coordination_event (task_id, seq) WHERE task_id IS NOT NULL;
-- The history of a key, a principal, an approval or a comment in the admin.
CREATE INDEX events_about_a_subject ON coordination_event (subject_id, seq) WHERE subject_id IS NOT NULL;
-- One trace of a refused write per run, code and minute.
CREATE INDEX refusals_of_a_run ON coordination_event (run_id, created_at) WHERE kind = 'run.refused';

CREATE TABLE coordination_renewal (
    id bigint NOT NULL DEFAULT 0,
    lease_id uuid NOT NULL,
    renewed_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    progress smallint
) PARTITION BY RANGE (renewed_at);
CREATE TABLE coordination_renewal_default PARTITION OF coordination_renewal DEFAULT;
CREATE SEQUENCE coordination_renewal_seq OWNED BY coordination_renewal.id;
ALTER TABLE coordination_renewal ALTER id SET DEFAULT nextval('coordination_renewal_seq');
-- The run's page: its heartbeats in order.
CREATE INDEX renewals_of_a_lease ON coordination_renewal (lease_id, renewed_at);

-- Heartbeats rewrite these rows; room on the page keeps the updates heap-only.
ALTER TABLE coordination_lease SET (fillfactor = 70);
ALTER TABLE coordination_run SET (fillfactor = 70);
ALTER TABLE coordination_task SET (fillfactor = 80);
"""

DROP = """
DROP TABLE coordination_renewal;
DROP TABLE coordination_event;
DROP SEQUENCE coordination_event_seq;
"""

# Roles belong to the cluster: another database of it may have made this one already, or be making it.
ROLE = """
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{role}') THEN
        CREATE ROLE "{role}" NOLOGIN;
    END IF;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
END $$;
DO $$ BEGIN
    IF NOT pg_has_role(current_user, '{role}', 'MEMBER') THEN
        EXECUTE format('GRANT "{role}" TO %I', current_user);
    END IF;
END $$;
GRANT USAGE ON SCHEMA public TO "{role}";
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO "{role}";
GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO "{role}";
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO "{role}";
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT USAGE, SELECT ON SEQUENCES TO "{role}";
REVOKE UPDATE, DELETE, TRUNCATE ON coordination_event, coordination_event_default, coordination_event_position
    FROM "{role}";
"""


def make_role(apps, schema_editor):
    """Let the application read and write, but only add to the log."""
    if settings.DB_ROLE:
        with schema_editor.connection.cursor() as cursor:
            cursor.execute(ROLE.format(role=settings.DB_ROLE))


class Migration(migrations.Migration):
    dependencies = [("coordination", "0001_initial")]

    operations = [
        migrations.RunSQL(TABLES, DROP),
        migrations.RunPython(make_role, migrations.RunPython.noop),
    ]
