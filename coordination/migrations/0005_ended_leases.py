"""Two indexes for people: the leases that ended lately, and what happened to one that is no task's."""

from django.db import migrations, models

# A task's events are found by its id, so that a claim and its end do not write into this index.
EVENTS_OF_A_LEASE = """
CREATE INDEX events_of_a_lease ON coordination_event (lease_id, seq)
    WHERE lease_id IS NOT NULL AND task_id IS NULL;
"""


class Migration(migrations.Migration):
    dependencies = [("coordination", "0004_checkpoints_of_runs")]

    operations = [
        migrations.AddIndex(
            model_name="lease",
            index=models.Index(
                models.F("organization"),
                models.OrderBy(models.F("ended_at"), descending=True),
                condition=models.Q(("end_reason__in", ["released", "expired", "revoked", "superseded"])),
                name="leases_that_ended",
            ),
        ),
        migrations.RunSQL(EVENTS_OF_A_LEASE, "DROP INDEX events_of_a_lease"),
    ]
