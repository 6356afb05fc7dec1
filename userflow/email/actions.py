"""Verify an e-mail address by link or code, and resend the mail."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from uuid import UUID, uuid4

from django.conf import settings
from django.db.models import Case, F, Q, When
from django.utils.timezone import now

from identity_platform.api import ratelimit
from identity_platform.api.email_addresses import email_key
from identity_platform.api.errors import ApiError, NotAllowed
from identity_platform.api.response_time import rounding
from identity_platform.audit.writer import record_for_tenant
from identity_platform.crypto import constant_time_equal, hash_token
from identity_platform.postgresql.row_errors import first_or, unique_or
from tenants import operating_modes
from tenants.entering import lookup
from tenants.entering.context import current_tenant, in_tenant, tenant_atomic
from tenants.entering.target import TENANT_ALIAS
from tenants.errors import UnknownTenant
from tenants.states import Purpose
from userflow.accounts.event_payloads import person
from userflow.accounts.models import AdminUser, EndUser
from userflow.accounts.principals import END_USER, Principal
from userflow.accounts.rank import must_outrank
from userflow.accounts.realms import END_USERS
from userflow.credentials import attempts, pending_registrations, tickets, unused_registrations
from userflow.credentials import email_verification as proofs
from userflow.credentials.models import EmailProof, MailedCode, PendingRegistration
from userflow.email import ownership
from userflow.email.admin_proofs import verify_admin_email
from userflow.errors import (
    AlreadyVerified,
    AttemptsLocked,
    EmailProofInvalid,
    EmailTaken,
    NoPasswordHere,
    TooManyFromAddress,
    UnknownUser,
    UserDeactivated,
)
from userflow.events.outbox import publish
from userflow.mail.budgets import limit_mails
from userflow.mail.queue import queue_request
from userflow.mailed_tokens import NotAToken, place_of
from userflow.sessions.assurance import Action, require_assurance
from userflow.sessions.ending import end_everything, end_sessions, require_active_session
from userflow.sessions.permissions import editing_users, require
from userflow.signin.proofs import check_password, wrong_password

MAX_PENDING = 5
# Codes that one attempt is compared with.
MAX_COMPARED = 15


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
        with in_tenant(tenant_id, Purpose.WRITE) as tenant:
            valid = {"token_digest": hash_token(token), "expires_at__gt": now()}
            email_proof = EmailProof.objects.filter(**valid).first()
            if email_proof is not None:
                return _verify(email_proof, registrant)
            registration = first_or(PendingRegistration.objects.filter(**valid).exclude(password=""), EmailProofInvalid)
            return _complete(registration, registrant, tenant)
    except (NotAToken, UnknownTenant, EmailProofInvalid) as problem:
        attempts.count_wrong_secret()
        raise EmailProofInvalid from problem


@rounding(EmailProofInvalid)
@attempts.guess("signin", attempts.WRONG_SECRET)
def verify_email_by_code(
    *, tenant_id: UUID, email: str, code: str, registrant: Registrant, user_id: UUID | None = None
) -> EndUser:
    """Verify an address with the six digits of its mail; the attempt is counted before the code is compared.

    `user_id`, the id that the registration returned, allows only the code of that registration or user, and has attempts of
    its own. Unknown tenant, unknown address and wrong code get the same response after the same steps. Raises what
    `verify_email_by_token` raises.
    """
    try:
        with in_tenant(tenant_id, Purpose.WRITE) as tenant:
            rows = _count_attempt(email_key(email), user_id)
            for row in rows:
                if constant_time_equal(proofs.code_digest(tenant, row.pk, code), bytes(row.code_digest)):
                    attempts.clear(END_USERS, _guesser(row.email_key, user_id), factor=attempts.EMAIL_CODE)
                    if isinstance(row, EmailProof):
                        return _verify(row, registrant)
                    assert isinstance(row, PendingRegistration)
                    return _complete(row, registrant, tenant)
            # Also for an unknown address, so that it costs the same.
            target = ("end_user", rows[0].pk) if rows else None
            record_for_tenant("email.proof_refused", target=target, outcome="refused")
            raise EmailProofInvalid
    except (UnknownTenant, EmailProofInvalid) as problem:
        attempts.count_wrong_secret()
        raise EmailProofInvalid from problem


def _count_attempt(key: str, user_id: UUID | None) -> list[MailedCode]:
    """Count an attempt at the codes of an address; return the rows whose codes may be compared.

    Several users may be verifying one address; the code tells which of them is meant. All counters are committed first, so
    parallel guesses count one by one. Those of the rows limit the attempts per code, from elsewhere and by the first caller
    apart. That of the caller's network, or of the id that the caller knows, exists because every new mail brings more: a
    caller who requests many mails to an address must not guess through all codes, nor use up the attempts of others.
    """
    valid = Q(email_key=key, expires_at__gt=now(), created_at__gt=now() - proofs.CODE_LIFETIME)
    is_own = Q(network=attempts.caller_network() or "")
    if user_id is None:
        from_elsewhere = ~is_own & Q(wrong_codes__lt=proofs.WRONG_CODES_FROM_ELSEWHERE)
        valid &= (is_own & Q(own_wrong_codes__lt=proofs.OWN_WRONG_CODES)) | from_elsewhere
    else:
        # No other caller can use up the attempts of a caller who knows the id: only those with it count.
        valid &= Q(pk=user_id)
    increment = 0 if user_id else 1
    own_increment = Case(When(is_own, then=increment), default=0)
    rows: list[MailedCode] = []
    # Of all callers together: each may register the address, and each registration has a code. The links go on.
    most, seconds = settings.LIMITS["email_codes"]
    address = hash_token(f"{current_tenant().tenant_id} {key}").hex()
    if ratelimit.count(group="email_codes", key=address, limit=most, period=seconds).limited:
        return rows
    with tenant_atomic():
        try:
            attempts.count(END_USERS, _guesser(key, user_id), factor=attempts.EMAIL_CODE)
        except AttemptsLocked:
            # The same response as for a wrong code: a lock would reveal that this address is being verified.
            return rows
        for model in (EmailProof, PendingRegistration):
            # The caller's own, then the oldest: later ones must not displace them.
            own_first = Case(When(is_own, then=0), default=1)
            waiting = model._default_manager.filter(valid)
            chosen = list(waiting.order_by(own_first, "created_at").values_list("pk", flat=True)[:MAX_COMPARED])
            # Locked in one order, as everywhere; those that a parallel attempt has used up are left out.
            compared = list(waiting.filter(pk__in=chosen or [uuid4()]).order_by("pk").select_for_update())
            counted = model._default_manager.filter(pk__in=[row.pk for row in compared] or [uuid4()])
            counted.update(
                own_wrong_codes=F("own_wrong_codes") + own_increment,
                wrong_codes=F("wrong_codes") + increment - own_increment,
            )
            rows += compared
    return rows


def _guesser(key: str, user_id: UUID | None) -> str:
    """Return whose attempts at codes are counted together: those with one id, else those of a network at an address."""
    return f"{key} {user_id or attempts.caller_network() or ''}"


def _verify(email_proof: EmailProof, registrant: Registrant) -> EndUser:
    """Consume the proof and mark the address verified. Of two concurrent requests, one wins."""
    compared = _check_password(email_proof.pk, registrant)
    with unique_or(EmailTaken), tenant_atomic():
        # Lock the user first, as everywhere: another order could deadlock.
        user = EndUser.objects.select_for_update().filter(pk=email_proof.pk, active=True).first()
        spent, _ = EmailProof.objects.filter(pk=email_proof.pk, token_digest=email_proof.token_digest).delete()
        if not spent or user is None:
            raise EmailProofInvalid
        is_own = _is_registrant(user, registrant, compared)
        unverified, changed = user.email_verified_at is None, user.email_key != email_proof.email_key
        if changed:
            _reject_strange_change(email_proof.email_key, is_own=is_own)
            unused_registrations.release_addresses([email_proof.email_key], to="verification")
        else:
            unused_registrations.end_pending([email_proof.email_key])
        user.email, user.email_key, user.email_verified_at = email_proof.email, email_proof.email_key, now()
        user.save(update_fields=["email", "email_key", "email_verified_at", "updated_at"])
        if changed:
            tickets.end_tickets(END_USERS, user.pk, purposes=tickets.OF_ADDRESS)
            end_sessions(END_USERS, user_id=user.pk, keep=email_proof.session_id, reason="email_changed")
        ended = ownership.end_unverified_use(user) if unverified and not is_own else {}
        details = {"changed": changed, "registrant": is_own, **ended}
        record_for_tenant("email.proven", target=("end_user", user.pk), details=details)
        if any(ended.values()):
            proofs.tell_of_ended_use(user)
        if changed:
            publish("end_user.updated", person(user, changed=["email"]))
        publish("end_user.email_verified", {"user_id": user.pk, "email": user.email})
    return user


def _reject_strange_change(key: str, *, is_own: bool) -> None:
    """Raise EmailTaken where the address is being registered and nothing shows that the user of the change verifies it.

    The owner of the address who has registered it must not give it to the account of another by following the older mail.
    """
    pending = PendingRegistration.objects.filter(email_key=key, expires_at__gt=now()).exclude(password="")
    if not is_own and (pending.exists() or EndUser.objects.filter(email_key=key).exists()):
        raise EmailTaken(
            "A user with this address is being registered. Sign in as the user who changes to it, and verify it again."
        )


def _complete(row: PendingRegistration, registrant: Registrant, tenant: lookup.TenantContext) -> EndUser:
    """Make the user of a registration, or set its password for the unused user who has the address.

    What the registrant sends must belong to the registration, as in `_verify`.
    """
    if registrant.current_password is not None:
        user = pending_registrations.user_of(row)
        check_password(END_USERS, user, registrant.current_password, tenant_id=tenant.tenant_id)
    with unique_or(EmailTaken), tenant_atomic():
        _is_registrant(pending_registrations.user_of(row), replace(registrant, current_password=None), None)
        # Users first, as everywhere, then the registrations: another order could deadlock.
        unused = unused_registrations.giving_way(row.email_key).exclude(EndUser.YIELDS)
        holder = unused.select_for_update(of=("self",)).first()
        if holder is None:
            return pending_registrations.complete(row)
        return _take_over(holder, row)


def _take_over(user: EndUser, row: PendingRegistration) -> EndUser:
    """Set the password of a registration for an unused user of an admin or an import, as a reset by mail would."""
    pending_registrations.consume(row)
    user.password, user.password_changed_at = row.password, now()
    user.save(update_fields=["password", "password_changed_at", "updated_at"])
    ended = end_everything(END_USERS, user_id=user.pk, reason="password_reset")
    ownership.verify_by_reset(END_USERS, user)
    record_for_tenant("password.reset", target=("end_user", user.pk), details={"by": "registration"})
    publish("end_user.password_reset", {"user_id": user.pk, "sessions_ended": ended})
    proofs.tell_of_ended_use(user)
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
        tickets.find_enrollment_ticket(END_USERS, user, registrant.enrollment_ticket, tickets.ENROLLMENT)
    if compared is not None and compared != user.password:
        raise wrong_password()
    return registrant != Registrant()


def send_email_proof(*, tenant_id: UUID, user_id: UUID, by: Principal) -> str:
    """Send link and code to the address of an end user that waits for verification, at the request of an admin.

    A pending new address comes first, and keeps its expiry. Those that are valid are sent again. Return the address. Raises
    InsufficientScope, UnknownUser, UserDeactivated, AlreadyVerified, GrantsMoreThanHeld (a user who holds more than the
    caller), TooManyFromAddress, TenantSuspended, TenantBusy.
    """
    require(by, "endusers:write")
    with in_tenant(tenant_id) as tenant, tenant_atomic():
        user = _locked_for_admin(user_id, by)
        changes = EmailProof.objects.select_for_update().filter(user=user, expires_at__gt=now())
        pending = changes.exclude(email_key=user.email_key).first()
        if pending is None and user.email_verified_at is not None:
            raise AlreadyVerified
        limit_mails("resend_by_admin", f"{tenant_id} {user_id}", "Too many mails for this user.", limits="email_resend")
        email_proof = pending or EmailProof.objects.select_for_update().filter(user=user, expires_at__gt=now()).first()
        if email_proof is not None:
            proofs.repeat_proof(user, email_proof, tenant)
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
        unused_registrations.end_pending([user.email_key])
        publish("end_user.email_verified", {"user_id": user.pk, "email": user.email})
    return user


def _locked_for_admin(user_id: UUID, by: Principal) -> EndUser:
    user = first_or(EndUser.objects.select_for_update().filter(pk=user_id), UnknownUser)
    must_outrank(by, user)
    if not user.active:
        raise UserDeactivated
    return user


def resend_email_proof(*, tenant_id: UUID, email: str, user_id: UUID | None = None) -> None:
    """Send the link and code of an address that waits for verification again; those that are valid stay valid.

    `user_id`, if given, is the registration or user that is meant. Neither the response nor its timing reveals whether the
    address waits: what is found runs after the response. Raises TooManyFromAddress (also for an address without a user),
    ReadOnlyMode.
    """
    operating_modes.check_platform()
    attempts.limit_address("signin")
    key = email_key(email)
    # Callers who know the id have a limit of their own, which others cannot use up.
    address = hash_token(f"{tenant_id} {key} {user_id or ''}").hex()
    limit_mails("email_resend", address, "Too many mails for this address.")
    _request("email_proof", tenant_id, key, {"user_id": user_id and str(user_id)})


def remind_of_email_proof(*, tenant_id: UUID, email: str) -> None:
    """Send them as `resend_email_proof` does, but with limits of its own and without errors.

    For pages that must not tell whether the address waits: a limit that callers can see would tell them by being used up.
    """
    _request("email_reminder", tenant_id, email_key(email), {})


def _request(kind: str, tenant_id: UUID, key: str, values: Mapping[str, object]) -> None:
    # No mail for an unknown or unavailable tenant, and the same response.
    with suppress(ApiError), in_tenant(tenant_id, Purpose.WRITE):
        queue_request(kind, address=key, values=values, after=TENANT_ALIAS)


def remind_if_waiting(key: str, values: Mapping[str, object]) -> None:
    """Do what `remind_of_email_proof` asked for, in the entered tenant's transaction."""
    with suppress(TooManyFromAddress):
        # By network: others must not use up what the owner of the address may cause.
        caller = hash_token(f"{current_tenant().tenant_id} {key} {attempts.caller_network()}").hex()
        limit_mails("email_reminder", caller, "", limits="email_resend")
        send_if_waiting(key, values)


