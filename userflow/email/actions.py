"""Verify an e-mail address by link or code, and resend the mail."""

from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from django.db.models import F
from django.utils.timezone import now

from identity_platform.api.email_addresses import email_key
from identity_platform.api.errors import ApiError, NotAllowed
from identity_platform.audit.writer import record_for_tenant
from identity_platform.crypto import hash_token, same
from identity_platform.postgresql.row_errors import first_or, unique_or
from tenants import lookup
from tenants.context import current_tenant, in_tenant, tenant_atomic
from tenants.errors import UnknownTenant
from tenants.states import Purpose
from userflow import mail
from userflow.accounts.event_payloads import person
from userflow.accounts.models import AdminUser, EndUser
from userflow.accounts.principals import END_USER, Principal
from userflow.accounts.rank import must_outrank
from userflow.accounts.realms import END_USERS
from userflow.credentials import attempts, tickets
from userflow.credentials import email_verification as proofs
from userflow.credentials import unused_registrations as yielding
from userflow.credentials.models import EmailProof
from userflow.email import ownership
from userflow.email.admin_proofs import verify_admin_email
from userflow.errors import (
    AlreadyVerified,
    AttemptsLocked,
    EmailProofInvalid,
    EmailTaken,
    MailBusy,
    NoPasswordHere,
    NotSignedInByTicket,
    TooManyFromAddress,
    UnknownUser,
    UserDeactivated,
)
from userflow.events.outbox import publish
from userflow.mailed_tokens import NotAToken, place_of
from userflow.sessions.assurance import Action, require_assurance
from userflow.sessions.ending import end_sessions, require_active_session
from userflow.sessions.permissions import editing_users, require
from userflow.signin.proofs import check_password, wrong_password
from userflow.user_index.entries import index_after_commit

MAX_PENDING = 5


@dataclass(frozen=True, slots=True)
class Registrant:
    """Evidence that a verification is sent by the user, not only by a reader of the mail.

    Without it, the first verification of an address ends what was set up before; see `ownership`.
    """

    principal: Principal | None = None
    enrollment_ticket: str | None = None
    current_password: str | None = None


def verify_email_by_token(*, token: str, registrant: Registrant) -> EndUser | AdminUser:
    """Verify an address with the token of its mail; return the user, an admin user as well.

    Raises EmailProofInvalid (unknown, used, expired), EmailTaken or AdminNameTaken (another user has taken the new address
    meanwhile), TenantSuspended, TenantBusy, TooManyFromAddress, and for what the registrant sends: NotAllowed (a token of
    another user), NotSignedInByTicket, WrongCurrentPassword, NoPasswordHere, AttemptsLocked, HashersBusy. Then the proof
    stays.
    """
    try:
        tenant_id = place_of(token)
        if tenant_id is None:
            return verify_admin_email(token=token)
        with in_tenant(tenant_id, Purpose.WRITE):
            proof = first_or(
                EmailProof.objects.filter(token_digest=hash_token(token), expires_at__gt=now()), EmailProofInvalid
            )
            return _verify(proof, registrant)
    except (NotAToken, UnknownTenant, EmailProofInvalid) as problem:
        attempts.count_wrong_secret()
        raise EmailProofInvalid from problem


@attempts.guess("signin", attempts.WRONG_SECRET)
def verify_email_by_code(*, tenant_id: UUID, email: str, code: str, registrant: Registrant) -> EndUser:
    """Verify an address with the six digits of its mail; five attempts, counted before the code is compared.

    Unknown tenant, unknown address and wrong code get the same response. Raises what `verify_email_by_token` raises.
    """
    try:
        with in_tenant(tenant_id, Purpose.WRITE) as tenant:
            # Several users may be verifying one address; the code tells which of them is meant.
            asked = EmailProof.objects.filter(
                email_key=email_key(email), expires_at__gt=now(), created_at__gt=now() - proofs.CODE_LIFETIME
            )
            for proof in asked.order_by("-created_at")[:MAX_PENDING]:
                if _is_code_of(proof, code, tenant):
                    attempts.clear(END_USERS, proof.pk, factor=attempts.EMAIL_CODE)
                    return _verify(proof, registrant)
            raise EmailProofInvalid
    except (UnknownTenant, EmailProofInvalid) as problem:
        attempts.count_wrong_secret()
        raise EmailProofInvalid from problem


