"""Short tables of the dashboard and of a tenant's page, each in one or two statements."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.db.models import QuerySet
from django.urls import reverse
from django.utils.html import format_html
from django.utils.timesince import timesince
from django.utils.timezone import now
from django.utils.translation import gettext as _

from console.audit_logs.action_labels import label_of
from console.frame.access import Context, Staff
from console.frame.records import with_encoded_form
from console.metrics.models import TenantFigures
from identity_platform.audit.models import PlatformEvent
from tenants.models import Tenant
from userflow.accounts.models import AdminUser
from userflow.accounts.principals import ADMIN, OPERATOR
from userflow.audit.actions import visible_event
from userflow.directory.models import FAILED, INCOMPLETE, INTERRUPTED, REFUSED, DirectoryRun
from userflow.errors import UnknownUser
from userflow.ids import id_or
from userflow.invitations.models import AdminInvitation

SHOWN: Final = 8
# Older failed runs are not shown.
LATELY: Final = timedelta(days=7)

Table = Context


def ago(moment: datetime) -> str:
    """Return how long ago the time was."""
    if now() - moment < timedelta(minutes=1):
        return _("just now")
    return _("%(age)s ago") % {"age": timesince(moment, depth=1)}


def when(moment: datetime) -> str:
    """Return how long ago the time was, with the exact time as a tooltip."""
    exact = moment.isoformat(" ", "seconds")
    return format_html('<time datetime="{}" title="{}">{}</time>', moment.isoformat(), exact, ago(moment))


def linked(model: str, key: object, name: str) -> str:
    """Return the name, linked to its page."""
    return format_html('<a class="text-link" href="{}">{}</a>', reverse(f"admin:{model}_change", args=[key]), name)


def failing(figures: QuerySet[TenantFigures]) -> Table:
    """Return the tenants whose last collection failed."""
    failing_figures = figures.exclude(failure="").select_related("tenant").order_by("-checked_at")[:SHOWN]
    rows = [
        [
            linked("tenants_tenant", tenant_figures.pk, tenant_figures.tenant.slug),
            tenant_figures.failure,
            ago(tenant_figures.collected_at) if tenant_figures.collected_at else _("never"),
        ]
        for tenant_figures in failing_figures
    ]
    return {"headers": [_("Tenant"), _("Reason"), _("Last success")], "rows": rows}


def slowest() -> Table:
    """Return the tenants with the slowest databases."""
    slowest_figures = TenantFigures.objects.select_related("tenant").order_by("-check_ms")[:SHOWN]
    rows = [
        [
            linked("tenants_tenant", tenant_figures.pk, tenant_figures.tenant.slug),
            f"{tenant_figures.check_ms:.1f} ms",
            f"{tenant_figures.users:,}",
        ]
        for tenant_figures in slowest_figures
        if tenant_figures.collected_at
    ]
    return {"headers": [_("Tenant"), _("Response time"), _("Users")], "rows": rows}


def recent_events(tenant_id: UUID | None, *, reader: UUID | None, shown: int = SHOWN) -> Table:
    """Return the newest events of the platform's trail, or those about one tenant.

    `reader` is the tenant of the reader, None for an operator: tenant admins do not see the names of operators.
    """
    platform_events = PlatformEvent.objects.order_by("-id")
    if tenant_id is not None:
        platform_events = platform_events.filter(tenant_id=tenant_id)
    events = list(platform_events[:shown])
    names = _actor_names(events, reader)
    headers = [_("Time"), _("Action"), _("Actor"), _("Outcome")]
    rows = [
        [when(event.at), label_of(event.action), names.get(event.actor_id) or event.actor_kind, event.outcome]
        for event in events
    ]
    if tenant_id is None:
        slugs = _slugs(events)
        headers.insert(2, _("Tenant"))
        for row, event in zip(rows, events, strict=True):
            slug = slugs.get(event.tenant_id)
            row.insert(2, linked("tenants_tenant", event.tenant_id, slug) if slug else "–")
    return {"headers": headers, "rows": rows}


def _actor_names(events: Iterable[PlatformEvent], reader: UUID | None) -> dict[str, str]:
    return admin_names({event.actor_id for event in events if event.actor_kind in (ADMIN, OPERATOR)}, reader=reader)


def admin_names(ids: Collection[UUID | str], *, reader: UUID | None) -> dict[str, str]:
    """Return the names of admin users by id, in one statement. `reader` is the tenant of the reader, None for an operator.

    Tenant admins do not see the names of operators.
    """
    admins = AdminUser.objects.filter(pk__in=ids) if ids else AdminUser.objects.none()
    if reader is not None:
        admins = admins.filter(tenant_id=reader)
    return {str(key): name for key, name in admins.values_list("pk", "username")}


def with_actors(rows: Sequence[Mapping[str, object]], staff: Staff) -> list[Context]:
    """Return the events with the names of admin users as actors, as far as the reader may see them, in one statement."""
    admin_ids = {str(row["actor_id"]) for row in rows if row["actor_kind"] in (ADMIN, OPERATOR)}
    names = admin_names({id_or(key, UnknownUser) for key in admin_ids}, reader=staff.user.tenant_id)
    shown = [{**row, "actor": names.get(str(row["actor_id"]), "")} for row in rows]
    return [without_operator(row, staff) for row in shown]


def without_operator(event: Context, staff: Staff) -> Context:
    """Return the event without an operator's id and IP address if the reader is an admin of a tenant."""
    return visible_event(event, to_operator=staff.is_operator)


def _slugs(events: Iterable[PlatformEvent]) -> dict[UUID | None, str]:
    ids = {event.tenant_id for event in events if event.tenant_id}
    tenants = Tenant.objects.filter(pk__in=ids).exclude(database__status="deleted") if ids else Tenant.objects.none()
    return dict(tenants.values_list("pk", "slug"))


def pending_invitations(tenant_id: UUID | None) -> Table:
    """Return the pending invitations of admin users, the next to expire first."""
    pending = AdminInvitation.objects.filter(accepted_at=None, cancelled_at=None, expires_at__gt=now())
    if tenant_id is not None:
        pending = pending.filter(tenant_id=tenant_id)
    rows = [
        [
            with_encoded_form(each.email),
            each.tenant.slug if each.tenant else _("the platform"),
            ", ".join(each.roles),
            timesince(now(), each.expires_at, depth=1),
        ]
        for each in pending.select_related("tenant").order_by("expires_at", "pk")[:SHOWN]
    ]
    return {"headers": [_("E-mail"), _("For"), _("Roles"), _("Expires in")], "rows": rows}


def failed_runs(tenant_id: UUID | None) -> Table:
    """Return the recent failed runs of directories."""
    runs = DirectoryRun.objects.filter(
        state__in=(FAILED, REFUSED, INCOMPLETE, INTERRUPTED), started_at__gt=now() - LATELY
    )
    if tenant_id is not None:
        runs = runs.filter(tenant_id=tenant_id)
    rows = [
        [
            when(run.started_at),
            linked("tenants_tenant", run.tenant_id, run.tenant.slug),
            run.config.name,
            run.state,
            run.reason,
        ]
        for run in runs.select_related("tenant", "config").order_by("-started_at")[:SHOWN]
    ]
    return {"headers": [_("Started"), _("Tenant"), _("Directory"), _("State"), _("Reason")], "rows": rows}
