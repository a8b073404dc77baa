"""The tables of approvals."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import coordination.models.fields


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("coordination", "0002_log_and_role"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Approval",
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
                ("run_id", models.UUIDField(null=True)),
                ("epoch", models.BigIntegerField(null=True)),
                ("question", models.TextField()),
                ("context", models.TextField(blank=True)),
                ("options", models.JSONField()),
                ("digest", models.CharField(max_length=64)),
                (
                    "required_role",
                    models.CharField(
                        choices=[
                            ("viewer", "Viewer"),
                            ("operator", "Operator"),
                            ("approver", "Approver"),
                            ("admin", "Admin"),
                        ],
                        default="approver",
                        max_length=16,
                    ),
                ),
                ("votes_required", models.PositiveSmallIntegerField(default=1)),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("pending", "Pending"),
                            ("decided", "Decided"),
                            ("expired", "Expired"),
                            ("cancelled", "Cancelled"),
                            ("consumed", "Consumed"),
                            ("void", "Void"),
                        ],
                        default="pending",
                        max_length=12,
                    ),
                ),
                ("decision", models.CharField(max_length=200, null=True)),
                ("reason", models.TextField(blank=True)),
                ("decided_by_rule", models.UUIDField(null=True)),
                (
                    "created_at",
                    models.DateTimeField(db_default=coordination.models.fields.ClockNow(), editable=False),
                ),
                ("expires_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "decided_by_user",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
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
                    "requested_by",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="coordination.principal",
                    ),
                ),
                (
                    "task",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="approvals",
                        to="coordination.task",
                    ),
                ),
            ],
            options={
                "ordering": ["-created_at"],
            },
        ),
        migrations.CreateModel(
            name="Vote",
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
                ("option", models.CharField(max_length=200)),
                (
                    "created_at",
                    models.DateTimeField(db_default=coordination.models.fields.ClockNow(), editable=False),
                ),
                (
                    "approval",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="votes",
                        to="approvals.approval",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
        ),
        migrations.AddIndex(
            model_name="approval",
            index=models.Index(
                models.F("organization"),
                models.F("id"),
                condition=models.Q(("status", "pending")),
                name="pending_approvals",
            ),
        ),
        migrations.AddIndex(
            model_name="approval",
            index=models.Index(
                models.F("organization"),
                models.OrderBy(models.F("id"), descending=True),
                name="approvals_by_age",
            ),
        ),
        migrations.AddIndex(
            model_name="approval",
            index=models.Index(models.F("task"), models.F("created_at"), name="approvals_of_a_task"),
        ),
        migrations.AddConstraint(
            model_name="approval",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("status__in", ["pending", "decided", "expired", "cancelled", "consumed", "void"])
                ),
                name="approval_status_is_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="approval",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("ended_at__isnull", True), ("status", "pending")),
                    models.Q(models.Q(("status", "pending"), _negated=True), ("ended_at__isnull", False)),
                    _connector="OR",
                ),
                name="approval_has_an_end_time_iff_final",
            ),
        ),
        migrations.AddConstraint(
            model_name="approval",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("decision__isnull", False),
                        ("status__in", ("decided", "consumed", "void")),
                        models.Q(
                            models.Q(("decided_by_rule__isnull", True), ("decided_by_user__isnull", False)),
                            models.Q(("decided_by_rule__isnull", False), ("decided_by_user__isnull", True)),
                            _connector="OR",
                        ),
                    ),
                    models.Q(
                        models.Q(("status__in", ("decided", "consumed", "void")), _negated=True),
                        ("decided_by_rule__isnull", True),
                        ("decided_by_user__isnull", True),
                        ("decision__isnull", True),
                    ),
                    _connector="OR",
                ),
                name="approval_has_one_decider_iff_decided",
            ),
        ),
        migrations.AddConstraint(
            model_name="approval",
            constraint=models.CheckConstraint(
                condition=models.Q(("expires_at__gt", models.F("created_at"))),
                name="approval_expires_after_its_request",
            ),
        ),
        migrations.AddConstraint(
            model_name="vote",
            constraint=models.UniqueConstraint(
                models.F("approval"), models.F("user"), name="one_vote_per_user"
            ),
        ),
    ]
