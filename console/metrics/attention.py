"""What needs attention: a list of checks, each with a title, a count and the page that lists what it has found.

Checks query the global database only, mostly one partial index each, so their cost depends on the number of problems and
not on the number of tenants. What only a tenant's database knows comes from the last collection of its metrics.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Final, TypeVar
from uuid import UUID

from django.conf import settings
from django.db.models import Exists, Model, OuterRef, Q, QuerySet, Sum
from django.urls import reverse
from django.utils.timezone import now
from django.utils.translation import gettext_lazy as _

from console.frame.access import Staff
from console.frame.records import Text
from console.jobs.models import Job
from console.metrics.models import TenantFigures
from identity_platform.audit.models import PlatformEvent
from registry.models import ACTIVE, ServiceCredential
from tenants.entering.schema import schema_version
from tenants.models import DatabaseServer, DomainClaim, TenantDatabase, WarmDatabase
from tenants.states import State
from userflow.directory.models import DirectoryConfig
from userflow.sessions.models import SigningKey

# Counts stop here: the exact number of very many problems says nothing more.
COUNTED_AT_MOST: Final = 1000
# Credentials that expire within these days, or have expired as many days ago.
SOON: Final = timedelta(days=14)
# The keys are rotated every 90 days (docs/running-in-production.md).
OLD_KEY: Final = timedelta(days=100)
# Backups are made once a day; the last one may have taken longer.
OLD_BACKUP: Final = timedelta(hours=26)
# Shares of a server's capacity for tenants and of its connections.
FULL: Final = 0.9

Row = TypeVar("Row", bound=Model)


class Scope:
    """Whose problems are counted: those of one tenant, or for None those of the platform and of all tenants.

    What several checks need is read once.
    """

    def __init__(self, tenant_id: UUID | None) -> None:
        self.tenant_id = tenant_id

    def count(self, rows: "QuerySet[Row]") -> int:
        """Return how many of these rows, which have a `tenant_id`, there are in the scope, at most COUNTED_AT_MOST."""
        return _bounded(rows if self.tenant_id is None else rows.filter(tenant_id=self.tenant_id))

    @cached_property
    def figures(self) -> dict[str, int]:
        """Return the sums of the tenants that the last collection has marked."""
        marked = TenantFigures.objects.filter(needs_attention=True)
        if self.tenant_id is not None:
            marked = marked.filter(pk=self.tenant_id)
        sums = marked.aggregate(
            failing_endpoints=Sum("failing_endpoints", default=0),
            overdue_endpoints=Sum("overdue_endpoints", default=0),
            rejected_sign_ins=Sum("rejected_sign_ins", default=0),
        )
        return {name: int(number) for name, number in sums.items()}

    @cached_property
    def servers(self) -> list[DatabaseServer]:
        spare = WarmDatabase.objects.filter(server=OuterRef("pk"), ready=True, schema_version=schema_version())
        rows = DatabaseServer.objects.select_related("health").defer("url_sealed", "admin_url_sealed")
        return list(rows.annotate(has_spare=Exists(spare)))

    @cached_property
    def backup(self) -> PlatformEvent | None:
        """The last backup of all tenants, None if the platform knows of none."""
        return PlatformEvent.objects.filter(action="backup.written", details__whole=True).first()


# --- what is counted -------------------------------------------------------------------------------------------------


def _bounded(rows: "QuerySet[Row]") -> int:
    return rows.order_by()[:COUNTED_AT_MOST].count()


def failing_directories() -> QuerySet[DirectoryConfig]:
    """Return the enabled directories whose last run has not succeeded."""
    return DirectoryConfig.objects.filter(enabled=True, failing_since__isnull=False)


def expiring_credentials() -> QuerySet[ServiceCredential]:
    """Return the active credentials of services that expire soon or have expired lately."""
    moment = now()
    return ServiceCredential.objects.filter(status=ACTIVE, expires_at__gt=moment - SOON, expires_at__lt=moment + SOON)


def _lost_domains() -> QuerySet[DomainClaim]:
    return DomainClaim.objects.filter(lost_since__isnull=False)


def _outdated_tenants(scope: Scope) -> int:
    # Two ranges of an index: an unequal value would be searched for in all rows.
    version = schema_version()
    outdated = TenantDatabase.objects.filter(Q(schema_version__lt=version) | Q(schema_version__gt=version))
    return _bounded(outdated.exclude(status__in=(State.PROVISIONING, State.DELETING, State.DELETED)))


def _silent_servers(scope: Scope) -> int:
    return sum(1 for server in scope.servers if _has_health(server) and not server.health.responds)


def _is_full(server: DatabaseServer) -> bool:
    if not _has_health(server):
        return False
    health = server.health
    shares = (health.tenants, server.capacity), (health.connections, health.max_connections)
    return any(used is not None and most and used >= FULL * most for used, most in shares)


def _has_health(server: DatabaseServer) -> bool:
    return getattr(server, "health", None) is not None


def _servers_without_spares(scope: Scope) -> int:
    if not settings.TENANT_WARM_POOL:
        return 0
    return sum(1 for server in scope.servers if server.accepts_tenants and not getattr(server, "has_spare", False))


def _old_signing_keys(scope: Scope) -> int:
    return SigningKey.objects.filter(verifies_until=None, signs_from__lt=now() - OLD_KEY).count()


def _days_without_backup(scope: Scope) -> int:
    if scope.backup is None or now() - scope.backup.at < OLD_BACKUP:
        return 0
    return (now() - scope.backup.at).days


def _tenants_without_backup(scope: Scope) -> int:
    failed = scope.backup.details.get("failed", 0) if scope.backup else 0
    return failed if isinstance(failed, int) else 0


def _tenants_having(rows: "QuerySet[Row]") -> Q:
    """Return the condition of tenants with some of these rows."""
    return Q(Exists(rows.filter(tenant_id=OuterRef("pk"))))


# --- the checks ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A kind of problem.

    `platform` is the page that lists it for operators, who also need tenants:read, and `tenant_page` the one for admins of a
    tenant; empty if they do not see it. Both are names of pages, with a query.
    """

    title: Text
    count: Callable[[Scope], int]
    permission: str = "tenants:read"
    platform: str
    tenant_page: str = ""
    # The condition of the tenants with the problem, for the filter of the list of tenants.
    tenants: Callable[[], Q] | None = None

    def link_for(self, staff: Staff) -> str:
        """Return the path of the page, or an empty string if the user may not see the problem."""
        target, needed = (self.platform, "tenants:read") if staff.is_operator else (self.tenant_page, self.permission)
        if not target or not staff.may(needed) or not staff.may(self.permission):
            return ""
        name, _mark, query = target.partition("?")
        return f"{reverse(f'admin:{name}')}{_mark}{query}"


