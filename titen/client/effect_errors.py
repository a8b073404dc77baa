"""Why an action may not happen: the classes of the codes about policy, approvals and effects."""

from .errors import TitenError


class PolicyDenied(TitenError):
    """403: a policy rule forbids this; `details["rule"]` has it. Nobody is to be asked: choose another way."""

    code = "POLICY_DENIED"


class ApprovalRequired(TitenError):
    """409: policy wants a human's approval of this action first."""

    code = "APPROVAL_REQUIRED"


class ApprovalPending(TitenError):
    """409: this action is asked about already; `details["approval_id"]` is not decided yet."""

    code = "APPROVAL_PENDING"


class ApprovalDenied(TitenError):
    """A human said no, and it is final: do not ask again.

    `details`: `decision`, `reason` (the human's words, may be empty), `approval_id`, `final`, and `until`
    when the server says how long it holds. Raised by the server (409), or as the answer to what was asked.
    """

    code = "APPROVAL_DENIED"


class ApprovalExpired(TitenError):
    """Nobody decided in time, which is no denial, or the decision was not used in time.

    `details["fallback"]` is what `on_expiry` named, where nobody decided what this run had asked.
    """

    code = "APPROVAL_EXPIRED"


class ApprovalVoid(TitenError):
    """The approval was taken back, or a takeover made its decision void."""

    code = "APPROVAL_VOID"


class AlreadyConsumed(TitenError):
    """409: the approval was used; each is good for one effect."""

    code = "ALREADY_CONSUMED"


class DigestMismatch(TitenError):
    """409: the action is not the one that was approved."""

    code = "DIGEST_MISMATCH"


class EffectsUnreconciled(TitenError):
    """409: destructive or outward effects without a known outcome hold up the completion. Report them, or wait
    for a human who reconciles what is unknown."""

    code = "EFFECTS_UNRECONCILED"
