"""Enrolling passkeys and signing in with them, for end users and admin users."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.db import IntegrityError

from identity_platform.api.email_addresses import email_key
from identity_platform.api.errors import ValidationFailed
from identity_platform.audit.origin import set_actor
from mfa import factors
from mfa.completion import complete_second_step, waiting_login
from mfa.enrollment import Caller, Proof, enrollment_proof, is_this_user
from mfa.errors import NoPasskey, NoProof, PasskeyNotVerified, PasskeyRefused, TooManyPasskeys
from mfa.notices import issuer_of
from mfa.people import check_client, entered, find_user, require_user
from mfa.webauthn import ceremony, queries
from mfa.webauthn.ceremony import Assertion, CeremonyFailed, KeyHandle, KnownPasskey, NewPasskey
from mfa.webauthn.queries import AUTHENTICATION, REGISTRATION, SIGN_IN, Spent
from mfa.webauthn.relying_party import relying_party
from tenants import routes
from tenants.context import current_tenant
from tenants.errors import UnknownTenant
from tenants.states import Purpose
from userflow import principals
from userflow.clients.models import Client
from userflow.realms import ADMINS, END_USERS, Realm
from userflow.signin import actions as signin
from userflow.signin import attempts, tickets
from userflow.signin.tickets import Spendable
from userflow.tokens.issue import TokenPair

# Every one of them travels in the options of each ceremony.
MOST_PASSKEYS: Final = 20
# RFC 8176 and the IANA registry of authentication methods: `pop` proof of possession of a key; with the user verified
# by the authenticator it is two factors in one step.
SECOND_STEP_AMR: Final = ("pop",)
ONLY_STEP_AMR: Final = ("pop", "mfa")


@dataclass(frozen=True, slots=True)
class Enrolled:
    """A stored passkey; with tokens where the registration issues them."""

    user: Any
    credential_id: str
    tokens: TokenPair | None = None


@dataclass(frozen=True, slots=True)
class Verified:
    """A passkey that was right; with tokens where it completes a sign-in."""

    user: Any
    tokens: TokenPair | None
    tenant_id: UUID | None
    client_id: UUID | None


# --- registration ----------------------------------------------------------------------------------------------------


def begin_registration(*, realm: Realm, tenant_id: UUID | None, email: str, caller: Caller) -> dict[str, Any]:
    """Creation options for a new passkey of the user, good for five minutes and one answer.

    Refuses with UnknownPerson (404), NoProof, SignInTooOld (401), SomebodyElse (403), TooManyPasskeys, NoRelyingParty
    (400); then nothing is stored.
    """
    with entered(realm, tenant_id):
        user = require_user(realm, email)
        enrollment_proof(realm=realm, user=user, caller=caller, kind=factors.WEBAUTHN)
        rp = relying_party(realm, name=issuer_of(realm, user))
        enrolled = _handles(user)
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
    response: Mapping[str, Any],
    caller: Caller,
    name: str = "",
) -> Enrolled:
    """Store the passkey that the response proves; an admin user's with the name that its owner knows it by.

    Refuses with UnknownPerson (404), NoProof, SignInTooOld (401), SomebodyElse (403), PasskeyRefused, TooManyPasskeys
    (400); then nothing is stored.
    """
    with entered(realm, tenant_id):
        user = require_user(realm, email)
        proof = enrollment_proof(realm=realm, user=user, caller=caller, kind=factors.WEBAUTHN)
        new = _verified_registration(realm, user, response)
        with realm.atomic():
            _store(realm, user, proof, new, **({"name": name} if realm is ADMINS else {}))
    return Enrolled(user, ceremony.base64url(new.credential_id))


def finish_registration_and_sign_in(
    *, tenant_id: UUID, email: str, response: Mapping[str, Any], caller: Caller
) -> Enrolled:
    """The general finishRegistration: store an end user's passkey and sign the user in with it.

    It hands out tokens, so it is stricter (contract.md section 6): the user must be verified by the authenticator, and
    without Bearer or ticket there must be no factor of any kind. Refuses with NoProof (401; also for users and tenants
    that are not there), SignInTooOld, PasskeyNotVerified (401), SomebodyElse (403), PasskeyRefused, TooManyPasskeys (400).
    """
    realm = END_USERS
    try:
        with entered(realm, tenant_id, Purpose.SIGN_IN):
            user = find_user(realm, email)
            if user is None:
                attempts.limit_address("unknown_user")
                raise NoProof
            proof = enrollment_proof(realm=realm, user=user, caller=caller, kind=factors.WEBAUTHN, issues_tokens=True)
            new = _verified_registration(realm, user, response)
            if not new.user_verified:
                raise PasskeyNotVerified("The authenticator did not verify the user: a PIN, finger or face is needed.")
            with realm.atomic():
                _store(realm, user, proof, new)
                tokens = _open_session(user, client_id=user.client_id, user_agent=caller.user_agent)
    except UnknownTenant as problem:
        raise NoProof from problem
    return Enrolled(user, ceremony.base64url(new.credential_id), tokens)


def _verified_registration(realm: Realm, user: Any, response: Mapping[str, Any]) -> NewPasskey:
    """Spend the challenge and verify the response; PasskeyRefused otherwise."""
    try:
        challenge = ceremony.challenge_of(response)
        if queries.spend_challenge(realm, challenge, ceremony=REGISTRATION, user_id=user.pk) is None:
            raise CeremonyFailed("challenge")
        return ceremony.verify_registration(
            response=response,
            expected_challenge=challenge,
            rp=relying_party(realm),
            require_verification=False,
        )
    except CeremonyFailed as problem:
        _record(realm, user, "factor.enrollment_refused", outcome="refused", reason=problem.reason)
        raise PasskeyRefused from problem


def _store(realm: Realm, user: Any, proof: Proof, new: NewPasskey, **named: str) -> None:
    """Claim, store, settle: one transaction of the caller's."""
    locked = factors.claim(realm, user, proof)
    if locked.passkeys.count() >= MOST_PASSKEYS:
        raise TooManyPasskeys
    try:
        with realm.atomic():
            passkey = locked.passkeys.create(
                credential_id=new.credential_id,
                public_key=new.public_key,
                sign_count=new.sign_count,
                aaguid=new.aaguid,
                transports=list(new.transports),
                backup_eligible=new.backup_eligible,
                backed_up=new.backed_up,
                **named,
            )
    except IntegrityError as clash:
        # Level 3 section 7.1 step 26: a credential id belongs to one user. Whose it is, is nobody's business.
        raise PasskeyRefused from clash
    factors.settle(realm, locked, change="enrolled", kind=factors.WEBAUTHN, rung=proof.rung, factor_id=passkey.pk)


