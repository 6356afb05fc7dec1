"""Short tables of the dashboard and of a tenant's page: each a statement or two, whatever the number of tenants."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html
from django.utils.timesince import timesince
from django.utils.timezone import now
from django.utils.translation import gettext as _

from console.metrics.models import TenantFigures
from identity_platform.audit.models import PlatformEvent
from tenants.models import Tenant
from userflow.accounts.models import AdminUser
from userflow.directory.models import FAILED, INCOMPLETE, INTERRUPTED, REFUSED, DirectoryRun
from userflow.invitations.models import AdminInvitation

SHOWN: Final = 8
# Failed runs of directories from longer ago say nothing about today.
LATELY: Final = timedelta(days=7)

Table = dict[str, Any]


def ago(moment: datetime) -> str:
    """How long ago, in one word or two."""
    if now() - moment < timedelta(minutes=1):
        return _("just now")
    return _("%(age)s ago") % {"age": timesince(moment, depth=1)}


def when(moment: datetime) -> str:
    """How long ago, with the exact time behind it."""
    exact = moment.isoformat(" ", "seconds")
    return format_html('<time datetime="{}" title="{}">{}</time>', moment.isoformat(), exact, ago(moment))


def linked(model: str, key: object, name: str) -> str:
    """The name with a link to its page, where the console has one for such a row."""
    try:
        return format_html('<a class="text-link" href="{}">{}</a>', reverse(f"admin:{model}_change", args=[key]), name)
    except NoReverseMatch:
        return name


def failing(figures: Any) -> Table:
    """Tenants whose database could not be looked at the last time."""
    found = figures.exclude(failure="").select_related("tenant").order_by("-checked_at")[:SHOWN]
    rows = [
        [
            linked("tenants_tenant", each.pk, each.tenant.slug),
            each.failure,
            ago(each.collected_at) if each.collected_at else _("never"),
        ]
        for each in found
    ]
    return {"headers": [_("Tenant"), _("Reason"), _("Last good look")], "rows": rows}


def slowest() -> Table:
    """Tenants whose database let people wait longest for its first answer."""
    found = TenantFigures.objects.select_related("tenant").order_by("-check_ms")[:SHOWN]
    rows = [
        [linked("tenants_tenant", each.pk, each.tenant.slug), f"{each.check_ms:.1f} ms", f"{each.users:,}"]
        for each in found
        if each.collected_at
    ]
    return {"headers": [_("Tenant"), _("First answer"), _("Users")], "rows": rows}


def recent_events(tenant_id: UUID | None, *, reader: UUID | None, shown: int = SHOWN) -> Table:
    """The newest events of the platform's trail, or of what in it concerns one tenant.

    `reader` is the tenant of whoever reads: who works for the platform is no tenant's business.
    """
    found = PlatformEvent.objects.order_by("-id")
    if tenant_id is not None:
        found = found.filter(tenant_id=tenant_id)
    events = list(found[:shown])
    names = _actor_names(events, reader)
    headers = [_("When"), _("What"), _("Who"), _("Outcome")]
    rows = [[when(e.at), e.action, names.get(e.actor_id) or e.actor_kind, e.outcome] for e in events]
    if tenant_id is None:
        slugs = _slugs(events)
        headers.insert(2, _("Tenant"))
        for row, event in zip(rows, events, strict=True):
            slug = slugs.get(event.tenant_id)
            row.insert(2, linked("tenants_tenant", event.tenant_id, slug) if slug else "–")
    return {"headers": headers, "rows": rows}


def _actor_names(events: Iterable[PlatformEvent], reader: UUID | None) -> dict[str, str]:
    ids = {event.actor_id for event in events if event.actor_kind in ("operator", "admin") and event.actor_id}
    if not ids:
        return {}
    found = AdminUser.objects.filter(pk__in=ids)
    if reader is not None:
        found = found.filter(tenant_id=reader)
    return {str(key): name for key, name in found.values_list("pk", "username")}


def _slugs(events: Iterable[PlatformEvent]) -> dict[UUID | None, str]:
    ids = {event.tenant_id for event in events if event.tenant_id}
    standing = Tenant.objects.filter(pk__in=ids).exclude(database__status="deleted") if ids else Tenant.objects.none()
    return dict(standing.values_list("pk", "slug"))


def pending_invitations(tenant_id: UUID | None) -> Table:
    """Invitations of admin users that wait for an answer, those that end first at the top."""
    pending = AdminInvitation.objects.filter(accepted_at=None, cancelled_at=None, expires_at__gt=now())
    if tenant_id is not None:
        pending = pending.filter(tenant_id=tenant_id)
    rows = [
        [
            each.email,
            each.tenant.slug if each.tenant else _("the platform"),
            ", ".join(each.roles),
            timesince(now(), each.expires_at, depth=1),
        ]
        for each in pending.select_related("tenant").order_by("expires_at", "pk")[:SHOWN]
    ]
    return {"headers": [_("Address"), _("For"), _("Roles"), _("Expires in")], "rows": rows}


def failed_runs(tenant_id: UUID | None) -> Table:
    """Runs of directories that did not end well lately."""
    found = DirectoryRun.objects.filter(
        state__in=(FAILED, REFUSED, INCOMPLETE, INTERRUPTED), started_at__gt=now() - LATELY
    )
    if tenant_id is not None:
        found = found.filter(tenant_id=tenant_id)
    rows = [
        [
            when(each.started_at),
            linked("tenants_tenant", each.tenant_id, each.tenant.slug),
            linked("userflow_directoryconfig", each.config_id, each.config.name),
            each.state,
            each.reason,
        ]
        for each in found.select_related("tenant", "config").order_by("-started_at")[:SHOWN]
    ]
    return {"headers": [_("When"), _("Tenant"), _("Directory"), _("How it ended"), _("Reason")], "rows": rows}
