from django.contrib import admin
from django.contrib.admin import SimpleListFilter
from django.db.models import Exists, Model, OuterRef, QuerySet, Sum
from django.http import HttpRequest
from django.utils.functional import cached_property
from django.utils.translation import gettext_lazy as _

from console.frame.labels import STATES, labelled
from console.frame.lists import BoundedPaginator, ChoiceFilter, ChosenTenantModelAdmin, column
from console.frame.records import Text
from console.frame.scope import tenant_at
from console.metrics.attention import expiring_credentials
from console.registry import pages
from registry.models import STATUSES, Service, ServiceCount


def known_type(value: str | None) -> str | None:
    """Return the requested type; None for text that no type can be (PostgreSQL rejects NUL)."""
    return value if value and value.isprintable() else None


class TypeFilter(SimpleListFilter):
    """Services of one of the types that the tenant's services have."""

    title = _("type")
    parameter_name = "type"

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, Text]]:
        counted = ServiceCount.objects.filter(tenant_id=tenant_at(request).pk).exclude(type="")
        return [(name, name) for name in counted.values_list("type", flat=True).distinct().order_by("type")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Service]) -> QuerySet[Service]:
        return queryset.filter(type=value) if (value := known_type(self.value())) else queryset


class StatusFilter(ChoiceFilter):
    title = _("state")
    parameter_name = column = "status"
    options = tuple((status, STATES[status]) for status in STATUSES)


class CredentialFilter(ChoiceFilter):
    title = _("credentials")
    parameter_name = "credentials"
    options = (("expiring", _("expire soon or have just expired")),)

    def matching(self, rows: QuerySet[Model], value: str) -> QuerySet[Model]:
        return rows.filter(Exists(expiring_credentials().filter(service_id=OuterRef("pk"))))


class CountedPaginator(BoundedPaginator):
    """Take the total from the registry's counters instead of counting services."""

    counters: QuerySet[ServiceCount]

    @cached_property
    def count(self) -> int:
        return self.counters.aggregate(total=Sum("services"))["total"] or 0


@admin.register(Service)
class ServiceAdmin(ChosenTenantModelAdmin):
    view_permission = "services:read"
    list_title = _("Services")
    empty_title = _("No services yet")
    empty_text = _("Register the outside services that this tenant's applications call, then add their credentials.")
    list_display = ("name", "type", "shown_status", "address", "updated_at")
    list_filter = (TypeFilter, StatusFilter, CredentialFilter)
    search_fields = ("name",)
    search_help_text = _("Part of a name")
    sortable_by = ("name",)
    ordering = ("-created_at", "-id")
    key = "service_id"
    add = staticmethod(pages.CreateService.as_view())
    add_needs = ("services:write",)
    show = staticmethod(pages.show)
    delete = staticmethod(pages.DeleteService.as_view())

    shown_status = column(
        _("State"), lambda service: labelled(service.status), badges={"active": "success", "inactive": "info"}
    )
    address = column(_("Base URL"), lambda service: service.base_url)

    def get_paginator(self, request: HttpRequest, queryset: QuerySet[Service], per_page: int) -> BoundedPaginator:
        if request.GET.get("q") or request.GET.get("credentials"):
            return BoundedPaginator(queryset, per_page)
        paginator = CountedPaginator(queryset, per_page)
        kinds = ServiceCount.objects.filter(tenant_id=tenant_at(request).pk)
        paginator.counters = kinds.filter(type=known_type(request.GET.get("type")) or "")
        if (status := request.GET.get("status")) in STATUSES:
            paginator.counters = paginator.counters.filter(status=status)
        return paginator
