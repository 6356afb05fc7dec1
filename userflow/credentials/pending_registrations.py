"""Registrations that wait for their address to be verified, where the tenant requires it.

Each registration waits by itself, with the password that was sent with it, until its own link or code comes back: then it
becomes a user with this password, and the other registrations of the address end. Until then it is no user: anyone can
register an address that is not theirs, so it must neither displace another registration nor change what that one does.

A registration of an address that a user has already is stored as well, and its link and code are sent to no one: what the
caller can see, and the time that it takes, are the same.
"""

from base64 import urlsafe_b64encode
from datetime import timedelta
from typing import Final
from uuid import UUID

from django.conf import settings
from django.db.models import Case, Count, Q, QuerySet, When
from django.utils.timezone import now

from identity_platform.api.email_addresses import email_key
from identity_platform.audit.writer import record_for_tenant
from identity_platform.crypto import constant_time_equal, hash_token, keyed_digest
from tenants import keys
from tenants.entering import lookup
from userflow.accounts.event_payloads import person
from userflow.accounts.models import DEFAULT_ROLE, LOCAL, EndUser, Role, RoleBinding
from userflow.accounts.realms import END_USERS
from userflow.credentials import attempts, passwords, unused_registrations
from userflow.credentials import email_verification as proofs
from userflow.credentials.models import PendingRegistration
from userflow.errors import EmailProofInvalid, EmailTaken, TooManyFromAddress
from userflow.events.outbox import publish

# A link that sets a new password lives as long as that of a reset.
RESET_LIFETIME: Final = timedelta(minutes=30)
# Mails of one request to send again.
MAX_RESENT: Final = 3
_SALT_BYTES: Final = 16


def limit_waiting(key: str) -> None:
    """Raise TooManyFromAddress (429) when too many registrations of the caller's network wait, of this address or at all.

    Others' are not counted: they must not use up what the owner of an address needs.
    """
    waiting = PendingRegistration.objects.filter(network=attempts.caller_network() or "", expires_at__gt=now())
    of_address = Count("pk", filter=Q(email_key=key))
    counted = waiting.aggregate(of_address=of_address, of_network=Count("pk"))
    if (
        counted["of_address"] >= settings.PENDING_REGISTRATIONS_PER_ADDRESS
        or counted["of_network"] >= settings.PENDING_REGISTRATIONS_PER_NETWORK
    ):
        raise TooManyFromAddress(
            "Too many registrations wait for their verification. Verify one of them, or retry later.", retry_after=3600
        )


def wait_for(key: str) -> bool:
    """Return whether registrations of this address (its `email_key`) wait for their verification."""
    return _waiting(key).exists()


def hash_password(key: str, password: str, tenant: lookup.TenantContext) -> str:
    """Return the hash of the password of a registration of this address (its `email_key`).

    All registrations of one address have one salt, which is secret until then and differs by address and tenant: a sign-in
    then compares its password with all of them by one hash, so that the time does not tell how many there are.
    """
    digest = keyed_digest(key, key=keys.tenant_key(tenant.tenant_id), purpose="salt of pending registrations")
    return passwords.hashed(password, salt=urlsafe_b64encode(digest[:_SALT_BYTES]).rstrip(b"=").decode())


def start(
    *, email: str, name: str, client_id: UUID, password: str, tenant: lookup.TenantContext, mails: bool = True
) -> EndUser:
    """Store a registration and mail its link and code. Return the user that it becomes, who does not exist yet.

    `password` is the hash. Without `mails` the row is stored all the same, see above. Call it in the tenant's transaction.
    """
    row = PendingRegistration(
        email=email, email_key=email_key(email), name=name, client_id=client_id, password=password
    )
    issued = proofs.issue_secrets(row, tenant)
    row.save(force_insert=True)
    record_for_tenant("end_user.registered", target=("end_user", row.pk), details={"client_id": str(client_id)})
    if mails:
        _mail(row, issued, tenant)
    return user_of(row)


