"""An `Idempotency-Key` is stored as its digest, and an answer with a secret sealed."""

from django.db import migrations, models

DIGESTED = """
UPDATE coordination_storedanswer SET key_digest = sha256(convert_to(key, 'UTF8')), key = ''"""


class Migration(migrations.Migration):
    dependencies = [
        ("coordination", "0007_unreported_effects"),
    ]

    operations = [
        migrations.RemoveConstraint(model_name="storedanswer", name="one_answer_per_idempotency_key"),
        migrations.AddField(
            model_name="storedanswer",
            name="key_digest",
            field=models.BinaryField(default=b"", editable=False, max_length=32),
            preserve_default=False,
        ),
        # The old answers stay good for their repeats. A dropped column's values stay in the table's rows, so the
        # keys are blanked before. Backwards the answers go: without their keys nobody can ask for them.
        migrations.RunSQL(DIGESTED, "DELETE FROM coordination_storedanswer"),
        migrations.RemoveField(model_name="storedanswer", name="key"),
        migrations.AddField(
            model_name="storedanswer",
            name="sealed_body",
            field=models.BinaryField(editable=False, null=True),
        ),
        migrations.AddConstraint(
            model_name="storedanswer",
            constraint=models.UniqueConstraint(
                models.F("principal"), models.F("key_digest"), name="one_answer_per_idempotency_key"
            ),
        ),
        migrations.AddConstraint(
            model_name="storedanswer",
            constraint=models.CheckConstraint(
                condition=models.Q(("body__isnull", True), ("sealed_body__isnull", True), _connector="OR"),
                name="a_stored_answer_is_plain_or_sealed",
            ),
        ),
    ]
