"""What runs left stands in checkpoints, version by version, and no longer in the run."""

from django.db import migrations

from coordination.canonical import digest


def move(apps, schema_editor):
    """Each principal's runs of a task become the versions of its checkpoint about the task."""
    run_model = apps.get_model("coordination", "Run")
    checkpoint_model = apps.get_model("coordination", "Checkpoint")
    version_model = apps.get_model("coordination", "CheckpointVersion")
    left = run_model.objects.filter(checkpoint__isnull=False).order_by("task_id", "number")
    for run in left.iterator():
        at = run.ended_at or run.started_at
        checkpoint, _ = checkpoint_model.objects.get_or_create(
            organization_id=run.organization_id,
            principal_id=run.principal_id,
            subject_id=f"task_{run.task_id.hex}",
            kind="work",
            defaults={"task_id": run.task_id, "version": 0, "created_at": at},
        )
        checkpoint.task_id = run.task_id
        checkpoint.version += 1
        checkpoint.updated_at = at
        checkpoint.save()
        version_model.objects.create(
            checkpoint=checkpoint,
            version=checkpoint.version,
            state=run.checkpoint,
            state_hash=digest(run.checkpoint),
            run_id=run.pk,
            epoch=run.epoch,
            created_at=at,
        )


class Migration(migrations.Migration):
    dependencies = [("coordination", "0003_leases_and_handoffs")]

    operations = [
        migrations.RunPython(move, migrations.RunPython.noop),
        migrations.RemoveField(model_name="run", name="checkpoint"),
    ]
