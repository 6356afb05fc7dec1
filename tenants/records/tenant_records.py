"""The tenant itself: what its database has in `TenantRecord`, and changes of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, ClassVar, Final
from uuid import UUID

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import Exists, OuterRef, Q, QuerySet, Subquery
from django.utils.timezone import now

from tenants.errors import UnknownTenant
from tenants.models import DomainClaim, GlobalCopy, Tenant, TenantDatabase, TenantRecord, WebhookTenant
from tenants.records.projections import Projection
from tenants.states import State

# Of all claims, those on domains whose pages respond for the tenant, or redirect.
SERVED: Final = Q(sign_in=True) | Q(sign_in_ended_at__isnull=False)


class TenantProjection(Projection[Any]):
    """Tenants, with their databases, domains and whether they have webhooks."""

    copy_model: ClassVar[type[GlobalCopy]] = TenantRecord

    def rows_of(self, tenant_id: UUID) -> QuerySet[Any]:
        claims = DomainClaim.objects.filter(tenant=OuterRef("pk"))
        return (
            Tenant.objects.select_related("database__server")
            .filter(pk=tenant_id)
            .annotate(
                sign_in_domain=Subquery(claims.filter(sign_in=True).values("domain")),
                served_domains=ArraySubquery(claims.filter(SERVED).order_by("domain").values("domain")),
                has_webhooks=Exists(WebhookTenant.objects.filter(pk=OuterRef("pk"))),
            )
        )

    def mapping(self, row: Any) -> TenantDatabase:
        database: TenantDatabase = row.database
        return database

    def key(self, row: Any) -> object:
        return True

    def columns(self, row: Any) -> dict[str, object]:
        return {
            "slug": row.slug,
            "name": row.name,
            "status": row.database.status,
            "settings": row.settings,
            "sign_in_domain": row.sign_in_domain,
            "served_domains": row.served_domains,
            "has_webhooks": row.has_webhooks,
            "placement_revision": row.database.placement_revision,
        }


TENANTS: Final = TenantProjection()


@contextmanager
def changing_tenant(tenant_id: UUID, *, direct: bool = False, may_lag: bool = False) -> Iterator[Tenant]:
    """Open the global transaction of a change of the tenant; yield the tenant, locked, with its database.

    Name, slug, settings, state, placement, domains that are served and the list of tenants with webhooks are changed in
    this only. See `Projection.changing`. Raises UnknownTenant, also for a deleted one.
    """
    with TENANTS.changing(tenant_id, tenant_id, direct=direct, may_lag=may_lag) as tenant:
        if tenant is None or tenant.database.status == State.DELETED:
            raise UnknownTenant
        yield tenant


def list_webhooks(tenant_id: UUID, *, may_lag: bool = False) -> bool:
    """List the tenant among those that a deliverer looks after; return whether it was not listed."""
    listed = WebhookTenant.objects.filter(pk=tenant_id)
    if listed.update(touched_at=now()):
        return False
    with changing_tenant(tenant_id, may_lag=may_lag):
        return WebhookTenant.objects.get_or_create(tenant_id=tenant_id)[1]


def unlist_webhooks(tenant_id: UUID, *, untouched_since: datetime) -> None:
    """Remove the tenant from that list, unless it was listed again since."""
    listed = WebhookTenant.objects.filter(pk=tenant_id, touched_at__lt=untouched_since)
    if listed.exists():
        with changing_tenant(tenant_id):
            listed.delete()
