"""Webhooks and their deliveries."""

from coordination.callers import EVERYTHING, SCOPES
from coordination.models import DeliveryStatus, PauseReason
from titen.api.answers import SHAPES, choice, fields, ident, integer, many, maybe, moment, page, ref, text

from .work import PRINCIPAL_ID

WEBHOOK = {
    "webhook_id": ident("whk", "The webhook."),
    "url": text("Where it leads."),
    "kinds": many("The kinds of events that it gets; empty for all that it sees.", text("Such as `task.*`.")),
    "description": text("What its maker wrote; may be empty."),
    "principal_id": PRINCIPAL_ID,
    "scopes": many(
        "What it sees of the log: the scopes of the key that last said where it goes or what it gets.",
        choice("`*` is everything.", [*SCOPES, EVERYTHING]),
    ),
    "status": choice(
        "`paused` and `active`; `stopped` when its principal is disabled; `deleted`.",
        ["active", "paused", "stopped", "deleted"],
    ),
    "pause_reason": maybe(
        choice(
            "Somebody `asked`; the receiver is `gone` (it answered 410); it was `failing` for more than a day.",
            [reason for reason in PauseReason.values if reason],
        )
    ),
    "paused_at": maybe(moment("Since when nothing is sent.")),
    "failures_in_a_row": integer("Attempts that failed since the last good one."),
    "created_at": moment("When it was made."),
    "deleted_at": maybe(moment("When it was deleted.")),
}
SHAPES["Webhook"] = fields("An address that gets the organization's events.", WEBHOOK)
SHAPES["Webhooks"] = fields(
    "The organization's webhooks.", {"webhooks": many("Newest first.", ref("Webhook"))}
)
SHAPES["NewWebhook"] = fields(
    "A webhook with a new secret.",
    {**WEBHOOK, "secret": text("Signs, in this answer only.", pattern="^whsec_[A-Za-z0-9+/]{43}=$")},
)
SHAPES["Delivery"] = fields(
    "One event for one webhook, or a ping.",
    {
        "delivery_id": ident("dlv", "The delivery; the receiver sees it as `webhook-id`, at every attempt."),
        "webhook_id": WEBHOOK["webhook_id"],
        "kind": text("What happened, such as `task.completed`; `webhook.ping` for a ping."),
        "event_id": maybe(ident("evt", "The event; null for a ping.")),
        "cursor": maybe(text("The event's position.", pattern="^[0-9]+$")),
        "status": choice("Owed (`pending`), or how it ended.", DeliveryStatus.values),
        "attempt_count": integer("How often it was sent, or was to be."),
        "response_status": maybe(integer("The HTTP status of the last answer; null when there was none.")),
        "problem": maybe(text("Why the last attempt failed: a code such as `timeout`.")),
        "duration_ms": maybe(integer("How long the last attempt took.")),
        "created_at": moment("When it was owed first."),
        "last_attempt_at": maybe(moment("When it was sent last.")),
        "next_attempt_at": maybe(moment("When it is sent next at the earliest, while it is owed.")),
        "ended_at": maybe(moment("When it was delivered, given up or cancelled.")),
    },
)
SHAPES["DeliveryPage"] = page("deliveries", "Delivery")
