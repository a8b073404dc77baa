"""Documents, checkpoints, context packs, handoffs, messages, and the keys that sign sequencers."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import coordination.models.fields


def close_positions(apps, schema_editor):
    """A document's log, like its organization's, can only be added to."""
    if settings.DB_ROLE:
        schema_editor.execute(
            f'REVOKE UPDATE, DELETE, TRUNCATE ON coordination_document_position FROM "{settings.DB_ROLE}"'
        )


class Migration(migrations.Migration):
    dependencies = [
        ("coordination", "0002_log_and_role"),
    ]

    operations = [
        migrations.CreateModel(
            name="Checkpoint",
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
                ("subject_id", models.CharField(max_length=200)),
                ("kind", models.CharField(max_length=80)),
                ("version", models.PositiveIntegerField()),
                (
                    "created_at",
                    models.DateTimeField(db_default=coordination.models.fields.ClockNow(), editable=False),
                ),
                (
                    "updated_at",
                    models.DateTimeField(db_default=coordination.models.fields.ClockNow(), editable=False),
                ),
                ("expires_at", models.DateTimeField(null=True)),
            ],
            options={
                "ordering": ["-updated_at"],
            },
        ),
        migrations.CreateModel(
            name="CheckpointVersion",
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
                ("version", models.PositiveIntegerField()),
                ("state", models.JSONField()),
                ("state_hash", models.CharField(max_length=64)),
                ("epoch", models.BigIntegerField(null=True)),
                (
                    "created_at",
                    models.DateTimeField(db_default=coordination.models.fields.ClockNow(), editable=False),
                ),
            ],
            options={
                "ordering": ["-version"],
            },
        ),
        migrations.CreateModel(
            name="ContextItem",
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
                ("number", models.PositiveSmallIntegerField()),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("task", "Task"),
                            ("run", "Run"),
                            ("checkpoint", "Checkpoint"),
                            ("comment", "Comment"),
                        ],
                        max_length=12,
                    ),
                ),
                ("target_id", models.UUIDField()),
                ("version", models.PositiveIntegerField(null=True)),
            ],
            options={
                "ordering": ["number"],
            },
        ),
        migrations.CreateModel(
            name="ContextPack",
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
                ("subject_id", models.CharField(blank=True, max_length=200)),
                ("note", models.TextField(blank=True)),
                (
                    "created_at",
                    models.DateTimeField(db_default=coordination.models.fields.ClockNow(), editable=False),
                ),
            ],
            options={
                "ordering": ["-created_at"],
            },
        ),
        migrations.CreateModel(
            name="Document",
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
                ("slug", models.CharField(max_length=100)),
                (
                    "created_at",
                    models.DateTimeField(db_default=coordination.models.fields.ClockNow(), editable=False),
                ),
                ("deleted_at", models.DateTimeField(null=True)),
            ],
            options={
                "ordering": ["slug"],
            },
        ),
        migrations.CreateModel(
            name="DocumentPosition",
            fields=[
                ("event_id", models.UUIDField(primary_key=True, serialize=False)),
                ("position", models.BigIntegerField()),
                ("event_created_at", models.DateTimeField()),
            ],
            options={
                "db_table": "coordination_document_position",
            },
        ),
        migrations.CreateModel(
            name="Handoff",
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
                ("to_address", models.CharField(max_length=120)),
                ("subject_id", models.CharField(max_length=200)),
                ("epoch", models.BigIntegerField(null=True)),
                ("checkpoint_version", models.PositiveIntegerField(null=True)),
                ("message", models.TextField(blank=True)),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("pending", "Pending"),
                            ("accepted", "Accepted"),
                            ("rejected", "Rejected"),
                            ("withdrawn", "Withdrawn"),
                            ("expired", "Expired"),
                        ],
                        default="pending",
                        max_length=10,
                    ),
                ),
                ("reason", models.TextField(blank=True)),
                (
                    "created_at",
                    models.DateTimeField(db_default=coordination.models.fields.ClockNow(), editable=False),
                ),
                ("expires_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(null=True)),
            ],
            options={
                "ordering": ["-created_at"],
            },
        ),
        migrations.CreateModel(
            name="Message",
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
                ("body", models.TextField()),
                (
                    "created_at",
                    models.DateTimeField(db_default=coordination.models.fields.ClockNow(), editable=False),
                ),
                ("read_at", models.DateTimeField(null=True)),
            ],
            options={
                "ordering": ["-created_at"],
            },
        ),
        migrations.CreateModel(
            name="SigningKey",
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
                ("public", models.CharField(max_length=64)),
                ("private", models.BinaryField()),
                ("signs_from", models.DateTimeField()),
                ("withdrawn_at", models.DateTimeField(null=True)),
                (
                    "created_at",
                    models.DateTimeField(db_default=coordination.models.fields.ClockNow(), editable=False),
                ),
            ],
            options={
                "ordering": ["-signs_from"],
            },
        ),
        migrations.AddField(
            model_name="lease",
            name="end_note",
            field=models.TextField(blank=True, db_default=""),
        ),
        migrations.AddIndex(
            model_name="lease",
            index=models.Index(
                models.F("principal"),
                models.OrderBy(models.F("id"), descending=True),
                name="leases_of_a_principal",
            ),
        ),
        migrations.AddField(
            model_name="checkpoint",
            name="organization",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="coordination.organization",
            ),
        ),
        migrations.AddField(
            model_name="checkpoint",
            name="principal",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="coordination.principal",
            ),
        ),
        migrations.AddField(
            model_name="checkpoint",
            name="task",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="checkpoints",
                to="coordination.task",
            ),
        ),
        migrations.AddField(
            model_name="checkpointversion",
            name="checkpoint",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="versions",
                to="coordination.checkpoint",
            ),
        ),
        migrations.AddField(
            model_name="checkpointversion",
            name="run",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="checkpoint_versions",
                to="coordination.run",
            ),
        ),
        migrations.AddField(
            model_name="contextpack",
            name="author",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="coordination.principal",
            ),
        ),
        migrations.AddField(
            model_name="contextpack",
            name="organization",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="coordination.organization",
            ),
        ),
        migrations.AddField(
            model_name="contextpack",
            name="task",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="coordination.task",
            ),
        ),
        migrations.AddField(
            model_name="contextitem",
            name="pack",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="items",
                to="coordination.contextpack",
            ),
        ),
        migrations.AddField(
            model_name="document",
            name="organization",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="coordination.organization",
            ),
        ),
        migrations.AddField(
            model_name="documentposition",
            name="document",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                to="coordination.document",
            ),
        ),
        migrations.AddField(
            model_name="handoff",
            name="accepted_run",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="coordination.run",
            ),
        ),
        migrations.AddField(
            model_name="handoff",
            name="checkpoint",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="handoffs",
                to="coordination.checkpoint",
            ),
        ),
        migrations.AddField(
            model_name="handoff",
            name="context",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="handoffs",
                to="coordination.contextpack",
            ),
        ),
        migrations.AddField(
            model_name="handoff",
            name="from_principal",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="coordination.principal",
            ),
        ),
        migrations.AddField(
            model_name="handoff",
            name="organization",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="coordination.organization",
            ),
        ),
        migrations.AddField(
            model_name="handoff",
            name="run",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="coordination.run",
            ),
        ),
        migrations.AddField(
            model_name="handoff",
            name="task",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="handoffs",
                to="coordination.task",
            ),
        ),
        migrations.AddField(
            model_name="handoff",
            name="to_principal",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="coordination.principal",
            ),
        ),
        migrations.AddField(
            model_name="message",
            name="organization",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="coordination.organization",
            ),
        ),
        migrations.AddField(
            model_name="message",
            name="recipient",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="coordination.principal",
            ),
        ),
        migrations.AddField(
            model_name="message",
            name="resource",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="messages",
                to="coordination.resource",
            ),
        ),
        migrations.AddField(
            model_name="message",
            name="sender",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="coordination.principal",
            ),
        ),
        migrations.AddIndex(
            model_name="checkpoint",
            index=models.Index(
                models.F("task"),
                models.OrderBy(models.F("updated_at"), descending=True),
                condition=models.Q(("task__isnull", False)),
                name="checkpoints_of_a_task",
            ),
        ),
        migrations.AddIndex(
            model_name="checkpoint",
            index=models.Index(
                models.F("organization"),
                models.F("subject_id"),
                models.OrderBy(models.F("id"), descending=True),
                name="checkpoints_of_a_subject",
            ),
        ),
        migrations.AddIndex(
            model_name="checkpoint",
            index=models.Index(
                models.F("expires_at"),
                condition=models.Q(("expires_at__isnull", False)),
                name="checkpoints_that_expire",
            ),
        ),
        migrations.AddConstraint(
            model_name="checkpoint",
            constraint=models.UniqueConstraint(
                models.F("organization"),
                models.F("principal"),
                models.F("subject_id"),
                models.F("kind"),
                name="checkpoint_is_unique",
            ),
        ),
        migrations.AddIndex(
            model_name="checkpointversion",
            index=models.Index(
                models.F("run"),
                models.OrderBy(models.F("id"), descending=True),
                condition=models.Q(("run__isnull", False)),
                name="checkpoint_versions_of_a_run",
            ),
        ),
        migrations.AddConstraint(
            model_name="checkpointversion",
            constraint=models.UniqueConstraint(
                models.F("checkpoint"), models.F("version"), name="checkpoint_versions_are_numbered"
            ),
        ),
        migrations.AddIndex(
            model_name="contextitem",
            index=models.Index(models.F("target_id"), models.F("version"), name="context_items_by_target"),
        ),
        migrations.AddConstraint(
            model_name="contextitem",
            constraint=models.UniqueConstraint(
                models.F("pack"), models.F("number"), name="context_items_are_numbered"
            ),
        ),
        migrations.AddConstraint(
            model_name="contextitem",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("kind", "checkpoint"), ("version__isnull", False)),
                    models.Q(models.Q(("kind", "checkpoint"), _negated=True), ("version__isnull", True)),
                    _connector="OR",
                ),
                name="a_context_item_has_a_version_iff_it_is_a_checkpoint",
            ),
        ),
        migrations.AddConstraint(
            model_name="document",
            constraint=models.UniqueConstraint(
                models.F("organization"), models.F("slug"), name="document_slug_is_unique"
            ),
        ),
        migrations.AddConstraint(
            model_name="documentposition",
            constraint=models.UniqueConstraint(
                models.F("document"), models.F("position"), name="document_position_is_unique"
            ),
        ),
        migrations.AddIndex(
            model_name="handoff",
            index=models.Index(
                models.F("to_principal"),
                models.OrderBy(models.F("id"), descending=True),
                condition=models.Q(("status", "pending")),
                name="handoff_inbox",
            ),
        ),
        migrations.AddIndex(
            model_name="handoff",
            index=models.Index(
                models.F("from_principal"),
                models.OrderBy(models.F("id"), descending=True),
                name="handoffs_sent",
            ),
        ),
        migrations.AddIndex(
            model_name="handoff",
            index=models.Index(
                models.F("organization"),
                models.OrderBy(models.F("id"), descending=True),
                name="handoffs_by_age",
            ),
        ),
        migrations.AddIndex(
            model_name="handoff",
            index=models.Index(
                models.F("task"),
                models.OrderBy(models.F("id"), descending=True),
                condition=models.Q(("task__isnull", False)),
                name="handoffs_of_a_task",
            ),
        ),
        migrations.AddIndex(
            model_name="handoff",
            index=models.Index(
                models.F("checkpoint"),
                condition=models.Q(("checkpoint__isnull", False)),
                name="handoffs_of_a_checkpoint",
            ),
        ),
        migrations.AddIndex(
            model_name="handoff",
            index=models.Index(
                models.F("context"),
                condition=models.Q(("context__isnull", False)),
                name="handoffs_of_a_context",
            ),
        ),
        migrations.AddIndex(
            model_name="handoff",
            index=models.Index(
                models.F("expires_at"), condition=models.Q(("status", "pending")), name="handoffs_that_expire"
            ),
        ),
        migrations.AddConstraint(
            model_name="handoff",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("status__in", ["pending", "accepted", "rejected", "withdrawn", "expired"])
                ),
                name="handoff_status_is_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="handoff",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("ended_at__isnull", True), ("status", "pending")),
                    models.Q(models.Q(("status", "pending"), _negated=True), ("ended_at__isnull", False)),
                    _connector="OR",
                ),
                name="handoff_has_an_end_time_iff_final",
            ),
        ),
        migrations.AddConstraint(
            model_name="handoff",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("checkpoint__isnull", True), ("checkpoint_version__isnull", True)),
                    models.Q(("checkpoint__isnull", False), ("checkpoint_version__isnull", False)),
                    _connector="OR",
                ),
                name="a_handoff_pins_its_checkpoint",
            ),
        ),
        migrations.AddConstraint(
            model_name="handoff",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("accepted_run__isnull", True),
                    models.Q(("status", "accepted"), ("task__isnull", False)),
                    _connector="OR",
                ),
                name="only_an_accepted_handoff_has_a_run",
            ),
        ),
        migrations.AddConstraint(
            model_name="handoff",
            constraint=models.UniqueConstraint(
                models.F("task"),
                condition=models.Q(("status", "pending"), ("task__isnull", False)),
                name="one_pending_handoff_per_task",
            ),
        ),
        migrations.AddIndex(
            model_name="message",
            index=models.Index(
                models.F("recipient"),
                models.OrderBy(models.F("id"), descending=True),
                name="messages_received",
            ),
        ),
        migrations.AddIndex(
            model_name="message",
            index=models.Index(
                models.F("recipient"),
                models.OrderBy(models.F("id"), descending=True),
                condition=models.Q(("read_at__isnull", True)),
                name="messages_unread",
            ),
        ),
        migrations.AddIndex(
            model_name="message",
            index=models.Index(
                models.F("sender"), models.OrderBy(models.F("id"), descending=True), name="messages_sent"
            ),
        ),
        migrations.AddIndex(
            model_name="message",
            index=models.Index(
                models.F("organization"),
                models.OrderBy(models.F("id"), descending=True),
                name="messages_by_age",
            ),
        ),
        migrations.AddIndex(
            model_name="message",
            index=models.Index(
                models.F("resource"),
                models.OrderBy(models.F("id"), descending=True),
                condition=models.Q(("resource__isnull", False)),
                name="messages_about_a_resource",
            ),
        ),
        migrations.RunPython(close_positions, migrations.RunPython.noop),
    ]
