"""Database servers: their capacity, open connections, and whether they accept tenants."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

import psycopg
from django.db.models import Count, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.forms import Form
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from console.frame.access import Context, needs, staff_at
from console.frame.confirm import RowView
from console.frame.records import (
    BAD,
    GOOD,
    MIND,
    NOTHING,
    Button,
    Cell,
    Record,
    Table,
    Text,
    moment,
    record_page,
    yes_or_no,
)
from console.platform.forms import ServerForm
from console.tenants.labels import state_label
from tenants import servers
from tenants.capacity import change_database_server
from tenants.models import DatabaseServer, TenantDatabase, WarmDatabase
from tenants.states import State

# The page queries the connections of at most this many servers.
ASKED_AT_MOST = 10
_NEARLY_FULL = 0.9


@dataclass(frozen=True, slots=True)
class Connections:
    """Open connections of a server, and its limit."""

    used: int
    most: int


def connections_of(server: DatabaseServer) -> Connections | None:
    """Ask the server itself, past any pooler; return None if it does not respond within seconds."""
    try:
        with servers.maintenance(server) as raw:
            row = raw.execute(
                "SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),"
                " current_setting('max_connections')::int"
            ).fetchone()
    except psycopg.Error:
        return None
    assert row is not None
    return Connections(*row)


class Counts(TypedDict):
    """The annotations of a server: its tenants, and its warm databases."""

    held: int
    spare: int


if TYPE_CHECKING:
    from django_stubs_ext import WithAnnotations

    CountedServer = WithAnnotations[DatabaseServer, Counts]


def _found() -> "QuerySet[CountedServer]":
    # Two subqueries: a join would multiply tenants by warm databases.
    held = _counted(TenantDatabase.objects.exclude(status=State.DELETED))
    spare = _counted(WarmDatabase.objects.filter(ready=True))
    return DatabaseServer.objects.defer("url_sealed", "admin_url_sealed").annotate(held=held, spare=spare)


def _counted(rows: QuerySet[TenantDatabase] | QuerySet[WarmDatabase]) -> Coalesce:
    of_server = rows.filter(server=OuterRef("pk")).order_by().values("server").annotate(number=Count("pk"))
    return Coalesce(Subquery(of_server.values("number")), 0)


def _room(server: "CountedServer") -> Cell:
    share = server.held / server.capacity if server.capacity else 1
    text = _("%(held)d of %(capacity)d") % {"held": server.held, "capacity": server.capacity}
    return Cell(text, tone=BAD if share >= 1 else MIND if share >= _NEARLY_FULL else GOOD)


def _use(connections: Connections | None) -> Cell:
    if connections is None:
        return Cell(_("does not respond"), tone=BAD)
    text = _("%(used)d of %(most)d") % {"used": connections.used, "most": connections.most}
    return Cell(text, tone=MIND if connections.used >= connections.most * _NEARLY_FULL else GOOD)


@needs("tenants:read", operators_only=True)
def listed(request: HttpRequest) -> HttpResponse:
    """All servers."""
    rows = list(_found().order_by("name"))
    return record_page(
        request,
        Record(
            title=_("Database servers"),
            text=_("New tenants go to the accepting server with the most room."),
            tables=[
                Table(
                    title=_("Servers"),
                    headers=(
                        _("Name"),
                        _("Host"),
                        _("Tenants"),
                        _("Warm databases"),
                        _("Connections"),
                        _("Accepts new tenants"),
                    ),
                    rows=[
                        (
                            Cell(row.name, link=reverse("admin:server", args=[row.pk])),
                            Cell(row.host, mono=True),
                            _room(row),
                            Cell(row.spare),
                            _use(connections_of(row)) if place < ASKED_AT_MOST else Cell(NOTHING),
                            yes_or_no(row.accepts_tenants),
                        )
                        for place, row in enumerate(rows)
                    ],
                    empty=_("No servers yet. Add one with the command add_database_server."),
                )
            ],
        ),
    )


def _server(server_id: int) -> "CountedServer":
    found = _found().filter(pk=server_id).first()
    if found is None:
        raise Http404
    return found


@needs("tenants:read", operators_only=True)
def show(request: HttpRequest, server_id: int) -> HttpResponse:
    """One server with its tenants by state."""
    server = _server(server_id)
    states = server.databases.values_list("status").annotate(number=Count("pk")).order_by("status")
    edit = Button(_("Edit"), reverse("admin:server_change", args=[server.pk]), "primary")
    return record_page(
        request,
        Record(
            title=server.name,
            facts=(
                (_("Host"), Cell(server.host, mono=True)),
                (_("Tenants"), _room(server)),
                (_("Warm databases"), Cell(server.spare)),
                (_("Connections"), _use(connections_of(server))),
                (_("Accepts new tenants"), yes_or_no(server.accepts_tenants)),
                (_("Added"), Cell(moment(server.created_at))),
            ),
            tables=[
                Table(
                    title=_("Databases by state"),
                    headers=(_("State"), _("Databases")),
                    rows=[(Cell(state_label(status)), Cell(number)) for status, number in states],
                    empty=_("No tenant is on this server yet."),
                )
            ],
            buttons=[edit] if staff_at(request).may("tenants:write") else (),
            back=reverse("admin:servers"),
        ),
    )


class ChangeServer(RowView[DatabaseServer]):
    """Change how many tenants a server takes, and whether it takes new ones."""

    permissions = ("tenants:write",)
    operators_only = True
    page = "admin:server"
    title = _("Edit %(name)s")
    text = _("Tenants that are on the server stay there.")
    submit = _("Save")
    dangerous = False
    form_class = ServerForm

    def find(self) -> DatabaseServer:
        return _server(self.kwargs["server_id"])

    def get_initial(self) -> Context:
        return {"capacity": self.row.capacity, "accepts": self.row.accepts_tenants}

    def act(self, form: Form) -> Text:
        change_database_server(name=self.row.name, **form.cleaned_data)
        return _("The server is saved.")
