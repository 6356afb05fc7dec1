"""What `check_consistency` compares of factors (`tenants.consistency`)."""

from collections.abc import Iterable, Iterator
from typing import Final
from uuid import UUID

from django.conf import settings
from django.db.models import Exists, OuterRef, Q

from identity_platform.audit.models import TenantEvent
from mfa import factors
from mfa.sms.actions import unreadable_phones
from mfa.totp.actions import unreadable_secrets
from mfa.webauthn.models import EndUserPasskey
from tenants import keys
from tenants.addresses import domain_claims
from tenants.consistency.findings import MOST_IDS, Finding, sealed_finding
from tenants.consistency.references import oldest_explained
from tenants.entering.context import current_tenant
from tenants.models import DataKey
from userflow.accounts.realms import ADMINS, END_USERS, Realm
from userflow.domains.models import TenantDomain

ENTER_AGAIN: Final = "Reset the factors of these users: they enroll again."


def examine(tenant_id: UUID | None) -> Iterable[Finding]:
    """Return what is found about the entered tenant, or about the platform."""
    if tenant_id is None:
        return [*_methods(ADMINS), *_secrets(ADMINS, DataKey.PLATFORM)]
    return [*_methods(END_USERS), *_secrets(END_USERS, str(tenant_id)), *_passkeys(tenant_id)]


def _methods(realm: Realm) -> Iterator[Finding]:
    """Find users whose list of methods, which sign-ins read, is not that of their factors."""
    wrong: dict[str, int] = {}
    for kind, rows in factors.enrolled_rows(realm).items():
        listed, enrolled = Q(mfa_methods__contains=[kind]), Exists(rows.filter(user_id=OuterRef("pk")))
        # Codes that are left without another factor are not listed.
        unlisted = ~listed & enrolled if kind != factors.BACKUP_CODE else Q(pk__in=[])
        differing = realm.users._default_manager.filter((listed & ~enrolled) | unlisted)
        wrong |= {str(pk): 1 for pk in differing.values_list("pk", flat=True)[:MOST_IDS]}
    if wrong:
        yield Finding(
            "factors and methods differ",
            wrong,
            "The methods that these users are asked for at sign-in are not the factors that they have.",
            ENTER_AGAIN,
            alias=realm.alias,
        )


def _secrets(realm: Realm, owner: str) -> Iterator[Finding]:
    if not keys.is_readable(owner):
        return
    yield from sealed_finding("authenticator secrets", unreadable_secrets(realm), ENTER_AGAIN, alias=realm.alias)
    if realm is END_USERS:
        yield from sealed_finding("phone numbers", unreadable_phones(), ENTER_AGAIN)


def _passkeys(tenant_id: UUID) -> Iterator[Finding]:
    """Find passkeys for an RP ID that the tenant neither has nor is known to have had."""
    used = EndUserPasskey.objects.exclude(rp_id=None).filter(created_at__gte=oldest_explained())
    counts: dict[str, int] = {}
    for rp_id in used.values_list("rp_id", flat=True).iterator():
        counts[str(rp_id)] = counts.get(str(rp_id), 0) + 1
    if not counts:
        return
    tenant = current_tenant()
    # That of the platform is used again when the tenant gives up its domain.
    known = {
        str(tenant.effective["webauthn_rp_id"]),
        str(tenant.settings.get("webauthn_rp_id")),
        settings.WEBAUTHN_RP_ID,
    }
    known |= set(TenantDomain.objects.values_list("domain", flat=True)) | domain_claims.claims_of(tenant_id).keys()
    former = TenantEvent.objects.filter(action__startswith="domain.", details__domain__in=sorted(counts.keys() - known))
    known |= {str(details["domain"]) for details in former.values_list("details", flat=True)}
    if lost := {rp_id: number for rp_id, number in sorted(counts.items()) if rp_id not in known}:
        yield Finding(
            "passkeys of unknown domain",
            lost,
            "No setting and no domain of the tenant has this RP ID, so these passkeys cannot be used: the global database is "
            "older than the tenant's, or WEBAUTHN_RP_ID was changed.",
            "Set webauthn_rp_id, or the sign-in domain, as it was.",
        )
