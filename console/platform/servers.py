"""Database servers: their capacity, open connections, and whether they accept tenants."""

from typing import TYPE_CHECKING, TypedDict

import psycopg
from django.db.models import Count, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from console.frame.access import Context, needs, staff_at
from console.frame.confirm import RowView
from console.frame.labels import state as state_label
from console.frame.records import Button, Cell, Table, Tone, mono, record_page
from console.platform.forms import ServerForm
from identity_platform.api.views import Arguments
from tenants.database_servers import queries, servers
from tenants.lifecycle.capacity import change_database_server
from tenants.models import DatabaseServer, TenantDatabase, WarmDatabase
from tenants.states import State

# The page queries the connections of at most this many servers.
ASKED_AT_MOST = 10
_NEARLY_FULL = 0.9


def connections_of(server: DatabaseServer) -> queries.ConnectionCounts | None:
    """Return the open connections and their limit, from the server itself, past any pooler.

    None means that it did not respond within seconds.
    """
    try:
        with servers.maintenance(server) as raw:
            return queries.connection_counts(raw)
    except psycopg.Error:
        return None


class Counts(TypedDict):
    """The annotations of a server: its tenants, and its warm databases."""

    tenant_databases: int
    spare: int


if TYPE_CHECKING:
    from django_stubs_ext import WithAnnotations

    CountedServer = WithAnnotations[DatabaseServer, Counts]


def _counted_servers() -> "QuerySet[CountedServer]":
    # Two subqueries: a join would multiply tenants by warm databases.
    tenant_databases = _counted(TenantDatabase.objects.exclude(status=State.DELETED))
    spare = _counted(WarmDatabase.objects.filter(ready=True))
    return DatabaseServer.objects.defer("url_sealed", "admin_url_sealed").annotate(
        tenant_databases=tenant_databases, spare=spare
    )


def _counted(rows: QuerySet[TenantDatabase] | QuerySet[WarmDatabase]) -> Coalesce:
    of_server = rows.filter(server=OuterRef("pk")).order_by().values("server").annotate(number=Count("pk"))
    return Coalesce(Subquery(of_server.values("number")), 0)


def _room(server: "CountedServer") -> Cell:
    share = server.tenant_databases / server.capacity if server.capacity else 1
    text = _("%(held)d of %(capacity)d") % {"held": server.tenant_databases, "capacity": server.capacity}
    return Cell(text, tone=Tone.BAD if share >= 1 else Tone.WARNING if share >= _NEARLY_FULL else Tone.GOOD)


def _use(connections: tuple[int, int] | None) -> Cell:
    if connections is None:
        return Cell(_("does not respond"), tone=Tone.BAD)
    used, most = connections
    text = _("%(used)d of %(most)d") % {"used": used, "most": most}
    return Cell(text, tone=Tone.WARNING if used >= most * _NEARLY_FULL else Tone.GOOD)


@needs("tenants:read", operators_only=True)
def listed(request: HttpRequest) -> HttpResponse:
    rows = list(_counted_servers().order_by("name"))
    table = Table(
        title=_("Servers"),
        headers=(
            _("Name"),
            _("Region"),
            _("Host"),
            _("Tenants"),
            _("Warm databases"),
            _("Connections"),
            _("Accepts new tenants"),
        ),
        rows=[
            (
                Cell(row.name, link=reverse("admin:server", args=[row.pk])),
                row.region,
                mono(row.host),
                _room(row),
                row.spare,
                _use(connections_of(row)) if position < ASKED_AT_MOST else None,
                row.accepts_tenants,
            )
            for position, row in enumerate(rows)
        ],
        empty=_("No servers yet. Add one with the command add_database_server."),
    )
    text = _("New tenants go to the accepting server with the most free capacity.")
    return record_page(request, _("Database servers"), text=text, tables=[table])


def _server(server_id: int) -> "CountedServer":
    return get_object_or_404(_counted_servers(), pk=server_id)


@needs("tenants:read", operators_only=True)
def show(request: HttpRequest, server_id: int) -> HttpResponse:
    """One server with its tenants by state."""
    server = _server(server_id)
    states = server.databases.values_list("status").annotate(number=Count("pk")).order_by("status")
    edit = Button(_("Edit"), reverse("admin:server_change", args=[server.pk]), "primary")
    facts = (
        (_("Region"), server.region),
        (_("Labels"), ", ".join(server.labels)),
        (_("Host"), mono(server.host)),
        (_("Tenants"), _room(server)),
        (_("Warm databases"), server.spare),
        (_("Connections"), _use(connections_of(server))),
        (_("Accepts new tenants"), server.accepts_tenants),
        (_("Added"), server.created_at),
    )
    table = Table(
        title=_("Databases by state"),
        headers=(_("State"), _("Databases")),
        rows=[(state_label(status), number) for status, number in states],
        empty=_("No tenant is on this server yet."),
    )
    buttons = [edit] if staff_at(request).may("tenants:write") else []
    back = reverse("admin:servers")
    return record_page(request, server.name, facts=facts, tables=[table], buttons=buttons, back=back)


class ChangeServer(RowView[DatabaseServer]):
    permissions = ("tenants:write",)
    operators_only = True
    page = "admin:server"
    title = _("Edit %(name)s")
    text = _("Tenants that are on the server stay there.")
    submit = _("Save")
    dangerous = False
    form_class = ServerForm
    checks_locked_row = True
    call = staticmethod(change_database_server)
    done = _("The server is saved.")

    def find(self) -> DatabaseServer:
        return _server(self.kwargs["server_id"])

    def get_initial(self) -> Context:
        return {
            "capacity": self.row.capacity,
            "accepts": self.row.accepts_tenants,
            "region": self.row.region,
            "labels": ", ".join(self.row.labels),
        }

    def arguments(self) -> Arguments:
        return {"name": self.row.name}
