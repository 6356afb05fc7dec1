"""Codes by SMS for end users: begin, confirm, request, verify."""

from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, NoReturn
from uuid import UUID

from django.db.models import Case, F, Q, When
from django.utils.timezone import now

from identity_platform.api.email_addresses import email_key
from identity_platform.audit.writer import record_for_tenant
from identity_platform.crypto import SealBroken, SealContext, constant_time_equal, seal, unseal
from identity_platform.postgresql.row_errors import unique_or
from mfa import completion, factors
from mfa.completion import Verified, complete_by_enrollment, second_step_completion, waiting_login
from mfa.enrollment import Proof, enrollment_proof
from mfa.errors import NoPhone, NoProof, PhoneTaken
from mfa.notices import issuer_of
from mfa.queries import Attempt, FactorUnusable
from mfa.sms import codes, sending
from mfa.sms.models import Phone, SmsCode, SmsMessage
from mfa.users import check_client, is_exempt
from tenants.entering.context import current_tenant, in_tenant, tenant_atomic
from tenants.states import Purpose
from userflow.accounts.models import Account, EndUser
from userflow.accounts.realms import END_USERS
from userflow.accounts.session_models import Ticket
from userflow.credentials import attempts, tickets
from userflow.errors import AttemptsExceeded, CodeExpired, InvalidCode
from userflow.signin.caller import Caller, is_this_user
from userflow.signin.pipeline import SignedIn

CodePurpose = Literal["enrollment", "verification"]
ENROLLMENT: Final[CodePurpose] = "enrollment"
VERIFICATION: Final[CodePurpose] = "verification"
AMR: Final = ("sms",)  # RFC 8176 section 2


@dataclass(frozen=True, slots=True)
class CodeSent:
    """What the response says about a code that is on its way."""

    phone_display: str
    attempts_remaining: int
    expires_in_minutes: int = int(codes.LIFETIME.total_seconds()) // 60


@dataclass(frozen=True, slots=True)
class Confirmed:
    """An enrolled phone, with the sign-in that waited for it, if any."""

    phone: Phone
    signed_in: SignedIn[Account] | None


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A counted message that is still to be sent; None if another caller's code is still valid."""

    message: SmsMessage | None
    to: str
    body: str
    response: CodeSent


def begin_sms_setup(
    *, tenant_id: UUID, client_id: UUID | None, email: str, phone_number: str, caller: Caller
) -> CodeSent:
    """Send a code to a number that the user wants to enroll.

    Only the confirmation, which proves that the caller holds the number, tells whether another user has it. Raises what
    `enrollment_proof` raises (NoProof also for an unknown user), PhoneRejected (400), SmsBudgetSpent (429),
    SmsUnavailable (503).
    """
    with attempts.guess(attempts.UNKNOWN_USER), in_tenant(tenant_id):
        check_client(client_id, tenant_id)
        user, factor_proof = _user_and_proof(email, caller)
        number = codes.mobile_number(phone_number, countries=_countries())
        waiting = _new_code(user, number, purpose=ENROLLMENT, budget=_budget_of(factor_proof))
    return _send(waiting, tenant_id)


