"""Signing in with passkeys and proving oneself with them, for end users and admin users."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from identity_platform.api.errors import ValidationFailed
from identity_platform.audit.origin import set_actor
from mfa import factors, verification
from mfa.completion import second_step
from mfa.enrollment import Caller
from mfa.errors import NoPasskey, PasskeyNeedsPassword
from mfa.users import check_client, in_realm, require_user
from mfa.verification import Factor, Try, Unusable, Use
from mfa.webauthn import ceremony, queries, responses
from mfa.webauthn.ceremony import KnownPasskey
from mfa.webauthn.grants import SECOND_STEP_AMR, only_step, principal_kind, record
from mfa.webauthn.queries import AUTHENTICATION, SIGN_IN, Known, Spent
from mfa.webauthn.relying_party import relying_party
from mfa.webauthn.responses import CeremonyFailed
from tenants.context import current_tenant
from tenants.errors import TenantBusy, TenantSuspended, UnknownTenant
from tenants.states import Purpose
from userflow.accounts.realms import END_USERS, Realm
from userflow.credentials import attempts
from userflow.errors import NotSignedInByTicket, PasskeyNotVerified
from userflow.sessions.issue import TokenPair


@dataclass(frozen=True, slots=True)
class Verified:
    """A passkey that was right; with tokens where it completes a sign-in."""

    user: Any
    tokens: TokenPair | None
    tenant_id: UUID | None
    client_id: UUID | None


def begin_authentication(
    *, realm: Realm, tenant_id: UUID | None, email: str | None, client_id: UUID | None = None
) -> dict[str, Any]:
    """Request options for one use of a passkey within five minutes.

    With an address: for one of that user's passkeys. Without: for a passkey sign-in, in which the authenticator knows who
    signs in and must verify the user; of admin users the console alone offers it. Raises UnknownEmail (404),
    NoPasskey, NoRelyingParty (400), TooManyFromAddress (429).
    """
    attempts.limit_address("ceremony" if email else "signin")
    with in_realm(realm, tenant_id, Purpose.SIGN_IN):
        if tenant_id is not None:
            check_client(client_id, tenant_id)
        rp = relying_party(realm)
        if email is None:
            challenge = queries.open_challenge(realm, SIGN_IN, client_id=client_id)
            return ceremony.request_options(rp=rp, challenge=challenge, allow=(), verification="required")
        user = require_user(realm, email)
        enrolled = queries.handles_of(user)
        if not enrolled:
            raise NoPasskey
        challenge = queries.open_challenge(realm, AUTHENTICATION, user_id=user.pk)
    return ceremony.request_options(rp=rp, challenge=challenge, allow=enrolled, verification="preferred")


def begin_own_authentication(*, realm: Realm, tenant_id: UUID | None, user_id: UUID) -> dict[str, Any]:
    """Request options for one use of this signed-in user's passkeys within five minutes.

    Raises NoPasskey, NoRelyingParty (400), TooManyFromAddress (429).
    """
    attempts.limit_address("ceremony")
    with in_realm(realm, tenant_id, Purpose.SIGN_IN):
        rp = relying_party(realm)
        enrolled = queries.handles_of(realm.users(pk=user_id))
        if not enrolled:
            raise NoPasskey
        challenge = queries.open_challenge(realm, AUTHENTICATION, user_id=user_id)
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

    A passkey that was enrolled through a window or a pass completes a login once before it signs in alone. Otherwise a
    success is a verification only. The try is counted before it is looked at, and the challenge is spent
    whatever comes of it. Raises PasskeyNotVerified (401; whatever is wrong, also for users and tenants that are not
    there), NotSignedInByTicket (401), ValidationFailed (400; nobody is named), AttemptsLocked, TooManyFromAddress (429).
    """
    if email is None:
        attempts.reject_guessing_address()
    else:
        attempts.reject_guessing_or_listing_address()
    try:
        with in_realm(realm, tenant_id, Purpose.SIGN_IN):
            if email is None and mfa_token is None:
                return _finish_unnamed(realm, response, caller)
            if email is None:
                raise ValidationFailed(details={"email": ["This field is required."]})
            return _finish_named(realm, email, response, caller, mfa_token)
    except UnknownTenant as problem:
        raise PasskeyNotVerified from problem


def verify_own_passkey(
    *, realm: Realm, tenant_id: UUID | None, response: Mapping[str, Any], caller: Caller
) -> Verified:
    """Verify the use of a passkey of the caller's own; it opens no session.

    Raises PasskeyNotVerified (401), AttemptsLocked, TooManyFromAddress (429).
    """
    attempts.reject_guessing_address()
    with in_realm(realm, tenant_id, Purpose.SIGN_IN):
        return _finish_named(realm, None, response, caller, None)


