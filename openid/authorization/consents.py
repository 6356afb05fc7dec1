"""Consents: what users let applications have. Call everything here inside the tenant."""

from collections.abc import Collection
from uuid import UUID

from identity_platform.audit.writer import record_for_tenant
from openid.models import Consent
from tenants.context import tenant_atomic


def grant_consent(
    *,
    user_id: UUID,
    client_id: UUID,
    scopes: Collection[str],
    audiences: Collection[str] = (),
    claims: Collection[str] = (),
) -> None:
    """Store that the user consents to these scopes, audiences and claims from metadata, beside those consented to before."""
    with tenant_atomic():
        Consent.objects.get_or_create(user_id=user_id, client_id=client_id)
        # Two requests of one application at the same moment: neither loses a scope.
        consent = Consent.objects.select_for_update().get(user_id=user_id, client_id=client_id)
        consent.scopes = sorted({*consent.scopes, *scopes})
        consent.audiences = sorted({*consent.audiences, *audiences})
        consent.claims = sorted({*consent.claims, *claims})
        consent.save(update_fields=["scopes", "audiences", "claims", "updated_at"])
        details = {"scopes": sorted(scopes), "audiences": sorted(audiences), "claims": sorted(claims)}
        record_for_tenant("consent.granted", target=("client", client_id), details=details)


def scopes_consented(*, user_id: UUID, client_id: UUID) -> tuple[str, ...]:
    """Return the scopes that the user has consented to for the client."""
    stored = Consent.objects.filter(user_id=user_id, client_id=client_id).values_list("scopes", flat=True).first()
    return tuple(stored or ())
