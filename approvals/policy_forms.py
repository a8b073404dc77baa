"""What the forms of the page of policy send. The rules know what is allowed; here it is read."""

import re
from typing import Any
from uuid import UUID

from django import forms
from django.http import QueryDict

from coordination.board.forms import Line, Text
from coordination.models import Role
from titen.errors import Refused

from .actions import NAME
from .models import Decision, Kind, PolicyRule, Risk, ToolEntry
from .models.policy import PATTERN_LENGTH, RANK_LIMIT
from .policy_terms import FLAGS, NOTE_LENGTH, RuleTerms, ToolTerms, find_agent

UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"(\d{1,8}) ?(s|min|h|d)")
KINDS = [(kind.value, kind.value) for kind in Kind]
# What a browser may remember of other pages is of no use here.
_PLAIN = {"autocomplete": "off", "spellcheck": "false"}


def in_words(seconds: int) -> str:
    """`90 min`, `1 h`, `2 d`: the largest unit that leaves nothing over."""
    unit = next(unit for unit in reversed(UNITS) if seconds % UNITS[unit] == 0)
    return f"{seconds // UNITS[unit]} {unit}"


class Duration(forms.CharField):
    """Seconds, written as a number with a unit."""

    def clean(self, value: Any) -> Any:
        """The seconds; None without any."""
        text = super().clean(value)
        if not text:
            return None
        found = _DURATION.fullmatch(text)
        if not found:
            raise forms.ValidationError("must be a time such as 15 min, 4 h or 2 d.")
        return int(found[1]) * UNITS[found[2]]

    def prepare_value(self, value: Any) -> Any:
        """As it is typed."""
        return in_words(value) if isinstance(value, int) else value


class Shown(forms.Form):
    """The digest of the row that the page showed."""

    shown = forms.CharField(max_length=64, widget=forms.HiddenInput)


class Flags(Shown):
    """The organization's flags."""

    require_approval_for_destructive_tools = forms.BooleanField(required=False)
    require_approval_for_outward_actions = forms.BooleanField(required=False)
    forbid_self_approval = forms.BooleanField(required=False)

    def flags(self) -> dict[str, bool]:
        """By their names."""
        return {flag: self.cleaned_data[flag] for flag in FLAGS}


def _pattern(label: str, *, required: bool, help_text: str = "") -> Line:
    widget = forms.TextInput(attrs=_PLAIN)
    return Line(
        label=label,
        max_length=PATTERN_LENGTH,
        required=required,
        initial="*",
        help_text=help_text,
        widget=widget,
    )


def _rank() -> forms.IntegerField:
    widget = forms.NumberInput(attrs={"min": -RANK_LIMIT, "max": RANK_LIMIT})
    return forms.IntegerField(initial=0, widget=widget, help_text="The highest decides.")


def _choice(label: str, choices: list[tuple[str, str]], **more: Any) -> forms.ChoiceField:
    return forms.ChoiceField(label=label, choices=choices, **more)


def _agent(**more: Any) -> Line:
    widget = forms.TextInput(attrs={**_PLAIN, "list": "policy-agents"})
    return Line(max_length=120, widget=widget, **more)


class Tool(forms.Form):
    """A line of the tool list."""

    tool = _pattern("Tool", required=True, help_text="* and ? stand for more.")
    server = _pattern("Server", required=False, help_text="* is any, empty none.")
    kind = _choice("Is", KINDS)
    rank = _rank()

    def terms(self, organization_id: UUID) -> ToolTerms:
        """What the line says."""
        return ToolTerms(**{**self.cleaned_data, "kind": Kind(self.cleaned_data["kind"])})


