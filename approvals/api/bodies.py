"""What the doors of approvals and effects read."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.fields import empty

from approvals.actions import NAME, Action
from approvals.decisions import MAX_REASON
from approvals.models import EffectStatus, Kind, Risk
from approvals.options import MAX_OPTION_LENGTH, MAX_OPTIONS
from approvals.requests import VALID_FOR_LIMIT
from coordination.api.bodies import EPOCH_MAX
from titen.api.answers import fields as shape
from titen.api.answers import flag, text
from titen.api.fields import Flag, Integer, Json, Line, Moment, StrictSerializer, Text


@extend_schema_field(
    text("Letters, digits and _ . : / @ + -.", pattern=f"^{NAME.pattern}$", minLength=1, maxLength=200)
)
class Name(Text):
    """A tool's or server's name: printable ASCII without blanks."""

    def to_internal_value(self, data: Any) -> str:
        """Refuses what could look like another name."""
        name = super().to_internal_value(data)
        if not NAME.fullmatch(name):
            raise serializers.ValidationError(
                "must be 1 to 200 letters, digits and _ . : / @ + - (ASCII), and begin with a letter, a digit or _."
            )
        return name


class ActionBody(StrictSerializer):
    """What an agent wants to do, and of which kind it says that it is."""

    tool = Name()
    server = Name(required=False, allow_null=True)
    arguments = serializers.DictField(required=False, child=Json(allow_null=True))
    kind = serializers.ChoiceField(required=False, choices=Kind.choices)

    def to_internal_value(self, data: Any) -> Action:
        """The action."""
        values = super().to_internal_value(data)
        return Action(
            tool=values["tool"],
            server=values.get("server"),
            arguments=values.get("arguments", {}),
            claimed=Kind(values["kind"]) if "kind" in values else None,
        )


class OptionBody(StrictSerializer):
    """An option with words of its own."""

    value = Line(max_length=MAX_OPTION_LENGTH)
    label = Line(required=False, max_length=MAX_OPTION_LENGTH)  # type: ignore[assignment]
    grants = Flag(required=False)


@extend_schema_field(
    {
        "oneOf": [
            text("The decision, and what the button says.", maxLength=MAX_OPTION_LENGTH),
            shape(
                "A decision with words of its own.",
                {
                    "value": text("The decision.", maxLength=MAX_OPTION_LENGTH),
                    "label": text("What the button says.", maxLength=MAX_OPTION_LENGTH),
                    "grants": flag("Whether it lets the action happen."),
                },
                optional=["label", "grants"],
            ),
        ]
    }
)
class OfferedOption(serializers.Field[Any, Any, Any, Any]):
    """A string, or an object of `value`, `label` and `grants`."""

    _line = Line(max_length=MAX_OPTION_LENGTH)
    _body = OptionBody()

    def to_internal_value(self, data: Any) -> Any:
        """The option as it was sent."""
        if isinstance(data, dict):
            return dict(self._body.run_validation(data))
        return self._line.run_validation(data)

    def to_representation(self, value: Any) -> Any:
        """Never used: answers are built by the shape functions."""
        return value


class OfferedOptions(serializers.ListField):
    """The list of them. Too long a one is refused before anything in it is looked at."""

    child = OfferedOption()

    def to_internal_value(self, data: Any) -> list[Any]:
        """The options."""
        if isinstance(data, list) and len(data) > MAX_OPTIONS:
            raise serializers.ValidationError(f"must hold at most {MAX_OPTIONS} options.")
        return list(super().to_internal_value(data))


class ApprovalBody(StrictSerializer):
    """`POST /v1/approvals`. `options` may be left out for an action: approve or deny."""

    run_id = Text(max_length=60)
    epoch = Integer(min_value=1, max_value=EPOCH_MAX)
    question = Text(max_length=4000)
    options = OfferedOptions(required=False, min_length=2, max_length=MAX_OPTIONS)
    context = Text(required=False, allow_blank=True, max_length=20_000)  # type: ignore[assignment]
    action = ActionBody(required=False)
    risk = serializers.ChoiceField(required=False, choices=Risk.choices)
    on_expiry = Line(required=False, max_length=MAX_OPTION_LENGTH)
    valid_for_seconds = Integer(required=False, min_value=1, max_value=VALID_FOR_LIMIT)
    expires_at = Moment(required=False)
    expires_in_seconds = Integer(required=False)

    def validate(self, attrs: Any) -> Any:
        """Choices as the rules know them; options are needed for a mere question."""
        if "options" not in attrs and "action" not in attrs:
            raise serializers.ValidationError({"options": ["is required without an action."]})
        if "risk" in attrs:
            attrs["risk"] = Risk(attrs["risk"])
        return attrs


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
    reason = Text(required=False, allow_blank=True, max_length=MAX_REASON)


class WithdrawGrantBody(StrictSerializer):
    """`POST /v1/approvals/:id/withdraw`."""

    reason = Text(max_length=MAX_REASON)


class EffectBody(StrictSerializer):
    """`POST /v1/effects`: under a run, or under a lease on anything else."""

    run_id = Text(required=False, max_length=60)
    lease_id = Text(required=False, max_length=60)
    epoch = Integer(min_value=1, max_value=EPOCH_MAX)
    action = ActionBody()
    effect_key = Line(max_length=200)
    approval_id = Text(required=False, max_length=60)


OUTCOMES = [EffectStatus.SUCCEEDED, EffectStatus.FAILED, EffectStatus.UNKNOWN, EffectStatus.COMPENSATED]


class OutcomeBody(StrictSerializer):
    """`POST /v1/effects/:id/outcome`."""

    outcome = serializers.ChoiceField(choices=[(each.value, each.label) for each in OUTCOMES])
    note = Text(required=False, allow_blank=True, max_length=4000)


class ReconcileBody(StrictSerializer):
    """`POST /v1/effects/:id/reconcile`."""

    outcome = serializers.ChoiceField(choices=[(each.value, each.label) for each in OUTCOMES])
    note = Text(max_length=4000)
