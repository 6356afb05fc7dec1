"""Step-up: raise the assurance level of a session after its user has been verified again (RFC 9470)."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from uuid import UUID

from django.utils.timezone import now

from identity_platform.api.errors import AccessTokenInvalid
from tenants.entering import lookup
from userflow.accounts.models import Account
from userflow.accounts.principals import Principal
from userflow.accounts.realms import Realm
from userflow.accounts.session_policy import acr_of
from userflow.credentials import tickets
from userflow.errors import FactorNeeded
from userflow.sessions import issue
from userflow.sessions.ending import require_active_session
from userflow.signin.proofs import is_password_only

PROOF_TOKEN_SECONDS: Final = int(tickets.LIFETIME[tickets.PROOF].total_seconds())


@dataclass(frozen=True, slots=True)
class StepUp:
    """A session after its step-up."""

    session_id: UUID
    # The methods of the step-up itself, and all methods of the session.
    verified: tuple[str, ...]
    amr: tuple[str, ...]
    acr: str
    auth_time: datetime
    ends: datetime = field(repr=False)


def raise_session(*, principal: Principal, verified: tuple[str, ...], password_first: bool = False) -> StepUp:
    """Store in the caller's session that these methods (RFC 8176) were verified now; return the raised session.

    Call it after `check_proof`, with what that returned: nothing else raises a session. `password_first` is for a user whose
    factors have proven nothing in it yet, so it begins again. Raises AccessTokenInvalid (the session has ended since),
    FactorNeeded (a password alone, of a user who has a factor).
    """
    session_id = principal.session_id
    assert session_id is not None  # a user signs in with a session
    with _locked(principal) as (realm, user):
        if user.mfa_methods and is_password_only(verified) and not password_first:
            raise FactorNeeded(user.mfa_methods)
        session = realm.sessions._default_manager.select_for_update().get(pk=session_id)
        before = [] if password_first else session.amr
        session.amr = list(dict.fromkeys([*before, *verified]))
        session.acr, session.auth_time = acr_of(session.amr), now()
        session.save(update_fields=["amr", "acr", "auth_time"])
        realm.record(
            "session.stepped_up",
            target=("session", session.pk),
            tenant_id=principal.tenant_id,
            details={"user_id": str(user.pk), "proven": list(verified), "amr": session.amr, "acr": session.acr},
        )
    return StepUp(session.pk, verified, tuple(session.amr), session.acr, session.auth_time, session.expires_at)


def proof_token_for(*, principal: Principal, verified: tuple[str, ...]) -> str:
    """Issue a token that proves the caller once in the next five minutes, in this session only.

    Raises AccessTokenInvalid.
    """
    with _locked(principal) as (realm, user):
        return tickets.issue_ticket(realm, user, tickets.PROOF, amr=verified, session_id=principal.session_id)


def access_token_for(*, principal: Principal, raised: StepUp) -> tuple[str, int]:
    """Return an access token of the raised session, and its lifetime in seconds."""
    # With the limits of an application's session: its step-up never gives it more.
    subject = issue.subject_of(principal)
    tenant = lookup.find(principal.tenant_id) if principal.tenant_id else None
    return issue.access_token(
        subject,
        raised.session_id,
        amr=raised.amr,
        auth_time=int(raised.auth_time.timestamp()),
        ends=raised.ends,
        tenant=tenant,
    )


@contextmanager
def _locked(principal: Principal) -> Iterator[tuple[Realm, Account]]:
    """Open a transaction with the caller's row locked and the session still active. Raises AccessTokenInvalid otherwise."""
    realm = issue.realm_of(principal.kind)
    with realm.entered(principal.tenant_id), realm.atomic():
        user = realm.lock_user(principal.id)
        if user is None:
            raise AccessTokenInvalid
        require_active_session(realm, principal)
        yield realm, user
