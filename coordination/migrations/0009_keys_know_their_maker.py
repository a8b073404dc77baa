"""A key made with another key names it. Keys from before name none: with which they were made was not kept."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("coordination", "0008_stored_answers_under_digests"),
    ]

    operations = [
        migrations.AddField(
            model_name="apikey",
            name="made_by",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="made_with_it",
                to="coordination.apikey",
            ),
        ),
    ]