def send_if_waiting(key: str, values: Mapping[str, object]) -> None:
    """Send the mails about an address again, in the entered tenant's transaction; `values` may have a `user_id`.

    The request is unauthenticated, so it must not change who gets the address.

    If a user has the address for good, only this user gets a mail: other pending proofs could only fail with EmailTaken. If
    it is being registered, the registrations come first, as they do when it is verified. Otherwise all users who wait for it
    get a mail, because the caller is unknown. A pending change that was given up does not come back: its row is locked before
    it is read.
    """
    tenant = current_tenant()
    if not tenant.allows(Purpose.WRITE):
        return
    user_id = UUID(str(values["user_id"])) if values.get("user_id") else None
    owner = EndUser.objects.select_for_update().filter(email_key=key).first()
    if owner is not None and user_id in (None, owner.pk):
        _send_to_owner(owner, tenant)
    if owner is not None and (user_id == owner.pk or not unused_registrations.giving_way(key).exists()):
        return
    mailed = pending_registrations.resend(key, tenant, registration_id=user_id)
    if owner is not None or mailed:
        return
    waiting_proofs = EmailProof.objects.filter(email_key=key, expires_at__gt=now()).order_by("-created_at")
    if user_id is not None:
        waiting_proofs = waiting_proofs.filter(pk=user_id)
    for changing_id in list(waiting_proofs.values_list("pk", flat=True)[:MAX_PENDING]):
        email_proof = (
            waiting_proofs.select_for_update(of=("self",)).select_related("user").filter(pk=changing_id).first()
        )
        if email_proof is not None and email_proof.user.active:
            proofs.repeat_proof(email_proof.user, email_proof, tenant)


def _send_to_owner(owner: EndUser, tenant: lookup.TenantContext) -> None:
    email_proof = EmailProof.objects.select_for_update().filter(user=owner).first()
    # A pending proof of another address of this user stays as it is.
    if (
        not owner.active
        or owner.email_verified_at is not None
        or (email_proof and email_proof.email_key != owner.email_key)
    ):
        return
    if email_proof is not None and email_proof.expires_at > now():
        proofs.repeat_proof(owner, email_proof, tenant)
    else:
        proofs.start_proof(owner, owner.email, owner.email_key, tenant)
