"""Enrolling passkeys, of end users and admin users."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final
from uuid import UUID

from identity_platform.postgresql.row_errors import unique_or
from mfa import completion, factors
from mfa.completion import ONLY_STEP_AMR, SECOND_STEP_AMR, complete_by_enrollment, only_step_completion, waiting_login
from mfa.enrollment import Proof, enrollment_proof
from mfa.errors import NoProof, PasskeyRejected, TooManyPasskeys
from mfa.notices import issuer_of
from mfa.users import find_user, require_user
from mfa.webauthn import ceremony, queries, responses
from mfa.webauthn.ceremony import NewPasskey
from mfa.webauthn.queries import REGISTRATION
from mfa.webauthn.relying_party import relying_party
from mfa.webauthn.responses import CeremonyFailed
from tenants.errors import UnknownTenant
from tenants.states import Purpose
from userflow.accounts.models import Account, EndUser
from userflow.accounts.realms import ADMINS, END_USERS, Realm
from userflow.accounts.session_models import Ticket
from userflow.credentials import attempts
from userflow.errors import PasskeyNotVerified
from userflow.signin.caller import Caller
from userflow.signin.pipeline import SignedIn

# For one RP ID: every one of them travels in the options of each ceremony.
MOST_PASSKEYS: Final = 20


@dataclass(frozen=True, slots=True)
class Enrolled:
    """A stored passkey, with the sign-in that the registration completes, if any."""

    user: Account
    credential_id: str
    signed_in: SignedIn[Account] | None = None


def begin_registration(*, realm: Realm, tenant_id: UUID | None, email: str, caller: Caller) -> dict[str, object]:
    """Creation options for a new passkey of the user, good for five minutes and one answer.

    Raises UnknownEmail (404), TooManyPasskeys, NoRelyingParty (400), and what `enrollment_proof` raises; then nothing is
    stored.
    """
    with realm.entered(tenant_id):
        user = require_user(realm, email, caller)
        enrollment_proof(realm=realm, user=user, caller=caller, kind=factors.WEBAUTHN)
        rp = relying_party(realm, name=issuer_of(realm, user))
        enrolled = queries.handles_of(realm, user, rp.id)
        if len(enrolled) >= MOST_PASSKEYS:
            raise TooManyPasskeys
        challenge = queries.open_challenge(realm, REGISTRATION, user_id=user.pk)
    return ceremony.creation_options(
        rp=rp,
        challenge=challenge,
        user_handle=user.pk.bytes,
        user_name=user.email,
        display_name=_display_name(user),
        exclude=enrolled,
        verification="preferred",
    )


def finish_registration(
    *,
    realm: Realm,
    tenant_id: UUID | None,
    email: str,
    credential: Mapping[str, object],
    caller: Caller,
    name: str = "",
    mfa_token: str | None = None,
) -> Enrolled:
    """Store the passkey that the browser's credential proves; an admin user's with the name that its owner knows it by.

    `mfa_token` completes the sign-in that waits for a factor. Raises UnknownEmail (404), PasskeyRejected, TooManyPasskeys
    (400), NotSignedInByTicket (401), and what `enrollment_proof` raises; then nothing is stored.
    """
    with realm.entered(tenant_id):
        user = require_user(realm, email, caller)
        factor_proof = enrollment_proof(realm=realm, user=user, caller=caller, kind=factors.WEBAUTHN)
        login = waiting_login(realm=realm, mfa_token=mfa_token, user=user)
        factors.require_proof_in_request(user=user, factor_proof=factor_proof, caller=caller)
        new = _verified_registration(realm, user, credential)
        factor_proof = factors.prove_enrollment(realm=realm, user=user, factor_proof=factor_proof, caller=caller)
        with realm.atomic():
            locked = _store(realm, user, factor_proof, new, login, **({"name": name} if realm is ADMINS else {}))
            signed_in = complete_by_enrollment(
                realm=realm, user=locked, login=login, amr=SECOND_STEP_AMR, caller=caller
            )
    return Enrolled(user, responses.base64url(new.credential_id), signed_in)


def finish_registration_and_sign_in(
    *, tenant_id: UUID, email: str, credential: Mapping[str, object], caller: Caller
) -> Enrolled:
    """Store an end user's passkey and sign the user in with it: the general finishRegistration.

    It issues tokens, so it is stricter: the passkey is the user's first factor, its authenticator has verified the user,
    and a window counts only for a user who registered in it and has never signed in. Raises NoProof (401; also for users
    and tenants that do not exist), PasskeyNotVerified (401), NotFirstFactor (409), PasskeyRejected, TooManyPasskeys (400),
    and what `enrollment_proof` raises.
    """
    realm = END_USERS
    try:
        with attempts.guess(attempts.UNKNOWN_USER), realm.entered(tenant_id, Purpose.SIGN_IN):
            user = find_user(realm, email)
            if user is None:
                attempts.count_unknown_user()
                raise NoProof
            factor_proof = enrollment_proof(realm=realm, user=user, caller=caller, kind=factors.WEBAUTHN, signs_in=True)
            factors.require_proof_in_request(user=user, factor_proof=factor_proof, caller=caller)
            new = _verified_registration(realm, user, credential)
            if not new.user_verified:
                raise PasskeyNotVerified("The authenticator did not verify the user: a PIN, finger or face is needed.")
            factor_proof = factors.prove_enrollment(realm=realm, user=user, factor_proof=factor_proof, caller=caller)
            with realm.atomic():
                locked = _store(realm, user, factor_proof, new)
                # By a window it is one factor: neither the address nor the passkey shows that it is the user's.
                amr = SECOND_STEP_AMR if factor_proof.second_step_only else ONLY_STEP_AMR
                client_id = user.client_id if isinstance(user, EndUser) else None
                completion = only_step_completion(user, client_id=client_id, caller=caller, amr=amr)
                signed_in = completion.open(realm, locked)
    except UnknownTenant as problem:
        raise NoProof from problem
    return Enrolled(user, responses.base64url(new.credential_id), signed_in)


def _verified_registration(realm: Realm, user: Account, credential: Mapping[str, object]) -> NewPasskey:
    """Consume the challenge and verify the credential. Raises PasskeyRejected."""
    try:
        challenge = responses.challenge_of(credential)
        if queries.consume_challenge(realm, challenge, ceremony=REGISTRATION, user_id=user.pk) is None:
            raise CeremonyFailed("challenge")
        return ceremony.verify_registration(
            response=credential,
            expected_challenge=challenge,
            rp=relying_party(realm),
            require_verification=False,
        )
    except CeremonyFailed as problem:
        reason = problem.reason
        completion.record(realm, user, "factor.enrollment_refused", factors.WEBAUTHN, outcome="refused", reason=reason)
        raise PasskeyRejected from problem


def _store(
    realm: Realm, user: Account, factor_proof: Proof, new: NewPasskey, login: Ticket | None = None, **name_column: str
) -> Account:
    """Lock and check, store, finalize: call it in a transaction. Return the user as stored now."""
    locked = factors.lock_and_check(realm, user, factor_proof, login=login)
    passkeys = queries.passkeys_of(realm)._default_manager
    if queries.usable_passkeys(realm, locked.pk, new.rp_id).count() >= MOST_PASSKEYS:
        raise TooManyPasskeys
    # Level 3 section 7.1 step 26: a credential id belongs to one user. The response does not tell whose it is.
    with unique_or(PasskeyRejected), realm.atomic():
        columns = asdict(new)
        del columns["user_verified"]
        # A login that waits for the factor has verified the password.
        second_step_only = factor_proof.second_step_only and login is None
        passkey = passkeys.create(user_id=locked.pk, second_step_only=second_step_only, **columns, **name_column)
    factors.finalize(
        realm, locked, change="enrolled", kind=factors.WEBAUTHN, factor_proof=factor_proof, factor_id=passkey.pk
    )
    return locked


def _display_name(user: Account) -> str:
    name = getattr(user, "name", None) or f"{getattr(user, 'first_name', '')} {getattr(user, 'last_name', '')}"
    return name.strip() or user.email
