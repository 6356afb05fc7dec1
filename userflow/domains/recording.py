"""Record in a tenant's database what has become of its domains.

The global database decides which domains are the tenant's; a change is made there first. Then the tenant's transaction
compares its rows with the claims and writes audit events and webhook messages for the difference. If a transaction fails, or
the tenant's cannot begin because the tenant is moved, a difference remains: the next change, the daily check and
`check_tenants --repair` record it, and `check_tenants` reports it. A tenant that is restored from a backup learns in the same
way what has happened since.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from django.db.models import BinaryField, F, Func
from django.utils.timezone import now

from identity_platform.audit.writer import record_for_tenant
from tenants.addresses import domain_claims
from tenants.addresses.domain_claims import GRACE
from tenants.consistency.findings import Comparison
from tenants.entering.context import in_tenant, tenant_atomic
from tenants.models import DomainClaim
from tenants.states import Purpose
from userflow.accounts.realms import END_USERS
from userflow.accounts.session_models import EndUserSession
from userflow.credentials.models import EmailProof, PendingRegistration
from userflow.credentials.tickets import OF_ADDRESS, REMEMBERED
from userflow.domains.models import TenantDomain
from userflow.events import outbox
from userflow.invitations.models import EndUserInvitation
from userflow.signals import sign_in_domain_lost


@dataclass(frozen=True, slots=True)
class Change:
    """An event of a domain that the tenant's database has not recorded, with its details."""

    verb: str
    row: TenantDomain
    details: Mapping[str, object]


def record_changes(*, tenant_id: UUID) -> None:
    """Record what has become of the tenant's domains. Raises UnknownTenant, TenantBusy."""
    with in_tenant(tenant_id, Purpose.RECORD), tenant_atomic():
        record(tenant_id)


def record(tenant_id: UUID) -> None:
    """Likewise, in the tenant's transaction, after a change of the claims."""
    rows, claims = _compared(tenant_id)
    if missing := [row for row in rows if row._state.adding]:
        # The unique constraint decides between this and an admin who adds the domain.
        TenantDomain.objects.bulk_create(missing, ignore_conflicts=True)
        rows, claims = _compared(tenant_id)
    changes = [change for row in rows for change in _changes(row, claims.get(row.domain), tenant_id)]
    for change in changes:
        if change.verb == "withdrawn":
            give_up(change.row)
        if change.details.get("sign_in") and change.row.sign_in is None:
            # Its last owner may have received cookies from when it was this tenant's before.
            _revoke_browsers()
    for change in changes:
        record_event(change.verb, change.row, **change.details)
        data = {**data_of(change.row), **change.details}
        outbox.publish(f"domain.{change.verb}", data)
    for row in rows:
        _save(row, claims.get(row.domain), tenant_id)


def give_up(row: TenantDomain) -> None:
    """End what the next owner of a domain would receive. Call it likewise."""
    if row.sign_in is not None:
        _revoke_links()
    if row.sign_in:
        sign_in_domain_lost.send(sender=TenantDomain, domain=row.domain)


def _revoke_links() -> None:
    """End the links of mails to the tenant's end users, and the sign-ins under way. Call it in the tenant's transaction.

    The links may lead to a domain that the tenant gives up: its next owner could read their tokens from the address.
    Users ask for another mail. The code in a mail about an address still works, because it is typed by hand. Invitations can
    be sent again. Accepted race: a mail that is written at the same moment.
    """
    END_USERS.tickets._default_manager.filter(purpose__in=OF_ADDRESS).delete()
    for model in (EmailProof, PendingRegistration):
        model.objects.update(token_digest=_of_no_token("token_digest"))
    EndUserInvitation.close_all(now())


def _revoke_browsers() -> None:
    """Sign the tenant's end users out of the hosted pages; their applications stay signed in. Call it as `_revoke_links`.

    A cookie belongs to a domain by its name. When a tenant has a domain again, its last owner may have received old cookies.
    """
    sessions = EndUserSession._default_manager.exclude(browser_digest=None)
    sessions.update(browser_digest=_of_no_token("browser_digest"))
    END_USERS.tickets._default_manager.filter(purpose=REMEMBERED).delete()


