"""What the doors of approvals answer."""

from approvals.models import ApprovalStatus, Decision, EffectStatus, Kind, Risk
from approvals.options import MAX_OPTIONS
from coordination.api.answers.holding import cut
from coordination.api.answers.work import some
from coordination.models import Role
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
    page,
    ref,
    text,
)

DIGEST = "^[0-9a-f]{64}$"
SHAPES["Action"] = fields(
    "What an agent wants to do. Its digest is the SHA-256 of the RFC 8785 form of this object.",
    {
        "tool": text("The tool."),
        "server": maybe(text("The server that offers it.")),
        "arguments": maybe(
            free(
                "The arguments, as they were sent. Null for a key that is neither who asked, holder, creator"
                " nor target of a handoff."
            )
        ),
    },
)
SHAPES["Option"] = fields(
    "A choice with words of its own.",
    {
        "value": text("The decision."),
        "label": text("The asker's words for it."),
        "grants": flag("Whether it lets the action happen."),
    },
    optional=["label", "grants"],
)
SHAPES["Verdict"] = fields(
    "What policy said, with the rule and the line of the tool list as they were then.",
    {
        "decision": choice("Allowed, asked about or denied.", Decision.values),
        "kind": choice("What the action does to the world.", Kind.values),
        "risk": choice("How bad a wrong answer is.", Risk.values),
        "required_role": choice("The role that may decide.", Role.values),
        "rule": maybe(free("The rule that decided; null: the organization's flags did.")),
        "tool_entry": maybe(free("The line of the tool list; null: unlisted, so `outward`.")),
        "because": text("A sentence."),
    },
)

SHAPES["Approval"] = fields(
    "A question to humans and, once it is decided, their answer.",
    {
        "id": ident("appr", "The approval."),
        "task_id": maybe(ident("task", "The task that it belongs to and blocks.")),
        "run_id": maybe(ident("run", "The run that asked.")),
        "epoch": maybe(integer("The epoch of that run's lease.", 1)),
        "round": integer("The task's round when it was asked; when it was decided, once it is.", 1),
        "requested_by": ident("agent", "The principal that asked."),
        "question": text("What is asked; never changes."),
        "context": text("What helps to decide; may be empty."),
        "options": {
            **many(
                "The possible answers, in the order in which they are shown; never change.",
                {"anyOf": [text("One answer."), ref("Option")]},
            ),
            "minItems": 2,
            "maxItems": MAX_OPTIONS,
        },
        "digest": text(
            "SHA-256 over question, context, options and action: what a human was shown.", pattern=DIGEST
        ),
        "action": maybe(ref("Action")),
        "action_digest": maybe(text("SHA-256 of the RFC 8785 form of the action.", pattern=DIGEST)),
        "kind": maybe(choice("What the action does to the world, by policy.", Kind.values)),
        "risk": choice("How bad a wrong answer is: policy's word, or higher.", Risk.values),
        "on_expiry": maybe(text("The option to fall back to; it never grants.")),
        "valid_for_seconds": integer("How long a grant can be used.", 1),
        "required_role": choice("The role that may decide.", Role.values),
        "status": choice("`expired` as soon as its time is over.", ApprovalStatus.values),
        "decision": maybe(text("Exactly one of the options, once decided.")),
        "granted": maybe(
            flag("Whether the decision lets the action happen; null without action or decision.")
        ),
        "final": flag("True for a denial: do not ask again."),
        "fallback": maybe(text("`on_expiry`, once nobody decided in time. It is no decision.")),
        "reason": text("What the human added; may be empty."),
        "decided_by_user_id": maybe(ident("user", "Who decided.")),
        "created_at": moment("When it was asked."),
        "expires_at": moment("Until when it can be decided."),
        "ended_at": maybe(moment("When it was decided, cancelled or expired; null while it is pending.")),
        "closed_at": maybe(moment("When the grant was used or became void.")),
        "withdrawn_by_user_id": maybe(ident("user", "The human who withdrew the grant before it was used.")),
        "withdrawal_reason": text("Why they did; empty unless it was withdrawn."),
    },
)
SHAPES["Effect"] = fields(
    "One attempt to act on the world, recorded before it happens.",
    {
        "id": ident("eff", "The effect."),
        "task_id": maybe(ident("task", "The task; null under a lease on anything else.")),
        "run_id": maybe(ident("run", "The run.")),
        "lease_id": ident("lease", "The lease under which it was authorized."),
        "principal_id": ident("agent", "Who acts."),
        "epoch": integer("The epoch that was sent.", 1),
        "effect_key": text("The maker's name for this attempt, used once per task or resource."),
        "action": ref("Action"),
        "action_digest": text("SHA-256 of the RFC 8785 form of the action.", pattern=DIGEST),
        "kind": choice("What the action does to the world, by policy.", Kind.values),
        "status": choice("How it stands.", EffectStatus.values),
        "code": maybe(text("Why it was refused.")),
        "verdict": ref("Verdict"),
        "approval_id": maybe(ident("appr", "The approval that it used up.")),
        "late": flag("The newest report's `late`."),
        "note": text("The newest report's note; may be empty."),
        "reconciled_by_user_id": maybe(ident("user", "The human who made the newest report.")),
        "reports": many("Everything that was reported about the outcome, oldest first.", ref("EffectReport")),
        "created_at": moment("When it was authorized or refused."),
        "outcome_at": maybe(moment("When the outcome was told.")),
    },
)
SHAPES["EffectReport"] = fields(
    "A statement about the outcome of an effect. It is never changed; a later report stands beside it.",
    {
        "id": ident("rpt", "The report. The event of this report names it as `report_id`."),
        "was": choice("The status before it.", EffectStatus.values),
        "outcome": choice("The status that it states.", EffectStatus.values),
        "note": text("What was said about the outcome; may be empty."),
        "late": flag("True when its maker had lost the lease by then."),
        "reported_by": ident("agent", "The principal that reported it."),
        "reconciled_by_user_id": maybe(ident("user", "The human, when a human reported it.")),
        "created_at": moment("When it was reported."),
    },
)
SHAPES["ContextApproval"] = cut(
    "An approval in a context.", SHAPES["Approval"]["properties"], "question", "context", "reason"
)
SHAPES["ResolvedApproval"] = cut(
    "How an approval ended.",
    some(
        SHAPES["Approval"],
        "id",
        "status",
        "action_digest",
        "decision",
        "granted",
        "final",
        "fallback",
        "reason",
        "ended_at",
    ),
    "reason",
)
SHAPES["ContextEffect"] = cut(
    "An effect in a context.", SHAPES["Effect"]["properties"], "verdict", "note", "reports"
)
SHAPES["EffectPage"] = page("effects", "Effect")
SHAPES["ApprovalPage"] = page("approvals", "Approval")
