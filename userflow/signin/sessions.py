"""Sessions as people and admins see them: listed, and ended one by one."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any
from uuid import UUID

from django.utils.timezone import now

from identity_platform.api.errors import NotAllowed
from identity_platform.api.pagination import Page, offset
from tenants.context import in_tenant
from tenants.states import Purpose
from userflow.admins.models import AdminUser
from userflow.endusers.models import EndUser
from userflow.errors import UnknownSession, UnknownUser
from userflow.permissions import editing_users, reading, require
from userflow.principals import ADMIN, CLIENT, END_USER, OPERATOR, Principal
from userflow.realms import ADMINS, END_USERS, Realm
from userflow.signin.actions import end_sessions
from userflow.tokens import issue


def list_sessions(
    *, by: Principal, page: int, limit: int, user_id: UUID | None = None, tenant_id: UUID | None = None
) -> Page:
    """Sessions that stand, the newest first: the caller's own, or with `sessions:read` those of `user_id`.

    `tenant_id` is the tenant of the call (None: an operator who means admin users). Another admin user's sessions need
    `admins:read` as well. Refuses with NotAllowed, UnknownUser.
    """
    if user_id is None or user_id == by.id:
        if by.kind == CLIENT:
            raise NotAllowed("A client has no sessions: its tokens are revoked at /authmgr/token/revoke.")
        realm, user_id, tenant_id = issue.realm_of(by.kind), by.id, by.tenant_id
    else:
        require(by, "sessions:read")
        realm = _realm_of_user(by, user_id, tenant_id)
    start = offset(page, limit)
    with _entered(realm, tenant_id, reading(by)):
        found = _standing(realm).filter(user_id=user_id)
        rows = list(found.order_by("-created_at", "id")[start : start + limit])
        return Page(rows, page, limit, found.count())


def end_one_session(
    *, by: Principal, session_id: UUID, user_id: UUID | None = None, tenant_id: UUID | None = None
) -> None:
    """End a session: one's own, or with `sessions:write` that of a user of the tenant (of an admin user: `admins:write`
    as well). UnknownSession for any other, whether or not it exists."""
    places = [] if by.kind == CLIENT else [(issue.realm_of(by.kind), by.tenant_id, {"user_id": by.id})]
    if by.kind != END_USER and by.may("sessions:write"):
        if tenant_id is not None:
            places.append((END_USERS, tenant_id, {}))
        if by.may("admins:write"):
            places.append((ADMINS, tenant_id, {"user__tenant_id": tenant_id} if tenant_id else {}))
    for realm, place, condition in places:
        with _entered(realm, place, editing_users(by)):
            found = _standing(realm).filter(pk=session_id, **condition)
            if user_id is not None:
                found = found.filter(user_id=user_id)
            session = found.first()
            if session is not None:
                _end(realm, session, place)
                return
    raise UnknownSession


def end_others(*, principal: Principal) -> int:
    """End every session of the caller's but this one; gives how many ended."""
    realm = issue.realm_of(principal.kind)
    with _entered(realm, principal.tenant_id, Purpose.WRITE), realm.atomic():
        ended = end_sessions(realm, user_id=principal.id, keep=principal.session_id, reason="ended_by_request")
        realm.record(
            "session.ended",
            target=("user", principal.id),
            tenant_id=principal.tenant_id,
            details={"sessions": ended, "others": True},
        )
    return ended


def end_all_sessions(*, by: Principal, tenant_id: UUID, user_id: UUID) -> int:
    """End every session of an end user with `sessions:write`; gives how many ended. Refuses with NotAllowed, UnknownUser."""
    require(by, "sessions:write")
    with in_tenant(tenant_id, editing_users(by)), END_USERS.atomic():
        if not EndUser.objects.filter(pk=user_id).exists():
            raise UnknownUser
        ended = end_sessions(END_USERS, user_id=user_id, reason="ended_by_request")
        END_USERS.record(
            "session.ended",
            target=("end_user", user_id),
            tenant_id=tenant_id,
            details={"sessions": ended, "everywhere": True},
        )
    return ended


def end_sessions_of_admin(*, by: Principal, user_id: UUID) -> int:
    """Sign an admin user out everywhere; gives how many sessions ended. The caller may change admin users and end
    sessions, and an admin of a tenant means users of that tenant. Refuses with NotAllowed, UnknownUser."""
    require(by, "sessions:write", OPERATOR, ADMIN)
    require(by, "admins:write", OPERATOR, ADMIN)
    found = AdminUser.objects.filter(pk=user_id)
    if by.tenant_id is not None:
        found = found.filter(tenant_id=by.tenant_id)
    user = found.first()
    if user is None:
        raise UnknownUser
    with ADMINS.atomic():
        ended = end_sessions(ADMINS, user_id=user_id, reason="ended_by_request")
        ADMINS.record(
            "session.ended",
            target=("user", user_id),
            tenant_id=user.tenant_id,
            details={"sessions": ended, "everywhere": True},
        )
    return ended


def _end(realm: Realm, session: Any, tenant_id: UUID | None) -> None:
    with realm.atomic():
        end_sessions(realm, user_id=session.user_id, session_id=session.pk, reason="ended_by_request")
        realm.record(
            "session.ended",
            target=("session", session.pk),
            tenant_id=tenant_id,
            details={"user_id": str(session.user_id)},
        )


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


def _standing(realm: Realm) -> Any:
    return realm.sessions._default_manager.filter(ended_at=None, expires_at__gt=now())


def _entered(realm: Realm, tenant_id: UUID | None, purpose: Purpose) -> AbstractContextManager[Any]:
    if realm is END_USERS:
        assert tenant_id is not None  # sessions of end users are in a tenant
        return in_tenant(tenant_id, purpose)
    return nullcontext()