def resend(key: str, tenant: lookup.TenantContext, *, registration_id: UUID | None) -> int:
    """Mail the links and codes of registrations again: of one, or of those of the address that wait. Return how many.

    The caller's own come first, then the oldest. Call it in the tenant's transaction. Not for an address that has a verified
    user: these registrations cannot be completed.
    """
    waiting = _waiting(key).exclude(password="")
    if registration_id is not None:
        waiting = waiting.filter(pk=registration_id)
    own_first = Case(When(network=attempts.caller_network() or "", then=0), default=1)
    chosen = list(waiting.order_by(own_first, "expires_at").values_list("pk", "network")[:MAX_RESENT])
    from_caller_network = [pk for pk, network in chosen if network == (attempts.caller_network() or "")]
    # Locked in one order, as everywhere.
    rows = list(
        waiting.filter(pk__in=from_caller_network or [pk for pk, _ in chosen]).order_by("pk").select_for_update()
    )
    for row in rows:
        _mail(row, proofs.repeat_secrets(row, tenant), tenant)
    return len(rows)


def _mail(row: PendingRegistration, issued: proofs.MailSecrets, tenant: lookup.TenantContext) -> None:
    END_USERS.notify(user_of(row), "email_proof", proofs.mail_facts(row, issued, tenant))


def user_of(row: PendingRegistration) -> EndUser:
    """Return the user that a registration becomes, not stored."""
    return EndUser(
        id=row.pk,
        email=row.email,
        email_key=row.email_key,
        name=row.name,
        provider=LOCAL,
        client_id=row.client_id,
        password=row.password,
        self_registered=True,
    )


def start_reset(key: str, tenant: lookup.TenantContext) -> tuple[EndUser, str] | None:
    """Store a request of a new password for an address that only has registrations; return its user and token.

    None if no registration waits. Call it in the tenant's transaction.
    """
    first = _waiting(key).exclude(password="").order_by("created_at").first()
    if first is None:
        return None
    # The name may be another person's; the client is one that takes registrations.
    row = PendingRegistration(email=first.email, email_key=key, client_id=first.client_id)
    issued = proofs.issue_secrets(row, tenant, lifetime=RESET_LIFETIME)
    # Its mail has no code.
    row.code_digest = b""
    row.save(force_insert=True)
    record_for_tenant("password.reset_asked", target=("end_user", row.pk))
    return user_of(row), issued.token


def find_reset(token: str) -> PendingRegistration | None:
    """Return the request of a new password that this token was mailed for."""
    valid = PendingRegistration.objects.filter(token_digest=hash_token(token), expires_at__gt=now())
    return valid.filter(password="").first()


def find_by_password(key: str, password: str, tenant: lookup.TenantContext) -> PendingRegistration | None:
    """Return a registration of this address with this password. It takes the same time if there is none."""
    encoded = hash_password(key, password[: passwords.LONGEST], tenant)
    rows = _waiting(key).exclude(password="").order_by("pk")
    matching = [row for row in rows if constant_time_equal(row.password, encoded)]
    return matching[0] if matching and len(password) <= passwords.LONGEST else None


def _waiting(key: str) -> "QuerySet[PendingRegistration]":
    return PendingRegistration.objects.filter(email_key=key, expires_at__gt=now())


def consume(row: PendingRegistration) -> None:
    """Lock the registrations of the address, in one order. Raises EmailProofInvalid if this one was used or has ended."""
    locked = PendingRegistration.objects.select_for_update().filter(email_key=row.email_key).order_by("pk")
    if (row.pk, bytes(row.token_digest)) not in {(other.pk, bytes(other.token_digest)) for other in locked}:
        raise EmailProofInvalid


def complete(row: PendingRegistration, *, password: str | None = None) -> EndUser:
    """Store the user of a registration whose link or code came back, verified, with its password or a new hash.

    The other registrations of the address end, and so do unused users who have it. Of several registrations at the same
    moment one wins. Call it in the tenant's transaction. Raises EmailProofInvalid (used or ended), EmailTaken.
    """
    key = row.email_key
    # Users first, as everywhere, then the registrations: another order could deadlock.
    list(EndUser.objects.select_for_update().filter(email_key=key).values_list("pk"))
    consume(row)
    unused_registrations.release_addresses([key], to="verification")
    if EndUser.objects.filter(Q(email_key=key) | unused_registrations.reserving(key)).exists():
        raise EmailTaken
    user = user_of(row)
    user.email_verified_at = now()
    user.password = password or user.password
    user.save(force_insert=True)
    RoleBinding.objects.bulk_create(
        RoleBinding(user=user, role=role) for role in Role.objects.filter(name=DEFAULT_ROLE)
    )
    record_for_tenant("email.proven", target=("end_user", user.pk), details={"changed": False, "registrant": True})
    publish("end_user.created", person(user, via="registration"))
    publish("end_user.email_verified", {"user_id": user.pk, "email": user.email})
    return user
