"""The admin: who acts and where, the work, the log. For audit; what it changes goes through rules."""

from django.contrib import admin
from django.contrib.auth import admin as auth_admin  # noqa: F401  (registers groups, which are taken out below)
from django.contrib.auth.models import Group

from . import documents, identity, keeping, leases, log, passing, signing, webhooks, work
from .forms import OwnPassword

__all__ = ["documents", "identity", "keeping", "leases", "log", "passing", "signing", "webhooks", "work"]

# Roles are memberships; Django's groups and permissions have no say.
admin.site.unregister(Group)
admin.site.disable_action("delete_selected")
admin.site.site_header = admin.site.site_title = "Titen audit"
admin.site.index_title = "What there is"
admin.site.password_change_form = OwnPassword
