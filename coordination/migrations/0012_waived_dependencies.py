from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("coordination", "0011_lost_answers")]

    operations = [
        migrations.AddField("taskdependency", "waived_at", models.DateTimeField(null=True)),
        migrations.AddConstraint(
            "taskdependency",
            models.CheckConstraint(
                condition=Q(waived_at__isnull=True) | Q(satisfied_at__isnull=False),
                name="a_waived_dependency_is_satisfied",
            ),
        ),
    ]
