"""Which tenant has which verified domain, in the global database: one domain belongs to one tenant.

The primary key decides between tenants that verify one domain at the same time. A tenant's own database keeps the records that
its admins see; whether a domain counts as verified is decided here alone, so that a restored backup brings none back.
`userflow.domains.recording` writes what has changed here into that database.
"""

import ipaddress
from collections.abc import Collection, Mapping
from datetime import timedelta
from functools import cache
from typing import Final
from urllib.parse import urlsplit
from uuid import UUID

import idna
from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils.timezone import now
from publicsuffixlist import PublicSuffixList

from identity_platform.api.errors import ValidationFailed
from identity_platform.audit.writer import record_for_platform
from tenants.addresses.webauthn_claims import claim_sign_in_domain, free_sign_in_domain, platform_names
from tenants.entering import lookup
from tenants.errors import DomainNotClaimed, DomainTaken
from tenants.models import DomainClaim, Tenant
from tenants.records.tenant_records import changing_tenant
from tenants.signals import sign_in_domain_changing
from tenants.states import State

# With the label of the record in front a name has at most 253 characters.
LONGEST_DOMAIN: Final = 230
# How long a verified domain is kept without its record.
GRACE: Final = timedelta(days=7)


@cache
def _suffixes() -> PublicSuffixList:
    # 60 ms, which no command should pay that needs no domain.
    return PublicSuffixList()


def normalized(text: str) -> str:
    """Return a domain as DNS has it: lower case, other letters than ASCII as `xn--` (UTS 46, IDNA 2008), no dot at the end.

    Raises ValidationFailed for what is no domain, for IP addresses, public suffixes and the platform's own hosts.
    """
    try:
        domain = idna.encode(text.strip().removesuffix("."), uts46=True).decode().lower().removesuffix(".")
    except (idna.IDNAError, UnicodeError):
        domain = ""
    if not domain or len(domain) > LONGEST_DOMAIN or "." not in domain or domain.endswith(".") or _is_address(domain):
        raise _invalid("Send a domain such as login.example.com, without scheme, port and path.")
    if domain.endswith((".localhost", ".local", ".internal", ".onion", ".arpa")):
        raise _invalid("This domain is for private use.")
    if _suffixes().is_public(domain):
        raise _invalid("This is a public suffix: anyone can have a domain below it.")
    if domain in platform_hosts():
        raise _invalid("The platform uses this domain.")
    return domain


def _invalid(message: str) -> ValidationFailed:
    return ValidationFailed(details={"domain": [message]})


def _is_address(domain: str) -> bool:
    """Return whether browsers read this as an IPv4 address: its last label is a number (URL Standard section 3.5)."""
    last = domain.rpartition(".")[2]
    try:
        ipaddress.ip_address(domain)
    except ValueError:
        return last.isdigit() or last.startswith("0x")
    return True


def platform_hosts() -> set[str]:
    """Return the hosts that are the platform's: its public address, its relying parties, and the allowed hosts."""
    allowed = {host for host in settings.ALLOWED_HOSTS if not host.startswith((".", "*"))}
    issuer = urlsplit(settings.TOKEN_ISSUER).hostname
    return {name.lower() for name in platform_names() | allowed} | ({issuer} if issuer else set())


def note_domains(tenant_id: UUID) -> None:
    """Remember that the tenant's database has domains."""
    Tenant.objects.filter(pk=tenant_id, has_domains=None).update(has_domains=True)


def claim(tenant_id: UUID, domain: str, token: str) -> None:
    """Give the tenant the domain, which it has just verified. Raises DomainTaken (409) if another tenant has it."""
    moment = now()
    made = DomainClaim(domain=domain, tenant_id=tenant_id, token=token, checked_at=moment)
    with transaction.atomic():
        DomainClaim.objects.bulk_create([made], ignore_conflicts=True)
        claims = DomainClaim.objects.filter(pk=domain, tenant_id=tenant_id)
        # Of its own domain the record may be new, or back.
        if not claims.update(token=token, checked_at=moment, lost_since=None):
            raise DomainTaken


def is_taken(tenant_id: UUID, domain: str) -> bool:
    """Return whether another tenant has verified the domain."""
    return DomainClaim.objects.filter(pk=domain).exclude(tenant_id=tenant_id).exists()


