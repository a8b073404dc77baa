"""What every page of the admin shares: it shows, and changes nothing but through a rule.

A superuser sees every organization; other staff see those that they are an admin of, and what belongs
to another one is as unknown to them as a random id.
"""

import json
from typing import Any, ClassVar
from uuid import UUID

from django.contrib import admin, messages
from django.core.paginator import Paginator
from django.db import OperationalError, connection, transaction
from django.db.models import BinaryField, Model, Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.functional import cached_property
from django.utils.html import format_html

from titen.api.ids import public_id

from . import digests
from .models import Membership, Organization, Role
from .verbs import Verb, do

COUNT_MILLISECONDS = 300
PAGE = 50
_PREFIXED = 33


def audited(request: HttpRequest) -> frozenset[UUID] | None:
    """The organizations that the user may look into; None is all of them. Asked once per request."""
    user: Any = request.user
    if not hasattr(request, "audited_organizations"):
        mine = Membership.objects.filter(user=user, role=Role.ADMIN, ended_at=None)
        found = None if user.is_superuser else frozenset(mine.values_list("organization_id", flat=True))
        request.audited_organizations = found  # type: ignore[attr-defined]
    known: frozenset[UUID] | None = request.audited_organizations  # type: ignore[attr-defined]
    return known


def organizations(request: HttpRequest) -> QuerySet[Organization]:
    """The same, as rows."""
    known = audited(request)
    return Organization.objects.all() if known is None else Organization.objects.filter(pk__in=known)


def may_look(request: HttpRequest) -> bool:
    """True for superusers, and for staff with an organization to look into."""
    user: Any = request.user
    return bool(user.is_active and user.is_staff and audited(request) != frozenset())


def read_any_id(text: str) -> tuple[str, UUID] | None:
    """The prefix (or an empty one) and the UUID of `task_018f…` or of a bare UUID."""
    head, underscore, digits = text.strip().rpartition("_")
    if underscore and len(digits) != _PREFIXED - 1:
        return None
    try:
        return head, UUID(digits)
    except ValueError:
        return None


class EstimatedPaginator(Paginator):  # type: ignore[type-arg]
    """Counts for a third of a second, then takes the planner's word, so that big tables stay fast."""

    @cached_property
    def count(self) -> int:
        """The number of rows, or about that."""
        rows: Any = self.object_list
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(f"SET LOCAL statement_timeout = {COUNT_MILLISECONDS}")
                found: int = rows.order_by().count()
                cursor.execute("SET LOCAL statement_timeout = DEFAULT")
                return found
        except OperationalError:
            plan = json.loads(rows.order_by().explain(format="json"))
            return int(plan[0]["Plan"]["Plan Rows"])


class OrganizationFilter(admin.SimpleListFilter):
    """One organization, among those that the user may look into."""

    title = "organization"
    parameter_name = "organization"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """The first hundred by name."""
        return list(organizations(request).order_by("name").values_list("slug", "name")[:100])

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """An unknown organization has no rows."""
        if self.value() is None:
            return queryset
        chosen = organizations(request).filter(slug=self.value()).values_list("pk", flat=True).first()
        model_admin: Any = admin.site.get_model_admin(queryset.model)
        return model_admin.limited(queryset, [chosen]) if chosen else queryset.none()


def _parameter(item: Any) -> str:
    name: str = item if isinstance(item, str) else getattr(item, "parameter_name", None) or item[0]
    return name


