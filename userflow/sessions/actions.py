"""List and end sessions."""

from uuid import UUID

from django.db.models import QuerySet
from django.utils.timezone import now

from identity_platform.api.errors import NotAllowed
from identity_platform.api.pagination import Page, page_of
from tenants.entering.context import in_tenant
from userflow.accounts.lookups import find_admin_user
from userflow.accounts.models import Account, AdminUser, EndUser
from userflow.accounts.principals import CLIENT, END_USER, Principal
from userflow.accounts.rank import must_outrank
from userflow.accounts.realms import ADMINS, END_USERS, Realm
from userflow.accounts.session_models import EndUserSession, Session
from userflow.credentials import tickets
from userflow.errors import UnknownSession, UnknownUser
from userflow.sessions import issue
from userflow.sessions.assurance import Action, reject_third_party, require_assurance
from userflow.sessions.ending import end_everything, end_sessions, record_end, sign_out
from userflow.sessions.permissions import editing_users, reading, require

NO_SESSIONS = "A client has no sessions: its tokens are revoked at /authmgr/token/revoke."


def list_sessions(
    *,
    by: Principal,
    page: int,
    limit: int,
    user_id: UUID | None = None,
    tenant_id: UUID | None = None,
    parents: bool = False,
) -> Page:
    """Return active sessions, newest first: the caller's own, or with `sessions:read` those of `user_id`.

    With `parents` those that a browser's session of an end user has opened for applications are left out. `tenant_id` is the
    tenant of the call (None: an operator who means admin users). Another admin user's sessions need
    `admins:read` as well. Raises NotAllowed, UnknownUser.
    """
    if user_id is None or user_id == by.id:
        if by.kind == CLIENT:
            raise NotAllowed(NO_SESSIONS)
        reject_third_party(by)
        realm, user_id, tenant_id = issue.realm_of(by.kind), by.id, by.tenant_id
    else:
        require(by, "sessions:read")
        realm = _realm_of_user(by, user_id, tenant_id)
    with realm.entered(tenant_id, reading(by)):
        sessions = _active(realm).filter(user_id=user_id)
        if parents:
            opened = EndUserSession._default_manager.filter(user_id=user_id).exclude(parent=None)
            sessions = sessions.exclude(pk__in=opened.values("pk"))
        return page_of(sessions.order_by("-created_at", "id"), page, limit)


def end_one_session(
    *, by: Principal, session_id: UUID, user_id: UUID | None = None, tenant_id: UUID | None = None
) -> None:
    """End a session: the caller's own, or with `sessions:write` that of a user of the tenant (of an admin user with
    `admins:write` as well).

    Raises UnknownSession for any other, whether or not it exists, GrantsMoreThanHeld (the user holds permissions that the
    caller lacks), InsufficientAuthentication (for another user's session).
    """
    candidates = [] if by.kind == CLIENT else [(issue.realm_of(by.kind), by.tenant_id, {"user_id": by.id}, True)]
    if by.kind != END_USER and by.may("sessions:write"):
        if tenant_id is not None:
            candidates.append((END_USERS, tenant_id, {}, False))
        if by.may("admins:write"):
            candidates.append((ADMINS, tenant_id, {"user__tenant_id": tenant_id} if tenant_id else {}, False))
    for realm, realm_tenant_id, condition, is_own in candidates:
        with realm.entered(realm_tenant_id, editing_users(by)):
            sessions = _active(realm).filter(pk=session_id, **condition)
            if user_id is not None:
                sessions = sessions.filter(user_id=user_id)
            session = sessions.select_related("user").first()
            if session is not None:
                if is_own and session.pk != by.session_id:
                    reject_third_party(by)
                if not is_own:
                    require_assurance(Action.END_SESSIONS_OF_OTHERS, by)
                    must_outrank(by, session.user)
                _end(realm, session, realm_tenant_id, is_own=is_own)
                return
    raise UnknownSession


def end_others(*, principal: Principal) -> int:
    """End every other session of the caller; return how many ended. Raises NotAllowed (a third-party application)."""
    reject_third_party(principal)
    realm = issue.realm_of(principal.kind)
    with realm.entered(principal.tenant_id), realm.atomic():
        ended = end_sessions(realm, user_id=principal.id, keep=principal.session_id, reason="ended_by_request")
        if realm is END_USERS:
            tickets.forget_devices(realm, principal.id)
        record_end(realm, ("user", principal.id), principal.tenant_id, sessions=ended, others=True)
    return ended


def end_all_sessions(*, by: Principal, user_id: UUID, tenant_id: UUID | None = None) -> int:
    """End every session of a user, with the refresh tokens, tickets and enrollment windows. Return the number of sessions.

    The caller's own, or with `sessions:write` those of an end user of the tenant, and with `admins:write` as well those
    of an admin user. Raises NotAllowed (also for a client's own), UnknownUser, GrantsMoreThanHeld (the user holds
    permissions that the caller lacks), InsufficientAuthentication (for another user).
    """
    if user_id == by.id:
        if by.kind == CLIENT:
            raise NotAllowed(NO_SESSIONS)
        return sign_out(principal=by, everywhere=True)
    require(by, "sessions:write")
    require_assurance(Action.END_SESSIONS_OF_OTHERS, by)
    if tenant_id is not None:
        with in_tenant(tenant_id, editing_users(by)), END_USERS.atomic():
            end_user = EndUser.objects.select_for_update(no_key=True).filter(pk=user_id).first()
            if end_user is not None:
                must_outrank(by, end_user)
                return _end_all(END_USERS, end_user, tenant_id, target="end_user")
    if not by.may("admins:write"):
        raise UnknownUser
    with ADMINS.atomic():
        admin = find_admin_user(user_id=user_id, within=tenant_id, lock=True)
        must_outrank(by, admin)
        return _end_all(ADMINS, admin, admin.tenant_id, target="user")


def _end_all(realm: Realm, user: Account, tenant_id: UUID | None, *, target: str) -> int:
    ended = end_everything(realm, user_id=user.pk, reason="ended_by_request")
    record_end(realm, (target, user.pk), tenant_id, sessions=ended, everywhere=True)
    return ended


def _end(realm: Realm, session: Session, tenant_id: UUID | None, *, is_own: bool) -> None:
    with realm.atomic():
        end_sessions(realm, user_id=session.user.pk, session_id=session.pk, reason="ended_by_request")
        if realm is END_USERS and not is_own:
            # An admin ends what may be in foreign hands: no browser goes on without the second step.
            tickets.forget_devices(realm, session.user.pk)
        record_end(realm, ("session", session.pk), tenant_id, user_id=str(session.user.pk))


def _realm_of_user(by: Principal, user_id: UUID, tenant_id: UUID | None) -> Realm:
    if tenant_id is not None:
        with in_tenant(tenant_id, reading(by)):
            if EndUser.objects.filter(pk=user_id).exists():
                return END_USERS
    admins = AdminUser.objects.filter(pk=user_id)
    if tenant_id is not None:
        admins = admins.filter(tenant_id=tenant_id)
    if not by.may("admins:read") or not admins.exists():
        raise UnknownUser
    return ADMINS


def _active(realm: Realm) -> QuerySet[Session]:
    return realm.sessions._default_manager.filter(ended_at=None, expires_at__gt=now())