# --- authentication --------------------------------------------------------------------------------------------------


def begin_authentication(
    *, realm: Realm, tenant_id: UUID | None, email: str | None, client_id: UUID | None = None
) -> dict[str, Any]:
    """Request options for one use of a passkey within five minutes.

    With an address: for one of that user's passkeys. Without: for a passkey sign-in, in which the authenticator knows who
    signs in and must verify the user; of admin users the console alone offers it. Refuses with UnknownPerson (404),
    NoPasskey, NoRelyingParty (400), TooManyFromAddress (429).
    """
    attempts.limit_address("ceremony" if email else "signin")
    with entered(realm, tenant_id, Purpose.SIGN_IN):
        if tenant_id is not None:
            check_client(client_id, tenant_id)
        rp = relying_party(realm)
        if email is None:
            challenge = queries.open_challenge(realm, SIGN_IN, client_id=client_id)
            return ceremony.request_options(rp=rp, challenge=challenge, allow=(), verification="required")
        user = require_user(realm, email)
        enrolled = _handles(user)
        if not enrolled:
            raise NoPasskey
        challenge = queries.open_challenge(realm, AUTHENTICATION, user_id=user.pk)
    return ceremony.request_options(rp=rp, challenge=challenge, allow=enrolled, verification="preferred")


