"""Leases on resources other than tasks."""

from coordination.models import GrantReason, LeaseEnd
from titen.api.answers import SHAPES, choice, fields, ident, integer, many, maybe, moment, page, ref, text

from .work import CERTAINTIES, EPOCH, PRINCIPAL_ID, TTL, some

STANDING = {
    "lease_id": ident("lease", "The lease; keep the one last told."),
    "expires_at": moment("From this moment on the holder is refused, even if nobody took over."),
    "epoch": EPOCH,
    "ttl_seconds": TTL,
    "certainty": choice("How sure the holder may be.", CERTAINTIES),
}
RESOURCE = {
    "resource_type": text("What sort of thing, as its first holder called it."),
    "resource_id": text("Which one of its sort."),
}
BECAUSE = choice("Why it was granted.", GrantReason.values)
SEQUENCER = text(
    "A signed statement of resource, epoch and holder, for whoever receives effects."
    " Its keys stand at /.well-known/jwks.json."
)
SHAPES["GrantedLease"] = fields(
    "A new lease.", {**STANDING, **RESOURCE, "granted_because": BECAUSE, "sequencer": SEQUENCER}
)
SHAPES["GrantedLeases"] = fields(
    "New leases on all the resources.",
    {"leases": many("In the order of the request.", ref("GrantedLease"))},
)
SHAPES["RenewedLease"] = fields(
    "How the lease stands now.", {**STANDING, "sequencer": SEQUENCER}, optional=["sequencer"]
)
SHAPES["ReleasedLease"] = fields(
    "The lease is over and the resource is free.",
    {**some(SHAPES["RenewedLease"], "lease_id"), "released_at": moment("When it ended.")},
)
HELD = {
    **STANDING,
    **RESOURCE,
    "holder_id": PRINCIPAL_ID,
    "holder": text("The name of its holder."),
    "purpose": text("What for, in the holder's words; may be empty."),
    "granted_because": BECAUSE,
    "previous_lease_id": maybe(ident("lease", "The lease on the resource before this one.")),
    "granted_at": moment("When it was granted."),
    "renewed_at": moment("Its last accepted renewal, or the grant."),
    "renewal_count": integer("How many renewals were accepted."),
    "jeopardy_declared_at": maybe(moment("Since when its holder is not sure any more.")),
    "ended_at": maybe(moment("When it ended, as it is written down.")),
    "end_reason": maybe(choice("How it ended.", LeaseEnd.values)),
    "end_note": text("Why it was revoked; may be empty."),
}
SHAPES["HeldLease"] = fields("A lease, for those who may know its holder.", HELD)
SHAPES["HeldLeaseDetail"] = fields(
    "A lease with its latest renewals.",
    {**HELD, "renewals": SHAPES["RunDetail"]["properties"]["renewals"]},
)
SHAPES["HeldLeasePage"] = page("leases", "HeldLease")
