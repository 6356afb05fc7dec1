"""The context of the dashboard: a fixed number of statements in the global database."""

from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.db.models import Count, Max, Q, QuerySet, Sum
from django.http import HttpRequest
from django.urls import reverse
from django.utils.timezone import now
from django.utils.translation import gettext as _

from console.frame.access import Context, staff_at
from console.frame.labels import state as state_label
from console.metrics import attention, plots, queries, tables
from console.metrics.models import PlatformDay, TenantDay, TenantFigures
from console.tenants.labels import STATE_COLOURS
from tenants.models import TenantDatabase
from tenants.states import State

# Older metrics are marked as stale: the worker collects every five minutes.
STALE: Final = timedelta(minutes=30)


def context(request: HttpRequest, context: Context) -> Context:
    """Add the dashboard to the context of the page (unfold's DASHBOARD_CALLBACK).

    It shows the platform to operators, and to tenant admins their tenant.
    """
    staff = staff_at(request)
    tenant_id = staff.user.tenant_id
    sees_metrics = staff.may("tenants:read" if staff.is_operator else "endusers:read")
    context |= {"title": _("Dashboard"), "is_operator": staff.is_operator, "sees_metrics": sees_metrics}
    context["attention"] = attention.lines(staff)
    if sees_metrics:
        context |= _metrics(tenant_id)
    if staff.may("services:read"):
        context["registry_plot"] = _registry(tenant_id)
    if staff.may("audit:read"):
        context["events"] = tables.recent_events(tenant_id, reader=tenant_id)
    if staff.may("invitations:read"):
        context["invitations"] = tables.pending_invitations(tenant_id)
    if staff.may("directory:read"):
        context["failed_runs"] = tables.failed_runs(tenant_id)
    return context


def _metrics(tenant_id: UUID | None) -> Context:
    """Return the metrics of a tenant, or of all for None."""
    mine = TenantFigures.objects.all() if tenant_id is None else TenantFigures.objects.filter(pk=tenant_id)
    sums = mine.aggregate(
        users=Sum("users"),
        active=Sum("active_users"),
        protected=Sum("protected_users"),
        newest=Max("collected_at"),
        failing=Count("pk", filter=~Q(failure="")),
    )
    shown: Context = {
        "sums": {name: sums[name] or 0 for name in ("users", "active", "protected", "failing")},
        "freshness": _freshness(sums["newest"]),
        "sign_in_plot": _sign_ins(tenant_id),
        "adoption": _adoption(tenant_id, sums["active"] or 0, sums["protected"] or 0),
    }
    if tenant_id is None:
        shown["states"] = _states()
        shown["failing"] = tables.failing(mine)
        shown["slowest"] = tables.slowest()
    else:
        shown["own"] = TenantDatabase.objects.select_related("tenant").get(pk=tenant_id)
    return shown


def _states() -> list[Context]:
    counted = dict(TenantDatabase.objects.values_list("status").annotate(Count("pk")).order_by())
    tenants = reverse("admin:tenants_tenant_changelist")
    return [
        {
            "name": state_label(state),
            "count": counted[state],
            "href": f"{tenants}?state={state}",
            "colour": STATE_COLOURS.get(state, ""),
        }
        for state in State
        if state in counted and state != State.DELETED
    ]


def _freshness(newest: datetime | None) -> Context:
    return {
        "collected": newest,
        "age": tables.ago(newest) if newest else "",
        "stale": newest is None or newest < now() - STALE,
    }


def _days(tenant_id: UUID | None) -> QuerySet[PlatformDay] | QuerySet[TenantDay]:
    if tenant_id is None:
        return PlatformDay.objects.filter(day__gte=plots.first_day())
    return TenantDay.objects.filter(tenant_id=tenant_id, day__gte=plots.first_day())


def _sign_ins(tenant_id: UUID | None) -> plots.Plot:
    counts_by_day = {day: (good, bad) for day, good, bad in _days(tenant_id).values_list("day", "sign_ins", "failures")}
    return plots.by_day(_("Sign-ins of end users"), counts_by_day, good=_("Signed in"), bad=_("Rejected"))


def _registry(tenant_id: UUID | None) -> plots.Plot:
    columns = ["day", "registry_calls", "registry_refused"]
    operator_columns = [] if tenant_id else ["operator_calls", "operator_refused"]
    counts_by_day = {}
    for day, calls, refused, *operators in _days(tenant_id).values_list(*columns, *operator_columns):
        every, limited = calls + sum(operators[:1]), refused + sum(operators[1:])
        counts_by_day[day] = (max(0, every - limited), limited)
    return plots.by_day(_("Registry calls"), counts_by_day, good=_("Served"), bad=_("Over the limit (429)"))


def _adoption(tenant_id: UUID | None, active: int, protected: int) -> list[Context]:
    names = {
        "webauthn": _("Passkey"),
        "totp": _("Authenticator app"),
        "sms": _("SMS"),
        "backup_code": _("Backup codes"),
        "push": _("Push"),
    }
    counted = queries.factors(tenant_id)
    rows = [(_("Any factor"), protected)]
    rows += [(names.get(method, method), total) for method, total in sorted(counted.items(), key=lambda each: -each[1])]
    return [
        {"name": name, "count": total, "percent": round(100 * total / active, 1) if active else 0}
        for name, total in rows
    ]
