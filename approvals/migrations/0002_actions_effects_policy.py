"""Approvals of exactly one action, effects, and the policy that judges them."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import coordination.models.fields


class Migration(migrations.Migration):
    dependencies = [
        ("approvals", "0001_initial"),
        ("coordination", "0007_unreported_effects"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Effect",
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
                ("epoch", models.BigIntegerField()),
                ("effect_key", models.CharField(max_length=200)),
                ("action", models.JSONField()),
                ("action_digest", models.CharField(max_length=64)),
                (
                    "kind",
                    models.CharField(
                        choices=[("destructive", "Destructive"), ("outward", "Outward"), ("other", "Other")],
                        max_length=12,
                    ),
                ),
                ("verdict", models.JSONField()),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("authorized", "Authorized"),
                            ("succeeded", "Succeeded"),
                            ("failed", "Failed"),
                            ("unknown", "Unknown"),
                            ("compensated", "Compensated"),
                            ("refused", "Refused"),
                        ],
                        max_length=12,
                    ),
                ),
                ("code", models.CharField(blank=True, max_length=40)),
                ("late", models.BooleanField(default=False)),
                ("note", models.TextField(blank=True)),
                (
                    "created_at",
                    models.DateTimeField(db_default=coordination.models.fields.ClockNow(), editable=False),
                ),
                ("outcome_at", models.DateTimeField(null=True)),
            ],
            options={
                "ordering": ["-created_at"],
            },
        ),
        migrations.CreateModel(
            name="PolicyRule",
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
                ("rank", models.SmallIntegerField(default=0)),
                ("tool", models.CharField(default="*", max_length=200)),
                ("server", models.CharField(default="*", max_length=200)),
                (
                    "kind",
                    models.CharField(
                        blank=True,
                        choices=[("destructive", "Destructive"), ("outward", "Outward"), ("other", "Other")],
                        max_length=12,
                    ),
                ),
                ("capability", models.CharField(blank=True, max_length=80)),
                (
                    "decision",
                    models.CharField(
                        choices=[("deny", "Deny"), ("ask", "Ask"), ("allow", "Allow")], max_length=8
                    ),
                ),
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
                (
                    "risk",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("low", "Low"),
                            ("medium", "Medium"),
                            ("high", "High"),
                            ("critical", "Critical"),
                        ],
                        max_length=8,
                    ),
                ),
                ("expires_in_seconds", models.PositiveIntegerField(null=True)),
                ("note", models.CharField(blank=True, max_length=400)),
                (
                    "created_at",
                    models.DateTimeField(db_default=coordination.models.fields.ClockNow(), editable=False),
                ),
                ("expires_at", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="ToolEntry",
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
                ("rank", models.SmallIntegerField(default=0)),
                ("tool", models.CharField(default="*", max_length=200)),
                ("server", models.CharField(default="*", max_length=200)),
                (
                    "kind",
                    models.CharField(
                        choices=[("destructive", "Destructive"), ("outward", "Outward"), ("other", "Other")],
                        max_length=12,
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(db_default=coordination.models.fields.ClockNow(), editable=False),
                ),
                ("ended_at", models.DateTimeField(null=True)),
            ],
        ),
        migrations.AddField(
            model_name="approval",
            name="action",
            field=models.JSONField(null=True),
        ),
        migrations.AddField(
            model_name="approval",
            name="action_digest",
            field=models.CharField(max_length=64, null=True),
        ),
        migrations.AddField(
            model_name="approval",
            name="closed_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="approval",
            name="denial_lifted_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="approval",
            name="denial_lifted_by",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddField(
            model_name="approval",
            name="granted",
            field=models.BooleanField(null=True),
        ),
        migrations.AddField(
            model_name="approval",
            name="kind",
            field=models.CharField(
                blank=True,
                choices=[("destructive", "Destructive"), ("outward", "Outward"), ("other", "Other")],
                max_length=12,
            ),
        ),
        migrations.AddField(
            model_name="approval",
            name="on_expiry",
            field=models.CharField(max_length=200, null=True),
        ),
        migrations.AddField(
            model_name="approval",
            name="risk",
            field=models.CharField(
                choices=[("low", "Low"), ("medium", "Medium"), ("high", "High"), ("critical", "Critical")],
                default="medium",
                max_length=8,
            ),
        ),
        migrations.AddField(
            model_name="approval",
            name="valid_for_seconds",
            field=models.PositiveIntegerField(default=3600),
        ),
        migrations.AddField(
            model_name="approval",
            name="verdict",
            field=models.JSONField(null=True),
        ),
        migrations.AddIndex(
            model_name="approval",
            index=models.Index(
                models.F("requested_by"),
                condition=models.Q(("status", "pending")),
                name="pending_of_a_principal",
            ),
        ),
        migrations.AddIndex(
            model_name="approval",
            index=models.Index(
                models.F("organization"),
                models.OrderBy(models.F("ended_at"), descending=True),
                name="approvals_by_end",
            ),
        ),
        migrations.AddIndex(
            model_name="approval",
            index=models.Index(
                models.F("organization"), models.F("action_digest"), name="approvals_of_an_action"
            ),
        ),
        migrations.AddConstraint(
            model_name="approval",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("action__isnull", True), ("action_digest__isnull", True), ("kind", "")),
                    models.Q(
                        ("action__isnull", False),
                        ("action_digest__isnull", False),
                        ("kind__in", ["destructive", "outward", "other"]),
                    ),
                    _connector="OR",
                ),
                name="an_action_has_a_digest_and_a_kind",
            ),
        ),
        migrations.AddConstraint(
            model_name="approval",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("action_digest__isnull", False),
                        ("granted__isnull", False),
                        ("status__in", ("decided", "consumed", "void")),
                    ),
                    models.Q(
                        models.Q(
                            ("status__in", ("decided", "consumed", "void")),
                            ("action_digest__isnull", False),
                            _negated=True,
                        ),
                        ("granted__isnull", True),
                    ),
                    _connector="OR",
                ),
                name="a_decided_action_is_granted_or_not",
            ),
        ),
        migrations.AddConstraint(
            model_name="approval",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("closed_at__isnull", False), ("granted", True), ("status__in", ("consumed", "void"))
                    ),
                    models.Q(
                        models.Q(("status__in", ("consumed", "void")), _negated=True),
                        ("closed_at__isnull", True),
                    ),
                    _connector="OR",
                ),
                name="only_a_grant_is_consumed_or_void",
            ),
        ),
        migrations.AddConstraint(
            model_name="approval",
            constraint=models.CheckConstraint(
                condition=models.Q(("denial_lifted_at__isnull", True), ("granted", False), _connector="OR"),
                name="only_a_denial_is_lifted",
            ),
        ),
        migrations.AddField(
            model_name="effect",
            name="approval",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="effects",
                to="approvals.approval",
            ),
        ),
        migrations.AddField(
            model_name="effect",
            name="lease",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="coordination.lease",
            ),
        ),
        migrations.AddField(
            model_name="effect",
            name="organization",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="coordination.organization",
            ),
        ),
        migrations.AddField(
            model_name="effect",
            name="principal",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="coordination.principal",
            ),
        ),
        migrations.AddField(
            model_name="effect",
            name="reconciled_by",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddField(
            model_name="effect",
            name="resource",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="coordination.resource",
            ),
        ),
        migrations.AddField(
            model_name="effect",
            name="run",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="effects",
                to="coordination.run",
            ),
        ),
        migrations.AddField(
            model_name="effect",
            name="task",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="effects",
                to="coordination.task",
            ),
        ),
        migrations.AddField(
            model_name="policyrule",
            name="agent",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="coordination.principal",
            ),
        ),
        migrations.AddField(
            model_name="policyrule",
            name="made_by",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddField(
            model_name="policyrule",
            name="made_from",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="rules_made",
                to="approvals.approval",
            ),
        ),
        migrations.AddField(
            model_name="policyrule",
            name="organization",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="coordination.organization",
            ),
        ),
        migrations.AddField(
            model_name="toolentry",
            name="organization",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="coordination.organization",
            ),
        ),
        migrations.AddIndex(
            model_name="effect",
            index=models.Index(models.F("task"), models.F("id"), name="effects_of_a_task"),
        ),
        migrations.AddIndex(
            model_name="effect",
            index=models.Index(
                models.F("lease"),
                models.F("created_at"),
                condition=models.Q(("status", "refused")),
                name="refusals_under_a_lease",
            ),
        ),
        migrations.AddIndex(
            model_name="effect",
            index=models.Index(
                models.F("organization"),
                models.OrderBy(models.F("id"), descending=True),
                name="effects_by_age",
            ),
        ),
        migrations.AddConstraint(
            model_name="effect",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("status__in", ["authorized", "succeeded", "failed", "unknown", "compensated", "refused"])
                ),
                name="effect_status_is_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="effect",
            constraint=models.CheckConstraint(
                condition=models.Q(("kind__in", ["destructive", "outward", "other"])),
                name="effect_kind_is_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="effect",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("status", "refused"), models.Q(("code", ""), _negated=True)),
                    models.Q(models.Q(("status", "refused"), _negated=True), ("code", "")),
                    _connector="OR",
                ),
                name="effect_has_a_code_iff_refused",
            ),
        ),
        migrations.AddConstraint(
            model_name="effect",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("outcome_at__isnull", False),
                        ("status__in", ("succeeded", "failed", "unknown", "compensated")),
                    ),
                    models.Q(
                        models.Q(
                            ("status__in", ("succeeded", "failed", "unknown", "compensated")), _negated=True
                        ),
                        ("outcome_at__isnull", True),
                    ),
                    _connector="OR",
                ),
                name="effect_has_an_outcome_time_iff_it_has_one",
            ),
        ),
        migrations.AddConstraint(
            model_name="effect",
            constraint=models.UniqueConstraint(
                models.F("resource"),
                models.F("effect_key"),
                condition=models.Q(("status", "refused"), _negated=True),
                name="effect_key_is_used_once",
            ),
        ),
        migrations.AddConstraint(
            model_name="effect",
            constraint=models.UniqueConstraint(
                models.F("approval"),
                condition=models.Q(("status", "refused"), _negated=True),
                name="an_approval_is_used_once",
            ),
        ),
        migrations.AddIndex(
            model_name="policyrule",
            index=models.Index(
                models.F("organization"),
                condition=models.Q(("ended_at__isnull", True)),
                name="rules_that_hold",
            ),
        ),
        migrations.AddConstraint(
            model_name="policyrule",
            constraint=models.CheckConstraint(
                condition=models.Q(("decision__in", ["deny", "ask", "allow"])), name="rule_decision_is_known"
            ),
        ),
        migrations.AddConstraint(
            model_name="policyrule",
            constraint=models.CheckConstraint(
                condition=models.Q(("kind__in", ["destructive", "outward", "other", ""])),
                name="rule_kind_is_known_or_any",
            ),
        ),
        migrations.AddConstraint(
            model_name="policyrule",
            constraint=models.CheckConstraint(
                condition=models.Q(("required_role__in", ["approver", "admin"])), name="rule_role_can_decide"
            ),
        ),
        migrations.AddConstraint(
            model_name="toolentry",
            constraint=models.CheckConstraint(
                condition=models.Q(("kind__in", ["destructive", "outward", "other"])),
                name="tool_kind_is_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="toolentry",
            constraint=models.UniqueConstraint(
                models.F("organization"),
                models.F("rank"),
                models.F("tool"),
                models.F("server"),
                condition=models.Q(("ended_at__isnull", True)),
                name="a_tool_is_listed_once_per_rank",
            ),
        ),
    ]
