"""Filters of the list of tenants."""

from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from unfold.contrib.filters.admin import DropdownFilter

from console.frame.lists import ChoiceFilter
from console.frame.records import Text
from console.tenants.labels import STATE_NAMES
from tenants.models import DatabaseServer
from tenants.schema import schema_version
from tenants.states import State


class StateFilter(ChoiceFilter, DropdownFilter):  # type: ignore[misc]  # unfold has no types
    """By the state of the tenant's database."""

    title = _("state")
    parameter_name = "state"
    column = "database__status"
    options = tuple((state.value, name) for state, name in STATE_NAMES.items() if state != State.DELETED)


class ServerFilter(ChoiceFilter, DropdownFilter):  # type: ignore[misc]  # unfold has no types
    """By database server."""

    title = _("server")
    parameter_name = "server"
    column = "database__server__name"

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, Text]]:
        return [(name, name) for name in DatabaseServer.objects.order_by("name").values_list("name", flat=True)]


class SchemaFilter(ChoiceFilter, DropdownFilter):  # type: ignore[misc]  # unfold has no types
    """By whether the schema is this release's."""

    title = _("schema")
    parameter_name = "schema"
    options = (("current", _("current")), ("behind", _("outdated")))

    def matching(self, rows: QuerySet[Model], value: str) -> QuerySet[Model]:
        current = Q(database__schema_version=schema_version())
        return rows.filter(current if value == "current" else ~current)
