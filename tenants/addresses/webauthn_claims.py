"""Which tenant uses which domains and origins for its passkeys. Each belongs to one tenant; the platform's to none.

WebAuthn Level 3, section 5.1.3: every page on the domain of an RP ID can use its passkeys, on any port.
So the domain of an RP ID and the host of an origin are the same name. Nested domains (`acme.example`, `login.acme.example`)
are different names: one company can run several tenants under its domain, each ceremony accepts listed origins only, and a
tenant that could reserve all names below its own could reserve a top-level domain.
"""

from collections.abc import Mapping, Set
from urllib.parse import urlsplit
from uuid import UUID

from django.conf import settings
from django.db import transaction

from identity_platform.api.errors import ValidationFailed
from tenants.errors import RelyingPartyTaken
from tenants.models import DomainClaim, Tenant, WebAuthnClaim


def names_of(tenant_settings: Mapping[str, object]) -> set[str]:
    """Return the names that these tenant settings claim."""
    rp_id, origins = _rp_id_and_origins(tenant_settings)
    return {*([rp_id] if rp_id else []), *map(_name_of, origins)}


def _rp_id_and_origins(tenant_settings: Mapping[str, object]) -> tuple[str, list[str]]:
    """Return the RP ID and the origins that the tenant has set."""
    rp_id, origins = tenant_settings.get("webauthn_rp_id"), tenant_settings.get("webauthn_origins")
    return rp_id if isinstance(rp_id, str) else "", origins if isinstance(origins, list) else []


def _name_of(origin: str) -> str:
    """Return an origin's host. Apps have none; on localhost every port is a different application."""
    url = urlsplit(origin)
    if url.scheme not in ("http", "https") or url.hostname in (None, "localhost"):
        return origin
    return str(url.hostname).rstrip(".")


def platform_names() -> set[str]:
    """Return the platform's own names: its relying parties and its public address."""
    public = urlsplit(settings.BASE_URL)
    origins = [*settings.WEBAUTHN_ORIGINS, *settings.CONSOLE_ORIGINS, f"{public.scheme}://{public.netloc}"]
    rp_ids = {rp_id for rp_id in (settings.WEBAUTHN_RP_ID, settings.CONSOLE_RP_ID) if rp_id}
    return rp_ids | {_name_of(origin) for origin in origins}


def claim(tenant_id: UUID, *, before: Mapping[str, object], after: Mapping[str, object]) -> None:
    """Claim the names of the settings `after` for the tenant and free those of `before` that it no longer uses.

    Call it in the transaction that stores the settings. The primary key of the claims decides between tenants that claim
    one name at the same time. Names that were already in the settings are not checked again.

    Raises:
        ValidationFailed: a new name is the platform's.
        RelyingPartyTaken: another tenant has claimed a new name.
    """
    had, names = names_of(before), names_of(after)
    if names == had:
        return
    if platform_owned := (names - had) & platform_names():
        raise ValidationFailed(details=_details(after, platform_owned, "The platform uses {}."))
    _insert(tenant_id, names)
    others = WebAuthnClaim.objects.filter(name__in=names - had).exclude(tenant_id=tenant_id)
    # Who has proven a domain by DNS need not share it with a tenant that has only named it.
    verified = DomainClaim.objects.filter(pk__in=names - had).exclude(tenant_id=tenant_id)
    if taken := {*others.values_list("name", flat=True), *verified.values_list("pk", flat=True)}:
        raise RelyingPartyTaken(details=_details(after, taken, "Another tenant uses {}."))
    sign_in_domains = DomainClaim.objects.filter(tenant_id=tenant_id, sign_in=True).values_list("pk", flat=True)
    claimed = names | set(sign_in_domains)
    WebAuthnClaim.objects.filter(tenant_id=tenant_id).exclude(name__in=claimed).delete()


def claim_sign_in_domain(tenant_id: UUID, domain: str) -> None:
    """Claim a sign-in domain, which is the RP ID of its passkeys. Raises RelyingPartyTaken. Call it in a transaction."""
    _insert(tenant_id, {domain})
    if not WebAuthnClaim.objects.filter(pk=domain, tenant_id=tenant_id).exists():
        raise RelyingPartyTaken(details={"sign_in": [f"Another tenant uses {domain} for its passkeys."]})


def free_sign_in_domain(tenant_id: UUID, domain: str) -> None:
    """Free the claim of a domain that is no sign-in domain any more, unless the tenant's settings name it."""
    tenant_settings = Tenant.objects.get(pk=tenant_id).settings
    if domain not in names_of(tenant_settings):
        WebAuthnClaim.objects.filter(pk=domain, tenant_id=tenant_id).delete()


def _details(tenant_settings: Mapping[str, object], names: Set[str], says: str) -> dict[str, list[str]]:
    """Return a message for each value with one of these names, by setting."""
    rp_id, origins = _rp_id_and_origins(tenant_settings)
    messages_by_setting = {
        "settings.webauthn_rp_id": [says.format(rp_id)] if rp_id in names else [],
        "settings.webauthn_origins": [says.format(origin) for origin in origins if _name_of(origin) in names],
    }
    return {setting: messages for setting, messages in messages_by_setting.items() if messages}


def claim_free_names(tenant_id: UUID) -> None:
    """Claim the names in the tenant's settings that neither another tenant nor the platform has."""
    with transaction.atomic():
        tenant_settings = Tenant.objects.select_for_update(no_key=True).get(pk=tenant_id).settings
        _insert(tenant_id, names_of(tenant_settings) - platform_names())


def _insert(tenant_id: UUID, names: Set[str]) -> None:
    # Sorted, so that two transactions do not deadlock.
    rows = [WebAuthnClaim(name=name, tenant_id=tenant_id) for name in sorted(names)]
    WebAuthnClaim.objects.bulk_create(rows, ignore_conflicts=True)


def unclaimed() -> dict[UUID, list[str]]:
    """Return, by tenant, the names in use without a claim because another tenant or the platform has them.

    They come from settings of older releases, or from a platform that moved to a tenant's domain.
    """
    using = Tenant.objects.filter(settings__has_any_keys=["webauthn_rp_id", "webauthn_origins"])
    claims = dict(WebAuthnClaim.objects.values_list("name", "tenant_id"))
    platform = platform_names()
    unclaimed_names = {
        tenant_id: sorted(
            name for name in names_of(tenant_settings) if name in platform or claims.get(name) != tenant_id
        )
        for tenant_id, tenant_settings in using.values_list("pk", "settings")
    }
    return {tenant_id: names for tenant_id, names in unclaimed_names.items() if names}
