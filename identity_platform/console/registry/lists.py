"""The list of a tenant's services, and the ways to everything that is done with them."""

from typing import Any
from uuid import UUID

from django.contrib.admin import SimpleListFilter
from django.db.models import QuerySet, Sum
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.utils.functional import cached_property
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display

from identity_platform.console.access import staff_or_none
from identity_platform.console.lists import AnyPaginator, BoundedPaginator, ChosenTenantModelAdmin
from identity_platform.console.registry import pages
from identity_platform.console.scope import tenant_at
from registry.models import STATUSES, Service, ServiceCount


def asked_type(value: str | None) -> str | None:
    """The type that is asked for; what no type can be (PostgreSQL takes no NUL) asks for nothing."""
    return value if value and value.isprintable() else None


class OfType(SimpleListFilter):
    """Services of one type; the types are those that the tenant's services have."""

    title = _("type")
    parameter_name = "type"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        counted = ServiceCount.objects.filter(tenant_id=tenant_at(request).pk).exclude(type="")
        return [(name, name) for name in counted.values_list("type", flat=True).distinct().order_by("type")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Service]) -> QuerySet[Service]:
        return queryset.filter(type=value) if (value := asked_type(self.value())) else queryset


class InStatus(SimpleListFilter):
    """Active or inactive services."""

    title = _("status")
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(status, status) for status in STATUSES]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Service]) -> QuerySet[Service]:
        return queryset.filter(status=self.value()) if self.value() in STATUSES else queryset


class CountedPaginator(BoundedPaginator):
    """Takes the total from the registry's counters, whatever the number of services."""

    def __init__(self, *args: Any, tenant_id: UUID, type: str | None, status: str | None, **options: Any) -> None:
        super().__init__(*args, **options)
        self.kinds = ServiceCount.objects.filter(tenant_id=tenant_id, type=type or "")
        if status:
            self.kinds = self.kinds.filter(status=status)

    @cached_property
    def count(self) -> int:
        """How many services the filters mean."""
        return self.kinds.aggregate(total=Sum("services"))["total"] or 0


class ServiceAdmin(ChosenTenantModelAdmin):
    """Services of the chosen tenant."""

    view_permission = "services:read"
    list_title = _("Services")
    empty_title = _("No services yet")
    empty_text = _("Register the outside services that this tenant's applications call, then bind credentials to them.")
    list_display = ("name", "type", "shown_status", "address", "updated_at")
    list_filter = (OfType, InStatus)
    search_fields = ("name",)
    search_help_text = _("Part of a name")
    sortable_by = ("name",)
    ordering = ("-created_at", "-id")

    @display(description=_("Status"), label={"active": "success", "inactive": "info"})  # type: ignore[untyped-decorator]  # unfold has no types
    def shown_status(self, service: Service) -> str:
        return service.status

    @display(description=_("Base URL"))  # type: ignore[untyped-decorator]  # unfold has no types
    def address(self, service: Service) -> str:
        return service.base_url

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        staff = staff_or_none(request)
        return staff is not None and staff.may("services:write")

    def get_paginator(
        self,
        request: HttpRequest,
        queryset: QuerySet[Service],
        per_page: int,
        orphans: int = 0,
        allow_empty_first_page: bool = True,
    ) -> AnyPaginator:
        if request.GET.get("q"):
            return BoundedPaginator(queryset, per_page, orphans, allow_empty_first_page)
        return CountedPaginator(
            queryset,
            per_page,
            orphans,
            allow_empty_first_page,
            tenant_id=tenant_at(request).pk,
            type=asked_type(request.GET.get("type")),
            status=status if (status := request.GET.get("status")) in STATUSES else None,
        )

    def get_urls(self) -> list[URLPattern]:
        def page(route: str, view: Any, name: str) -> URLPattern:
            url: URLPattern = path(f"<uuid:service_id>/{route}", self.admin_site.admin_view(view), name=name)
            return url

        one = "credentials/<uuid:credential_id>"
        return [
            page("edit/", pages.edit, "service_edit"),
            page("credentials/add/", pages.add_credential, "credential_add"),
            page(f"{one}/rotate/", pages.rotate, "credential_rotate"),
            page(f"{one}/revoke/", pages.revoke, "credential_revoke"),
            page(f"{one}/activate/", pages.activate, "credential_activate"),
            page(f"{one}/expiry/", pages.expiry, "credential_expiry"),
            page(f"{one}/delete/", pages.delete_credential, "credential_delete"),
            page(f"{one}/reveal/", pages.reveal, "credential_reveal"),
            *super().get_urls(),
        ]

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        return pages.create(request)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        return pages.show(request, object_id)

    def delete_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        return pages.delete(request, object_id)