class Limited:
    """What a list and an inline share: rows of the organizations that the user may look into, and no rights."""

    organization_path: ClassVar[str] = "organization_id"

    def limited(self, queryset: QuerySet[Any], known: Any) -> QuerySet[Any]:
        """The rows of these organizations."""
        return queryset.filter(**{f"{self.organization_path}__in": known})

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Rows that the user may see."""
        queryset: QuerySet[Any] = super().get_queryset(request)  # type: ignore[misc]
        known = audited(request)
        return queryset if known is None else self.limited(queryset, known)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Staff with something to look into."""
        return may_look(request)

    def has_module_permission(self, request: HttpRequest) -> bool:
        """The same."""
        return may_look(request)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never: rules add."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never: rules change."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never: nothing is deleted."""
        return False


class AuditInline(Limited, admin.TabularInline):  # type: ignore[type-arg]
    """Rows of a child table, to read."""

    extra = 0
    can_delete = False
    show_change_link = False
    related: ClassVar[tuple[str, ...]] = ()

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """With what the columns name."""
        queryset = super().get_queryset(request)
        return queryset.select_related(*self.related) if self.related else queryset


class AuditAdmin(Limited, admin.ModelAdmin):  # type: ignore[type-arg]
    """A table, to read. `verbs` are the moves that its rules offer."""

    actions = None
    ordering = ("-pk",)
    paginator = EstimatedPaginator
    show_full_result_count = False
    # Counting every choice of every filter reads the whole table.
    show_facets = admin.ShowFacets.NEVER
    list_per_page = PAGE
    list_max_show_all = PAGE
    change_list_template = "admin/audit/change_list.html"
    change_form_template = "admin/audit/change_form.html"
    verbs: ClassVar[tuple[Verb, ...]] = ()
    # What the verbs on a row are judged by: when one of these columns has changed, its form is out of date.
    shown: ClassVar[tuple[str, ...]] = ()
    # Columns that may be asked for in the URL, beside the filters.
    open_lookups: ClassVar[tuple[str, ...]] = ()
    # Columns that an id in the search box is looked for in.
    id_columns: ClassVar[tuple[str, ...]] = ("pk",)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Every column but bytes, unless the page names its own; then what it works out."""
        if self.fields is not None:
            return self.fields
        columns = [item.name for item in self.opts.concrete_fields if not isinstance(item, BinaryField)]
        return [*columns, *self.readonly_fields]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """All of them."""
        return self.get_fields(request, obj)

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest) -> bool:
        """Only what is offered: any other column could be guessed at letter by letter."""
        offered = {*self.open_lookups, *map(_parameter, self.get_list_filter(request))}
        return lookup.removesuffix("__exact").removesuffix("__isempty").removesuffix("__isnull") in offered

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Rows by a printed id or a UUID, else by text."""
        found = read_any_id(search_term)
        if found is None:
            return super().get_search_results(request, queryset, search_term)
        return queryset.filter(self.by_id(*found)), False

    def by_id(self, prefix: str, value: UUID) -> Q:
        """Which rows an id means."""
        return Q.create([(column, value) for column in self.id_columns], connector=Q.OR)

    @admin.display(description="id")
    def printed_id(self, obj: Any) -> str:
        """As the API prints it."""
        return public_id(obj.PREFIX, obj.pk)

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """The list; a NUL in the query is nothing that a table could hold."""
        if any("\0" in text for name, values in request.GET.lists() for text in (name, *values)):
            messages.error(request, "The address held a NUL character. Everything is shown instead.")
            return HttpResponseRedirect(request.path)
        verbs = self._offers([verb for verb in self.verbs if verb.makes], request)
        return super().changelist_view(request, {**(extra_context or {}), "verbs": verbs})

    def render_change_form(self, request: Any, context: Any, *args: Any, **kwargs: Any) -> HttpResponse:
        """The page of a row, with the verbs that it allows now."""
        obj = kwargs.get("obj")
        offered = [verb for verb in self.verbs if not verb.makes and obj is not None and verb.offered(obj)]
        context["verbs"] = self._offers(offered, request, obj)
        return super().render_change_form(request, context, *args, **kwargs)

    def _offers(
        self, verbs: list[Verb], request: HttpRequest, obj: Model | None = None
    ) -> list[tuple[str, str]]:
        user: Any = request.user
        allowed = [verb for verb in verbs if user.is_superuser or not verb.superuser]
        return [(verb.label, self._verb_url(verb, obj)) for verb in allowed]

    def _verb_url(self, verb: Verb, obj: Model | None) -> str:
        arguments = [verb.name] if obj is None else [obj.pk, verb.name]
        return reverse(f"admin:{self._url_name('verb' if obj is None else 'row_verb')}", args=arguments)

    def _url_name(self, what: str) -> str:
        return f"{self.opts.app_label}_{self.opts.model_name}_{what}"

    def get_urls(self) -> list[URLPattern]:
        """The verbs' pages before Django's own."""
        view = self.admin_site.admin_view(self.verb_view)
        return [
            path("do/<slug:name>/", view, name=self._url_name("verb")),
            path("<uuid:object_id>/do/<slug:name>/", view, name=self._url_name("row_verb")),
            *super().get_urls(),
        ]

    def verb_view(self, request: HttpRequest, name: str, object_id: UUID | None = None) -> HttpResponse:
        """The page of one verb: a form, and its rule."""
        return do(self, request, name, object_id)

    def organization_of(self, obj: Any) -> UUID | None:
        """Whose members act on a row."""
        found: UUID | None = getattr(obj, self.organization_path, None)
        return found

    def digest(self, obj: Any) -> str:
        """Of what its page shows of a row; the forms of the verbs carry it."""
        return digests.of_columns(obj, self.shown)

    def hold(self, obj: Any) -> Any:
        """Lock a row in the order in which its rules do; the row as it stands."""
        return self.model._default_manager.select_for_update(no_key=True).get(pk=obj.pk)

    def log_of(self, obj: Any) -> dict[str, Any]:
        """The query that finds the events about a row."""
        return {"subject_id": obj.pk}

    def history_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        """The history of a row is what the log says of it."""
        obj = self.get_object(request, object_id)
        if obj is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)  # type: ignore[attr-defined,no-any-return]
        query = "&".join(f"{name}={value}" for name, value in self.log_of(obj).items())
        return HttpResponseRedirect(f"{reverse('admin:coordination_event_changelist')}?{query}")


def link_to(url_name: str, pk: Any, text: str) -> str:
    """A link to a page of the admin."""
    return format_html('<a href="{}">{}</a>', reverse(f"admin:{url_name}_change", args=[pk]), text)
