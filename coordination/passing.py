"""Handoffs and messages as the API prints them."""

from datetime import datetime
from typing import Any
from uuid import UUID

from titen.api.ids import maybe_id, public_id

from .handoffs import status_at
from .models import Handoff, HandoffStatus, Message
from .times import stamp


def handoff_json(handoff: Handoff, *, now: datetime) -> dict[str, Any]:
    """A handoff as it stands at the database's `now`."""
    status = status_at(handoff, now)
    over = status == HandoffStatus.EXPIRED and handoff.ended_at is None
    return {
        "handoff_id": public_id("hoff", handoff.pk),
        "status": status,
        "from_principal": public_id("agent", handoff.from_principal_id),
        "from_name": handoff.from_principal.name,
        "to_principal": handoff.to_address,
        "to_principal_id": public_id("agent", handoff.to_principal_id),
        "to_name": handoff.to_principal.name,
        "subject_id": handoff.subject_id,
        "context_id": maybe_id("ctx", handoff.context_id),
        "checkpoint_id": maybe_id("ckpt", handoff.checkpoint_id),
        "checkpoint_version": handoff.checkpoint_version,
        "task_id": maybe_id("task", handoff.task_id),
        "run_id": maybe_id("run", handoff.run_id),
        "epoch": handoff.epoch,
        "message": handoff.message,
        "reason": handoff.reason,
        "created_at": stamp(handoff.created_at),
        "expires_at": stamp(handoff.expires_at),
        "ended_at": stamp(handoff.expires_at if over else handoff.ended_at),
        "accepted_run_id": maybe_id("run", handoff.accepted_run_id),
    }


def led_here_json(handoff: Handoff | None) -> dict[str, Any] | None:
    """The handoff by which a run began, for the working context of its task."""
    if handoff is None:
        return None
    return {
        "handoff_id": public_id("hoff", handoff.pk),
        "from_principal": public_id("agent", handoff.from_principal_id),
        "from_name": handoff.from_principal.name,
        "message": handoff.message,
        "context_id": maybe_id("ctx", handoff.context_id),
        "checkpoint_id": maybe_id("ckpt", handoff.checkpoint_id),
        "checkpoint_version": handoff.checkpoint_version,
    }


def message_json(message: Message, *, reader_id: UUID) -> dict[str, Any]:
    """A message for its recipient or its sender, who never learns whom a resource's holder was, nor who read."""
    mine = message.recipient_id == reader_id
    named = mine or message.resource is None
    return {
        "message_id": public_id("msg", message.pk),
        "from_principal": public_id("agent", message.sender_id),
        "from_name": message.sender.name,
        "to_principal": public_id("agent", message.recipient_id) if named else None,
        "to_name": message.recipient.name if named else None,
        "resource": {
            "resource_type": message.resource.resource_type,
            "resource_id": message.resource.resource_id,
        }
        if message.resource
        else None,
        "body": message.body,
        "created_at": stamp(message.created_at),
        "read_at": stamp(message.read_at) if mine else None,
    }
