"""Domains of a tenant: add, verify by a TXT record, list, delete; and the daily check of verified ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.utils.timezone import now

from identity_platform.audit.writer import record_for_tenant
from identity_platform.crypto import new_token
from identity_platform.postgresql.row_errors import first_or
from identity_platform.semaphore import Semaphore
from tenants import domain_claims, lookup
from tenants.context import in_tenant, tenant_atomic
from tenants.errors import DomainNotClaimed, DomainTaken
from tenants.models import DomainClaim
from tenants.states import Purpose
from userflow.accounts.principals import Principal
from userflow.domains.models import TenantDomain
from userflow.domains.records import Answer, Found, look_up
from userflow.domains.revocation import revoke_browsers, revoke_links
from userflow.errors import DomainExists, DomainNotVerified, NameServersBusy, TooManyDomains, UnknownDomain
from userflow.events import outbox
from userflow.sessions.assurance import Action, require_assurance

# How long a verified domain is kept without its record.
GRACE: Final = timedelta(days=7)
PENDING, VERIFIED, LOST, TAKEN = "pending", "verified", "record_lost", "taken"
_semaphore = Semaphore.for_slow_requests(NameServersBusy)


@dataclass(frozen=True, slots=True)
class Domain:
    """A domain of a tenant with its state."""

    row: TenantDomain
    claim: DomainClaim | None
    # Another tenant has verified it, before this one or since the backup that this one was restored from.
    taken: bool = False

    @property
    def pk(self) -> UUID:
        return self.row.pk

    @property
    def domain(self) -> str:
        return self.row.domain

    @property
    def sign_in(self) -> bool:
        """Whether the tenant's issuer, endpoints and pages are on it."""
        return self.claim is not None and self.claim.sign_in

    @property
    def status(self) -> str:
        """`pending`, `verified`, `record_lost` for a verified domain whose record is gone, `taken` for another tenant's."""
        if self.claim is None:
            return TAKEN if self.taken else PENDING
        return LOST if self.row.lost_since else VERIFIED

    @property
    def withdrawn_after(self) -> datetime | None:
        """When the domain is withdrawn unless its record is back."""
        return self.row.lost_since + GRACE if self.claim is not None and self.row.lost_since else None


def list_domains(*, tenant_id: UUID, purpose: Purpose = Purpose.READ) -> Sequence[Domain]:
    """Return all domains of the tenant, oldest first. Raises UnknownTenant, TenantSuspended, TenantBusy."""
    with in_tenant(tenant_id, purpose):
        rows = list(TenantDomain.objects.order_by("created_at", "id"))
    return _with_claims(tenant_id, rows)


def find_domain(*, tenant_id: UUID, domain_id: UUID, purpose: Purpose = Purpose.READ) -> Domain:
    """Return one domain. Raises UnknownDomain."""
    with in_tenant(tenant_id, purpose):
        row = _found(domain_id)
    return _with_claims(tenant_id, [row])[0]


def add_domain(*, tenant_id: UUID, domain: str, by: Principal) -> Domain:
    """Add a domain, to be verified by its TXT record.

    Raises ValidationFailed (see `domain_claims.normalized`), DomainExists, DomainTaken, TooManyDomains,
    InsufficientAuthentication, UnknownTenant, TenantSuspended, TenantBusy.
    """
    require_assurance(Action.CHANGE_TENANT_SETTINGS, by)
    lookup.find(tenant_id).check(Purpose.WRITE)
    name = domain_claims.normalized(domain)
    if domain_claims.is_taken(tenant_id, name):
        raise DomainTaken
    # Of a tenant that was restored from before it had the domain: its record is in DNS already.
    held = domain_claims.claims_of(tenant_id).get(name)
    row = TenantDomain(domain=name, token=held.token if held else new_token())
    with in_tenant(tenant_id), tenant_atomic():
        if TenantDomain.objects.count() >= settings.DOMAINS_PER_TENANT:
            raise TooManyDomains
        # The unique constraint decides between parallel calls.
        TenantDomain.objects.bulk_create([row], ignore_conflicts=True)
        if not TenantDomain.objects.filter(pk=row.pk).exists():
            raise DomainExists
        _record("added", row)
    return Domain(row, held)


def verify_domain(*, tenant_id: UUID, domain_id: UUID, by: Principal) -> Domain:
    """Look the TXT record up and make the domain the tenant's.

    Raises UnknownDomain, DomainNotVerified, DomainTaken, NameServersBusy, InsufficientAuthentication.
    """
    require_assurance(Action.CHANGE_TENANT_SETTINGS, by)
    lookup.find(tenant_id).check(Purpose.WRITE)
    with in_tenant(tenant_id):
        row = _found(domain_id)
    # No tenant is entered here: a name server may be slow, and a tenant has few database connections.
    with _semaphore.acquire():
        answer = look_up(row.domain, row.token)
    if answer.found is not Found.RECORD:
        raise DomainNotVerified(details=_what(answer))
    with in_tenant(tenant_id), tenant_atomic():
        row = _found(domain_id, lock=True)
        is_new = row.domain not in domain_claims.claims_of(tenant_id)
        domain_claims.claim(tenant_id, row.domain, row.token)
        row.checked_at, row.lost_since = now(), None
        row.save(update_fields=["checked_at", "lost_since"])
        if is_new:
            _record("verified", row)
            outbox.publish("domain.verified", _data(row))
    return _with_claims(tenant_id, [row])[0]


