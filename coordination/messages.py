"""Messages from one principal to another, or to whoever holds a resource now, without naming it."""

from typing import Any
from uuid import UUID

from django.db.models import Q

from titen.api.ids import public_id
from titen.errors import Refused, invalid, not_found

from . import events
from .addressing import hold_target
from .callers import Caller
from .models import Lease, Message, Resource
from .models.fields import ClockNow

_PEOPLE = ("sender", "recipient", "resource")


def send(caller: Caller, *, body: str, to_principal: str) -> Message:
    """Write to a principal of the organization, by id or name."""
    target = hold_target(caller, to_principal)
    return _send(caller, body, target.pk, None, to=public_id("agent", target.pk))


def ask_holder(caller: Caller, *, body: str, resource_type: str, resource_id: str) -> Message:
    """Write to whoever holds a resource now (a task's is `task` and its printed id); it stays unnamed.

    `CONFLICT` when nobody does, which is also the answer for a resource that there never was.
    """
    lease = (
        Lease.objects.filter(
            resource__organization_id=caller.organization_id,
            resource__resource_type=resource_type,
            resource__resource_id=resource_id,
            ended_at=None,
            expires_at__gt=ClockNow(),
        )
        .select_related("resource")
        .first()
    )
    if lease is None:
        raise Refused("CONFLICT", "Nobody holds this resource now. Acquire it, or ask again later.")
    if lease.principal_id == caller.principal_id:
        raise invalid("resource_id", "you hold this yourself.")
    return _send(
        caller,
        body,
        lease.principal_id,
        lease.resource,
        resource_type=resource_type,
        resource_id=resource_id,
    )


def _send(caller: Caller, body: str, recipient_id: UUID, resource: Resource | None, **data: Any) -> Message:
    message = Message.objects.create(
        organization_id=caller.organization_id,
        sender_id=caller.principal_id,
        recipient_id=recipient_id,
        resource=resource,
        body=body,
    )
    events.record(
        "message.sent",
        organization_id=caller.organization_id,
        actor_id=caller.principal_id,
        subject_id=message.pk,
        **data,
    )
    return Message.objects.select_related(*_PEOPLE).get(pk=message.pk)


def find(caller: Caller, message_id: UUID) -> Message:
    """A message that the caller has sent or received."""
    found = (
        Message.objects.filter(pk=message_id, organization_id=caller.organization_id)
        .filter(Q(sender_id=caller.principal_id) | Q(recipient_id=caller.principal_id))
        .select_related(*_PEOPLE)
        .first()
    )
    if found is None:
        raise not_found()
    return found


def mark_read(caller: Caller, message_id: UUID) -> Message:
    """The recipient has read it; the first time counts. Nobody else is told."""
    if find(caller, message_id).recipient_id != caller.principal_id:
        raise Refused("VALIDATION_ERROR", "Only the recipient can mark a message as read.")
    Message.objects.filter(pk=message_id, read_at=None).update(read_at=ClockNow())
    return find(caller, message_id)
