"""Leases know that nobody was there to take the answer which granted them."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("coordination", "0010_rounds_and_unused_grants"),
    ]

    operations = [
        migrations.AddField(
            model_name="lease",
            name="answer",
            field=models.CharField(
                blank=True,
                choices=[("lost", "Lost"), ("repeated", "Repeated")],
                db_default="",
                max_length=8,
            ),
        ),
    ]
