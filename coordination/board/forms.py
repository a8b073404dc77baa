"""What the board's forms send. A bad value is a `VALIDATION_ERROR` that names its field."""

from collections.abc import Mapping
from typing import Any

from django import forms
from django.http import HttpRequest, QueryDict

from coordination.admission import CAPABILITY
from coordination.api.bodies import EPOCH_MAX
from coordination.callers import EVERYTHING, SCOPES
from titen.api.ids import field_id
from titen.api.strict_json import loads
from titen.errors import Refused, invalid


class Text(forms.CharField):
    """Words of a person: trimmed, with bare line feeds. NUL is refused by Django's own field."""

    def to_python(self, value: Any) -> str:
        """The text; browsers send CRLF."""
        return str(super().to_python(value)).replace("\r\n", "\n").replace("\r", "\n")


class Line(Text):
    """One line: no control characters."""

    def clean(self, value: Any) -> str:
        """The line."""
        text = str(super().clean(value))
        if any(ord(character) < 32 or ord(character) == 127 for character in text):
            raise forms.ValidationError("must be one line without control characters.")
        return text


def epoch() -> forms.IntegerField:
    """The epoch that the page showed."""
    return forms.IntegerField(min_value=0, max_value=EPOCH_MAX)


class Shown(forms.Form):
    """What the page showed of the task, as a digest."""

    shown_digest = forms.CharField(max_length=64)


class TakeOver(Shown):
    """To `me`, `queue`, or an agent by id or name."""

    to = Line(max_length=120)
    reason = Text(max_length=2000)
    epoch = epoch()


class Block(Shown):
    """Why the task stops."""

    sentence = Line(max_length=400)
    epoch = epoch()


class Priority(Shown):
    """-100 to 100."""

    priority = forms.IntegerField(min_value=-100, max_value=100)


class Words(forms.Form):
    """A comment or an answer."""

    body = Text(max_length=8000)


class Reason(forms.Form):
    """An optional reason."""

    reason = Text(max_length=2000, required=False)


class Cancel(Shown, Reason):
    """Ending a task for good."""


class Complete(forms.Form):
    """The end of one's own run."""

    epoch = epoch()
    summary = Text(max_length=4000, required=False)


class Fail(forms.Form):
    """The end of one's own run, without success."""

    epoch = epoch()
    error = Text(max_length=8000)
    final = forms.BooleanField(required=False)


class Release(forms.Form):
    """Giving one's own run back."""

    epoch = epoch()
    reason = Text(max_length=2000, required=False)


class Checkpoint(forms.Form):
    """Word for the next attempt: JSON when it is JSON, else the text itself."""

    epoch = epoch()
    checkpoint = Text(max_length=100_000)


class Decide(forms.Form):
    """One of the options, exactly as it was offered."""

    option = forms.CharField(max_length=200, strip=False)
    shown_digest = forms.CharField(max_length=64)
    reason = Text(max_length=2000, required=False)


class ForceRelease(forms.Form):
    """Taking a lease from its holder."""

    epoch = epoch()
    reason = Text(max_length=2000)


class Letter(forms.Form):
    """A message to a principal, by id or name."""

    to_principal = Line(max_length=120)
    body = Text(max_length=8000)


class Agent(forms.Form):
    """A new agent."""

    name = Line(max_length=120)
    capabilities = Line(max_length=2000, required=False)
    max_concurrent_runs = forms.IntegerField(min_value=1, max_value=100_000, required=False)

    def clean_capabilities(self) -> list[str]:
        """Words separated by blanks or commas."""
        words = self.cleaned_data["capabilities"].replace(",", " ").split()
        if any(not CAPABILITY.fullmatch(word) for word in words) or len(words) > 32:
            raise forms.ValidationError(
                "must be at most 32 words of lower-case letters, digits and . _ : / -"
            )
        return list(words)


class Key(forms.Form):
    """A new key for an agent."""

    agent = Line(max_length=60)
    label = Line(max_length=120, required=False)
    scopes = forms.MultipleChoiceField(choices=[(scope, scope) for scope in [*SCOPES, EVERYTHING]])
    days = forms.IntegerField(min_value=1, max_value=3650, required=False)

    def clean_agent(self) -> Any:
        """The agent's id."""
        return field_id("agent", "agent", self.cleaned_data["agent"])


class RevokeKey(forms.Form):
    """Whether the keys that were made with it end too."""

    made_with_it = forms.BooleanField(required=False)


def one_value_each(fields: Mapping[str, forms.Field], data: QueryDict) -> None:
    """`VALIDATION_ERROR` for a field that stands twice, unless it is one for several values."""
    for name, values in data.lists():
        if len(values) > 1 and not isinstance(fields.get(name), forms.MultipleChoiceField):
            raise invalid(name, "stands twice: send exactly one value.")


def read(form: type[forms.Form], request: HttpRequest) -> dict[str, Any]:
    """The fields of a POST."""
    one_value_each(form.base_fields, request.POST)
    filled = form(request.POST)
    if not filled.is_valid():
        fields = {name: [str(problem) for problem in problems] for name, problems in filled.errors.items()}
        first, problems = next(iter(fields.items()))
        raise Refused("VALIDATION_ERROR", summary=f"{first}: {problems[0]}", details={"fields": fields})
    return dict(filled.cleaned_data)


def as_json(text: str) -> Any:
    """A checkpoint that a person typed: an object or a list is read as JSON, anything else is text."""
    if text[:1] in ("{", "["):
        try:
            return loads(text.encode())
        except Refused:
            return text
    return text
