"""What the verbs of the admin ask for."""

from typing import Any

from django import forms
from django.contrib.admin.forms import AdminPasswordChangeForm

from coordination import keys, users
from coordination.admission import CONCURRENCY_MAX
from coordination.audit import organizations
from coordination.callers import EVERYTHING, SCOPES
from coordination.models import Organization, Role, User
from coordination.verbs import VerbForm
from titen.api.doors import transact


class OwnPassword(AdminPasswordChangeForm):
    """Django's own form for one's own password; it is stored by the rule."""

    def save(self, commit: bool = True) -> User:
        """The user, with the new password."""
        user: Any = self.user
        transact(lambda: users.set_password(user, self.cleaned_data["new_password1"], user_id=user.pk))
        changed: User = user
        return changed


class InOrganization(VerbForm):
    """Something new in one of the organizations that the user may look into."""

    organization = forms.ModelChoiceField(queryset=Organization.objects.none(), to_field_name="slug")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choice: Any = self.fields["organization"]
        choice.queryset = organizations(self.request).order_by("name")


class OrganizationForm(VerbForm):
    """A new organization."""

    name = forms.CharField(max_length=120)
    slug = forms.SlugField(max_length=60, help_text="Stands in addresses and commands; never changes.")


class ConfigureForm(VerbForm):
    """Policy flags and the default TTL."""

    lease_ttl_seconds = forms.IntegerField(label="Default lease TTL (seconds)")
    require_approval_for_destructive_tools = forms.BooleanField(required=False)
    require_approval_for_outward_actions = forms.BooleanField(required=False)
    forbid_self_approval = forms.BooleanField(required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in self.fields:
            self.fields[name].initial = getattr(self.subject, name)


class MemberForm(InOrganization):
    """A member, who is made a user when nobody has the address yet."""

    email = forms.CharField(max_length=254, label="E-mail")
    role = forms.ChoiceField(choices=Role.choices)
    name = forms.CharField(max_length=120, required=False, help_text="For a new user.")
    password = forms.CharField(
        required=False,
        strip=False,
        max_length=200,
        widget=forms.PasswordInput,
        help_text="For a new user only; who exists already keeps theirs.",
    )


class RoleForm(VerbForm):
    """Another role."""

    role = forms.ChoiceField(choices=Role.choices)


class AgentForm(InOrganization):
    """A new agent or service."""

    name = forms.CharField(max_length=120)
    service = forms.BooleanField(required=False, help_text="A service instead of an agent.")
    capabilities = forms.CharField(max_length=2000, required=False, help_text="Separated by blanks.")
    max_concurrent_runs = forms.IntegerField(
        required=False, min_value=0, max_value=CONCURRENCY_MAX, help_text="Empty: no limit."
    )


class KeyForm(VerbForm):
    """A new API key."""

    label = forms.CharField(max_length=120, required=False)
    scopes = forms.MultipleChoiceField(
        choices=[(scope, scope) for scope in [*SCOPES, EVERYTHING]],
        widget=forms.CheckboxSelectMultiple,
        help_text="* is everything.",
    )
    expires_at = forms.DateTimeField(required=False, help_text="UTC, such as 2026-12-31 23:59. Empty: never.")


class RevokeKeyForm(VerbForm):
    """Whether the keys that were made with it end too; not asked where there are none."""

    made_with_it = forms.BooleanField(
        required=False, initial=True, label="Also revoke the keys that were made with it"
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not keys.has_working_descendants(self.subject):
            del self.fields["made_with_it"]


class LimitForm(InOrganization):
    """Admission of a capability."""

    capability = forms.CharField(max_length=80)
    max_concurrent_runs = forms.IntegerField(min_value=0, max_value=CONCURRENCY_MAX)


class ChangeLimitForm(VerbForm):
    """Another limit."""

    max_concurrent_runs = forms.IntegerField(
        required=False, min_value=0, max_value=CONCURRENCY_MAX, help_text="Empty: no limit any more."
    )


class PasswordForm(VerbForm):
    """Somebody else's password."""

    password = forms.CharField(strip=False, max_length=200, widget=forms.PasswordInput)


class ReasonForm(VerbForm):
    """Why."""

    reason = forms.CharField(max_length=2000, required=False, widget=forms.Textarea(attrs={"rows": 3}))


class WhyForm(VerbForm):
    """Why, which has to be said."""

    reason = forms.CharField(max_length=2000, widget=forms.Textarea(attrs={"rows": 3}))