def claims_about(tenant_id: UUID, domains: Collection[str]) -> Mapping[str, DomainClaim]:
    """Return the verified domains of a tenant, and the claims on these domains, of whichever tenant."""
    claims = DomainClaim.objects.filter(Q(tenant_id=tenant_id) | Q(pk__in=domains))
    return {claim.domain: claim for claim in claims}


def claims_of(tenant_id: UUID) -> Mapping[str, DomainClaim]:
    """Return the verified domains of a tenant."""
    return {claim.domain: claim for claim in DomainClaim.objects.filter(tenant_id=tenant_id)}


def release(tenant_id: UUID, domain: str) -> bool:
    """Take the domain from the tenant; return whether it had it.

    If it was the sign-in domain, the issuer is the one of the slug again, at the commit. Passkeys of the domain stay stored:
    they work again once the domain is the tenant's sign-in domain again.
    """
    with changing_tenant(tenant_id):
        released = _delete(tenant_id, DomainClaim.objects.filter(pk=domain, tenant_id=tenant_id))
    lookup.forget()
    return released


def _delete(tenant_id: UUID, claims: "QuerySet[DomainClaim]") -> bool:
    """Delete a claim of a locked tenant: `set_sign_in` must not choose a domain that is released meanwhile."""
    domain_claim = claims.first()
    # The conditions of `claims` hold at the deletion: it is one statement.
    if domain_claim is None or not claims.delete()[0]:
        return False
    if domain_claim.sign_in:
        free_sign_in_domain(tenant_id, domain_claim.domain)
    return True


def note_look_up(seen: DomainClaim, *, has_record: bool) -> None:
    """Store what a look-up for the claim `seen` has found. Seven days after the record was first missing, withdraw the domain.

    The look-up took seconds: a claim that was changed meanwhile, by its tenant or by another check, stays as it is.
    """
    moment = now()
    unchanged = DomainClaim.objects.filter(
        pk=seen.domain,
        tenant_id=seen.tenant_id,
        token=seen.token,
        claimed_at=seen.claimed_at,
        checked_at=seen.checked_at,
        lost_since=seen.lost_since,
    )
    lost_since = None if has_record else seen.lost_since or moment
    if lost_since is None or moment - lost_since < GRACE:
        unchanged.update(checked_at=moment, lost_since=lost_since)
        return
    with changing_tenant(seen.tenant_id, may_lag=True):
        if _delete(seen.tenant_id, unchanged):
            # The log of the tenant may have to wait.
            target = ("tenant", seen.tenant_id)
            record_for_platform(
                "domain.withdrawn", tenant_id=seen.tenant_id, target=target, details={"domain": seen.domain}
            )
    lookup.forget()


def set_sign_in(tenant_id: UUID, domain: str, on: bool, *, disable_passkeys: bool = False) -> bool:
    """Make a verified domain the tenant's sign-in domain in place of another one, or its issuer that of the slug again.

    Return whether anything changed. Receivers of `sign_in_domain_changing` can reject the change: that of passkeys does,
    unless `disable_passkeys`, if some could not be used any more. Raises DomainNotClaimed, RelyingPartyTaken (another tenant
    uses the domain for its passkeys).
    """
    # The lock prevents that two changes at once leave two sign-in domains, or that settings change meanwhile.
    with changing_tenant(tenant_id) as tenant:
        claims = DomainClaim.objects.filter(tenant_id=tenant_id)
        chosen = claims.filter(pk=domain).first()
        if chosen is None or (on and chosen.lost_since):
            raise DomainNotClaimed
        before = claims.filter(sign_in=True).values_list("pk", flat=True).first()
        after = domain if on else None if before == domain else before
        if before == after:
            return False
        sign_in_domain_changing.send(
            sender=Tenant,
            tenant_id=tenant_id,
            tenant_settings=tenant.settings,
            before=before,
            after=after,
            disable_passkeys=disable_passkeys,
        )
        claims.filter(sign_in=True).update(sign_in=False, sign_in_ended_at=now())
        if before:
            free_sign_in_domain(tenant_id, before)
        if after:
            claim_sign_in_domain(tenant_id, after)
            claims.filter(pk=after).update(sign_in=True, sign_in_ended_at=None)
    lookup.forget()
    return True


def tenants_with_domains() -> list[UUID]:
    """Return the tenants that have verified domains, or had domains in their database."""
    holders = DomainClaim.objects.values("tenant_id")
    tenants = Tenant.objects.filter(Q(has_domains=True) | Q(pk__in=holders)).exclude(database__status=State.DELETED)
    return list(tenants.order_by("pk").values_list("pk", flat=True))
