"""The caller, principals, keys, and the log."""

from coordination.callers import EVERYTHING, SCOPES
from coordination.models import PrincipalKind
from titen.api.answers import (
    SHAPES,
    choice,
    fields,
    flag,
    free,
    ident,
    integer,
    many,
    maybe,
    moment,
    ref,
    text,
)

from .work import CAPABILITIES, PRINCIPAL_ID

SCOPE_LIST = many("What the key may do.", choice("`*` is everything.", [*SCOPES, EVERYTHING]))
KIND = choice("What sort of actor.", PrincipalKind.values)

SHAPES["Caller"] = fields(
    "Who this key belongs to and what it may do.",
    {
        "organization_id": ident("org", "The tenant."),
        "principal_id": PRINCIPAL_ID,
        "name": text("Unique in the organization."),
        "kind": KIND,
        "capabilities": CAPABILITIES,
        "scopes": SCOPE_LIST,
        "key_id": maybe(ident("key", "The key that was used.")),
    },
)
SHAPES["Principal"] = fields(
    "Somebody who acts in the organization.",
    {
        "id": PRINCIPAL_ID,
        "name": text("Unique in the organization."),
        "kind": KIND,
        "capabilities": CAPABILITIES,
        "disabled": flag("True when it can no longer act."),
    },
)
SHAPES["Principals"] = fields(
    "The principals of the organization.", {"principals": many("By name.", ref("Principal"))}
)
KEY = {
    "key_id": ident("key", "The key."),
    "principal_id": PRINCIPAL_ID,
    "label": text("What its maker called it; may be empty."),
    "scopes": SCOPE_LIST,
    "made_by": maybe(ident("key", "The key with which it was made; null for one that a human made.")),
    "created_at": moment("When it was made."),
    "expires_at": maybe(moment("When it ends by itself; no later than the key with which it was made.")),
    "revoked_at": maybe(moment("When it was revoked.")),
}
SHAPES["Key"] = fields("An API key without its secret, which nobody has any more.", KEY)
SHAPES["Keys"] = fields("The caller's keys.", {"keys": many("Newest first.", ref("Key"))})
SHAPES["RevokedKey"] = fields(
    "A revoked key, and what ended with it.",
    {
        **KEY,
        "also_revoked": many(
            "The keys that were made with it, and with those, and had not ended before.",
            ident("key", "A key."),
        ),
    },
)
SHAPES["NewKey"] = fields(
    "A new API key.",
    {**KEY, "api_key": text("The secret, in this answer only.", pattern="^titen_sk_[A-Za-z0-9_-]{43}$")},
)
SHAPES["Event"] = fields(
    "One line of the organization's log.",
    {
        "id": ident("evt", "The event."),
        "cursor": text("The position behind it.", pattern="^[0-9]+$"),
        "kind": text("What happened, such as `task.claimed`.", pattern=r"^[a-z_]+\.[a-z_]+$"),
        "created_at": moment("When."),
        "actor_id": maybe(ident("agent", "Who did it; null for the server itself.")),
        "task_id": maybe(ident("task", "The task it is about.")),
        "run_id": maybe(ident("run", "The run it is about.")),
        "lease_id": maybe(ident("lease", "The lease it is about.")),
        "subject_id": maybe(
            text("What else it is about; the prefix says what.", pattern="^[a-z]+_[0-9a-f]{32}$")
        ),
        "epoch": maybe(integer("The epoch of the lease.")),
        "data": free("Ids, states, numbers and codes; never people's text."),
    },
)
SHAPES["ExportedEvent"] = fields(
    "One line of an export.",
    {
        **SHAPES["Event"]["properties"],
        "digest": text(
            "The hash of this line and all before it; only for who sees all of them.",
            pattern="^[0-9a-f]{64}$",
        ),
    },
    optional=["digest"],
)
SHAPES["EventPage"] = fields(
    "Events in the order of their positions.",
    {
        "events": many("At most `limit`.", ref("Event")),
        "cursor": text("Send it as `after` for what comes next.", pattern="^[0-9]+$"),
    },
)
