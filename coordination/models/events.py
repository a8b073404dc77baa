"""The append-only log: events, what is still to be numbered, and the positions readers see."""

from django.db import models

from .fields import stamped, uuid_key
from .identity import Organization


class Event(models.Model):
    """One line of the log, written in the transaction that changed the state.

    `data` holds ids, states, numbers and codes, never people's text. The table is partitioned by
    month (its real key is id and created_at), and the application can only read and insert.
    """

    PREFIX = "evt"

    id = uuid_key()
    created_at = stamped()
    seq = models.BigIntegerField(editable=False)
    organization = models.ForeignKey(
        Organization, on_delete=models.DO_NOTHING, db_constraint=False, related_name="+"
    )
    kind = models.CharField(max_length=40)
    actor_id = models.UUIDField(null=True)
    task_id = models.UUIDField(null=True)
    run_id = models.UUIDField(null=True)
    lease_id = models.UUIDField(null=True)
    subject_id = models.UUIDField(null=True)
    epoch = models.BigIntegerField(null=True)
    data = models.JSONField(default=dict)

    class Meta:
        managed = False
        db_table = "coordination_event"
        ordering = ["-seq"]

    def __str__(self) -> str:
        return self.kind


class UnnumberedEvent(models.Model):
    """A committed event without a position yet; the numbering step empties this table."""

    seq = models.BigIntegerField(primary_key=True)
    organization = models.ForeignKey(
        Organization, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+"
    )
    event_id = models.UUIDField()
    event_created_at = models.DateTimeField()

    class Meta:
        db_table = "coordination_event_unnumbered"

    def __str__(self) -> str:
        return str(self.seq)


class EventPosition(models.Model):
    """An event's place in its organization's log: gap-free from 1, insert-only, hash-chained."""

    event_id = models.UUIDField(primary_key=True)
    organization = models.ForeignKey(
        Organization, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+"
    )
    position = models.BigIntegerField()
    event_created_at = models.DateTimeField()
    digest = models.BinaryField(max_length=32)

    class Meta:
        db_table = "coordination_event_position"
        constraints = [
            # Also serves every reader: the events after a cursor, in order.
            models.UniqueConstraint("organization", "position", name="event_position_is_unique"),
        ]

    def __str__(self) -> str:
        return str(self.position)


class LogFloor(models.Model):
    """Where an organization's log begins, once its oldest part was given up: the last position that is gone."""

    organization = models.OneToOneField(
        Organization, on_delete=models.DO_NOTHING, db_constraint=False, primary_key=True, related_name="+"
    )
    position = models.BigIntegerField()
    # The digest at that position, from which the chain goes on.
    digest = models.BinaryField(max_length=32)

    class Meta:
        db_table = "coordination_log_floor"

    def __str__(self) -> str:
        return str(self.position)