def finish_authentication(
    *,
    realm: Realm,
    tenant_id: UUID | None,
    email: str | None,
    response: Mapping[str, Any],
    caller: Caller,
    mfa_token: str | None = None,
) -> Verified:
    """Verify a use of a passkey; it completes the login of `mfa_token`, or a passkey sign-in that was begun unnamed.

    Otherwise a success is a verification only. The try is counted before it is looked at, and the challenge is spent
    whatever comes of it. Refuses with PasskeyNotVerified (401; whatever is wrong, also for users and tenants that are not
    there), NotSignedInByTicket (401), ValidationFailed (400; nobody is named), AttemptsLocked, TooManyFromAddress (429).
    """
    attempts.refuse_guessing_address()
    try:
        with entered(realm, tenant_id, Purpose.SIGN_IN):
            if email is None and mfa_token is None:
                return _finish_unnamed(realm, response, caller)
            if email is None:
                raise ValidationFailed(details={"email": ["Send this member."]})
            return _finish_named(realm, email, response, caller, mfa_token)
    except UnknownTenant as problem:
        raise PasskeyNotVerified from problem


def _finish_named(
    realm: Realm, email: str, response: Mapping[str, Any], caller: Caller, mfa_token: str | None
) -> Verified:
    attempts.refuse_listing_address()
    user, passkey = _named(realm, email, response)
    login = waiting_login(realm=realm, mfa_token=mfa_token, user=user)
    budget = attempts.KNOWN if login or is_this_user(realm, user, caller.principal) else attempts.STRANGER
    who = user.pk if user else email.lower()
    attempts.count(realm, who, factor=factors.WEBAUTHN, caller=budget)
    if login is not None:
        tickets.count_wrong_code(realm, login)
    try:
        if user is None:
            raise CeremonyFailed("unknown user")
        spent, assertion = _verified_assertion(
            realm, user, passkey, response, or_sign_in=realm is END_USERS and login is None
        )
        return _complete(realm, user, passkey, spent, assertion, login, caller, budget)
    except CeremonyFailed as problem:
        raise _refused(realm, user, problem) from problem


def _named(realm: Realm, email: str, response: Mapping[str, Any]) -> tuple[Any | None, Any | None]:
    """The active user with this address and the passkey of theirs that the response names; each may be missing."""
    try:
        credential_id = ceremony.credential_id_of(response)
    except CeremonyFailed:
        return find_user(realm, email), None
    if realm is END_USERS:
        # Both in one statement: this is the busiest of the calls.
        passkey = queries.find_passkey(realm, credential_id, user__email_key=email_key(email))
        return (passkey.user, passkey) if passkey else (find_user(realm, email), None)
    user = find_user(realm, email)
    return user, user.passkeys.filter(credential_id=credential_id).first() if user else None


def _finish_unnamed(realm: Realm, response: Mapping[str, Any], caller: Caller) -> Verified:
    # No lock on a user here: a signature cannot be guessed, and whoever knows a credential id could lock its owner out.
    user = None
    try:
        try:
            credential_id = ceremony.credential_id_of(response)
            named = isinstance(response["response"]["userHandle"], str)
        except (CeremonyFailed, KeyError, TypeError):
            named = False
        if not named:
            # Neither by address nor by the authenticator: that is a call that left a member out.
            raise ValidationFailed(details={"email": ["Send this member, or the answer to a passkey sign-in."]})
        passkey = queries.find_passkey(realm, credential_id)
        user = passkey.user if passkey else None
        spent, assertion = _verified_assertion(realm, user, passkey, response, or_sign_in=True, only_sign_in=True)
        return _complete(realm, user, passkey, spent, assertion, None, caller, attempts.STRANGER)
    except CeremonyFailed as problem:
        raise _refused(realm, user, problem) from problem


def _verified_assertion(
    realm: Realm,
    user: Any,
    passkey: Any,
    response: Mapping[str, Any],
    *,
    or_sign_in: bool,
    only_sign_in: bool = False,
) -> tuple[Spent, Assertion]:
    """Spend the challenge and verify the response. Raises CeremonyFailed."""
    challenge = ceremony.challenge_of(response)
    spent = queries.spend_challenge(
        realm,
        challenge,
        ceremony=AUTHENTICATION,
        user_id=None if only_sign_in or user is None else user.pk,
        or_sign_in=or_sign_in,
    )
    if spent is None:
        raise CeremonyFailed("challenge")
    if passkey is None:
        raise CeremonyFailed("unknown credential id")
    signs_in = spent.ceremony == SIGN_IN
    assertion = ceremony.verify_assertion(
        response=response,
        expected_challenge=challenge,
        rp=relying_party(realm),
        passkey=KnownPasskey(
            credential_id=bytes(passkey.credential_id),
            public_key=bytes(passkey.public_key),
            user_handle=user.pk.bytes,
            backup_eligible=passkey.backup_eligible,
        ),
        # The one step of such a sign-in must be worth two.
        require_verification=signs_in,
        require_user_handle=signs_in,
    )
    return spent, assertion