def _of_no_token(column: str) -> Func:
    """Return a digest, different in each row, that no value is known for."""
    template = "sha256(%(expressions)s || uuid_send(gen_random_uuid()))"
    return Func(F(column), template=template, output_field=BinaryField())


def record_event(verb: str, row: TenantDomain, **details: object) -> None:
    """Write an audit event about the domain."""
    record_for_tenant(f"domain.{verb}", target=("domain", row.pk), details={"domain": row.domain, **details})


def data_of(row: TenantDomain) -> dict[str, object]:
    """Return what every webhook message about the domain has."""
    return {"domain_id": row.pk, "domain": row.domain}


def lock_rows() -> list[TenantDomain]:
    """Return the domains of the entered tenant. Only one transaction at a time changes them."""
    return list(TenantDomain.objects.select_for_update(no_key=True).order_by("pk"))


def find_unrecorded(tenant_id: UUID) -> Comparison:
    """Return what `check_tenants` reports about the tenant's domains, and the repair. Raises UnknownTenant, TenantBusy."""
    with in_tenant(tenant_id, Purpose.RECORD), tenant_atomic():
        # Locked rows: a change under way is no problem.
        rows, claims = _compared(tenant_id)
    differences = [
        f"{row.domain} {_says(change)}" for row in rows for change in _changes(row, claims.get(row.domain), tenant_id)
    ]
    return Comparison(differences, partial(record_changes, tenant_id=tenant_id))


def _says(change: Change) -> str:
    if change.verb == "withdrawn":
        return "belongs to another tenant" if change.details else "is not verified any more"
    if change.verb == "updated":
        return "is the sign-in domain" if change.details["sign_in"] else "is not the sign-in domain any more"
    return "is verified" if change.verb == "verified" else "has lost its TXT record"


def _compared(tenant_id: UUID) -> tuple[list[TenantDomain], Mapping[str, DomainClaim]]:
    """Return the tenant's domains and the claims on them, of whichever tenant.

    The claims are read after the rows are locked: actions change both while they hold that lock.
    """
    rows = lock_rows()
    claims = domain_claims.claims_about(tenant_id, [row.domain for row in rows])
    known = {row.domain for row in rows}
    # A backup from before the domain has no row.
    missing = [claim for claim in claims.values() if claim.domain not in known]
    return [*rows, *(TenantDomain(domain=claim.domain, token=claim.token) for claim in missing)], claims


def _changes(row: TenantDomain, claim: DomainClaim | None, tenant_id: UUID) -> Iterator[Change]:
    was_verified = row.checked_at is not None
    if claim is None or claim.tenant_id != tenant_id:
        if was_verified:
            yield Change("withdrawn", row, {} if claim is None else {"taken": True})
        return
    if not was_verified:
        yield Change("verified", row, {})
    if claim.sign_in != bool(row.sign_in):
        yield Change("updated", row, {"sign_in": claim.sign_in})
    if claim.lost_since and not row.lost_since:
        yield Change("record_lost", row, {"withdrawn_after": claim.lost_since + GRACE})


def _save(row: TenantDomain, claim: DomainClaim | None, tenant_id: UUID) -> None:
    before = (row.token, row.checked_at, row.lost_since, row.sign_in)
    if claim is None or claim.tenant_id != tenant_id:
        row.checked_at = row.lost_since = row.sign_in = None
    else:
        # Of a domain that was added again since the backup, the record in DNS has the token of the claim.
        row.token, row.checked_at = claim.token, row.checked_at or claim.checked_at or claim.claimed_at
        row.lost_since = claim.lost_since
        was_there = row.sign_in is not None or claim.sign_in_ended_at is not None
        row.sign_in = claim.sign_in or (False if was_there else None)
    if before != (row.token, row.checked_at, row.lost_since, row.sign_in):
        row.save()
