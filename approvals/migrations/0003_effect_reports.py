"""Reports about effects are rows of their own, which nobody changes."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import coordination.models.fields

STATUSES = [
    ("authorized", "Authorized"),
    ("succeeded", "Succeeded"),
    ("failed", "Failed"),
    ("unknown", "Unknown"),
    ("compensated", "Compensated"),
    ("refused", "Refused"),
]

# Of each effect only the last report was kept. What its end made `unknown` nobody reported.
KEEP = """
SET CONSTRAINTS ALL IMMEDIATE;
INSERT INTO approvals_effectreport (effect_id, reported_by_id, was, outcome, note, late, created_at)
SELECT e.id, coalesce(p.id, e.principal_id), CASE WHEN e.late THEN 'unknown' ELSE 'authorized' END,
    e.status, e.note, e.late, e.outcome_at
FROM approvals_effect e
LEFT JOIN coordination_principal p ON p.organization_id = e.organization_id AND p.user_id = e.reconciled_by_id
WHERE e.outcome_at IS NOT NULL AND (e.status <> 'unknown' OR e.note <> '')"""

GIVE_BACK = """
SET CONSTRAINTS ALL IMMEDIATE;
UPDATE approvals_effect e SET note = r.note, late = r.late, reconciled_by_id = p.user_id
FROM approvals_effectreport r JOIN coordination_principal p ON p.id = r.reported_by_id
WHERE r.effect_id = e.id
    AND NOT EXISTS (SELECT FROM approvals_effectreport n WHERE n.effect_id = e.id AND n.id > r.id)"""


def close_reports(apps, schema_editor):
    """The application can only add to them."""
    if settings.DB_ROLE:
        schema_editor.execute(
            f'REVOKE UPDATE, DELETE, TRUNCATE ON approvals_effectreport FROM "{settings.DB_ROLE}"'
        )


class Migration(migrations.Migration):
    dependencies = [
        ("approvals", "0002_actions_effects_policy"),
        ("coordination", "0007_unreported_effects"),
    ]

    operations = [
        migrations.CreateModel(
            name="EffectReport",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        db_default=coordination.models.fields.Uuid7(),
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("was", models.CharField(choices=STATUSES, max_length=12)),
                ("outcome", models.CharField(choices=STATUSES, max_length=12)),
                ("note", models.TextField(blank=True)),
                ("late", models.BooleanField(default=False)),
                (
                    "created_at",
                    models.DateTimeField(db_default=coordination.models.fields.ClockNow(), editable=False),
                ),
                (
                    "effect",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="reports",
                        to="approvals.effect",
                    ),
                ),
                (
                    "reported_by",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="coordination.principal",
                    ),
                ),
            ],
            options={"ordering": ["id"]},
        ),
        migrations.AddIndex(
            model_name="effectreport",
            index=models.Index(models.F("effect"), models.F("id"), name="reports_of_an_effect"),
        ),
        migrations.AddConstraint(
            model_name="effectreport",
            constraint=models.CheckConstraint(
                condition=models.Q(("outcome__in", ("succeeded", "failed", "unknown", "compensated"))),
                name="a_report_states_an_outcome",
            ),
        ),
        migrations.RunPython(close_reports, migrations.RunPython.noop),
        migrations.RunSQL(KEEP, GIVE_BACK),
        migrations.RemoveField(model_name="effect", name="late"),
        migrations.RemoveField(model_name="effect", name="note"),
        migrations.RemoveField(model_name="effect", name="reconciled_by"),
    ]
