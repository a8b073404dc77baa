"""Webhooks with their deliveries, and where a log begins once its oldest part was given up."""

import django.contrib.postgres.fields
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import coordination.models.fields


def close_floors(apps, schema_editor):
    """Only the owner gives up a part of the log."""
    if settings.DB_ROLE:
        schema_editor.execute(
            f'REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON coordination_log_floor FROM "{settings.DB_ROLE}"'
        )


class Migration(migrations.Migration):
    dependencies = [
        ("coordination", "0005_ended_leases"),
    ]

    operations = [
        migrations.CreateModel(
            name="LogFloor",
            fields=[
                (
                    "organization",
                    models.OneToOneField(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to="coordination.organization",
                    ),
                ),
                ("position", models.BigIntegerField()),
                ("digest", models.BinaryField(max_length=32)),
            ],
            options={
                "db_table": "coordination_log_floor",
            },
        ),
        migrations.AddField(
            model_name="document",
            name="floor",
            field=models.BigIntegerField(db_default=0),
        ),
        migrations.CreateModel(
            name="Webhook",
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
                (
                    "scopes",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=40), default=list
                    ),
                ),
                ("url", models.CharField(max_length=2000)),
                (
                    "kinds",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=60), default=list
                    ),
                ),
                ("description", models.CharField(blank=True, max_length=200)),
                ("secret", models.BinaryField()),
                ("previous_secret", models.BinaryField(null=True)),
                ("previous_until", models.DateTimeField(null=True)),
                ("failures_in_a_row", models.PositiveIntegerField(default=0)),
                ("failing_since", models.DateTimeField(null=True)),
                ("paused_at", models.DateTimeField(null=True)),
                (
                    "pause_reason",
                    models.CharField(
                        blank=True,
                        choices=[("", "None"), ("asked", "Asked"), ("gone", "Gone"), ("failing", "Failing")],
                        default="",
                        max_length=10,
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(db_default=coordination.models.fields.ClockNow(), editable=False),
                ),
                ("deleted_at", models.DateTimeField(null=True)),
                (
                    "organization",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="coordination.organization",
                    ),
                ),
                (
                    "principal",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="coordination.principal",
                    ),
                ),
            ],
            options={
                "ordering": ["-created_at"],
            },
        ),
        migrations.CreateModel(
            name="Delivery",
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
                ("kind", models.CharField(max_length=40)),
                ("event_id", models.UUIDField(null=True)),
                ("event_created_at", models.DateTimeField(null=True)),
                ("position", models.BigIntegerField(null=True)),
                ("object_key", models.CharField(max_length=500)),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("pending", "Pending"),
                            ("delivered", "Delivered"),
                            ("failed", "Failed"),
                            ("cancelled", "Cancelled"),
                        ],
                        db_default="pending",
                        max_length=10,
                    ),
                ),
                ("attempt_count", models.PositiveIntegerField(db_default=0)),
                ("earlier_attempts", models.PositiveIntegerField(db_default=0)),
                (
                    "next_attempt_at",
                    models.DateTimeField(db_default=coordination.models.fields.ClockNow(), editable=False),
                ),
                ("taken_until", models.DateTimeField(null=True)),
                ("last_attempt_at", models.DateTimeField(null=True)),
                ("response_status", models.PositiveSmallIntegerField(null=True)),
                ("problem", models.CharField(blank=True, db_default="", max_length=40)),
                ("duration_ms", models.PositiveIntegerField(null=True)),
                (
                    "created_at",
                    models.DateTimeField(db_default=coordination.models.fields.ClockNow(), editable=False),
                ),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "organization",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="coordination.organization",
                    ),
                ),
                (
                    "webhook",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="deliveries",
                        to="coordination.webhook",
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
            },
        ),
        migrations.AddIndex(
            model_name="webhook",
            index=models.Index(
                models.F("organization"),
                condition=models.Q(("deleted_at__isnull", True)),
                name="webhooks_that_live",
            ),
        ),
        migrations.AddConstraint(
            model_name="webhook",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("pause_reason", ""), ("paused_at__isnull", True)),
                    models.Q(("paused_at__isnull", False), models.Q(("pause_reason", ""), _negated=True)),
                    _connector="OR",
                ),
                name="webhook_has_a_reason_iff_paused",
            ),
        ),
        migrations.AddIndex(
            model_name="delivery",
            index=models.Index(
                models.F("webhook"),
                models.OrderBy(models.F("id"), descending=True),
                name="deliveries_of_a_webhook",
            ),
        ),
        migrations.AddIndex(
            model_name="delivery",
            index=models.Index(
                models.F("webhook"),
                models.F("next_attempt_at"),
                condition=models.Q(("status", "pending")),
                name="deliveries_due",
            ),
        ),
        migrations.AddIndex(
            model_name="delivery",
            index=models.Index(
                models.F("webhook"),
                models.F("object_key"),
                models.F("position"),
                condition=models.Q(("status", "pending")),
                name="deliveries_owed",
            ),
        ),
        migrations.AddIndex(
            model_name="delivery",
            index=models.Index(
                models.F("webhook"),
                condition=models.Q(("taken_until__isnull", False)),
                name="deliveries_under_way",
            ),
        ),
        migrations.AddIndex(
            model_name="delivery",
            index=models.Index(
                models.F("ended_at"),
                condition=models.Q(("ended_at__isnull", False)),
                name="deliveries_that_ended",
            ),
        ),
        migrations.AddConstraint(
            model_name="delivery",
            constraint=models.UniqueConstraint(
                models.F("webhook"), models.F("position"), name="one_delivery_per_webhook_and_event"
            ),
        ),
        migrations.AddConstraint(
            model_name="delivery",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("ended_at__isnull", True), ("status", "pending")),
                    models.Q(models.Q(("status", "pending"), _negated=True), ("ended_at__isnull", False)),
                    _connector="OR",
                ),
                name="delivery_has_an_end_time_iff_final",
            ),
        ),
        migrations.AddConstraint(
            model_name="delivery",
            constraint=models.CheckConstraint(
                condition=models.Q(("status", "pending"), ("taken_until__isnull", True), _connector="OR"),
                name="only_an_owed_delivery_is_under_way",
            ),
        ),
        migrations.RunPython(close_floors, migrations.RunPython.noop),
    ]
