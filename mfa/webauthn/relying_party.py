"""The relying party of passkeys: from the tenant's settings, else from the platform's."""

from typing import Final
from uuid import UUID

from django.conf import settings

from mfa.errors import NoRelyingParty, RelyingPartyInUse
from mfa.webauthn.ceremony import RelyingParty
from mfa.webauthn.models import EndUserPasskey
from tenants import lookup
from tenants.context import current_tenant, in_tenant
from tenants.models import Tenant
from tenants.settings import effective
from tenants.states import Purpose
from userflow.accounts.realms import END_USERS, Realm

# No browser reads more (Level 3 section 5.11.1 asks for five labels at least).
MOST_RELATED_ORIGINS: Final = 100


def relying_party(realm: Realm, *, name: str = "") -> RelyingParty:
    """Return the relying party of the realm's users. Call it in the realm. `name` is what an authenticator may show.

    Admin users sign in to the console, end users to their tenant's pages. It does not depend on the request, so a forged
    Host cannot change it. Raises NoRelyingParty (400) if none is configured.
    """
    if realm is END_USERS:
        own = current_tenant().effective
        rp_id, origins = own["webauthn_rp_id"], own["webauthn_origins"]
    else:
        rp_id, origins = settings.CONSOLE_RP_ID, settings.CONSOLE_ORIGINS
    if not rp_id or not origins:
        raise NoRelyingParty
    return RelyingParty(rp_id, name or rp_id, tuple(origins))


def related_origins(*, domain: str, tenant_id: UUID | None = None) -> list[str]:
    """Return the origins that may use the passkeys of a relying party id (Level 3 section 5.11).

    With `tenant_id` those of the tenant; otherwise those of the tenant or the console whose id is `domain`, else the
    platform's. Browsers fetch the list from the relying party's own domain, so the Host selects it; which origins a ceremony
    accepts depends on the settings alone. Origins of apps are left out: the list is for pages. Raises UnknownTenant (404).
    """
    if tenant_id is not None:
        return _pages(lookup.find(tenant_id).effective["webauthn_origins"])
    found: list[str] = []
    if domain == settings.WEBAUTHN_RP_ID:
        found += settings.WEBAUTHN_ORIGINS
    if domain == settings.CONSOLE_RP_ID:
        found += settings.CONSOLE_ORIGINS
    if not found:
        # The claim too: two tenants could have one id before claims were introduced.
        holder = Tenant.objects.filter(webauthn_claims=domain, settings__webauthn_rp_id=domain).first()
        found += lookup.find(holder.pk).effective["webauthn_origins"] if holder else settings.WEBAUTHN_ORIGINS
    return _pages(list(dict.fromkeys(found)))[:MOST_RELATED_ORIGINS]


def _pages(origins: list[str]) -> list[str]:
    return [origin for origin in origins if origin.startswith("http")]


def reject_rp_id_change(
    sender: object, *, tenant_id: UUID, before: dict[str, object], after: dict[str, object], **_: object
) -> None:
    """Raise RelyingPartyInUse (400) if passkeys exist under the relying party id that would change.

    Accepted race: a passkey that is enrolled during the change is lost, and its owner enrolls another one.
    """
    domain = lookup.find(tenant_id).sign_in_domain
    if effective(before, domain=domain)["webauthn_rp_id"] == effective(after, domain=domain)["webauthn_rp_id"]:
        return
    _reject_if_in_use(tenant_id, "settings.webauthn_rp_id")


def reject_domain_change(
    sender: object,
    *,
    tenant_id: UUID,
    tenant_settings: dict[str, object],
    before: str | None,
    after: str | None,
    **_: object,
) -> None:
    """Raise RelyingPartyInUse (400) if passkeys exist under the relying party id that another sign-in domain would change."""
    old, new = (effective(tenant_settings, domain=domain)["webauthn_rp_id"] for domain in (before, after))
    if old != new:
        _reject_if_in_use(tenant_id, "sign_in")


def _reject_if_in_use(tenant_id: UUID, field: str) -> None:
    with in_tenant(tenant_id, Purpose.INSPECT):
        if EndUserPasskey.objects.exists():
            raise RelyingPartyInUse(details={field: ["Passkeys exist for the current id."]})
