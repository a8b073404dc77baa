"""A task has rounds, which reopening begins, and counts the grants that nobody has used yet."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("coordination", "0009_keys_know_their_maker"),
    ]

    operations = [
        migrations.AddField(
            model_name="task",
            name="unused_grants",
            field=models.PositiveIntegerField(db_default=0),
        ),
        migrations.AddField(
            model_name="task",
            name="round",
            field=models.PositiveIntegerField(db_default=1),
        ),
        migrations.AddField(
            model_name="comment",
            name="round",
            field=models.PositiveIntegerField(db_default=1),
        ),
        migrations.AddConstraint(
            model_name="task",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("status__in", ["done", "cancelled"]), _negated=True),
                    ("unused_grants", 0),
                    _connector="OR",
                ),
                name="a_task_that_is_over_has_no_unused_grant",
            ),
        ),
    ]