def _finish_named(
    realm: Realm, email: str | None, response: Mapping[str, Any], caller: Caller, mfa_token: str | None
) -> Verified:
    said = _Said.by(response)
    # A passkey sign-in may name its user all the same.
    or_sign_in = realm is END_USERS and mfa_token is None and email is not None
    challenge = queries.spent_with_try(realm, said.challenge, ceremony=AUTHENTICATION, or_sign_in=or_sign_in)
    tried = verification.count_try(
        realm=realm,
        email=email,
        caller=caller,
        mfa_token=mfa_token,
        factor=Factor(
            kind=factors.WEBAUTHN,
            table=queries.passkeys_of(realm)._meta.db_table,
            columns=queries.KNOWN,
            condition="f.credential_id = %(factor_credential)s",
            values={"factor_credential": said.credential_id},
            also=(challenge,),
            shown=f", {challenge.name}.ceremony, {challenge.name}.client_id",
        ),
        nobody=True,
    )
    user = tried.user
    try:
        if user is None:
            if mfa_token is not None:
                raise NotSignedInByTicket
            raise CeremonyFailed("unknown user")
        if said.problem is not None:
            raise said.problem
        *known, ceremony_name, client_id = tried.found
        if ceremony_name is None:
            raise CeremonyFailed("challenge")
        spent = Spent(ceremony_name, client_id)
        return _verified(realm, tried, Known.of(known), spent, said, response, caller)
    except CeremonyFailed as problem:
        raise _rejected(realm, user, problem) from problem


def _finish_unnamed(realm: Realm, response: Mapping[str, Any], caller: Caller) -> Verified:
    # No lock on a user here: a signature cannot be guessed, and whoever knows a credential id could lock its owner out.
    user = None
    said = _Said.by(response)
    try:
        named = said.credential_id is not None and isinstance(response["response"]["userHandle"], str)
    except (KeyError, TypeError):
        named = False
    if not named:
        # Neither by address nor by the authenticator: that is a call that left a member out.
        raise ValidationFailed(details={"email": ["Send this member, or the answer to a passkey sign-in."]})
    try:
        user, known, spent = queries.signing_in(realm, said.challenge, said.credential_id)
        if said.problem is not None:
            raise said.problem
        if spent is None:
            raise CeremonyFailed("challenge")
        tried = Try(user, (), None, attempts.UNKNOWN_NETWORK)
        return _verified(realm, tried, known, spent, said, response, caller)
    except CeremonyFailed as problem:
        raise _rejected(realm, user, problem) from problem


@dataclass(frozen=True, slots=True)
class _Said:
    """What a response names, nothing of it verified; the problem if it names no challenge."""

    credential_id: bytes | None
    challenge: bytes | None
    problem: CeremonyFailed | None

    @classmethod
    def by(cls, response: Mapping[str, Any]) -> "_Said":
        challenge = credential_id = problem = None
        with suppress(CeremonyFailed):
            credential_id = responses.credential_id_of(response)
        try:
            challenge = responses.challenge_of(response)
        except CeremonyFailed as found:
            problem = found
        return cls(credential_id, challenge, problem)


def _verified(
    realm: Realm,
    tried: Try,
    known: Known | None,
    spent: Spent,
    said: _Said,
    response: Mapping[str, Any],
    caller: Caller,
) -> Verified:
    """Verify the response, count the use and open the session that it has earned, if one. Raises CeremonyFailed."""
    user = tried.user
    if known is None or user is None or said.challenge is None:
        raise CeremonyFailed("unknown credential id")
    signs_in = spent.ceremony == SIGN_IN
    assertion = ceremony.verify_assertion(
        response=response,
        expected_challenge=said.challenge,
        rp=relying_party(realm),
        passkey=KnownPasskey(
            credential_id=known.credential_id,
            public_key=known.public_key,
            user_handle=user.pk.bytes,
            backup_eligible=known.backup_eligible,
        ),
        # The one step of such a sign-in must be worth two.
        require_verification=signs_in,
        require_user_handle=signs_in,
    )
    if signs_in and known.second_step_only:
        record(realm, user, "factor.refused", outcome="refused", reason="second step only")
        raise PasskeyNeedsPassword
    client_id = tried.login.client_id if tried.login else spent.client_id or getattr(user, "client_id", None)
    earned = None
    if tried.login is not None:
        set_actor(principal_kind(realm, user), str(user.pk))
        earned = second_step(
            realm=realm, user=user, ticket=tried.login, amr=SECOND_STEP_AMR, user_agent=caller.user_agent
        )
    elif signs_in:
        try:
            earned = only_step(realm, user, client_id=client_id, caller=caller)
        except (UnknownTenant, TenantSuspended, TenantBusy) as closed:
            # An admin of a tenant that lets no admins in: answered like a passkey that is not accepted.
            raise CeremonyFailed("tenant") from closed
    use = Use(
        kind=factors.WEBAUTHN,
        table=queries.passkeys_of(realm)._meta.db_table,
        condition=queries.USABLE,
        changes=queries.USED if tried.login is None else queries.USED_AFTER_PASSWORD,
        values={"use_passkey": known.id, "use_count": assertion.sign_count, "use_backed_up": assertion.backed_up},
        details={"factor_id": str(known.id)},
    )
    try:
        tokens = verification.spend(realm=realm, tried=tried, use=use, earned=earned)
    except Unusable as again:
        raise CeremonyFailed("counter did not rise") from again
    tenant_id = current_tenant().tenant_id if realm is END_USERS else user.tenant_id
    return Verified(user, tokens, tenant_id, client_id)


def _rejected(realm: Realm, user: Any, problem: CeremonyFailed) -> PasskeyNotVerified:
    """Count and audit an error outside any transaction: it must survive it."""
    attempts.count_wrong_secret()
    if user is None:
        attempts.limit_address("unknown_user")
    record(realm, user, "factor.refused", outcome="refused", reason=problem.reason)
    return PasskeyNotVerified()
