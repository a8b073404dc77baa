"""Approvals belong to a round of their task; a grant that nobody used can be withdrawn, or ends with its task."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

END_WITH_THE_TASK = """
UPDATE approvals_approval a SET status = 'void', closed_at = clock_timestamp() FROM coordination_task t
WHERE t.id = a.task_id AND t.status IN ('done', 'cancelled') AND a.status = 'decided' AND a.granted"""
COUNT = """
UPDATE coordination_task t SET unused_grants = g.n FROM (
    SELECT task_id, count(*) AS n FROM approvals_approval
    WHERE status = 'decided' AND granted AND task_id IS NOT NULL GROUP BY task_id) g
WHERE t.id = g.task_id"""


class Migration(migrations.Migration):
    dependencies = [
        ("approvals", "0003_effect_reports"),
        ("coordination", "0010_rounds_and_unused_grants"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name="approval",
            name="round",
            field=models.PositiveIntegerField(db_default=1),
        ),
        migrations.AddField(
            model_name="approval",
            name="withdrawn_by",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddField(
            model_name="approval",
            name="withdrawal_reason",
            field=models.TextField(blank=True, db_default=""),
        ),
        migrations.AddConstraint(
            model_name="approval",
            constraint=models.CheckConstraint(
                condition=models.Q(withdrawn_by__isnull=True, withdrawal_reason="")
                | (models.Q(withdrawn_by__isnull=False, status="void") & ~models.Q(withdrawal_reason="")),
                name="a_withdrawn_grant_is_void_and_has_a_reason",
            ),
        ),
        migrations.RunSQL([END_WITH_THE_TASK, COUNT], migrations.RunSQL.noop),
    ]
