"""Webhooks: who is told of what. What they are owed is in `deliveries`.

A webhook sees what the key saw that last said where it goes and what it gets. Every move locks the
webhook's row first, before any delivery; `delete` so that the numbering step waits for it.
"""

import base64
import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from titen.api.ids import public_id
from titen.errors import Refused, not_found

from . import deliveries, events
from . import kinds as event_kinds
from .callers import Caller
from .keyring import seal
from .locks import clock, hold_able
from .models import Delivery, Organization, PauseReason, Principal, Webhook
from .visibility import NEEDED, OTHERWISE

LIMIT = 20
SECRET_PREFIX = "whsec_"  # noqa: S105  (what every secret begins with)
SECRET_BYTES = 32
# So long the secret before signs too.
OVERLAP = timedelta(hours=24)


def new_secret() -> str:
    """As Standard Webhooks prints one."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def check_kinds(caller: Caller, kinds: Iterable[str]) -> list[str]:
    """The filter in order. `VALIDATION_ERROR` for what is no kind, `FORBIDDEN` for what the caller cannot see."""
    wanted = sorted(set(kinds))
    event_kinds.check("kinds", wanted, patterns=True)
    for kind in wanted:
        caller.require(NEEDED.get(kind.partition(".")[0], OTHERWISE))
    return wanted


def create(
    caller: Caller, *, url: str, kinds: Iterable[str] = (), description: str = ""
) -> tuple[Webhook, str]:
    """A webhook and its secret, which nobody sees again. The door has checked where `url` leads.

    The caller needs `events:read` too. `CONFLICT` when the organization has as many as it may.
    """
    caller.require("events:read")
    wanted = check_kinds(caller, kinds)
    hold_able(caller)
    # One at a time, so that the count holds.
    Organization.objects.select_for_update(no_key=True).get(pk=caller.organization_id)
    if Webhook.objects.filter(organization_id=caller.organization_id, deleted_at=None).count() >= LIMIT:
        raise Refused("CONFLICT", f"An organization may have {LIMIT} webhooks. Delete one, then try again.")
    secret = new_secret()
    made = Webhook.objects.create(
        organization_id=caller.organization_id,
        principal_id=caller.principal_id,
        scopes=sorted(caller.scopes),
        url=url,
        kinds=wanted,
        description=description,
        secret=seal(secret.encode()),
    )
    _record("created", made, caller.principal_id)
    return find(caller.organization_id, made.pk), secret


def find(organization_id: UUID, webhook_id: UUID) -> Webhook:
    """A webhook of the organization, also a deleted one."""
    found = (
        Webhook.objects.select_related("principal")
        .filter(pk=webhook_id, organization_id=organization_id)
        .first()
    )
    if found is None:
        raise not_found()
    return found


def change(caller: Caller, webhook_id: UUID, **changes: Any) -> Webhook:
    """Change `url`, `kinds`, `description` and `paused`, as far as they are given.

    Whoever says where it goes or what it gets makes it see what their own key sees.
    """
    moved = [name for name in ("url", "kinds") if name in changes]
    if moved:
        caller.require("events:read")
        hold_able(caller)
    webhook, _ = _hold(caller.organization_id, webhook_id)
    paused = changes.pop("paused", None)
    if "kinds" in changes:
        changes["kinds"] = check_kinds(caller, changes["kinds"])
    if moved:
        check_kinds(caller, changes.get("kinds", webhook.kinds))
        changes |= {"principal_id": caller.principal_id, "scopes": sorted(caller.scopes)}
    changed = [name for name, value in changes.items() if getattr(webhook, name) != value]
    if changed:
        Webhook.objects.filter(pk=webhook.pk).update(**{name: changes[name] for name in changed})
        _record("changed", webhook, caller.principal_id, changed=sorted(changed))
    if paused is not None:
        (pause if paused else resume)(webhook, actor_id=caller.principal_id)
    return find(caller.organization_id, webhook_id)


def pause(webhook: Webhook, *, actor_id: UUID | None, user_id: UUID | None = None) -> Webhook:
    """Send nothing for now; what it is owed is kept, and grows. Nothing happens to one that is paused."""
    held, at = _hold(webhook.organization_id, webhook.pk)
    if held.paused_at is None:
        stop(held, PauseReason.ASKED, at, actor_id=actor_id, user_id=user_id)
    return find(held.organization_id, held.pk)


def stop(
    held: Webhook,
    reason: PauseReason,
    at: datetime,
    *,
    actor_id: UUID | None = None,
    user_id: UUID | None = None,
) -> None:
    """Pause a webhook that the caller has locked and that is not paused."""
    Webhook.objects.filter(pk=held.pk).update(paused_at=at, pause_reason=reason)
    _record("paused", held, actor_id, user_id=user_id, reason=str(reason))


def resume(webhook: Webhook, *, actor_id: UUID | None, user_id: UUID | None = None) -> Webhook:
    """Go on with what is owed, at once. Nothing happens to one that is not paused."""
    held, at = _hold(webhook.organization_id, webhook.pk)
    if held.paused_at is not None:
        Webhook.objects.filter(pk=held.pk).update(
            paused_at=None, pause_reason=PauseReason.NONE, failures_in_a_row=0, failing_since=None
        )
        deliveries.make_due(held.pk, at)
        _record("resumed", held, actor_id, user_id=user_id)
    return find(held.organization_id, held.pk)


def rotate_secret(caller: Caller, webhook_id: UUID) -> tuple[Webhook, str]:
    """A new secret, which nobody sees again; the one before signs beside it for a day."""
    held, at = _hold(caller.organization_id, webhook_id)
    secret = new_secret()
    Webhook.objects.filter(pk=held.pk).update(
        secret=seal(secret.encode()), previous_secret=held.secret, previous_until=at + OVERLAP
    )
    _record("changed", held, caller.principal_id, changed=["secret"])
    return find(caller.organization_id, webhook_id), secret


def delete(caller: Caller, webhook_id: UUID) -> Webhook:
    """End it: what it is owed is cancelled, what it got stays listed. Again, it changes nothing."""
    # FOR UPDATE: the numbering step shares the rows of the webhooks that it writes deliveries for, so
    # either those are seen below, or it sees that this one is deleted.
    held = (
        Webhook.objects.select_for_update()
        .filter(pk=webhook_id, organization_id=caller.organization_id)
        .first()
    )
    if held is None:
        raise not_found()
    if held.deleted_at is None:
        at = clock()
        Webhook.objects.filter(pk=held.pk).update(deleted_at=at)
        deliveries.cancel_all(held.pk, at)
        _record("deleted", held, caller.principal_id)
    return find(caller.organization_id, webhook_id)


def ping(caller: Caller, webhook_id: UUID) -> Delivery:
    """A delivery that is about nothing: one attempt, soon. `CONFLICT` while the webhook is paused or stopped."""
    held, _ = _hold(caller.organization_id, webhook_id)
    if held.paused_at is not None:
        raise Refused("CONFLICT", object="webhook", state="paused")
    if not Principal.objects.filter(pk=held.principal_id, disabled_at=None).exists():
        raise Refused("CONFLICT", object="webhook", state="stopped")
    return deliveries.owe_ping(held)


def redeliver(
    organization_id: UUID,
    webhook_id: UUID,
    delivery_id: UUID,
    *,
    actor_id: UUID | None,
    user_id: UUID | None = None,
) -> Delivery:
    """Send a delivery again, with its id and a new budget of attempts; one that is still owed, at once."""
    held, at = _hold(organization_id, webhook_id)
    again = deliveries.owe_again(held.pk, delivery_id, at)
    _record("redelivered", held, actor_id, user_id=user_id, delivery_id=public_id("dlv", delivery_id))
    return again


def _hold(organization_id: UUID, webhook_id: UUID) -> tuple[Webhook, datetime]:
    """A locked webhook and the moment after. `CONFLICT` for a deleted one."""
    held = (
        Webhook.objects.select_for_update(no_key=True)
        .filter(pk=webhook_id, organization_id=organization_id)
        .first()
    )
    if held is None:
        raise not_found()
    if held.deleted_at is not None:
        raise Refused("CONFLICT", object="webhook", state="deleted")
    return held, clock()


def _record(what: str, webhook: Webhook, actor_id: UUID | None, **data: Any) -> None:
    events.record(
        f"webhook.{what}",
        organization_id=webhook.organization_id,
        actor_id=actor_id,
        subject_id=webhook.pk,
        **data,
    )