def confirm_sms_setup(
    *,
    tenant_id: UUID,
    client_id: UUID | None,
    email: str,
    phone_number: str,
    code: str,
    caller: Caller,
    mfa_token: str | None = None,
) -> Confirmed:
    """Enroll the number with the code that it received; `mfa_token` completes the sign-in that waits for a factor.

    Raises what `enrollment_proof` raises, PhoneRejected, InvalidCode, AttemptsExceeded, PhoneTaken (400), CodeExpired,
    NotSignedInByTicket (401), AttemptsLocked, TooManyFromAddress (429).
    """
    # Beside a ticket or token a wrong code is only counted, and a right one passes.
    proven = caller.ticket is not None or caller.principal is not None
    limits = (attempts.UNKNOWN_USER,) if proven else (attempts.WRONG_SECRET, attempts.UNKNOWN_USER)
    with attempts.guess(*limits), in_tenant(tenant_id):
        check_client(client_id, tenant_id)
        user, factor_proof = _user_and_proof(email, caller)
        login = waiting_login(realm=END_USERS, mfa_token=mfa_token, user=user)
        number = codes.mobile_number(phone_number, countries=_countries())
        digest = codes.number_digest(number.e164, data_key=END_USERS.data_key())
        budget = _budget_of(factor_proof)
        row = _check_code(user, ENROLLMENT, digest, code, budget=budget)
        if factors.SMS in user.mfa_methods and Phone.objects.filter(number_digest=digest).exclude(user=user).exists():
            # Before the proof, which may use up a one-time code.
            raise PhoneTaken
        factor_proof = factors.prove_enrollment(realm=END_USERS, user=user, factor_proof=factor_proof, caller=caller)
        # The unique index on the digest of the number, also when two users confirm it at once.
        with unique_or(PhoneTaken), tenant_atomic():
            locked = factors.lock_and_check(END_USERS, user, factor_proof, login=login)
            _consume(row)
            replaced = bool(Phone.objects.filter(user_id=user.pk).delete()[0])
            phone = Phone(user=user, number_digest=digest, last_four=number.last_four)
            phone.number_sealed = seal(
                number.e164.encode(), data_key=END_USERS.data_key(), context=_seal_context(phone)
            )
            phone.save(force_insert=True)
            sending.convert(locked.pk)
            attempts.clear(END_USERS, user.pk, factor=factors.SMS, caller=budget)
            change = "replaced" if replaced else "enrolled"
            factors.finalize(
                END_USERS, locked, change=change, kind=factors.SMS, factor_proof=factor_proof, factor_id=phone.pk
            )
            signed_in = complete_by_enrollment(realm=END_USERS, user=locked, login=login, amr=AMR, caller=caller)
    return Confirmed(phone, signed_in)


def _find_user(email: str) -> EndUser | None:
    return EndUser.objects.filter(email_key=email_key(email), active=True).first()


def _user_and_proof(email: str, caller: Caller) -> tuple[EndUser, Proof]:
    user = _find_user(email)
    if user is None:
        # The specification has no 404 here: the response does not tell who exists.
        attempts.count_unknown_user()
        raise NoProof
    return user, enrollment_proof(realm=END_USERS, user=user, caller=caller, kind=factors.SMS)


def _budget_of(factor_proof: Proof) -> str:
    # A window proves the network address only, which others may share.
    return attempts.UNKNOWN_NETWORK if factor_proof.level == "window" else attempts.SIGNED_IN


def request_sms_code(
    *, tenant_id: UUID, client_id: UUID | None, email: str, caller: Caller, mfa_token: str | None = None
) -> CodeSent:
    """Send a code to the user's enrolled phone.

    `mfa_token`, the ticket of a login that waits, makes the caller a known one. Raises NoPhone (400, also for an unknown
    user), SmsBudgetSpent (429), SmsUnavailable (503), NotSignedInByTicket (401).
    """
    exempt = is_exempt(END_USERS, caller, email, mfa_token=mfa_token)
    with attempts.guess(attempts.UNKNOWN_USER, exempt=exempt), in_tenant(tenant_id, Purpose.SIGN_IN):
        check_client(client_id, tenant_id)
        user = _find_user(email)
        login = waiting_login(realm=END_USERS, mfa_token=mfa_token, user=user)
        phone = _phone_of(email)
        if user is None or phone is None:
            attempts.count_unknown_user()
            raise NoPhone
        e164 = _unsealed(phone)
        # Checked again: the tenant may have removed the country from its list since.
        number = codes.mobile_number(e164, countries=_countries())
        known = login is not None or is_this_user(END_USERS, user, caller.principal)
        budget = attempts.SIGNED_IN if known else attempts.UNKNOWN_NETWORK
        waiting = _new_code(user, number, purpose=VERIFICATION, budget=budget, login=login)
    return _send(waiting, tenant_id)


