"""What the dashboard shows: a handful of statements on the global database, whatever the number of tenants."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db.models import Count, Max, Min, Q, Sum
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.timesince import timesince
from django.utils.timezone import now
from django.utils.translation import gettext as _

from identity_platform.audit.models import PlatformEvent
from identity_platform.console.access import Staff, staff_at
from identity_platform.console.figures import plots, queries
from identity_platform.console.figures.models import PlatformDay, TenantDay, TenantFigures
from identity_platform.console.tenants.labels import STATE_COLOURS, state_label
from tenants.models import TenantDatabase
from tenants.states import State
from userflow.admins.models import AdminUser
from userflow.invitations.models import AdminInvitation

DAYS: Final = 30
SHOWN: Final = 8
# Older figures are pointed at: the worker collects every five minutes.
STALE: Final = timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose figures: a tenant's own, or without an id the platform's."""

    staff: Staff
    tenant_id: UUID | None

    @property
    def sees_figures(self) -> bool:
        """Operators need tenants:read, a tenant's own people what lets them see the users."""
        return self.staff.may("tenants:read" if self.tenant_id is None else "endusers:read")


def context(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """The dashboard's part of the page's context (unfold's DASHBOARD_CALLBACK)."""
    staff = staff_at(request)
    scope = Scope(staff, staff.user.tenant_id)
    context["title"] = _("Dashboard")
    context["scope"] = scope
    if scope.sees_figures:
        context |= _figures(scope)
    if staff.may("services:read"):
        context["registry_plot"] = _registry(scope)
    if staff.may("audit:read"):
        context["events"] = recent_events(scope.tenant_id)
    if staff.may("invitations:read"):
        context["invitations"] = _invitations(scope)
    return context


def _figures(scope: Scope) -> dict[str, Any]:
    mine = TenantFigures.objects.all() if scope.tenant_id is None else TenantFigures.objects.filter(pk=scope.tenant_id)
    sums = mine.aggregate(
        users=Sum("users"),
        active=Sum("active_users"),
        protected=Sum("protected_users"),
        size=Sum("database_bytes"),
        oldest=Min("collected_at"),
        newest=Max("collected_at"),
        failing=Count("pk", filter=~Q(failure="")),
    )
    shown: dict[str, Any] = {
        "sums": {name: value or 0 for name, value in sums.items() if name not in ("oldest", "newest")},
        "freshness": _freshness(sums["newest"]),
        "sign_in_plot": _sign_ins(scope),
        "adoption": _adoption(scope, sums["active"] or 0, sums["protected"] or 0),
    }
    if scope.tenant_id is None:
        shown["states"] = _states()
        shown["failing"] = _table(mine.exclude(failure="").order_by("-checked_at"), failing=True)
        shown["slowest"] = _table(mine.exclude(collected_at=None).order_by("-check_ms"), failing=False)
    else:
        shown["own"] = TenantDatabase.objects.select_related("tenant").get(pk=scope.tenant_id)
    return shown


def _states() -> list[dict[str, Any]]:
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


def _freshness(newest: datetime | None) -> dict[str, Any]:
    return {
        "collected": newest,
        "age": timesince(newest) if newest else "",
        "stale": newest is None or newest < now() - STALE,
    }


def _days(scope: Scope) -> Any:
    if scope.tenant_id is None:
        return PlatformDay.objects.filter(day__gte=_first_day())
    return TenantDay.objects.filter(tenant_id=scope.tenant_id, day__gte=_first_day())


def _first_day() -> Any:
    return now().date() - timedelta(days=DAYS - 1)


def _sign_ins(scope: Scope) -> plots.Plot:
    found = {day: (good, bad) for day, good, bad in _days(scope).values_list("day", "sign_ins", "failures")}
    return plots.by_day(
        _("Sign-ins of end users"),
        first=_first_day(),
        days=DAYS,
        found=found,
        good=_("Signed in"),
        bad=_("Refused"),
    )


def _registry(scope: Scope) -> plots.Plot:
    columns = ["day", "registry_calls", "registry_refused"]
    own = [] if scope.tenant_id else ["operator_calls", "operator_refused"]
    found = {}
    for day, calls, refused, *operators in _days(scope).values_list(*columns, *own):
        every, limited = calls + sum(operators[:1]), refused + sum(operators[1:])
        found[day] = (max(0, every - limited), limited)
    return plots.by_day(
        _("Registry calls"),
        first=_first_day(),
        days=DAYS,
        found=found,
        good=_("Answered"),
        bad=_("Over the limit (429)"),
    )


def _adoption(scope: Scope, active: int, protected: int) -> list[dict[str, Any]]:
    names = {
        "webauthn": _("Passkey"),
        "totp": _("Authenticator app"),
        "sms": _("SMS"),
        "backup_code": _("Backup codes"),
        "push": _("Push"),
    }
    counted = queries.factors(scope.tenant_id)
    rows = [(_("Any factor"), protected)]
    rows += [(names.get(method, method), total) for method, total in sorted(counted.items(), key=lambda each: -each[1])]
    return [
        {"name": name, "count": total, "percent": round(100 * total / active, 1) if active else 0}
        for name, total in rows
    ]


def _table(rows: Any, *, failing: bool) -> dict[str, Any]:
    found = rows.select_related("tenant")[:SHOWN]
    if failing:
        headers = [_("Tenant"), _("Reason"), _("Since the last good look")]
        cells = [
            [
                tenant_link(each.pk, each.tenant.slug),
                each.failure,
                timesince(each.collected_at) if each.collected_at else _("never"),
            ]
            for each in found
        ]
    else:
        headers = [_("Tenant"), _("First answer"), _("Users")]
        cells = [[tenant_link(each.pk, each.tenant.slug), f"{each.check_ms:.1f} ms", each.users] for each in found]
    return {"headers": headers, "rows": cells}


def tenant_link(tenant_id: UUID, name: str) -> str:
    """A link to the page of one tenant."""
    return format_html(
        '<a class="text-link" href="{}">{}</a>', reverse("admin:tenants_tenant_change", args=[tenant_id]), name
    )


def recent_events(tenant_id: UUID | None, *, shown: int = 10) -> dict[str, Any]:
    """The newest events of the platform's trail, or of what in it concerns one tenant: two statements."""
    found = PlatformEvent.objects.order_by("-id")
    if tenant_id is not None:
        found = found.filter(tenant_id=tenant_id)
    events = list(found[:shown])
    names = actor_names(events)
    return {
        "headers": [_("When"), _("What"), _("Who"), _("Outcome")],
        "rows": [
            [
                format_html(
                    '<time datetime="{}" title="{}">{}</time>',
                    e.at.isoformat(),
                    e.at.isoformat(" ", "seconds"),
                    _("%(age)s ago") % {"age": timesince(e.at).split(",")[0]},
                ),
                e.action,
                names.get(e.actor_id) or e.actor_kind,
                e.outcome,
            ]
            for e in events
        ],
    }


def actor_names(events: Iterable[PlatformEvent]) -> dict[str, str]:
    """Usernames of the admin users among the actors, by id; one statement."""
    ids = {event.actor_id for event in events if event.actor_kind in ("operator", "admin") and event.actor_id}
    if not ids:
        return {}
    return {str(key): name for key, name in AdminUser.objects.filter(pk__in=ids).values_list("pk", "username")}


def _invitations(scope: Scope) -> dict[str, Any]:
    pending = AdminInvitation.objects.filter(accepted_at=None, cancelled_at=None, expires_at__gt=now())
    if scope.tenant_id is not None:
        pending = pending.filter(tenant_id=scope.tenant_id)
    rows = [
        [
            each.email,
            each.tenant.slug if each.tenant else _("the platform"),
            ", ".join(each.roles),
            timesince(now(), each.expires_at).split(",")[0],
        ]
        for each in pending.select_related("tenant").order_by("expires_at")[:SHOWN]
    ]
    return {"headers": [_("Address"), _("For"), _("Roles"), _("Expires in")], "rows": rows}
