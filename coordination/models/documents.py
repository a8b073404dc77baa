"""Documents whose sections are leased, and the places that their events have in each one's own log."""

from django.db import models

from .fields import stamped, uuid_key
from .identity import Organization


class Document(models.Model):
    """A document appears when one of its sections is first leased. It has no text here.

    The resource of a section is (`section`, `<slug>/<section id>`): a slug has no slash.
    """

    PREFIX = "doc"

    id = uuid_key()
    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, db_index=False, related_name="+")
    slug = models.CharField(max_length=100)
    created_at = stamped()
    deleted_at = models.DateTimeField(null=True)
    # The last position of its log that was given up with the oldest part of the log; 0 when it is whole.
    floor = models.BigIntegerField(db_default=0)

    class Meta:
        ordering = ["slug"]
        constraints = [
            models.UniqueConstraint("organization", "slug", name="document_slug_is_unique"),
        ]

    def __str__(self) -> str:
        return self.slug


class DocumentPosition(models.Model):
    """An event's place in its document's log: gap-free from 1, insert-only."""

    event_id = models.UUIDField(primary_key=True)
    document = models.ForeignKey(
        Document, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+"
    )
    position = models.BigIntegerField()
    event_created_at = models.DateTimeField()

    class Meta:
        db_table = "coordination_document_position"
        constraints = [
            # Also serves every reader: the document's events after a position, in order.
            models.UniqueConstraint("document", "position", name="document_position_is_unique"),
        ]

    def __str__(self) -> str:
        return str(self.position)