def verify_sms_code(
    *, tenant_id: UUID, client_id: UUID | None, email: str, code: str, caller: Caller, mfa_token: str | None = None
) -> Verified:
    """Check the code that the user's phone received; `mfa_token` completes a login that waits for it.

    The code works once, also under parallel use. The attempt is counted before the comparison. Raises InvalidCode (400,
    also for an unknown user or no code), AttemptsExceeded (400), CodeExpired (401), NotSignedInByTicket (401),
    AttemptsLocked, TooManyFromAddress (429).
    """
    exempt = is_exempt(END_USERS, caller, email, mfa_token=mfa_token)
    with (
        attempts.guess(attempts.WRONG_SECRET, attempts.UNKNOWN_USER, exempt=exempt),
        in_tenant(tenant_id, Purpose.SIGN_IN),
    ):
        check_client(client_id, tenant_id)
        user = _find_user(email)
        login = waiting_login(realm=END_USERS, mfa_token=mfa_token, user=user)
        is_own_account = user is not None and is_this_user(END_USERS, user, caller.principal)
        budget = attempts.SIGNED_IN if is_own_account else attempts.UNKNOWN_NETWORK
        if user is not None and login is not None and not is_own_account:
            budget = attempts.budget_of_ticket(END_USERS, user.pk)
        phone = _phone_of(email)
        if user is None or phone is None:
            _reject_unknown(user, email, budget)
        row = _check_code(user, VERIFICATION, bytes(phone.number_digest), code, budget=budget, login=login)
        try:
            signed_in = completion.consume_factor(
                realm=END_USERS,
                attempt=Attempt(user, login, budget),
                kind=factors.SMS,
                use=partial(_use_code, user, row, phone),
                completion=second_step_completion(user=user, login=login, amr=AMR, caller=caller),
            )
        except FactorUnusable as used:
            raise InvalidCode from used
    return Verified(user, factors.SMS, signed_in)


def _use_code(user: EndUser, row: SmsCode, phone: Phone) -> None:
    _consume(row)
    if not Phone.objects.filter(pk=phone.pk, user_id=user.pk).update(last_used_at=now()):
        raise FactorUnusable  # the phone was removed while the code was on its way
    sending.convert(user.pk)


def confirmed_number(user_id: UUID) -> str | None:
    """Return the user's confirmed number in E.164 form, or None. Call it inside the tenant."""
    phone = Phone.objects.filter(user_id=user_id).first()
    return _unsealed(phone) if phone else None


def _phone_of(email: str) -> Phone | None:
    # By the address, not by the user: the query also runs for unknown users, so that the time does not tell who exists.
    return Phone.objects.filter(user__email_key=email_key(email), user__active=True).first()


def _reject_unknown(user: EndUser | None, email: str, budget: str) -> NoReturn:
    """Take the steps of a wrong code, so that neither text nor time nor lock tells who exists or has a phone."""
    attempts.count_unknown_user()
    attempts.count(END_USERS, user.pk if user else email_key(email), factor=factors.SMS, caller=budget)
    _record_rejection(user)
    raise InvalidCode


def _countries() -> list[str] | None:
    return current_tenant().effective["sms_countries"]


def _new_code(
    user: EndUser, number: codes.MobileNumber, *, purpose: CodePurpose, budget: str, login: Ticket | None = None
) -> _Waiting:
    """Store a new code and count its message. The code has the attempts of `budget`, a login those of its ticket.

    A valid code is kept when another caller asks again without a proof: the response is the same as if a message was sent.
    """
    key = END_USERS.data_key()
    digest = codes.number_digest(number.e164, data_key=key)
    code = codes.new_code()
    with tenant_atomic():
        if END_USERS.lock_user(user.pk) is None:  # erased or deactivated since
            raise NoProof if purpose == ENROLLMENT else NoPhone
        sending.check_caller(user=user, caller=budget)
        asked_from = "" if budget == attempts.SIGNED_IN else attempts.caller_network() or "local"
        valid = SmsCode.objects.filter(
            user=user, purpose=purpose, number_digest=digest, used_at=None, expires_at__gt=now()
        ).first()
        if valid is not None and asked_from not in ("", valid.asked_from):
            return _Waiting(None, "", "", CodeSent(number.display, _remaining(valid, budget)))
        message = sending.reserve(user=user, caller=budget, number=number, enrolled=purpose != ENROLLMENT)
        # The row stays, and its attempts with it: asking for a new code does not reset them.
        row, _ = SmsCode.objects.update_or_create(
            user=user,
            purpose=purpose,
            number_digest=digest,
            defaults={
                "code_digest": codes.code_digest(
                    code, data_key=key, user_id=user.pk, purpose=purpose, number_digest=digest
                ),
                "expires_at": now() + codes.LIFETIME,
                "used_at": None,
                "asked_from": asked_from,
            },
        )
        record_for_tenant("sms.requested", target=("end_user", user.pk), details={"purpose": purpose})
    remaining = _remaining(row, budget) if login is None else tickets.WRONG_CODES_ALLOWED - login.wrong_codes
    issuer = issuer_of(END_USERS, user)
    text = f"{code} is your code for {issuer}. It expires in 5 minutes."
    return _Waiting(message, number.e164, text, CodeSent(number.display, remaining))


