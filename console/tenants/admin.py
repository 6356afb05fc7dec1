from django.contrib import admin
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.contrib.filters.admin import DropdownFilter
from unfold.decorators import display

from console.frame.access import staff_at, staff_or_none
from console.frame.labels import STATES
from console.frame.labels import state as state_label
from console.frame.lists import ChoiceFilter, ConsoleModelAdmin, column, uuid_or_none
from console.frame.records import NOTHING, Text
from console.metrics.attention import CHECKS
from console.tenants import changes, pages
from console.tenants.labels import STATE_COLOURS, is_current, size_label
from identity_platform.api.email_addresses import search_key
from tenants.entering.schema import schema_version
from tenants.models import DatabaseServer, DomainClaim, Tenant
from tenants.states import State


class StateFilter(ChoiceFilter, DropdownFilter):  # type: ignore[misc]  # unfold has no types
    title = _("state")
    parameter_name = "state"
    column = "database__status"
    options = tuple((state.value, STATES[state]) for state in State if state != State.DELETED)


class ServerFilter(ChoiceFilter, DropdownFilter):  # type: ignore[misc]  # unfold has no types
    title = _("server")
    parameter_name = "server"
    column = "database__server__name"

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, Text]]:
        return [(name, name) for name in DatabaseServer.objects.order_by("name").values_list("name", flat=True)]


class SchemaFilter(ChoiceFilter, DropdownFilter):  # type: ignore[misc]  # unfold has no types
    title = _("schema")
    parameter_name = "schema"
    options = (("current", _("current")), ("behind", _("outdated")))

    def matching(self, rows: QuerySet[Model], value: str) -> QuerySet[Model]:
        current = Q(database__schema_version=schema_version())
        return rows.filter(current if value == "current" else ~current)


class AttentionFilter(ChoiceFilter, DropdownFilter):  # type: ignore[misc]  # unfold has no types
    """Tenants with a problem that the dashboard counts."""

    title = _("needs attention")
    parameter_name = "attention"
    options = tuple((name, check.title) for name, check in CHECKS.items() if check.tenants)

    def matching(self, rows: QuerySet[Model], value: str) -> QuerySet[Model]:
        condition = CHECKS[value].tenants
        return rows.filter(condition()) if condition else rows


def _number_of_users(tenant: Tenant) -> str:
    figures = getattr(tenant, "figures", None)
    return f"{figures.users:,}" if figures and figures.collected_at else NOTHING


@admin.register(Tenant)
class TenantAdmin(ConsoleModelAdmin):
    """All tenants for operators, the own tenant for tenant admins."""

    view_permission = "tenants:read"
    of_tenant = "pk"
    list_display = (
        "shown_name",
        "shown_state",
        "shown_server",
        "shown_schema",
        "shown_size",
        "shown_users",
        "created_at",
    )
    list_display_links = ("shown_name",)
    sortable_by = None
    key = "tenant_id"
    show = staticmethod(pages.tenant_page)
    delete = staticmethod(changes.Delete.as_view())
    list_select_related = ("database__server", "figures")
    links = ((gettext_lazy("Provision a tenant"), "admin:tenants_tenant_provision", "tenants:write"),)
    search_fields = ("name", "slug")
    search_help_text = gettext_lazy("Name, slug, domain or id")
    ordering = ("-created_at", "id")
    list_title = gettext_lazy("Tenants")
    empty_title = gettext_lazy("No tenants")
    empty_text = gettext_lazy("Provision the first one: it gets a database of its own, a client and an admin.")

    def has_view_permission(self, request: HttpRequest, obj: object = None) -> bool:
        staff = staff_or_none(request)
        return staff is not None and pages.may_look(staff)

    def get_list_filter(self, request: HttpRequest) -> list[type[ChoiceFilter]]:
        return [StateFilter, ServerFilter, SchemaFilter, AttentionFilter] if staff_at(request).is_operator else []

    def get_queryset(self, request: HttpRequest) -> QuerySet[Model]:
        return super().get_queryset(request).exclude(database__status=State.DELETED)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Model], search_term: str
    ) -> tuple[QuerySet[Model], bool]:
        if (tenant_id := uuid_or_none(search_term.strip())) is not None:
            return queryset.filter(pk=tenant_id), False
        rows, has_duplicates = super().get_search_results(request, queryset, search_term)
        domain = search_key(search_term)
        if not domain:
            return rows, has_duplicates
        holders = DomainClaim.objects.filter(domain__contains=domain).values("tenant_id")
        return rows | queryset.filter(pk__in=holders), has_duplicates

    @display(description=gettext_lazy("Tenant"), header=True, ordering="name")  # type: ignore[untyped-decorator]  # unfold has no types
    def shown_name(self, tenant: Tenant) -> list[str]:
        return [tenant.name, tenant.slug]

    shown_state = column(
        gettext_lazy("State"),
        lambda tenant: (tenant.database.status, state_label(tenant.database.status)),
        badges=STATE_COLOURS,
        ordering="database__status",
    )
    shown_server = column(
        gettext_lazy("Server"), lambda tenant: tenant.database.server.name, ordering="database__server__name"
    )
    shown_schema = column(
        gettext_lazy("Schema"),
        lambda tenant: ("current", _("current")) if is_current(tenant) else ("behind", _("outdated")),
        badges={"current": "", "behind": "warning"},
        ordering="database__schema_version",
    )
    shown_size = column(
        gettext_lazy("Size"),
        lambda tenant: size_label(getattr(getattr(tenant, "figures", None), "database_bytes", None)),
        ordering="figures__database_bytes",
    )
    shown_users = column(gettext_lazy("Users"), _number_of_users, ordering="figures__users")