def update_domain(
    *, tenant_id: UUID, domain_id: UUID, sign_in: bool, by: Principal, disable_passkeys: bool = False
) -> Domain:
    """Make a verified domain the sign-in domain, in place of another one, or end that.

    The issuer changes at the commit: access tokens of the other one are rejected from then on; refresh tokens go on and
    get tokens of the new one. Raises UnknownDomain, DomainNotClaimed, RelyingPartyTaken, ValidationFailed (passkeys could not
    be used any more, and `disable_passkeys` does not accept that), InsufficientAuthentication.
    """
    require_assurance(Action.CHANGE_TENANT_SETTINGS, by)
    with in_tenant(tenant_id), tenant_atomic():
        row = _found(domain_id, lock=True)
        if sign_in and row.lost_since:
            raise DomainNotClaimed
        claim = domain_claims.claims_of(tenant_id).get(row.domain)
        if domain_claims.set_sign_in(tenant_id, row.domain, sign_in, disable_passkeys=disable_passkeys):
            if sign_in and claim is not None and claim.sign_in_ended_at is None:
                revoke_browsers()
            _record("updated", row, sign_in=sign_in)
            outbox.publish("domain.updated", {**_data(row), "sign_in": sign_in})
    return _with_claims(tenant_id, [row])[0]


def delete_domain(*, tenant_id: UUID, domain_id: UUID, by: Principal) -> None:
    """Delete a domain; another tenant can verify it from now on. Links in mails end if it was a sign-in domain.

    Raises UnknownDomain, InsufficientAuthentication.
    """
    require_assurance(Action.CHANGE_TENANT_SETTINGS, by)
    # The tenant's transaction is committed first: no link outlives the claim.
    with in_tenant(tenant_id), transaction.atomic(), tenant_atomic():
        row = _found(domain_id, lock=True)
        _release(tenant_id, row.domain)
        _record("deleted", row)
        outbox.publish("domain.deleted", _data(row))
        TenantDomain.objects.filter(pk=domain_id).delete()


def check_domains(*, tenant_id: UUID) -> None:
    """Look up the records of the tenant's verified domains.

    A lost record warns: an audit event, a webhook event and the console say so. After seven days the domain is withdrawn.
    A look-up without an answer changes nothing. Raises UnknownTenant, TenantSuspended, TenantBusy.
    """
    for claim in domain_claims.claims_of(tenant_id).values():
        answer = look_up(claim.domain, claim.token)
        if answer.found is not Found.NO_ANSWER:
            _note(tenant_id, claim, has_record=answer.found is Found.RECORD)


def _note(tenant_id: UUID, claim: DomainClaim, *, has_record: bool) -> None:
    moment = now()
    with in_tenant(tenant_id), transaction.atomic(), tenant_atomic():
        # A backup from before the domain has no row.
        new = TenantDomain(domain=claim.domain, token=claim.token)
        TenantDomain.objects.bulk_create([new], ignore_conflicts=True)
        row = TenantDomain.objects.select_for_update(no_key=True).get(domain=claim.domain)
        was_lost = row.lost_since
        row.token, row.checked_at = claim.token, moment
        row.lost_since = None if has_record else was_lost or moment
        row.save(update_fields=["token", "checked_at", "lost_since"])
        if row.lost_since is None:
            return
        if moment - row.lost_since >= GRACE:
            row.lost_since = None
            row.save(update_fields=["lost_since"])
            if _release(tenant_id, row.domain):
                _record("withdrawn", row)
                outbox.publish("domain.withdrawn", _data(row))
        elif was_lost is None:
            _record("record_lost", row, withdrawn_after=row.lost_since + GRACE)
            outbox.publish("domain.record_lost", {**_data(row), "withdrawn_after": row.lost_since + GRACE})


def _release(tenant_id: UUID, domain: str) -> bool:
    """Take a verified domain from the tenant, in the tenant's transaction; return whether it had it."""
    claim = domain_claims.claims_of(tenant_id).get(domain)
    if claim is not None and (claim.sign_in or claim.sign_in_ended_at is not None):
        revoke_links()
    return domain_claims.release(tenant_id, domain)


def _what(answer: Answer) -> Mapping[str, list[str]]:
    if answer.found is Found.NO_ANSWER:
        return {"record": ["The name servers of the domain did not answer."]}
    if not answer.values:
        return {"record": ["There is no TXT record of this name."]}
    return {"record": ["The TXT records of this name have other values."], "found": list(answer.values)}


def _found(domain_id: UUID, *, lock: bool = False) -> TenantDomain:
    rows = TenantDomain.objects.select_for_update(no_key=True) if lock else TenantDomain.objects.all()
    return first_or(rows.filter(pk=domain_id), UnknownDomain)


def _with_claims(tenant_id: UUID, rows: Sequence[TenantDomain]) -> list[Domain]:
    claims = domain_claims.claims_on([row.domain for row in rows])
    found = [(row, claims.get(row.domain)) for row in rows]
    return [
        Domain(row, None, taken=True) if claim and claim.tenant_id != tenant_id else Domain(row, claim)
        for row, claim in found
    ]


def _data(row: TenantDomain) -> dict[str, object]:
    return {"domain_id": row.pk, "domain": row.domain}


def _record(verb: str, row: TenantDomain, **details: object) -> None:
    record_for_tenant(f"domain.{verb}", target=("domain", row.pk), details={"domain": row.domain, **details})
