"""What the doors of coordination read."""

import re
from typing import Any

from django.conf import settings
from rest_framework import serializers

from coordination.admission import CAPABILITY
from coordination.callers import EVERYTHING, SCOPES
from coordination.leasing import BATCH_LIMIT
from titen.api.answers import integer
from titen.api.fields import Flag, Integer, Json, Line, Moment, StrictSerializer, Text
from titen.api.schema import query_parameters

SECRET_REF = re.compile(r"[a-z][a-z0-9+.-]{0,30}://[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]{1,360}")
EPOCH_MAX = 2**53 - 1
WAIT = query_parameters({"wait": integer("How many seconds the answer may take; 0 by default.", 0, 25)})


class Capability(Text):
    """`python`, `deploy:staging`: lower case, at most 80 characters."""

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        if not CAPABILITY.fullmatch(text):
            raise serializers.ValidationError(
                "must be lower-case letters, digits and . _ : / - (at most 80)."
            )
        return text


class SecretRef(Text):
    """`vault://team/token`: a pointer to a secret, never the secret."""

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        if not SECRET_REF.fullmatch(text):
            raise serializers.ValidationError(
                "must be a pointer such as vault://path, never a secret itself."
            )
        return text


def capability_list(**options: Any) -> serializers.ListField:
    """At most 32 capabilities."""
    return serializers.ListField(child=Capability(), max_length=32, **options)


def ttl() -> Integer:
    """Seconds within the published range; out of range is refused, never clamped."""
    return Integer(required=False, min_value=settings.LEASE_TTL_MINIMUM, max_value=settings.LEASE_TTL_MAXIMUM)


def resource_type(**options: Any) -> Line:
    """What sort of thing a resource is, in the words of who leases it."""
    return Line(max_length=80, **options)


def resource_id(**options: Any) -> Line:
    """Which one of its sort; opaque here."""
    return Line(max_length=400, **options)


class TaskBody(StrictSerializer):
    """`POST /v1/tasks`."""

    title = Line(max_length=200)
    description = Text(required=False, allow_blank=True, max_length=20_000)
    priority = Integer(required=False, min_value=-100, max_value=100)
    required_capabilities = capability_list(required=False)
    payload = serializers.DictField(required=False, child=Json(allow_null=True))
    secret_refs = serializers.ListField(required=False, child=SecretRef(), max_length=50)
    depends_on = serializers.ListField(required=False, child=Text(max_length=60), max_length=100)
    not_before = Moment(required=False)
    max_attempts = Integer(required=False, min_value=1, max_value=100)
    lease_ttl_seconds = ttl()


class ClaimBody(StrictSerializer):
    """`POST /v1/tasks/claim`."""

    capabilities = capability_list(required=False)
    task_id = Text(required=False, max_length=60)
    ttl_seconds = ttl()


class HeartbeatBody(StrictSerializer):
    """`POST /v1/runs/:id/heartbeat`."""

    epoch = Integer(min_value=1, max_value=EPOCH_MAX)
    progress = Integer(required=False, min_value=0, max_value=100)
    status = Line(required=False, allow_blank=True, max_length=200)
    ttl_seconds = ttl()
    sequencer = Flag(required=False)
    since = Moment(required=False)


class EndBody(StrictSerializer):
    """What complete, fail and release share."""

    epoch = Integer(min_value=1, max_value=EPOCH_MAX)
    claim_next = Flag(required=False)
    capabilities = capability_list(required=False)
    ttl_seconds = ttl()


class CompleteBody(EndBody):
    """`POST /v1/runs/:id/complete`."""

    summary = Text(required=False, allow_blank=True, max_length=4000)
    result = Json(required=False, allow_null=True)
    evidence = serializers.ListField(required=False, child=Json(), max_length=100)


class FailBody(EndBody):
    """`POST /v1/runs/:id/fail`."""

    error = Text(max_length=8000)
    retryable = Flag(required=False)


