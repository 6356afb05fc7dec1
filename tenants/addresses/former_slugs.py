"""Slugs that tenants had before: reserved to them, so that no other tenant gets their issuer and addresses.

They stay reserved until the tenant is deleted, and then until its final backup is.
"""

from uuid import UUID

from tenants.errors import SlugTaken
from tenants.models import FormerSlug, Tenant


def reject_reserved(slug: str, tenant_id: UUID) -> None:
    """Raise SlugTaken if the slug was another tenant's.

    Called after the slug was written, in the same transaction: the unique index has then waited for a tenant that was giving
    the slug up, whose row here is visible from then on.
    """
    if FormerSlug.objects.filter(slug=slug.lower()).exclude(tenant_id=tenant_id).exists():
        raise SlugTaken


def reserved(slugs: list[str]) -> set[str]:
    """Return those of the slugs that a tenant had before."""
    return set(FormerSlug.objects.filter(slug__in=[slug.lower() for slug in slugs]).values_list("slug", flat=True))


def change(tenant: Tenant, slug: str) -> str:
    """Give a locked tenant another slug and reserve the former one, which is returned. In the caller's transaction.

    Raises SlugTaken, and IntegrityError if another tenant has the slug.
    """
    former = tenant.slug
    tenant.slug = slug
    tenant.save(update_fields=["slug", "updated_at"])
    reject_reserved(slug, tenant.pk)
    # A tenant can return to a former slug.
    release(tenant.pk, slug)
    reserve(tenant.pk, former)
    return former


def reserve(tenant_id: UUID, slug: str) -> None:
    FormerSlug.objects.update_or_create(slug=slug.lower(), defaults={"tenant_id": tenant_id})


def release(tenant_id: UUID, slug: str) -> None:
    """End the reservation of the slug that the tenant has now."""
    FormerSlug.objects.filter(slug=slug.lower(), tenant_id=tenant_id).delete()


def free(tenant_id: UUID) -> None:
    """End the reservations of a tenant that can no longer be restored."""
    FormerSlug.objects.filter(tenant_id=tenant_id).delete()


def slugs_of(tenant_id: UUID) -> list[str]:
    """Return the tenant's former slugs, the latest first."""
    return list(FormerSlug.objects.filter(tenant_id=tenant_id).order_by("-ended_at").values_list("slug", flat=True))
