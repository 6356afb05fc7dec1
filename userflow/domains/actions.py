"""Domains of a tenant: add, verify by a TXT record, list, delete; and the daily check of verified ones.

The claim of a verified domain is committed in the global database before the tenant's transaction, which records it
(`userflow.domains.recording`). Where the sign-in domain changes, or a domain is deleted, the tenant's transaction is committed
first: it has the copy of what changes globally (`tenants.records`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from django.conf import settings
from django.db import transaction

from identity_platform.crypto import new_token
from identity_platform.postgresql.row_errors import first_or
from identity_platform.semaphore import Semaphore
from tenants.addresses import domain_claims
from tenants.addresses.domain_claims import GRACE
from tenants.entering import lookup
from tenants.entering.context import in_tenant, tenant_atomic
from tenants.errors import DomainTaken
from tenants.models import DomainClaim
from tenants.states import Purpose
from userflow.accounts.admin_notices import notify_of_routes
from userflow.accounts.principals import Principal
from userflow.accounts.rank import EVERYTHING, require_reach
from userflow.domains.models import TenantDomain
from userflow.domains.recording import data_of, give_up, lock_rows, record, record_changes, record_event
from userflow.domains.records import LookupOutcome, LookupResult, look_up
from userflow.errors import DomainExists, DomainNotVerified, NameServersBusy, TooManyDomains, UnknownDomain
from userflow.events import outbox
from userflow.sessions.assurance import Action, require_assurance

ROUTING: Final = (
    "The users type their passwords at the sign-in domain, and links of their mails lead there. Only an admin with all "
    "permissions of the role tenant-admin, or an operator with them, can change it."
)
PENDING, VERIFIED, LOST, TAKEN = "pending", "verified", "record_lost", "taken"
_semaphore = Semaphore.for_slow_requests("domain_check", NameServersBusy)


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
        return LOST if self.claim.lost_since else VERIFIED

    @property
    def checked_at(self) -> datetime | None:
        """When the record was last looked up with a result."""
        return (self.claim.checked_at or self.claim.claimed_at) if self.claim else None

    @property
    def lost_since(self) -> datetime | None:
        """Since when the record of a verified domain is gone."""
        return self.claim.lost_since if self.claim else None

    @property
    def withdrawn_after(self) -> datetime | None:
        """When the domain is withdrawn unless its record is back."""
        return self.lost_since + GRACE if self.lost_since else None


def list_domains(*, tenant_id: UUID, purpose: Purpose = Purpose.READ) -> Sequence[Domain]:
    """Return all domains of the tenant, oldest first. Raises UnknownTenant, TenantSuspended, TenantBusy."""
    with in_tenant(tenant_id, purpose):
        rows = list(TenantDomain.objects.order_by("created_at", "id"))
    return _with_claims(tenant_id, rows)


def find_domain(*, tenant_id: UUID, domain_id: UUID, purpose: Purpose = Purpose.READ) -> Domain:
    """Return one domain. Raises UnknownDomain."""
    with in_tenant(tenant_id, purpose):
        row = _find_domain(domain_id)
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
    earlier_claim = domain_claims.claims_of(tenant_id).get(name)
    row = TenantDomain(domain=name, token=earlier_claim.token if earlier_claim else new_token())
    domain_claims.note_domains(tenant_id)
    with in_tenant(tenant_id), tenant_atomic():
        if TenantDomain.objects.count() >= settings.DOMAINS_PER_TENANT:
            raise TooManyDomains
        # The unique constraint decides between parallel calls.
        TenantDomain.objects.bulk_create([row], ignore_conflicts=True)
        if not TenantDomain.objects.filter(pk=row.pk).exists():
            raise DomainExists
        record_event("added", row)
    return Domain(row, earlier_claim)


def verify_domain(*, tenant_id: UUID, domain_id: UUID, by: Principal) -> Domain:
    """Look the TXT record up and make the domain the tenant's.

    Raises UnknownDomain, DomainNotVerified, DomainTaken, NameServersBusy, InsufficientAuthentication.
    """
    require_assurance(Action.CHANGE_TENANT_SETTINGS, by)
    lookup.find(tenant_id).check(Purpose.WRITE)
    with in_tenant(tenant_id):
        row = _find_domain(domain_id)
    # No tenant is entered here: a name server may be slow, and a tenant has few database connections.
    with _semaphore.acquire():
        answer = look_up(row.domain, row.token)
    if answer.outcome is not LookupOutcome.RECORD:
        raise DomainNotVerified(details=_what(answer))
    with in_tenant(tenant_id), tenant_atomic():
        if _locked(domain_id).token != row.token:
            raise DomainNotVerified(details={"record": ["Its value has changed meanwhile. Verify the domain again."]})
        # An earlier claim may be lost without a trace here.
        record(tenant_id)
        domain_claims.claim(tenant_id, row.domain, row.token)
        record(tenant_id)
    return _with_claims(tenant_id, [row])[0]


def update_domain(
    *, tenant_id: UUID, domain_id: UUID, sign_in: bool, by: Principal, disable_passkeys: bool = False
) -> Domain:
    """Make a verified domain the sign-in domain, in place of another one, or end that.

    The issuer changes at the commit: access tokens of the other one are rejected from then on; refresh tokens go on and
    get tokens of the new one. Raises UnknownDomain, DomainNotClaimed, RelyingPartyTaken, ValidationFailed (passkeys could not
    be used any more, and `disable_passkeys` does not accept that), InsufficientAuthentication, GrantsMoreThanHeld.
    """
    require_assurance(Action.CHANGE_TENANT_SETTINGS, by)
    require_reach(by, EVERYTHING, ROUTING)
    # The tenant's transaction is committed first, with the record of the domain.
    with in_tenant(tenant_id), transaction.atomic(), tenant_atomic():
        row = _locked(domain_id)
        changed = domain_claims.set_sign_in(tenant_id, row.domain, sign_in, disable_passkeys=disable_passkeys)
        record(tenant_id)
    if changed:
        notify_of_routes(tenant_id=tenant_id, by=by, what="The sign-in domain", fields=[row.domain])
    return _with_claims(tenant_id, [row])[0]


def delete_domain(*, tenant_id: UUID, domain_id: UUID, by: Principal) -> None:
    """Delete a domain; another tenant can verify it from now on. Links in mails end if it was a sign-in domain.

    Raises UnknownDomain, InsufficientAuthentication, GrantsMoreThanHeld (the sign-in domain).
    """
    require_assurance(Action.CHANGE_TENANT_SETTINGS, by)
    # The tenant's transaction is committed first: no link outlives the claim.
    with in_tenant(tenant_id), transaction.atomic(), tenant_atomic():
        record(tenant_id)
        row = _locked(domain_id)
        claim = domain_claims.claims_of(tenant_id).get(row.domain)
        if claim is not None and claim.sign_in:
            require_reach(by, EVERYTHING, ROUTING)
            notify_of_routes(tenant_id=tenant_id, by=by, what="The sign-in domain", fields=[row.domain])
        give_up(row)
        domain_claims.release(tenant_id, row.domain)
        record_event("deleted", row)
        outbox.publish("domain.deleted", data_of(row))
        TenantDomain.objects.filter(pk=domain_id).delete()


def check_domains(*, tenant_id: UUID) -> None:
    """Look up the records of the tenant's verified domains, and record the changes in its database.

    A lost record warns: an audit event, a webhook event and the console say so. After seven days the domain is withdrawn, also
    that of a tenant whose database cannot be used. A look-up without an answer changes nothing. Raises UnknownTenant and
    TenantBusy if the changes wait.
    """
    for claim in domain_claims.claims_of(tenant_id).values():
        answer = look_up(claim.domain, claim.token)
        if answer.outcome is not LookupOutcome.NO_ANSWER:
            domain_claims.note_look_up(claim, has_record=answer.outcome is LookupOutcome.RECORD)
    record_changes(tenant_id=tenant_id)


def _what(answer: LookupResult) -> Mapping[str, list[str]]:
    if answer.outcome is LookupOutcome.NO_ANSWER:
        return {"record": ["The name servers of the domain did not answer."]}
    if not answer.values:
        return {"record": ["There is no TXT record of this name."]}
    return {"record": ["The TXT records of this name have other values."], "found": list(answer.values)}


def _find_domain(domain_id: UUID) -> TenantDomain:
    return first_or(TenantDomain.objects.filter(pk=domain_id), UnknownDomain)


def _locked(domain_id: UUID) -> TenantDomain:
    for row in lock_rows():
        if row.pk == domain_id:
            return row
    raise UnknownDomain


def _with_claims(tenant_id: UUID, rows: Sequence[TenantDomain]) -> list[Domain]:
    claims = DomainClaim.objects.in_bulk([row.domain for row in rows])
    rows_with_claims = [(row, claims.get(row.domain)) for row in rows]
    return [
        Domain(row, None, taken=True) if claim and claim.tenant_id != tenant_id else Domain(row, claim)
        for row, claim in rows_with_claims
    ]
