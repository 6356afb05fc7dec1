"""The list of the chosen tenant's services."""

from typing import Any
from uuid import UUID

from django.contrib.admin import SimpleListFilter
from django.db.models import QuerySet, Sum
from django.http import HttpRequest
from django.utils.functional import cached_property
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display

from console.frame.labels import labelled
from console.frame.lists import AnyPaginator, BoundedPaginator, ChosenTenantModelAdmin, Pages
from console.frame.scope import tenant_at
from console.registry import credential_pages, service_pages
from registry.models import STATUSES, Service, ServiceCount

_CREDENTIAL = "credentials/<uuid:credential_id>"


def asked_type(value: str | None) -> str | None:
    """Return the requested type; None for text that no type can be (PostgreSQL rejects NUL)."""
    return value if value and value.isprintable() else None


class OfType(SimpleListFilter):
    """Services of one of the types that the tenant's services have."""

    title = _("type")
    parameter_name = "type"

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, str]]:
        counted = ServiceCount.objects.filter(tenant_id=tenant_at(request).pk).exclude(type="")
        return [(name, name) for name in counted.values_list("type", flat=True).distinct().order_by("type")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Service]) -> QuerySet[Service]:
        return queryset.filter(type=value) if (value := asked_type(self.value())) else queryset


class InStatus(SimpleListFilter):
    """Active or inactive services."""

    title = _("status")
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, str]]:
        return [(status, status) for status in STATUSES]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Service]) -> QuerySet[Service]:
        return queryset.filter(status=self.value()) if self.value() in STATUSES else queryset


class CountedPaginator(BoundedPaginator):
    """Take the total from the registry's counters instead of counting services."""

    def __init__(self, *args: Any, tenant_id: UUID, type: str | None, status: str | None, **options: Any) -> None:
        super().__init__(*args, **options)
        self.kinds = ServiceCount.objects.filter(tenant_id=tenant_id, type=type or "")
        if status:
            self.kinds = self.kinds.filter(status=status)

    @cached_property
    def count(self) -> int:
        """Return the number of services that match the filters."""
        return self.kinds.aggregate(total=Sum("services"))["total"] or 0


class ServiceAdmin(ChosenTenantModelAdmin):
    """Services of the chosen tenant."""

    view_permission = "services:read"
    list_title = _("Services")
    empty_title = _("No services yet")
    empty_text = _("Register the outside services that this tenant's applications call, then add their credentials.")
    list_display = ("name", "type", "shown_status", "address", "updated_at")
    list_filter = (OfType, InStatus)
    search_fields = ("name",)
    search_help_text = _("Part of a name")
    sortable_by = ("name",)
    ordering = ("-created_at", "-id")
    own_pages = Pages(
        show=service_pages.show,
        add=service_pages.CreateService.as_view(),
        add_needs=("services:write",),
        delete=service_pages.DeleteService.as_view(),
        key="service_id",
        of_one=(
            ("service_edit", "edit", service_pages.EditService.as_view()),
            ("credential_add", "credentials/add", credential_pages.AddCredential.as_view()),
            ("credential_rotate", f"{_CREDENTIAL}/rotate", credential_pages.Rotate.as_view()),
            ("credential_revoke", f"{_CREDENTIAL}/revoke", credential_pages.Revoke.as_view()),
            ("credential_activate", f"{_CREDENTIAL}/activate", credential_pages.Activate.as_view()),
            ("credential_expiry", f"{_CREDENTIAL}/expiry", credential_pages.Expiry.as_view()),
            ("credential_delete", f"{_CREDENTIAL}/delete", credential_pages.DeleteCredential.as_view()),
            ("credential_reveal", f"{_CREDENTIAL}/reveal", credential_pages.Reveal.as_view()),
        ),
    )

    @display(description=_("Status"), label={"active": "success", "inactive": "info"})  # type: ignore[untyped-decorator]  # unfold has no types
    def shown_status(self, service: Service) -> tuple[str, str]:
        return labelled(service.status)

    @display(description=_("Base URL"))  # type: ignore[untyped-decorator]  # unfold has no types
    def address(self, service: Service) -> str:
        return service.base_url

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
