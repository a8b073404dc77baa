"""What the doors of approvals read."""

from typing import Any

from rest_framework import serializers
from rest_framework.fields import empty

from approvals.requests import MAX_OPTION_LENGTH, MAX_OPTIONS
from coordination.api.bodies import EPOCH_MAX
from titen.api.fields import Integer, Line, Moment, StrictSerializer, Text


class ApprovalBody(StrictSerializer):
    """`POST /v1/approvals`."""

    run_id = Text(max_length=60)
    epoch = Integer(min_value=1, max_value=EPOCH_MAX)
    question = Text(max_length=4000)
    options = serializers.ListField(
        child=Line(max_length=MAX_OPTION_LENGTH), min_length=2, max_length=MAX_OPTIONS
    )
    context = Text(required=False, allow_blank=True, max_length=20_000)  # type: ignore[assignment]
    expires_at = Moment(required=False)
    expires_in_seconds = Integer(required=False)


class Option(Text):
    """One of the options. Whatever else was sent is refused by the rule, which names them."""

    def run_validation(self, data: Any = empty) -> Any:
        if data is empty:
            self.fail("required")
        return data


class DecideBody(StrictSerializer):
    """`POST /v1/approvals/:id/decide`."""

    option = Option(max_length=MAX_OPTION_LENGTH)
    shown_digest = Text(max_length=64)
    reason = Text(required=False, allow_blank=True, max_length=2000)
