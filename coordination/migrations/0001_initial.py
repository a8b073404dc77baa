"""The tables of coordination."""

import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.functions.text
from django.conf import settings
from django.db import migrations, models

import coordination.models.fields

# RFC 9562, version 7, from the database's clock: PostgreSQL 18 has it, earlier ones put it together.
UUID7 = """
DO $do$ BEGIN
    IF current_setting('server_version_num')::int >= 180000 THEN
        CREATE FUNCTION titen_uuid7() RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE AS 'SELECT uuidv7()';
    ELSE
        CREATE FUNCTION titen_uuid7() RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
            SELECT encode(
                set_bit(set_bit(
                    overlay(uuid_send(gen_random_uuid())
                        placing substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
                        FROM 1 FOR 6),
                    52, 1), 53, 1), 'hex')::uuid
        $$;
    END IF;
END $do$
"""


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
    ]

    operations = [
        # Time-ordered ids from the database's clock: RFC 9562, version 7. PostgreSQL 18 has uuidv7();
        # one function for every supported version keeps the ids alike.
        migrations.RunSQL(UUID7, "DROP FUNCTION titen_uuid7()"),
        migrations.CreateModel(
            name="Event",
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
                    "created_at",
                    models.DateTimeField(db_default=coordination.models.fields.ClockNow(), editable=False),
                ),
                ("seq", models.BigIntegerField(editable=False)),
                ("kind", models.CharField(max_length=40)),
                ("actor_id", models.UUIDField(null=True)),
                ("task_id", models.UUIDField(null=True)),
                ("run_id", models.UUIDField(null=True)),
                ("lease_id", models.UUIDField(null=True)),
                ("subject_id", models.UUIDField(null=True)),
                ("epoch", models.BigIntegerField(null=True)),
                ("data", models.JSONField(default=dict)),
            ],
            options={
                "db_table": "coordination_event",
                "ordering": ["-seq"],
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="Renewal",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("lease_id", models.UUIDField()),
                ("renewed_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField()),
                ("progress", models.SmallIntegerField(null=True)),
            ],
            options={
                "db_table": "coordination_renewal",
                "ordering": ["-renewed_at"],
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="Organization",
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
                ("name", models.CharField(max_length=120)),
                ("slug", models.SlugField(max_length=60, unique=True)),
                ("lease_ttl_seconds", models.PositiveIntegerField(default=300)),
                ("require_approval_for_destructive_tools", models.BooleanField(default=True)),
                ("require_approval_for_outward_actions", models.BooleanField(default=True)),
                ("forbid_self_approval", models.BooleanField(default=False)),
                (
                    "created_at",
                    models.DateTimeField(db_default=coordination.models.fields.ClockNow(), editable=False),
                ),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="User",
            fields=[
                ("password", models.CharField(max_length=128, verbose_name="password")),
                ("last_login", models.DateTimeField(blank=True, null=True, verbose_name="last login")),
                (
                    "is_superuser",
                    models.BooleanField(
                        default=False,
                        help_text="Designates that this user has all permissions without explicitly assigning them.",
                        verbose_name="superuser status",
                    ),
                ),
                (
                    "id",
                    models.UUIDField(
                        db_default=coordination.models.fields.Uuid7(),
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("email", models.EmailField(max_length=254, unique=True)),
                ("name", models.CharField(blank=True, max_length=120)),
                ("is_active", models.BooleanField(default=True)),
                ("is_staff", models.BooleanField(default=False, verbose_name="may open the admin")),
                (
                    "created_at",
                    models.DateTimeField(db_default=coordination.models.fields.ClockNow(), editable=False),
                ),
                (
                    "groups",
                    models.ManyToManyField(
                        blank=True,
                        help_text="The groups this user belongs to. A user will get all permissions granted to each of their groups.",
                        related_name="user_set",
                        related_query_name="user",
                        to="auth.group",
                        verbose_name="groups",
                    ),
                ),
                (
                    "user_permissions",
                    models.ManyToManyField(
                        blank=True,
                        help_text="Specific permissions for this user.",
                        related_name="user_set",
                        related_query_name="user",
                        to="auth.permission",
                        verbose_name="user permissions",
                    ),
                ),
            ],
            options={
                "ordering": ["email"],
            },
        ),
        migrations.CreateModel(
            name="Membership",
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
                    "role",
                    models.CharField(
                        choices=[
                            ("viewer", "Viewer"),
                            ("operator", "Operator"),
                            ("approver", "Approver"),
                            ("admin", "Admin"),
                        ],
                        default="viewer",
                        max_length=16,
                    ),
                ),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                (
                    "created_at",
                    models.DateTimeField(db_default=coordination.models.fields.ClockNow(), editable=False),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="memberships",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "organization",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="memberships",
                        to="coordination.organization",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="EventPosition",
            fields=[
                ("event_id", models.UUIDField(primary_key=True, serialize=False)),
                ("position", models.BigIntegerField()),
                ("event_created_at", models.DateTimeField()),
                ("digest", models.BinaryField(max_length=32)),
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
            ],
            options={
                "db_table": "coordination_event_position",
            },
        ),
        migrations.CreateModel(
            name="CapabilityProfile",
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
                    "capabilities",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=80), default=list
                    ),
                ),
                (
                    "organization",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="coordination.organization",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="CapabilityLimit",
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
                ("capability", models.CharField(max_length=80)),
                ("max_concurrent_runs", models.PositiveIntegerField()),
                (
                    "organization",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="capability_limits",
                        to="coordination.organization",
                    ),
                ),
            ],
            options={
                "ordering": ["capability"],
            },
        ),
        migrations.CreateModel(
            name="Principal",
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
                    "kind",
                    models.CharField(
                        choices=[("agent", "Agent"), ("human", "Human"), ("service", "Service")], max_length=8
                    ),
                ),
                ("name", models.CharField(max_length=120)),
                ("name_key", models.CharField(editable=False, max_length=240)),
                (
                    "capabilities",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=80), blank=True, default=list
                    ),
                ),
                ("max_concurrent_runs", models.PositiveIntegerField(blank=True, null=True)),
                ("disabled_at", models.DateTimeField(blank=True, null=True)),
                (
                    "created_at",
                    models.DateTimeField(db_default=coordination.models.fields.ClockNow(), editable=False),
                ),
                (
                    "organization",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="principals",
                        to="coordination.organization",
                    ),
                ),
                (
                    "owner",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="owned_principals",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="principals",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="ApiKey",
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
                ("label", models.CharField(blank=True, max_length=120)),
                ("digest", models.BinaryField(max_length=32, unique=True)),
                (
                    "scopes",
                    django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=40)),
                ),
                ("expires_at", models.DateTimeField(blank=True, null=True)),
                ("revoked_at", models.DateTimeField(blank=True, null=True)),
                (
                    "created_at",
                    models.DateTimeField(db_default=coordination.models.fields.ClockNow(), editable=False),
                ),
                (
                    "organization",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="api_keys",
                        to="coordination.organization",
                    ),
                ),
                (
                    "created_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="coordination.principal",
                    ),
                ),
                (
                    "principal",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="api_keys",
                        to="coordination.principal",
                    ),
                ),
            ],
            options={
                "verbose_name": "API key",
                "ordering": ["-created_at"],
            },
        ),
        migrations.CreateModel(
            name="Resource",
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
                ("resource_type", models.CharField(max_length=80)),
                ("resource_id", models.CharField(max_length=400)),
                ("epoch", models.BigIntegerField(default=0)),
                ("last_lease_id", models.UUIDField(null=True)),
                ("previous_lease_id", models.UUIDField(null=True)),
                (
                    "created_at",
                    models.DateTimeField(db_default=coordination.models.fields.ClockNow(), editable=False),
                ),
                (
                    "organization",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="coordination.organization",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Lease",
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
                ("purpose", models.CharField(blank=True, db_default="", max_length=400)),
                ("epoch", models.BigIntegerField()),
                ("ttl_seconds", models.PositiveIntegerField()),
                (
                    "granted_because",
                    models.CharField(
                        choices=[
                            ("claim", "Claim"),
                            ("reacquire", "Reacquire"),
                            ("after_expiry", "After Expiry"),
                            ("after_failure", "After Failure"),
                            ("takeover", "Takeover"),
                            ("handoff", "Handoff"),
                        ],
                        max_length=16,
                    ),
                ),
                ("previous_lease_id", models.UUIDField(null=True)),
                (
                    "granted_at",
                    models.DateTimeField(db_default=coordination.models.fields.ClockNow(), editable=False),
                ),
                ("renewed_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField()),
                ("renewal_count", models.PositiveIntegerField(db_default=0)),
                ("jeopardy_declared_at", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "end_reason",
                    models.CharField(
                        choices=[
                            ("completed", "Completed"),
                            ("failed", "Failed"),
                            ("released", "Released"),
                            ("expired", "Expired"),
                            ("revoked", "Revoked"),
                            ("handed_off", "Handed Off"),
                            ("superseded", "Superseded"),
                            ("cancelled", "Cancelled"),
                        ],
                        max_length=16,
                        null=True,
                    ),
                ),
                (
                    "organization",
                    models.ForeignKey(
                        db_constraint=False,
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
                        related_name="leases",
                        to="coordination.principal",
                    ),
                ),
                (
                    "resource",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="leases",
                        to="coordination.resource",
                    ),
                ),
            ],
            options={
                "ordering": ["-granted_at"],
            },
        ),
        migrations.CreateModel(
            name="StoredAnswer",
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
                ("key", models.CharField(max_length=200)),
                ("fingerprint", models.BinaryField(max_length=32)),
                ("status", models.PositiveSmallIntegerField()),
                ("body", models.JSONField(null=True)),
                (
                    "created_at",
                    models.DateTimeField(db_default=coordination.models.fields.ClockNow(), editable=False),
                ),
                (
                    "principal",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="coordination.principal",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Task",
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
                ("title", models.CharField(max_length=200)),
                ("description", models.TextField(blank=True)),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("todo", "Todo"),
                            ("in_progress", "In Progress"),
                            ("blocked", "Blocked"),
                            ("done", "Done"),
                            ("cancelled", "Cancelled"),
                        ],
                        default="todo",
                        max_length=12,
                    ),
                ),
                ("priority", models.SmallIntegerField(default=0)),
                ("payload", models.JSONField(default=dict)),
                (
                    "secret_refs",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=400), default=list
                    ),
                ),
                ("not_before", models.DateTimeField(null=True)),
                ("backoff_until", models.DateTimeField(null=True)),
                ("reserved_until", models.DateTimeField(null=True)),
                ("avoided_until", models.DateTimeField(null=True)),
                ("lease_ttl_seconds", models.PositiveIntegerField(null=True)),
                ("max_attempts", models.PositiveSmallIntegerField(default=3)),
                ("attempt_count", models.PositiveIntegerField(default=0)),
                ("run_count", models.PositiveIntegerField(default=0)),
                ("fruitless_ends", models.PositiveSmallIntegerField(default=0)),
                ("open_blockers", models.PositiveIntegerField(default=0)),
                ("open_dependencies", models.PositiveIntegerField(default=0)),
                ("open_effects", models.PositiveIntegerField(default=0)),
                ("dependent_count", models.PositiveIntegerField(default=0)),
                ("last_run_end", models.CharField(max_length=16, null=True)),
                ("last_error", models.TextField(blank=True)),
                ("summary", models.TextField(blank=True)),
                ("result", models.JSONField(null=True)),
                ("evidence", models.JSONField(default=list)),
                (
                    "created_at",
                    models.DateTimeField(db_default=coordination.models.fields.ClockNow(), editable=False),
                ),
                ("finished_at", models.DateTimeField(null=True)),
                (
                    "avoided",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="coordination.principal",
                    ),
                ),
                (
                    "created_by",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="coordination.principal",
                    ),
                ),
                (
                    "organization",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="tasks",
                        to="coordination.organization",
                    ),
                ),
                (
                    "profile",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="coordination.capabilityprofile",
                    ),
                ),
                (
                    "reserved_for",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="coordination.principal",
                    ),
                ),
                (
                    "resource",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="task",
                        to="coordination.resource",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Run",
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
                ("number", models.PositiveIntegerField()),
                ("epoch", models.BigIntegerField()),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("running", "Running"),
                            ("waiting", "Waiting"),
                            ("succeeded", "Succeeded"),
                            ("failed", "Failed"),
                            ("abandoned", "Abandoned"),
                            ("parked", "Parked"),
                            ("released", "Released"),
                            ("handed_off", "Handed Off"),
                            ("superseded", "Superseded"),
                            ("cancelled", "Cancelled"),
                        ],
                        db_default="running",
                        max_length=12,
                    ),
                ),
                ("progress", models.SmallIntegerField(db_default=0)),
                ("status_line", models.CharField(blank=True, db_default="", max_length=200)),
                ("pause_requested_at", models.DateTimeField(null=True)),
                ("has_asked", models.BooleanField(db_default=False)),
                ("checkpoint", models.JSONField(null=True)),
                ("error", models.TextField(blank=True, db_default="")),
                (
                    "started_at",
                    models.DateTimeField(db_default=coordination.models.fields.ClockNow(), editable=False),
                ),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "lease",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="run",
                        to="coordination.lease",
                    ),
                ),
                (
                    "organization",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="coordination.organization",
                    ),
                ),
                (
                    "principal",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="runs",
                        to="coordination.principal",
                    ),
                ),
                (
                    "profile",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="coordination.capabilityprofile",
                    ),
                ),
                (
                    "task",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="runs",
                        to="coordination.task",
                    ),
                ),
            ],
            options={
                "ordering": ["-started_at"],
            },
        ),
        migrations.CreateModel(
            name="Comment",
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
                ("body", models.TextField()),
                ("blocking", models.BooleanField(default=False)),
                ("answer", models.TextField(blank=True)),
                ("answered_at", models.DateTimeField(null=True)),
                ("withdrawn_at", models.DateTimeField(null=True)),
                (
                    "created_at",
                    models.DateTimeField(db_default=coordination.models.fields.ClockNow(), editable=False),
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
                    "answered_by",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="coordination.principal",
                    ),
                ),
                (
                    "author",
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
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="comments",
                        to="coordination.task",
                    ),
                ),
            ],
            options={
                "ordering": ["created_at"],
            },
        ),
        migrations.CreateModel(
            name="Blocker",
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
                    "kind",
                    models.CharField(
                        choices=[
                            ("approval", "Approval"),
                            ("question", "Question"),
                            ("attempts", "Attempts"),
                            ("dependency", "Dependency"),
                            ("manual", "Manual"),
                        ],
                        max_length=12,
                    ),
                ),
                ("sentence", models.CharField(max_length=400)),
                ("subject_id", models.UUIDField(null=True)),
                (
                    "opened_at",
                    models.DateTimeField(db_default=coordination.models.fields.ClockNow(), editable=False),
                ),
                ("closed_at", models.DateTimeField(null=True)),
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
                    "task",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="blockers",
                        to="coordination.task",
                    ),
                ),
            ],
            options={
                "ordering": ["opened_at"],
            },
        ),
        migrations.CreateModel(
            name="TaskDependency",
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
                ("satisfied_at", models.DateTimeField(null=True)),
                (
                    "depends_on",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="dependents",
                        to="coordination.task",
                    ),
                ),
                (
                    "task",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="dependencies",
                        to="coordination.task",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="UnnumberedEvent",
            fields=[
                ("seq", models.BigIntegerField(primary_key=True, serialize=False)),
                ("event_id", models.UUIDField()),
                ("event_created_at", models.DateTimeField()),
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
            ],
            options={
                "db_table": "coordination_event_unnumbered",
            },
        ),
        migrations.AddConstraint(
            model_name="user",
            constraint=models.CheckConstraint(
                condition=models.Q(("email", django.db.models.functions.text.Lower("email"))),
                name="email_is_lower_case",
            ),
        ),
        migrations.AddConstraint(
            model_name="membership",
            constraint=models.UniqueConstraint(
                models.F("organization"), models.F("user"), name="one_membership_per_user"
            ),
        ),
        migrations.AddConstraint(
            model_name="membership",
            constraint=models.CheckConstraint(
                condition=models.Q(("role__in", ["viewer", "operator", "approver", "admin"])),
                name="membership_role_is_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="eventposition",
            constraint=models.UniqueConstraint(
                models.F("organization"), models.F("position"), name="event_position_is_unique"
            ),
        ),
        migrations.AddConstraint(
            model_name="capabilityprofile",
            constraint=models.UniqueConstraint(
                models.F("organization"), models.F("capabilities"), name="capability_profile_is_unique"
            ),
        ),
        migrations.AddConstraint(
            model_name="capabilitylimit",
            constraint=models.UniqueConstraint(
                models.F("organization"), models.F("capability"), name="one_limit_per_capability"
            ),
        ),
        migrations.AddConstraint(
            model_name="principal",
            constraint=models.UniqueConstraint(
                models.F("organization"), models.F("name_key"), name="principal_name_is_unique"
            ),
        ),
        migrations.AddConstraint(
            model_name="principal",
            constraint=models.UniqueConstraint(
                models.F("organization"),
                models.F("user"),
                condition=models.Q(("user__isnull", False)),
                name="one_principal_per_member",
            ),
        ),
        migrations.AddConstraint(
            model_name="principal",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("kind", "human"), ("user__isnull", False)),
                    models.Q(models.Q(("kind", "human"), _negated=True), ("user__isnull", True)),
                    _connector="OR",
                ),
                name="principal_is_human_iff_it_has_a_user",
            ),
        ),
        migrations.AddConstraint(
            model_name="resource",
            constraint=models.UniqueConstraint(
                models.F("organization"),
                models.F("resource_type"),
                models.F("resource_id"),
                name="resource_is_unique",
            ),
        ),
        migrations.AddConstraint(
            model_name="lease",
            constraint=models.UniqueConstraint(
                models.F("resource"),
                condition=models.Q(("ended_at__isnull", True)),
                name="one_live_lease_per_resource",
            ),
        ),
        migrations.AddConstraint(
            model_name="lease",
            constraint=models.UniqueConstraint(
                models.F("resource"), models.F("epoch"), name="epoch_is_unique_per_resource"
            ),
        ),
        migrations.AddConstraint(
            model_name="lease",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("end_reason__isnull", True), ("ended_at__isnull", True)),
                    models.Q(("end_reason__isnull", False), ("ended_at__isnull", False)),
                    _connector="OR",
                ),
                name="lease_has_a_reason_iff_it_ended",
            ),
        ),
        migrations.AddConstraint(
            model_name="lease",
            constraint=models.CheckConstraint(
                condition=models.Q(("expires_at__gt", models.F("granted_at"))),
                name="lease_ends_after_it_began",
            ),
        ),
        migrations.AddIndex(
            model_name="storedanswer",
            index=models.Index(fields=["created_at"], name="stored_answers_by_age"),
        ),
        migrations.AddConstraint(
            model_name="storedanswer",
            constraint=models.UniqueConstraint(
                models.F("principal"), models.F("key"), name="one_answer_per_idempotency_key"
            ),
        ),
        migrations.AddIndex(
            model_name="task",
            index=models.Index(
                models.F("organization"),
                models.F("profile"),
                models.OrderBy(models.F("priority"), descending=True),
                models.F("created_at"),
                models.F("id"),
                condition=models.Q(("open_dependencies", 0), ("status", "todo")),
                name="ready_tasks_by_profile",
            ),
        ),
        migrations.AddIndex(
            model_name="task",
            index=models.Index(
                models.F("organization"),
                models.F("status"),
                models.OrderBy(models.F("created_at"), descending=True),
                models.OrderBy(models.F("id"), descending=True),
                name="tasks_by_status",
            ),
        ),
        migrations.AddIndex(
            model_name="task",
            index=models.Index(
                models.F("organization"), models.OrderBy(models.F("id"), descending=True), name="tasks_by_age"
            ),
        ),
        migrations.AddIndex(
            model_name="task",
            index=models.Index(
                models.F("organization"),
                models.OrderBy(models.F("finished_at"), descending=True),
                condition=models.Q(("finished_at__isnull", False)),
                name="recently_ended_tasks",
            ),
        ),
        migrations.AddConstraint(
            model_name="task",
            constraint=models.CheckConstraint(
                condition=models.Q(("status__in", ["todo", "in_progress", "blocked", "done", "cancelled"])),
                name="task_status_is_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="task",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("open_blockers__gt", 0), ("status", "blocked")),
                    models.Q(models.Q(("status", "blocked"), _negated=True), ("open_blockers", 0)),
                    _connector="OR",
                ),
                name="task_is_blocked_iff_it_has_open_blockers",
            ),
        ),
        migrations.AddConstraint(
            model_name="task",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("finished_at__isnull", False), ("status__in", ["done", "cancelled"])),
                    models.Q(
                        models.Q(("status__in", ["done", "cancelled"]), _negated=True),
                        ("finished_at__isnull", True),
                    ),
                    _connector="OR",
                ),
                name="task_has_an_end_time_iff_final",
            ),
        ),
        migrations.AddConstraint(
            model_name="task",
            constraint=models.CheckConstraint(
                condition=models.Q(("priority__gte", -100), ("priority__lte", 100)),
                name="priority_is_between_minus_100_and_100",
            ),
        ),
        migrations.AddConstraint(
            model_name="task",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("status", "done"), _negated=True), ("open_effects", 0), _connector="OR"
                ),
                name="a_done_task_has_no_open_effect",
            ),
        ),
        migrations.AddConstraint(
            model_name="task",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("reserved_for__isnull", True), ("reserved_until__isnull", False), _connector="OR"
                ),
                name="a_reservation_has_an_end",
            ),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                models.F("organization"),
                models.F("principal"),
                models.F("profile"),
                condition=models.Q(("ended_at__isnull", True)),
                name="open_runs",
            ),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                models.F("organization"), models.OrderBy(models.F("id"), descending=True), name="runs_by_age"
            ),
        ),
        migrations.AddConstraint(
            model_name="run",
            constraint=models.UniqueConstraint(
                models.F("task"), condition=models.Q(("ended_at__isnull", True)), name="one_open_run_per_task"
            ),
        ),
        migrations.AddConstraint(
            model_name="run",
            constraint=models.UniqueConstraint(
                models.F("task"), models.F("number"), name="runs_are_numbered"
            ),
        ),
        migrations.AddConstraint(
            model_name="run",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "status__in",
                        [
                            "running",
                            "waiting",
                            "succeeded",
                            "failed",
                            "abandoned",
                            "parked",
                            "released",
                            "handed_off",
                            "superseded",
                            "cancelled",
                        ],
                    )
                ),
                name="run_status_is_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="run",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("ended_at__isnull", True), ("status__in", ("running", "waiting"))),
                    models.Q(
                        models.Q(("status__in", ("running", "waiting")), _negated=True),
                        ("ended_at__isnull", False),
                    ),
                    _connector="OR",
                ),
                name="run_has_an_end_time_iff_final",
            ),
        ),
        migrations.AddConstraint(
            model_name="run",
            constraint=models.CheckConstraint(
                condition=models.Q(("progress__gte", 0), ("progress__lte", 100)),
                name="progress_is_a_percentage",
            ),
        ),
        migrations.AddIndex(
            model_name="comment",
            index=models.Index(fields=["task", "created_at"], name="comments_of_a_task"),
        ),
        migrations.AddIndex(
            model_name="comment",
            index=models.Index(
                condition=models.Q(
                    ("answered_at__isnull", True), ("blocking", True), ("withdrawn_at__isnull", True)
                ),
                fields=["organization", "created_at"],
                name="open_questions",
            ),
        ),
        migrations.AddConstraint(
            model_name="comment",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("answered_at__isnull", True), ("answered_by__isnull", True)),
                    models.Q(("answered_at__isnull", False), ("answered_by__isnull", False)),
                    _connector="OR",
                ),
                name="an_answer_has_an_author",
            ),
        ),
        migrations.AddIndex(
            model_name="blocker",
            index=models.Index(fields=["task", "opened_at"], name="blockers_of_a_task"),
        ),
        migrations.AddConstraint(
            model_name="blocker",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("kind__in", ["approval", "question", "attempts", "dependency", "manual"])
                ),
                name="blocker_kind_is_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="blocker",
            constraint=models.UniqueConstraint(
                models.F("task"),
                models.F("kind"),
                models.F("subject_id"),
                condition=models.Q(("closed_at__isnull", True)),
                name="one_open_blocker_per_reason",
                nulls_distinct=False,
            ),
        ),
        migrations.AddConstraint(
            model_name="taskdependency",
            constraint=models.UniqueConstraint(
                models.F("task"), models.F("depends_on"), name="a_dependency_is_named_once"
            ),
        ),
    ]
