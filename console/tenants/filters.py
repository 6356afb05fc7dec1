"""Filters of the list of tenants."""

from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from unfold.contrib.filters.admin import DropdownFilter

from console.frame.records import Text
from console.tenants.labels import STATE_NAMES
from tenants.models import DatabaseServer, Tenant
from tenants.schema import schema_version
from tenants.states import State


class StateFilter(DropdownFilter):  # type: ignore[misc]  # unfold has no types
    """By the state of the tenant's database."""

    title = _("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, Text]]:
        return [(state.value, name) for state, name in STATE_NAMES.items() if state != State.DELETED]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Tenant]) -> QuerySet[Tenant]:
        return queryset.filter(database__status=self.value()) if self.value() in dict(self.lookup_choices) else queryset


class ServerFilter(DropdownFilter):  # type: ignore[misc]  # unfold has no types
    """By database server."""

    title = _("server")
    parameter_name = "server"

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, Text]]:
        return [(name, name) for name in DatabaseServer.objects.order_by("name").values_list("name", flat=True)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Tenant]) -> QuerySet[Tenant]:
        offered = self.value() in dict(self.lookup_choices)
        return queryset.filter(database__server__name=self.value()) if offered else queryset


class SchemaFilter(DropdownFilter):  # type: ignore[misc]  # unfold has no types
    """By whether the schema is this release's."""

    title = _("schema")
    parameter_name = "schema"

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, Text]]:
        return [("current", _("current")), ("behind", _("behind"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Tenant]) -> QuerySet[Tenant]:
        match self.value():
            case "current":
                return queryset.filter(database__schema_version=schema_version())
            case "behind":
                return queryset.exclude(database__schema_version=schema_version())
        return queryset
