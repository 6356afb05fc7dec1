"""End sessions: one, all but one, or everything that lets a user in; and check that a session still counts."""

from uuid import UUID

from django.utils.timezone import now

from identity_platform.api.errors import AccessTokenInvalid
from tenants.context import in_tenant
from userflow.accounts.principals import Principal
from userflow.accounts.realms import END_USERS, Realm
from userflow.credentials import tickets
from userflow.sessions import issue


def end_sessions(
    realm: Realm, *, user_id: UUID, session_id: UUID | None = None, keep: UUID | None = None, reason: str
) -> int:
    """End one session of a user, or all (but `keep`); gives how many ended. Their tokens are rejected at the next request."""
    found = realm.sessions._default_manager.filter(user_id=user_id, ended_at=None)
    if session_id is not None:
        found = found.filter(pk=session_id)
    if keep is not None:
        found = found.exclude(pk=keep)
    return found.update(ended_at=now(), end_reason=reason)


def end_everything(realm: Realm, *, user_id: UUID, reason: str) -> int:
    """End every session, ticket and enrollment window of a user; return the number of sessions.

    Call it in the realm's transaction. It locks the user first, as a sign-in does: one at the same moment waits, or ends.
    """
    realm.users._default_manager.select_for_update(no_key=True).filter(pk=user_id).first()
    ended = end_sessions(realm, user_id=user_id, reason=reason)
    tickets.end_tickets(realm, user_id)
    return ended


def require_active_session(realm: Realm, principal: Principal) -> None:
    """AccessTokenInvalid (401) when the caller's session has ended since the request was let in.

    For what would outlast that end: another address, a factor more or less. Call it in the realm's transaction with the
    user's row locked: whoever sets a new password because a session was stolen locks that row before ending sessions.
    """
    standing = realm.sessions._default_manager.filter(user_id=principal.id, ended_at=None, expires_at__gt=now())
    if principal.session_id is None or not standing.filter(pk=principal.session_id).exists():
        raise AccessTokenInvalid


def sign_out(*, principal: Principal, everywhere: bool = False) -> int:
    """End the caller's session, or everything that lets the caller in; gives how many sessions ended."""
    realm = issue.realm_of(principal.kind)

    def leave() -> int:
        with realm.atomic():
            if everywhere:
                ended = end_everything(realm, user_id=principal.id, reason="signed_out")
            else:
                ended = end_sessions(realm, user_id=principal.id, session_id=principal.session_id, reason="signed_out")
            realm.record(
                "session.ended",
                target=("user", principal.id),
                tenant_id=principal.tenant_id,
                details={"sessions": ended, "everywhere": everywhere},
            )
            return ended

    if realm is END_USERS:
        assert principal.tenant_id is not None  # an end user always has a tenant
        with in_tenant(principal.tenant_id):
            return leave()
    return leave()
