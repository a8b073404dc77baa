"""Messages from one principal to another, or to whoever holds a resource."""

from django.db import models
from django.db.models import F, Q

from .fields import stamped, uuid_key
from .identity import Organization, Principal
from .resources import Resource


class Message(models.Model):
    """A text. With a `resource` it went to that one's holder, whom the sender never learns."""

    PREFIX = "msg"

    id = uuid_key()
    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, db_index=False, related_name="+")
    sender = models.ForeignKey(Principal, on_delete=models.PROTECT, db_index=False, related_name="+")
    recipient = models.ForeignKey(Principal, on_delete=models.PROTECT, db_index=False, related_name="+")
    resource = models.ForeignKey(
        Resource, on_delete=models.PROTECT, null=True, db_index=False, related_name="messages"
    )
    body = models.TextField()
    created_at = stamped()
    read_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-created_at"]
        indexes = [
            # The inbox, newest first; and what of it is unread.
            models.Index(F("recipient"), F("id").desc(), name="messages_received"),
            models.Index(
                F("recipient"), F("id").desc(), condition=Q(read_at__isnull=True), name="messages_unread"
            ),
            models.Index(F("sender"), F("id").desc(), name="messages_sent"),
            # The board: an organization's messages, newest first.
            models.Index(F("organization"), F("id").desc(), name="messages_by_age"),
            # The task page: what its holders were asked.
            models.Index(
                F("resource"),
                F("id").desc(),
                condition=Q(resource__isnull=False),
                name="messages_about_a_resource",
            ),
        ]

    def __str__(self) -> str:
        return self.body[:60]