def _send(waiting: _Waiting, tenant_id: UUID) -> CodeSent:
    if waiting.message is not None:
        sending.hand_over(waiting.message, tenant_id=tenant_id, to=waiting.to, body=waiting.body)
    return waiting.response


def _remaining(row: SmsCode, budget: str) -> int:
    tries, tried_at = getattr(row, f"{budget}_tries"), getattr(row, f"{budget}_tried_at")
    if tried_at is None or now() - tried_at > codes.TRIES_KEPT:
        return codes.TRIES
    return max(0, codes.TRIES - int(tries))


def _check_code(
    user: EndUser, purpose: CodePurpose, digest: bytes, code: str, *, budget: str, login: Ticket | None = None
) -> SmsCode:
    """Count an attempt, then compare; return the row of the code. Raises InvalidCode, AttemptsExceeded, CodeExpired."""
    # Unwrapped before the attempt is counted: a locked data key must not use up the user's attempts.
    key = END_USERS.data_key()
    row = SmsCode.objects.filter(user=user, purpose=purpose, number_digest=digest).first()
    if row is None or row.used_at is not None:
        attempts.count(END_USERS, user.pk, factor=factors.SMS, caller=budget)
        if login is not None:
            tickets.count_wrong_code(END_USERS, login)
        _record_rejection(user)
        raise InvalidCode
    if row.expires_at <= now():
        raise CodeExpired
    if login is None and not _count_attempt(row, budget):
        _record_rejection(user)
        raise AttemptsExceeded
    attempts.count(END_USERS, user.pk, factor=factors.SMS, caller=budget)
    if login is not None:
        tickets.count_wrong_code(END_USERS, login)
    expected = codes.code_digest(code, data_key=key, user_id=user.pk, purpose=purpose, number_digest=digest)
    if not constant_time_equal(bytes(row.code_digest), expected):
        _record_rejection(user)
        raise InvalidCode
    return row


def _count_attempt(row: SmsCode, budget: str) -> bool:
    """Count an attempt at the code, in one UPDATE: of sixty parallel guesses five are compared. False if none is left."""
    attempts_made, last_at = f"{budget}_tries", f"{budget}_tried_at"
    forgotten = Q(**{last_at: None}) | Q(**{f"{last_at}__lte": now() - codes.TRIES_KEPT})
    free = SmsCode.objects.filter(forgotten | Q(**{f"{attempts_made}__lt": codes.TRIES}), pk=row.pk)
    again = Case(When(forgotten, then=1), default=F(attempts_made) + 1)
    return bool(free.update(**{attempts_made: again, last_at: now()}))


def _record_rejection(user: EndUser | None) -> None:
    attempts.count_wrong_secret()
    completion.record(END_USERS, user, "factor.refused", factors.SMS, outcome="refused")


def _consume(row: SmsCode) -> None:
    """Use the code up. Of two requests at once one wins; a code that was replaced by a newer one is invalid."""
    consumed = SmsCode.objects.filter(
        pk=row.pk, code_digest=row.code_digest, used_at=None, expires_at__gt=now()
    ).update(used_at=now(), known_tries=0, stranger_tries=0)
    if not consumed:
        raise InvalidCode


def unreadable_phones() -> list[UUID]:
    """Return the ids of the tenant's phones whose number does not open. Call it in the tenant. Raises DataKeyLocked."""
    return [phone.pk for phone in Phone.objects.iterator() if not _is_readable(phone)]


def _is_readable(phone: Phone) -> bool:
    try:
        _unsealed_number(phone)
    except SealBroken:
        return False
    return True


def _unsealed_number(phone: Phone) -> bytes:
    return unseal(bytes(phone.number_sealed), data_key=END_USERS.data_key(), context=_seal_context(phone))


def _unsealed(phone: Phone) -> str:
    try:
        return _unsealed_number(phone).decode()
    except SealBroken as broken:
        # A row of another user, tenant or database. It opens nothing, and the operators must know.
        record_for_tenant(
            "seal.broken", target=("end_user", phone.user_id), outcome="failed", details={"kind": factors.SMS}
        )
        raise NoPhone from broken


def _seal_context(phone: Phone) -> SealContext:
    # The user is part of the context: a number that is copied to another user's row cannot be opened there.
    return SealContext(
        tenant=END_USERS.owner(), table="mfa_phone", column="number_sealed", row=f"{phone.user_id}/{phone.pk}"
    )