class Rule(forms.Form):
    """A rule. What only rules that ask say is passed over in others."""

    decision = _choice("Decision", [("ask", "ask"), ("deny", "deny"), ("allow", "allow")])
    tool = _pattern("Tool", required=True, help_text="* and ? stand for more.")
    server = _pattern("Server", required=False, help_text="* is any, empty none.")
    kind = _choice("Kind", [("", "any kind"), *KINDS], required=False)
    agent = _agent(required=False, help_text="Empty is any.")
    capability = Line(
        max_length=80,
        required=False,
        widget=forms.TextInput(attrs=_PLAIN),
        help_text="Of the agent. Empty is any.",
    )
    rank = _rank()
    required_role = _choice("Asks", [("approver", "an approver"), ("admin", "an admin")])
    risk = _choice("Risk", [("", "as the kind"), *((risk, risk) for risk in Risk.values)], required=False)
    expires_in_seconds = Duration(
        label="Answer within",
        max_length=20,
        required=False,
        widget=forms.TextInput(attrs=_PLAIN),
        help_text="Such as 4 h. Empty: as usual.",
    )
    expires_at = forms.DateTimeField(
        label="Holds until (UTC)",
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local", "step": "1"}, format="%Y-%m-%dT%H:%M:%S"),
        help_text="Empty: until it is ended.",
    )
    note = Line(max_length=NOTE_LENGTH, required=False, help_text="Why. Shown here to everybody.")

    def terms(self, organization_id: UUID) -> RuleTerms:
        """What the rule says. `VALIDATION_ERROR` for an agent that the organization has not."""
        values = {name: self.cleaned_data[name] for name in ("rank", "tool", "server", "capability", "note")}
        decision, agent, kind = (self.cleaned_data[name] for name in ("decision", "agent", "kind"))
        asks = decision == Decision.ASK
        risk = self.cleaned_data["risk"]
        return RuleTerms(
            decision=Decision(decision),
            kind=Kind(kind) if kind else None,
            agent_id=find_agent(organization_id, agent).pk if agent else None,
            required_role=Role(self.cleaned_data["required_role"]) if asks else Role.APPROVER,
            risk=Risk(risk) if risk and asks else None,
            expires_in_seconds=self.cleaned_data["expires_in_seconds"] if asks else None,
            expires_at=self.cleaned_data["expires_at"],
            **values,
        )


class Change(Shown):
    """Other terms for a row. Beside each field goes what the page showed in it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for bound in self.visible_fields():
            bound.field.show_hidden_initial = True


class ChangeTool(Tool, Change):
    """Other terms for a line of the tool list."""

    def terms(self, organization_id: UUID) -> ToolTerms:
        """What the line says."""
        self.cleaned_data = {name: value for name, value in self.cleaned_data.items() if name != "shown"}
        return super().terms(organization_id)


class ChangeRule(Rule, Change):
    """Other terms for a rule."""


class AlwaysAllow(forms.Form):
    """Granting, and for how long to go on so."""

    shown_digest = forms.CharField(max_length=64)
    seconds = forms.IntegerField()
    reason = Text(max_length=2000, required=False)


class Question(forms.Form):
    """An action that nobody has asked for yet."""

    tool = Line(max_length=PATTERN_LENGTH, widget=forms.TextInput(attrs=_PLAIN))
    server = Line(
        max_length=PATTERN_LENGTH,
        required=False,
        widget=forms.TextInput(attrs=_PLAIN),
        help_text="Empty: without one.",
    )
    kind = _choice("The agent calls it", [("", "nothing"), *KINDS], required=False)
    agent = _agent()

    def clean(self) -> dict[str, Any]:
        """Names as actions may have them."""
        values = dict(super().clean() or self.cleaned_data)
        for field in ("tool", "server"):
            if values.get(field) and not NAME.fullmatch(values[field]):
                self.add_error(
                    field,
                    "must be letters, digits and _ . : / @ + - (ASCII), and begin with a letter or digit.",
                )
        return values


def values_of(row: PolicyRule | ToolEntry) -> dict[str, Any]:
    """What a row says, as its form begins."""
    values = {**vars(row)}
    if isinstance(row, PolicyRule):
        values["agent"] = row.agent.name if row.agent else ""
    return values


def keep_changes(typed: QueryDict, sent: forms.Form, row: PolicyRule | ToolEntry) -> None:
    """Of what was typed into a form that is out of date, what the person did not change becomes what stands now.

    So that sending it again undoes nothing that a colleague has done.
    """
    for bound in type(sent)(initial=values_of(row)).visible_fields():
        value = bound.field.widget.format_value(bound.value())
        stands = value[0] if isinstance(value, list) else value or ""
        if bound.name not in sent.changed_data:
            typed[bound.name] = stands
        typed[bound.html_initial_name] = stands


def refuse_unless_valid(form: forms.Form) -> None:
    """`VALIDATION_ERROR` with what is wrong by the names of the fields."""
    if not form.is_valid():
        fields = {name: [str(problem) for problem in found] for name, found in form.errors.items()}
        raise Refused("VALIDATION_ERROR", summary="", details={"fields": fields})


def mark(form: forms.Form, refused: Refused) -> None:
    """Put what a rule refused beside the fields that it names."""
    form.is_valid()
    for name, problems in refused.details.get("fields", {}).items():
        if name in form.fields and name not in form.errors:
            form.add_error(name, problems)