class ReleaseBody(EndBody):
    """`POST /v1/runs/:id/release`."""

    reason = Text(required=False, allow_blank=True, max_length=2000)
    checkpoint = Json(required=False, allow_null=True)


class LeaseBody(StrictSerializer):
    """`POST /v1/leases`."""

    resource_type = resource_type()
    resource_id = resource_id()
    purpose = Text(required=False, allow_blank=True, max_length=400)
    ttl_seconds = ttl()


class ResourceBody(StrictSerializer):
    """One resource of a batch."""

    resource_type = resource_type()
    resource_id = resource_id()


class LeaseBatchBody(StrictSerializer):
    """`POST /v1/leases/batch`."""

    resources = serializers.ListField(child=ResourceBody(), min_length=1, max_length=BATCH_LIMIT)
    purpose = Text(required=False, allow_blank=True, max_length=400)
    ttl_seconds = ttl()


class RenewBody(StrictSerializer):
    """`PATCH /v1/leases/:id`."""

    ttl_seconds = ttl()
    sequencer = Flag(required=False)


class RevokeBody(StrictSerializer):
    """`POST /v1/leases/:id/revoke`."""

    reason = Text(max_length=2000)


class VerifyBody(StrictSerializer):
    """`POST /v1/fencing/verify`."""

    resource_type = resource_type()
    resource_id = resource_id()
    epoch = Integer(min_value=1, max_value=EPOCH_MAX)


class EpochBody(StrictSerializer):
    """`POST /v1/runs/:id/jeopardy`."""

    epoch = Integer(min_value=1, max_value=EPOCH_MAX)


class ShownBody(StrictSerializer):
    """What a human's verb carries: the digest of the task as the page showed it."""

    shown_digest = Line(max_length=64)


class CancelBody(StrictSerializer):
    """`POST /v1/tasks/:id/cancel`."""

    reason = Text(required=False, allow_blank=True, max_length=2000)
    shown_digest = Line(required=False, max_length=64)


class CommentBody(StrictSerializer):
    """`POST /v1/tasks/:id/comments`; a blocking one needs the run and its epoch."""

    body = Text(max_length=8000)
    blocking = Flag(required=False)
    run_id = Text(required=False, max_length=60)
    epoch = Integer(required=False, min_value=1, max_value=EPOCH_MAX)


class AnswerBody(StrictSerializer):
    """`POST /v1/tasks/:id/comments/:id/answer`."""

    body = Text(max_length=8000)


class TakeoverBody(ShownBody):
    """`POST /v1/tasks/:id/takeover`: `to` is `me`, `queue` or a principal's id or name."""

    to = Text(max_length=120)
    reason = Text(max_length=2000)
    epoch = Integer(min_value=0, max_value=EPOCH_MAX)


class BlockBody(ShownBody):
    """`POST /v1/tasks/:id/block`."""

    sentence = Line(max_length=400)
    epoch = Integer(required=False, min_value=0, max_value=EPOCH_MAX)


class PriorityBody(ShownBody):
    """`POST /v1/tasks/:id/priority`."""

    priority = Integer(min_value=-100, max_value=100)


class NoBody(StrictSerializer):
    """Nothing."""


class KeyBody(StrictSerializer):
    """`POST /v1/keys`."""

    label = Line(required=False, allow_blank=True, max_length=120)  # type: ignore[assignment]
    scopes = serializers.ListField(
        child=serializers.ChoiceField(choices=[*SCOPES, EVERYTHING]), min_length=1, max_length=40
    )
    expires_at = Moment(required=False)


class WaitQuery(StrictSerializer):
    """`?wait=`: how many seconds the answer may take, 0 to 25."""

    wait = serializers.RegexField(
        r"^(?:[0-9]|1[0-9]|2[0-5])\Z",
        trim_whitespace=False,
        required=False,
        error_messages={"invalid": "must be whole seconds from 0 to 25."},
    )
