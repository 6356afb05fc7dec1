"""Authenticate with passkeys: sign-ins, second steps and verifications, for end users and admin users."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from uuid import UUID

from identity_platform.api.errors import ValidationFailed
from mfa import completion, factors
from mfa.completion import SECOND_STEP_AMR, Verified, only_step_completion, second_step_completion
from mfa.errors import NoPasskey, PasskeyNeedsPassword, PasskeysElsewhere
from mfa.queries import Attempt, CountedAttempt, FactorUnusable, PasskeyUse, UnverifiedAssertion, count_attempt
from mfa.users import check_client, check_tenant, require_user
from mfa.webauthn import ceremony, queries, responses
from mfa.webauthn.ceremony import KnownPasskey
from mfa.webauthn.queries import AUTHENTICATION, SIGN_IN
from mfa.webauthn.relying_party import relying_party
from mfa.webauthn.responses import CeremonyFailed
from tenants.errors import TenantBusy, TenantSuspended, UnknownTenant
from tenants.states import Purpose
from userflow.accounts.models import Account, EndUser
from userflow.accounts.realms import END_USERS, Realm
from userflow.credentials import attempts
from userflow.errors import NotSignedInByTicket, PasskeyNotVerified
from userflow.signin.caller import Caller
from userflow.signin.pipeline import Completion


def begin_authentication(
    *, realm: Realm, tenant_id: UUID | None, email: str | None = None, client_id: UUID | None = None
) -> dict[str, object]:
    """Return request options for one use of a passkey within five minutes.

    With an address they are for that user's passkeys. Without one they begin a passkey sign-in: the authenticator knows the
    user, and must verify the user. For admin users only the console offers it. Raises UnknownEmail (404), NoPasskey,
    NoRelyingParty (400), TooManyFromAddress (429).
    """
    attempts.limit_address("ceremony")
    with realm.entered(tenant_id, Purpose.SIGN_IN):
        check_client(client_id, tenant_id)
        if email is not None:
            return _request_options(realm, require_user(realm, email))
        rp = relying_party(realm)
        challenge = queries.open_challenge(realm, SIGN_IN, client_id=client_id)
    return ceremony.request_options(rp=rp, challenge=challenge, allow=(), verification="required")


def begin_own_authentication(*, realm: Realm, tenant_id: UUID | None, user_id: UUID) -> dict[str, object]:
    """Return request options for one use of this signed-in user's passkeys within five minutes.

    Raises NoPasskey, NoRelyingParty (400), TooManyFromAddress (429).
    """
    attempts.limit_address("ceremony")
    with realm.entered(tenant_id, Purpose.SIGN_IN):
        return _request_options(realm, realm.users(id=user_id))


def _request_options(realm: Realm, user: Account) -> dict[str, object]:
    rp = relying_party(realm)
    enrolled = queries.handles_of(realm, user, rp.id)
    if not enrolled:
        exists = queries.passkeys_of(realm)._default_manager.filter(user_id=user.pk).exists()
        raise PasskeysElsewhere if exists else NoPasskey
    challenge = queries.open_challenge(realm, AUTHENTICATION, user_id=user.pk)
    return ceremony.request_options(rp=rp, challenge=challenge, allow=enrolled, verification="preferred")


def finish_authentication(
    *,
    realm: Realm,
    tenant_id: UUID | None,
    response: Mapping[str, object],
    caller: Caller,
    email: str | None = None,
    mfa_token: str | None = None,
) -> Verified:
    """Verify a use of a passkey; it completes the login of `mfa_token`, or a passkey sign-in that began without an address.

    Otherwise a success is a verification only. A passkey that was enrolled through a window or a pass must complete a login
    once before it signs in alone. The attempt is counted before the response is verified, and the challenge is consumed
    in either case. Raises PasskeyNotVerified (401; the same for every cause, unknown users and tenants included),
    NotSignedInByTicket (401), ValidationFailed (400; no user is named), AttemptsLocked, TooManyFromAddress (429).
    """
    if email is None:
        attempts.limit_address("signin")
    try:
        with realm.entered(tenant_id, Purpose.SIGN_IN):
            if email is not None:
                return _finish_named(realm, email, response, caller, mfa_token)
            if mfa_token is not None:
                raise ValidationFailed(details={"email": ["This field is required."]})
            return _finish_unnamed(realm, response, caller)
    except UnknownTenant as problem:
        raise PasskeyNotVerified from problem


def verify_own_passkey(
    *, realm: Realm, tenant_id: UUID | None, response: Mapping[str, object], caller: Caller
) -> Verified:
    """Verify the use of one of the caller's own passkeys; it opens no session.

    Raises PasskeyNotVerified (401), AttemptsLocked, TooManyFromAddress (429).
    """
    with realm.entered(tenant_id, Purpose.SIGN_IN):
        return _finish_named(realm, None, response, caller, None)


def _finish_named(
    realm: Realm, email: str | None, response: Mapping[str, object], caller: Caller, mfa_token: str | None
) -> Verified:
    user = None
    challenge = _part_or_none(responses.challenge_of, response)
    assertion = UnverifiedAssertion(
        credential_id=_part_or_none(responses.credential_id_of, response),
        challenge_digest=responses.digest_of(challenge) if challenge is not None else None,
        # A passkey sign-in may name its user nevertheless.
        may_sign_in=realm is END_USERS and mfa_token is None and email is not None,
    )
    counted = count_attempt(
        realm=realm, email=email, caller=caller, mfa_token=mfa_token, kind=factors.WEBAUTHN, assertion=assertion
    )
    try:
        if counted is None:
            if mfa_token is not None:
                raise NotSignedInByTicket
            if email is not None:
                attempts.count(realm, email.lower(), factor=factors.WEBAUTHN)
            raise CeremonyFailed("unknown user")
        user = counted.attempt.user
        challenge = responses.challenge_of(response)
        check_tenant(user)
        if counted.challenge is None:
            raise CeremonyFailed("challenge")
        return _verified(realm, counted, challenge, response, caller)
    except CeremonyFailed as problem:
        raise _rejected(realm, user, problem, is_own_passkey=email is None) from problem


def _finish_unnamed(realm: Realm, response: Mapping[str, object], caller: Caller) -> Verified:
    # The user is not locked here: a signature cannot be guessed, and everyone who knows a credential id could lock its owner
    # out.
    user = None
    credential_id = _part_or_none(responses.credential_id_of, response)
    inner = response.get("response")
    if credential_id is None or not isinstance(inner, Mapping) or not isinstance(inner.get("userHandle"), str):
        # Neither the address nor the authenticator names a user, so the request lacks a field.
        raise ValidationFailed(details={"email": ["Send this field, or the response to a passkey sign-in."]})
    try:
        passkey = queries.find_passkey(realm, credential_id)
        user = passkey.user if passkey is not None else None
        challenge = responses.challenge_of(response)
        consumed = queries.consume_challenge(realm, challenge, ceremony=SIGN_IN, or_sign_in=True)
        if consumed is None:
            raise CeremonyFailed("challenge")
        if user is None:
            raise CeremonyFailed("unknown credential id")
        counted = CountedAttempt(Attempt(user, None, attempts.UNKNOWN_NETWORK), passkey=passkey, challenge=consumed)
        return _verified(realm, counted, challenge, response, caller)
    except CeremonyFailed as problem:
        raise _rejected(realm, user, problem) from problem


def _part_or_none(read: Callable[[Mapping[str, object]], bytes], response: Mapping[str, object]) -> bytes | None:
    with suppress(CeremonyFailed):
        return read(response)
    return None


def _verified(
    realm: Realm, counted: CountedAttempt, challenge: bytes, response: Mapping[str, object], caller: Caller
) -> Verified:
    """Verify the response, count the use and open the session that it completes, if any. Raises CeremonyFailed."""
    attempt, passkey, consumed = counted.attempt, counted.passkey, counted.challenge
    user = attempt.user
    if passkey is None or consumed is None:
        raise CeremonyFailed("unknown credential id")
    signs_in = consumed.ceremony == SIGN_IN
    rp = relying_party(realm)
    assertion = ceremony.verify_assertion(
        response=response,
        expected_challenge=challenge,
        rp=rp,
        passkey=KnownPasskey(
            credential_id=bytes(passkey.credential_id),
            public_key=bytes(passkey.public_key),
            user_handle=user.pk.bytes,
            backup_eligible=passkey.backup_eligible,
        ),
        # A passkey sign-in has one step, which must count as two factors.
        require_verification=signs_in,
        require_user_handle=signs_in,
    )
    if signs_in and passkey.second_step_only:
        completion.record(realm, user, "factor.refused", factors.WEBAUTHN, outcome="refused", reason="second step only")
        raise PasskeyNeedsPassword
    try:
        signed_in = completion.consume_factor(
            realm=realm,
            attempt=attempt,
            kind=factors.WEBAUTHN,
            use=PasskeyUse(passkey.pk, assertion.sign_count, assertion.backed_up, rp.id),
            completion=_completion(user, attempt, caller, client_id=consumed.client_id, signs_in=signs_in),
            details={"factor_id": str(passkey.pk)},
        )
    except FactorUnusable as again:
        raise CeremonyFailed("counter did not rise") from again
    return Verified(user, factors.WEBAUTHN, signed_in)


def _completion(
    user: Account, attempt: Attempt, caller: Caller, *, client_id: UUID | None, signs_in: bool
) -> Completion | None:
    """Return the sign-in that the passkey completes, or None for a verification. Raises CeremonyFailed."""
    if attempt.login is not None:
        return second_step_completion(user=user, login=attempt.login, amr=SECOND_STEP_AMR, caller=caller)
    if not signs_in:
        return None
    try:
        default_client = user.client_id if isinstance(user, EndUser) else None
        return only_step_completion(user, client_id=client_id or default_client, caller=caller)
    except (UnknownTenant, TenantSuspended, TenantBusy) as closed:
        # An admin of a tenant that lets no admins in. The response is the same as for a passkey that is not accepted.
        raise CeremonyFailed("tenant") from closed


def _rejected(
    realm: Realm, user: Account | None, problem: CeremonyFailed, *, is_own_passkey: bool = False
) -> PasskeyNotVerified:
    """Count and audit a rejection, outside any transaction: both must survive it.

    A right response always passes: its signature is no guess. A rejection counts as one of an unknown user also if the user
    exists, because nothing must tell the two apart, but not with `is_own_passkey`.
    """
    attempts.count_wrong_secret()
    if not is_own_passkey:
        attempts.count_unknown_user()
    completion.record(realm, user, "factor.refused", factors.WEBAUTHN, outcome="refused", reason=problem.reason)
    return PasskeyNotVerified()