def _is_code_of(proof: EmailProof, code: str, tenant: lookup.TenantContext) -> bool:
    """Count the attempt, then compare. Both counters are committed first, so parallel guesses count one by one.

    The counter of the proof allows five attempts per mail. The counter of the user exists because every new mail brings
    five more: a caller who requests many mails to an address must not guess through all codes.
    """
    try:
        attempts.count(END_USERS, proof.pk, factor=attempts.EMAIL_CODE)
    except AttemptsLocked:
        # The same response as for a wrong code: a lock would reveal that this address is being verified.
        return False
    counted = EmailProof.objects.filter(
        pk=proof.pk, token_digest=proof.token_digest, wrong_codes__lt=proofs.WRONG_CODES_ALLOWED
    ).update(wrong_codes=F("wrong_codes") + 1)
    if counted and same(proofs.code_digest(tenant, proof.pk, code), bytes(proof.code_digest)):
        return True
    record_for_tenant("email.proof_refused", target=("end_user", proof.pk), outcome="refused")
    return False


def _verify(proof: EmailProof, registrant: Registrant) -> EndUser:
    """Consume the proof and mark the address verified. Of two concurrent requests, one wins."""
    compared = _check_password(proof.pk, registrant)
    with unique_or(EmailTaken), tenant_atomic():
        # Lock the user first, as everywhere: another order could deadlock.
        user = EndUser.objects.select_for_update().filter(pk=proof.pk, active=True).first()
        spent, _ = EmailProof.objects.filter(pk=proof.pk, token_digest=proof.token_digest).delete()
        if not spent or user is None:
            raise EmailProofInvalid
        is_own = _is_registrant(user, registrant, compared)
        unverified, changed = user.email_verified_at is None, user.email_key != proof.email_key
        if changed:
            yielding.release_addresses([proof.email_key], to="verification")
        user.email, user.email_key, user.email_verified_at = proof.email, proof.email_key, now()
        user.save(update_fields=["email", "email_key", "email_verified_at", "updated_at"])
        if changed:
            index_after_commit({user.pk: user.email_key})
            tickets.end_tickets(END_USERS, user.pk, purposes=tickets.OF_ADDRESS)
            end_sessions(END_USERS, user_id=user.pk, keep=proof.session_id, reason="email_changed")
        ended = ownership.end_unverified_use(user) if unverified and not is_own else {}
        details = {"changed": changed, "registrant": is_own, **ended}
        record_for_tenant("email.proven", target=("end_user", user.pk), details=details)
        if any(ended.values()):
            proofs.tell_of_ended_use(user)
        if changed:
            publish("end_user.updated", person(user, changed=["email"]))
        publish("end_user.email_verified", {"user_id": user.pk, "email": user.email})
    return user


def _check_password(user_id: UUID, registrant: Registrant) -> str | None:
    """Return the stored hash if the sent password matches, None if none was sent. A wrong one is counted and rejected."""
    if registrant.current_password is None:
        return None
    user = EndUser.objects.filter(pk=user_id, active=True).first()
    if user is None or not user.password:
        raise NoPasswordHere
    check_password(END_USERS, user, registrant.current_password, tenant_id=current_tenant().tenant_id)
    return user.password


def _is_registrant(user: EndUser, registrant: Registrant, compared: str | None) -> bool:
    """Return whether one of the proofs shows that the user sends the request. Call it with the user's row locked.

    Raises for a proof that is invalid or of another user, because without a proof more ends than the sender may expect.
    """
    principal = registrant.principal
    if principal is not None:
        if (principal.kind, principal.tenant_id, principal.id) != (END_USER, current_tenant().tenant_id, user.pk):
            raise NotAllowed("The access token belongs to another user. Repeat the request without it.")
        require_active_session(END_USERS, principal)
    if registrant.enrollment_ticket is not None:
        ticket = tickets.find_ticket(END_USERS, registrant.enrollment_ticket, tickets.ENROLLMENT)
        if ticket.user.pk != user.pk:
            raise NotSignedInByTicket
    if compared is not None and compared != user.password:
        raise wrong_password()
    return registrant != Registrant()


def send_email_proof(*, tenant_id: UUID, user_id: UUID, by: Principal) -> str:
    """Send a new link and code to the address of an end user that waits for verification, at the request of an admin.

    A pending new address comes first, and keeps its expiry. The older link and code end. Return the address. Raises
    InsufficientScope, UnknownUser, UserDeactivated, AlreadyVerified, GrantsMoreThanHeld (a user who holds more than the
    caller), TooManyFromAddress, TenantSuspended, TenantBusy.
    """
    require(by, "endusers:write")
    with in_tenant(tenant_id) as tenant, tenant_atomic():
        user = _locked_for_admin(user_id, by)
        pending = EmailProof.objects.filter(user=user, expires_at__gt=now()).exclude(email_key=user.email_key).first()
        if pending is None and user.email_verified_at is not None:
            raise AlreadyVerified
        mail.limit("resend_by_admin", f"{tenant_id} {user_id}", "Too many mails for this user.", limits="email_resend")
        if pending is not None:
            key, until, keep = pending.email_key, pending.expires_at, pending.session_id
            proofs.start_proof(user, pending.email, key, tenant, until=until, keep=keep)
        else:
            proofs.start_proof(user, user.email, user.email_key, tenant)
        record_for_tenant("email.proof_sent", target=("end_user", user.pk), details={"changes": pending is not None})
    return pending.email if pending is not None else user.email


