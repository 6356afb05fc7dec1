"""The relying party of passkeys: from the tenant's settings, else from the platform's."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from django.conf import settings
from django.db.models import QuerySet

from mfa.errors import NoRelyingParty
from mfa.webauthn.ceremony import RelyingParty
from mfa.webauthn.models import EndUserPasskey
from tenants.entering import lookup
from tenants.entering.context import current_tenant, in_tenant
from tenants.errors import RelyingPartyInUse
from tenants.models import Tenant
from tenants.settings.values import effective
from tenants.states import Purpose
from userflow.accounts.models import EndUser
from userflow.accounts.realms import Realm

# No browser reads more (Level 3 section 5.11.1 asks for five labels at least).
MOST_RELATED_ORIGINS: Final = 100


def relying_party(realm: Realm, *, name: str = "") -> RelyingParty:
    """Return the relying party of the realm's users. Call it in the realm. `name` is what an authenticator may show.

    Admin users sign in to the console, end users to their tenant's pages. It does not depend on the request, so a forged
    Host cannot change it. Raises NoRelyingParty (400) if none is configured.
    """
    if tenant := realm.tenant():
        tenant_settings = tenant.effective
        rp_id, origins = tenant_settings["webauthn_rp_id"], tenant_settings["webauthn_origins"]
    else:
        rp_id, origins = settings.CONSOLE_RP_ID, settings.CONSOLE_ORIGINS
    if not rp_id or not origins:
        raise NoRelyingParty
    return RelyingParty(rp_id, name or rp_id, tuple(origins))


def usable_methods(methods: Sequence[str], users: QuerySet[EndUser]) -> list[str]:
    """Return the methods of the one end user among `users`, without passkeys if all of them are for another RP ID.

    Call it in the tenant.
    """
    if EndUserPasskey.kind not in methods:
        return list(methods)
    usable = EndUserPasskey.usable_with(current_tenant().effective["webauthn_rp_id"])
    if EndUserPasskey.objects.filter(usable, user__in=users).exists():
        return list(methods)
    return [method for method in methods if method != EndUserPasskey.kind]


def related_origins(*, domain: str, tenant_id: UUID | None = None) -> list[str]:
    """Return the origins that may use the passkeys of a relying party id (Level 3 section 5.11).

    With `tenant_id` those of the tenant; otherwise those of the tenant or the console whose id is `domain`, else the
    platform's. Browsers fetch the list from the relying party's own domain, so the Host selects it; which origins a ceremony
    accepts depends on the settings alone. Origins of apps are left out: the list is for pages. Raises UnknownTenant (404).
    """
    if tenant_id is not None:
        return _pages(lookup.find(tenant_id).effective["webauthn_origins"])
    origins: list[str] = []
    if domain == settings.WEBAUTHN_RP_ID:
        origins += settings.WEBAUTHN_ORIGINS
    if domain == settings.CONSOLE_RP_ID:
        origins += settings.CONSOLE_ORIGINS
    if not origins:
        # The claim too: two tenants could have one id before claims were introduced.
        holder = Tenant.objects.filter(webauthn_claims=domain, settings__webauthn_rp_id=domain).first()
        origins += lookup.find(holder.pk).effective["webauthn_origins"] if holder else settings.WEBAUTHN_ORIGINS
    return _pages(list(dict.fromkeys(origins)))[:MOST_RELATED_ORIGINS]


def _pages(origins: list[str]) -> list[str]:
    return [origin for origin in origins if origin.startswith("http")]


def reject_rp_id_change(
    sender: object, *, tenant_id: UUID, before: dict[str, object], after: dict[str, object], **_: object
) -> None:
    """Raise RelyingPartyInUse (400) if another `webauthn_rp_id` would leave passkeys behind."""
    domain = lookup.find(tenant_id).sign_in_domain
    old, new = (effective(tenant_settings, domain=domain)["webauthn_rp_id"] for tenant_settings in (before, after))
    if old != new:
        _leave(tenant_id, old, new, field="settings.webauthn_rp_id")


def reject_domain_change(
    sender: object,
    *,
    tenant_id: UUID,
    tenant_settings: dict[str, object],
    before: str | None,
    after: str | None,
    disable_passkeys: bool,
    **_: object,
) -> None:
    """Raise RelyingPartyInUse (400) if another sign-in domain would leave passkeys behind, unless that is accepted."""
    old, new = (effective(tenant_settings, domain=domain)["webauthn_rp_id"] for domain in (before, after))
    if old != new:
        _leave(tenant_id, old, new, field=None if disable_passkeys else "sign_in")


def passkeys_of_domain(tenant_id: UUID) -> str:
    """Return a text that counts the passkeys that could not be used without the sign-in domain, or an empty string."""
    tenant = lookup.find(tenant_id)
    old, new = (effective(tenant.settings, domain=domain)["webauthn_rp_id"] for domain in (tenant.sign_in_domain, None))
    if old == new:
        return ""
    with in_tenant(tenant_id, Purpose.INSPECT):
        return _what_is_left(old, new)


def keep_rp_id_of_domain(sender: object, *, domain: str, **_: object) -> None:
    """Note the id of a sign-in domain that is gone in passkeys that lack it. Receiver of `sign_in_domain_lost`."""
    tenant_settings = current_tenant().settings
    EndUserPasskey.objects.filter(rp_id=None).update(rp_id=effective(tenant_settings, domain=domain)["webauthn_rp_id"])


def _leave(tenant_id: UUID, old: str | None, new: str | None, *, field: str | None) -> None:
    """Note the present id in passkeys that lack it, before the id changes.

    With a `field`, raise RelyingPartyInUse about it if passkeys cannot be used with the new id. Nothing is lost for good:
    passkeys work again when their id returns. A passkey that is registered at the same moment has the id that verified it.
    """
    with in_tenant(tenant_id, Purpose.INSPECT):
        EndUserPasskey.objects.filter(rp_id=None).update(rp_id=old)
        if field is not None and (says := _what_is_left(old, new)):
            raise RelyingPartyInUse(details={field: [says]})


def _what_is_left(old: str | None, new: str | None) -> str:
    """Return a text that counts the passkeys of the old id and their users, or an empty string if there are none."""
    left = EndUserPasskey.objects.filter(EndUserPasskey.usable_with(old))
    passkeys, users = left.count(), EndUser.objects.filter(pk__in=left.values("user_id"))
    if not passkeys:
        return ""
    able = EndUserPasskey.objects.filter(rp_id=new).values("user_id")
    stuck = users.filter(mfa_methods=[EndUserPasskey.kind]).exclude(pk__in=able).count()
    return (
        f"Passkeys for {old} that cannot be used until it is the RP ID again: {passkeys}, of users: {users.count()}. "
        f"Users without any other second factor, who would need a factor reset: {stuck}."
    )
