"""A task's row counts the effects of its open run that have no outcome yet."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("coordination", "0006_webhooks_and_floors"),
    ]

    operations = [
        migrations.AddField(
            model_name="task",
            name="unreported_effects",
            field=models.PositiveIntegerField(db_default=0),
        ),
        migrations.AddConstraint(
            model_name="task",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("status__in", ["todo", "done", "cancelled"]), _negated=True),
                    ("unreported_effects", 0),
                    _connector="OR",
                ),
                name="a_task_without_a_run_has_no_unreported_effect",
            ),
        ),
    ]