def mark_email_verified(*, tenant_id: UUID, user_id: UUID, reason: str, by: Principal) -> EndUser:
    """Mark the current address of an end user as verified: the admin knows that it is the user's own.

    As with any first verification that does not show that the registrant asks for it, sessions end and factors go
    (`ownership`). A pending new address still waits. Raises InsufficientScope, InsufficientAuthentication, UnknownUser,
    UserDeactivated, AlreadyVerified, GrantsMoreThanHeld (a user who holds more than the caller), TenantSuspended,
    TenantBusy.
    """
    require(by, "endusers:write")
    require_assurance(Action.CHANGE_EMAIL_OF_OTHERS, by)
    with in_tenant(tenant_id, editing_users(by)), tenant_atomic():
        user = _locked_for_admin(user_id, by)
        if user.email_verified_at is not None:
            raise AlreadyVerified
        EmailProof.objects.filter(user=user, email_key=user.email_key).delete()
        user.email_verified_at = now()
        user.save(update_fields=["email_verified_at", "updated_at"])
        ended = ownership.end_unverified_use(user)
        details = {"by": "admin", "reason": reason, **ended}
        record_for_tenant("email.proven", target=("end_user", user.pk), details=details)
        if any(ended.values()):
            proofs.tell_of_ended_use(user)
        publish("end_user.email_verified", {"user_id": user.pk, "email": user.email})
    return user


def _locked_for_admin(user_id: UUID, by: Principal) -> EndUser:
    user = first_or(EndUser.objects.select_for_update().filter(pk=user_id), UnknownUser)
    must_outrank(by, user)
    if not user.active:
        raise UserDeactivated
    return user


def resend_email_proof(*, tenant_id: UUID, email: str) -> None:
    """Send a new link and code to an address that waits for verification; the old ones end.

    Neither the response nor its timing reveals whether the address waits: the work runs after the response. Raises
    TooManyFromAddress (also for an address without a user), MailBusy.
    """
    attempts.limit_address("signin")
    key = email_key(email)
    mail.limit("email_resend", hash_token(f"{tenant_id} {key}").hex(), "Too many mails for this address.")
    mail.later(lambda: _send_if_waiting(tenant_id, key), to=key)


def remind_of_email_proof(*, tenant_id: UUID, email: str) -> None:
    """Send them as `resend_email_proof` does, but with limits of its own and without errors.

    For pages that must not tell whether the address waits: a limit that callers can see would tell them by being used up.
    """
    key = email_key(email)

    def work() -> None:
        with suppress(TooManyFromAddress):
            mail.limit("email_reminder", hash_token(f"{tenant_id} {key}").hex(), "", limits="email_resend")
            _send_if_waiting(tenant_id, key)

    with suppress(MailBusy):
        mail.later(work, to=key)


def _send_if_waiting(tenant_id: UUID, key: str) -> None:
    """Send new mails about an address. The request is unauthenticated, so it must not change who gets the address.

    If a user has the address, only this user gets a mail: other pending proofs could only fail with EmailTaken. If no user
    has it, all users who wait for it get a mail, because the caller is unknown. A pending change keeps its expiry, and one
    that was given up does not come back: its row is locked before it is read. A caller can only replace the link and code
    of the previous mail, at most five times an hour (`resend_email_proof`).
    """
    # No mail for an unknown or unavailable tenant, and the same response.
    with suppress(ApiError), in_tenant(tenant_id, Purpose.WRITE) as tenant:
        with tenant_atomic():
            owner = EndUser.objects.select_for_update().filter(email_key=key).first()
            if owner is not None:
                pending = EmailProof.objects.filter(user=owner).values_list("email_key", flat=True).first()
                # A pending proof of another address of this user stays as it is.
                if pending in (key, None) and owner.active and owner.email_verified_at is None:
                    proofs.start_proof(owner, owner.email, owner.email_key, tenant)
                return
        wanted = EmailProof.objects.filter(email_key=key, expires_at__gt=now()).order_by("-created_at")
        for user_id in list(wanted.values_list("pk", flat=True)[:MAX_PENDING]):
            with tenant_atomic():
                proof = wanted.select_for_update(of=("self",)).select_related("user").filter(pk=user_id).first()
                if proof is not None and proof.user.active:
                    proofs.start_proof(
                        proof.user, proof.email, proof.email_key, tenant, until=proof.expires_at, keep=proof.session_id
                    )
