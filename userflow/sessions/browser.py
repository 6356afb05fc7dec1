"""Sessions of browsers at the hosted pages, and the sessions of applications that they sign in.

A browser's session has no client and no tokens; its cookie is known to the hosted pages only. A session that OpenID Connect
opens for an application is its child and ends with it. That of an application on another device stands alone.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from uuid import UUID, uuid4

from django.utils.timezone import now

from identity_platform.api.errors import AccessTokenInvalid
from identity_platform.crypto import new_token
from identity_platform.postgresql.forbidden_writes import may_write
from tenants.entering.context import current_tenant
from tenants.entering.target import TENANT_ALIAS
from userflow.accounts import principals
from userflow.accounts.principals import Principal
from userflow.accounts.realms import END_USERS
from userflow.accounts.session_models import EndUserSession
from userflow.accounts.session_policy import required_acr, session_limits
from userflow.credentials import email_verification
from userflow.oauth_errors import InvalidGrant
from userflow.sessions import queries
from userflow.sessions.cookies import cookie_digest
from userflow.sessions.issue import note_session_use
from userflow.sessions.queries import Rights
from userflow.sessions.refresh_tokens import new_refresh_token
from userflow.sessions.userinfo_audience import stored_userinfo

# A use is stored once in this time: a write for every page would cost too much.
USE_NOTED_EVERY: Final = timedelta(minutes=1)


def find_browser_session(cookie: str, *, notes_use: bool = True) -> EndUserSession | None:
    """Return the session of this cookie in the entered tenant, with its user, or None if it is not active.

    It must be within the limits in force, its user active, and it must meet the tenant's policy (`mfa_policy`, verified
    address): otherwise the user signs in again. Its use is stored at most once a minute, if `notes_use`.
    """
    tenant, moment = current_tenant(), now()
    session = queries.find_browser_session(cookie_digest(cookie), moment)
    if session is None:
        return None
    limits = session_limits(principals.END_USER, tenant.settings)
    age, unused = moment - session.created_at, moment - session.last_used_at
    if not limits.allow(age=age.total_seconds(), unused=unused.total_seconds()):
        return None
    if not browser_principal(session).meets_policy():
        return None
    if notes_use and unused >= USE_NOTED_EVERY and may_write(TENANT_ALIAS):
        note_session_use(END_USERS, session.pk, limits, moment)
    return session


def find_held_session(cookie: str) -> EndUserSession | None:
    """Return the session of this cookie in the entered tenant until it ends, also if it is not enough to be signed in."""
    return EndUserSession._default_manager.filter(browser_digest=cookie_digest(cookie), ended_at=None).first()


def browser_principal(session: EndUserSession) -> Principal:
    """Return the principal of a browser's session in the entered tenant, for actions of users on themselves.

    It has no permissions: a hosted page acts on its user only, regardless of that user's roles.
    """
    tenant, user = current_tenant(), session.user
    return Principal(
        kind=principals.END_USER,
        id=user.pk,
        tenant_id=tenant.tenant_id,
        client_id=None,
        session_id=session.pk,
        roles=(),
        permissions=frozenset(),
        must_verify_email=email_verification.is_unverified(user, tenant),
        amr=tuple(session.amr),
        acr=session.acr,
        required_acr=required_acr(principals.END_USER, tenant.settings),
        auth_time=session.auth_time,
        first_party=True,
        user={"email": user.email, "name": user.name, "mfa_methods": user.mfa_methods},
    )


def rotate_cookie(session: EndUserSession) -> str:
    """Give a browser's session a new cookie and return its value; the old one is rejected from now on.

    Call it at every change of privilege, such as a step-up. Raises AccessTokenInvalid if the session has ended.
    """
    cookie = new_token()
    digest = cookie_digest(cookie)
    active = EndUserSession._default_manager.filter(pk=session.pk, ended_at=None).exclude(browser_digest=None)
    if not active.update(browser_digest=digest):
        raise AccessTokenInvalid
    session.browser_digest = digest
    return cookie


@dataclass(frozen=True, slots=True)
class ApplicationSession:
    """A session that OpenID Connect has opened for an application, its first refresh token, and the rights of its user.

    `session.user` is the parent's user if that one was loaded.
    """

    session: EndUserSession
    rights: Rights
    refresh_token: str | None


@dataclass(frozen=True, slots=True)
class Device:
    """The device of an application that the user has signed in with a browser on another one (RFC 8628)."""

    address: str
    user_agent: str


def open_child_session(
    parent: EndUserSession,
    *,
    client_id: UUID,
    scopes: tuple[str, ...],
    audiences: tuple[str, ...],
    id_token_claims: tuple[str, ...] = (),
    userinfo_claims: tuple[str, ...] = (),
    binding: str = "",
    offline: bool,
    device: Device | None = None,
    backchannel_logout: bool = False,
    session_id: UUID | None = None,
) -> ApplicationSession:
    """Open the session of an application that a browser's session signs in, with the id `session_id`, and audit it.

    With `offline` it gets a refresh token, with `backchannel_logout` a logout token at its end. It has the methods, level
    and time of verification of its parent, which is locked, so that it cannot end at the same moment without its child.
    Without audiences its access tokens are for the userinfo endpoint only; no audience is the client's id, which is that of
    ID tokens. Raises InvalidGrant if the parent has ended or expired or its user is inactive; its absolute limit is the
    child's too. Call it in the realm's transaction.

    With `device` the session is one of its own: it neither ends with that of the browser nor shares its limit, because a
    television should not be signed out with the phone that has signed it in.
    """
    END_USERS.require_transaction()
    tenant, moment = current_tenant(), now()
    limits = session_limits(principals.END_USER, tenant.settings)
    begins = parent.created_at if device is None else moment
    ends = min(moment + timedelta(seconds=limits.idle), begins + timedelta(seconds=limits.absolute))
    if ends <= moment:
        raise InvalidGrant
    session = EndUserSession(
        id=session_id or uuid4(),
        user_id=parent.user_id,
        parent_id=parent.pk if device is None else None,
        client_id=client_id,
        amr=parent.amr,
        acr=parent.acr,
        auth_time=parent.auth_time,
        last_used_at=moment,
        expires_at=ends,
        # Of the person, not of the application's server, which redeems the code.
        address=(device or parent).address,
        user_agent=(device or parent).user_agent,
        scopes=list(scopes),
        audiences=list(audiences) or [stored_userinfo(tenant)],
        id_token_claims=list(id_token_claims),
        userinfo_claims=list(userinfo_claims),
        dpop_jkt=binding,
        backchannel_logout=backchannel_logout,
    )
    refresh_token = new_refresh_token(END_USERS, tenant.tenant_id) if offline else None
    rights = queries.open_application_session(session, refresh_token, opener_id=parent.pk)
    if rights is None:
        raise InvalidGrant
    if "user" in parent._state.fields_cache:
        session.user = parent.user
    return ApplicationSession(session, rights, refresh_token)