_TENANTS: Final = "tenants_tenant_changelist"
# The name of a check with `tenants` is its value in the filter `attention` of the list of tenants.
CHECKS: Final[dict[str, Check]] = {
    "silent_servers": Check(title=_("Database servers that do not respond"), count=_silent_servers, platform="servers"),
    "failed": Check(
        title=_("Tenants whose last operation failed"),
        count=lambda scope: _bounded(TenantDatabase.objects.filter(status=State.FAILED)),
        platform=f"{_TENANTS}?state=failed",
    ),
    "unreadable": Check(
        title=_("Tenants whose database could not be read"),
        count=lambda scope: _bounded(TenantFigures.objects.exclude(failure="")),
        platform=f"{_TENANTS}?attention=unreadable",
        tenants=lambda: Q(figures__isnull=False) & ~Q(figures__failure=""),
    ),
    "outdated": Check(
        title=_("Tenants with an outdated schema"), count=_outdated_tenants, platform=f"{_TENANTS}?schema=behind"
    ),
    "jobs": Check(
        title=_("Jobs that failed in the last seven days or were interrupted"),
        count=lambda scope: _bounded(Job.objects.filter(Job.unsuccessful(now()))),
        platform="console_job_changelist?state=unsuccessful",
    ),
    "sign_ins": Check(
        title=_("Rejected sign-ins since yesterday, unusually many"),
        count=lambda scope: scope.figures["rejected_sign_ins"],
        permission="audit:read",
        platform=f"{_TENANTS}?attention=sign_ins",
        tenant_page="tenant_trail?action=signin.refused",
        tenants=lambda: Q(figures__needs_attention=True, figures__rejected_sign_ins__gt=0),
    ),
    "webhooks": Check(
        title=_("Webhook endpoints that fail or were disabled because they failed"),
        count=lambda scope: scope.figures["failing_endpoints"],
        permission="webhooks:read",
        platform=f"{_TENANTS}?attention=webhooks",
        tenant_page="webhooks",
        tenants=lambda: Q(figures__needs_attention=True, figures__failing_endpoints__gt=0),
    ),
    "late_webhooks": Check(
        title=_("Webhook endpoints whose next message is overdue"),
        count=lambda scope: scope.figures["overdue_endpoints"],
        permission="webhooks:read",
        platform=f"{_TENANTS}?attention=late_webhooks",
        tenants=lambda: Q(figures__needs_attention=True, figures__overdue_endpoints__gt=0),
    ),
    "directories": Check(
        title=_("Directories whose last synchronization failed"),
        count=lambda scope: scope.count(failing_directories()),
        permission="directory:read",
        platform=f"{_TENANTS}?attention=directories",
        tenant_page="directories",
        tenants=lambda: _tenants_having(failing_directories()),
    ),
    "credentials": Check(
        title=_("Credentials of services that expire within 14 days or have just expired"),
        count=lambda scope: scope.count(expiring_credentials()),
        permission="services:read",
        platform=f"{_TENANTS}?attention=credentials",
        tenant_page="registry_service_changelist?credentials=expiring",
        tenants=lambda: _tenants_having(expiring_credentials()),
    ),
    "domains": Check(
        title=_("Domains whose DNS record is lost"),
        count=lambda scope: scope.count(_lost_domains()),
        permission="domains:read",
        platform=f"{_TENANTS}?attention=domains",
        tenant_page="domains",
        tenants=lambda: _tenants_having(_lost_domains()),
    ),
    "full_servers": Check(
        title=_("Database servers that are nearly full"),
        count=lambda scope: sum(map(_is_full, scope.servers)),
        platform="servers",
    ),
    "spares": Check(
        title=_("Database servers without a warm database"), count=_servers_without_spares, platform="servers"
    ),
    "keys": Check(
        title=_("Signing keys of the platform that are overdue for rotation"),
        count=_old_signing_keys,
        platform="signing_keys",
    ),
    "backup": Check(
        title=_("Days since the last backup of all tenants"),
        count=_days_without_backup,
        permission="audit:read",
        platform="audit_trail?action=backup.written",
    ),
    "left_out": Check(
        title=_("Tenants that the last backup could not include"),
        count=_tenants_without_backup,
        permission="audit:read",
        platform="audit_trail?action=backup.written",
    ),
}


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem that exists."""

    title: Text
    count: int
    link: str

    @property
    def shown_count(self) -> str:
        """Return the count, with a plus if there may be more."""
        return f"{self.count:,}+" if self.count == COUNTED_AT_MOST else f"{self.count:,}"


def lines(staff: Staff) -> list[Problem] | None:
    """Return the problems that the user may see, None if the user may see no kind of problem."""
    scope = Scope(staff.user.tenant_id)
    linked = [(check, link) for check in CHECKS.values() if (link := check.link_for(staff))]
    problems = [Problem(check.title, count, link) for check, link in linked if (count := check.count(scope))]
    return problems if linked else None