def _complete(
    realm: Realm,
    user: Any,
    passkey: Any,
    spent: Spent,
    assertion: Assertion,
    login: Spendable | None,
    caller: Caller,
    budget: str,
) -> Verified:
    """Count the use and open the session that it has earned, if one: one transaction."""
    client_id = login.client_id if login else spent.client_id or getattr(user, "client_id", None)
    with realm.atomic():
        if not queries.count_use(realm, passkey, sign_count=assertion.sign_count, backed_up=assertion.backed_up):
            raise CeremonyFailed("counter did not rise")
        tokens = None
        if login is not None:
            set_actor(_kind(realm, user), str(user.pk))
            tokens = complete_second_step(
                realm=realm, user=user, ticket=login, amr=SECOND_STEP_AMR, user_agent=caller.user_agent
            )
        elif spent.ceremony == SIGN_IN:
            tokens = (
                _open_session(user, client_id=client_id, user_agent=caller.user_agent)
                if realm is END_USERS
                else _open_admin_session(user, user_agent=caller.user_agent)
            )
        attempts.clear(realm, user.pk, factor=factors.WEBAUTHN, caller=budget)
        if tokens is None:
            _record(realm, user, "factor.verified", factor_id=str(passkey.pk))
    tenant_id = current_tenant().tenant_id if realm is END_USERS else user.tenant_id
    return Verified(user, tokens, tenant_id, client_id)


def _refused(realm: Realm, user: Any, problem: CeremonyFailed) -> PasskeyNotVerified:
    """Count and audit a refusal outside any transaction: it must survive it."""
    attempts.count_wrong_secret()
    if user is None:
        attempts.limit_address("unknown_user")
    _record(realm, user, "factor.refused", outcome="refused", reason=problem.reason)
    return PasskeyNotVerified()


# --- both ------------------------------------------------------------------------------------------------------------


def _open_session(user: Any, *, client_id: UUID | None, user_agent: str) -> TokenPair:
    """Tokens for an end user whom a passkey with user verification has proven. PasskeyNotVerified without a good client."""
    route = current_tenant()
    # A deactivated client signs nobody in.
    if client_id is None or not Client.objects.filter(pk=client_id, tenant_id=route.tenant_id, active=True).exists():
        raise PasskeyNotVerified
    set_actor(principals.END_USER, str(user.pk))
    speaker = signin.end_user_speaker(user, route.tenant_id, client_id)
    return signin.complete_sign_in(END_USERS, user, speaker, amr=ONLY_STEP_AMR, route=route, user_agent=user_agent)


def _open_admin_session(user: Any, *, user_agent: str) -> TokenPair:
    """The same for an admin user. Refuses with TenantSuspended."""
    route = routes.find(user.tenant_id) if user.tenant_id else None
    if route is not None:
        route.check(Purpose.READ)
    set_actor(_kind(ADMINS, user), str(user.pk))
    speaker = signin.admin_speaker(user)
    return signin.complete_sign_in(ADMINS, user, speaker, amr=ONLY_STEP_AMR, route=route, user_agent=user_agent)


def _handles(user: Any) -> list[KeyHandle]:
    found = user.passkeys.order_by("created_at").values_list("credential_id", "transports")
    return [KeyHandle(bytes(credential_id), tuple(transports)) for credential_id, transports in found]


def _display_name(user: Any) -> str:
    name = getattr(user, "name", None) or f"{getattr(user, 'first_name', '')} {getattr(user, 'last_name', '')}"
    return name.strip() or user.email


def _kind(realm: Realm, user: Any) -> str:
    if realm is END_USERS:
        return principals.END_USER
    return principals.ADMIN if user.tenant_id else principals.OPERATOR


def _record(realm: Realm, user: Any, action: str, *, outcome: str = "success", **details: Any) -> None:
    realm.record(
        action,
        target=("end_user" if realm is END_USERS else "admin_user", user.pk) if user else None,
        tenant_id=getattr(user, "tenant_id", None),
        outcome=outcome,
        details={"kind": factors.WEBAUTHN, **details},
    )
