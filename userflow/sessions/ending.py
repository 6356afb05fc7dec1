"""End sessions: one, all but one, or all access of a user; and require that a session is active."""

from typing import Final
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils.timezone import now

from identity_platform.api.errors import AccessTokenInvalid
from userflow.accounts.principals import Principal
from userflow.accounts.realms import ADMINS, END_USERS, Realm
from userflow.accounts.session_models import EndUserSession, Session
from userflow.credentials import tickets
from userflow.events import logouts
from userflow.events.logouts import Logout
from userflow.events.outbox import wake_after_commit
from userflow.sessions import issue
from userflow.sessions.assurance import reject_third_party
from userflow.signals import other_sessions_ended

# A statement takes 65,535 parameters, and the time of a tenant's statement is limited: an application may have more sessions.
AT_ONCE: Final = 1_000
_COLUMNS: Final = ("pk", "user_id", "client_id", "backchannel_logout", "browser_digest")


def end_sessions(
    realm: Realm, *, user_id: UUID, session_id: UUID | None = None, keep: UUID | None = None, reason: str
) -> int:
    """End one session of a user, or all except `keep`; return how many ended.

    The sessions of applications end with that of the browser that has signed them in. With `keep` the browser's session
    and its applications' stay if one of them is kept, but no
    approval from it that a device has not used. Their tokens are rejected from the next request on.
    """
    sessions = realm.sessions._default_manager.filter(user_id=user_id)
    if session_id is not None:
        sessions = sessions.filter(pk=session_id)
    if keep is not None:
        sessions = sessions.exclude(pk=keep)
        if realm is END_USERS:
            family = EndUserSession._default_manager.filter(Q(parent_id=keep) | Q(children__id=keep))
            sessions = sessions.exclude(pk__in=family.values("pk"))
            with transaction.atomic(using=realm.alias, savepoint=False):
                other_sessions_ended.send(end_sessions, user_id=user_id)
                return end_found(realm, sessions, reason=reason)
    return end_found(realm, sessions, reason=reason)


def end_found(realm: Realm, sessions: QuerySet[Session], *, reason: str) -> int:
    """End those of these sessions that are active, and with sessions of browsers those of their applications.

    Return how many ended. Applications with a logout address get a logout token for each of theirs; this costs two statements
    for AT_ONCE sessions, and none where no such session ends.
    """
    active = sessions.filter(ended_at=None)
    if realm is ADMINS:
        return active.update(ended_at=now(), end_reason=reason)
    locked = active.order_by("pk").select_for_update(no_key=True, of=("self",)).values_list(*_COLUMNS)
    number, last, some = 0, None, AT_ONCE
    while some == AT_ONCE:
        # Outside a transaction of the caller, what has ended stays ended if a later part fails.
        with transaction.atomic(using=realm.alias, savepoint=False):
            part = list((locked.filter(pk__gt=last) if last else locked)[:AT_ONCE])
            number += _end(part, reason)
        some, last = len(part), part[-1][0] if part else None
    return number


def _end(ended: list[tuple[UUID, UUID, UUID | None, bool, bytes | None]], reason: str) -> int:
    """End these locked sessions and those that their browsers have signed in; return how many."""
    if browsers := [pk for pk, _, _, _, browser in ended if browser is not None]:
        # A statement of its own, after the locks: it sees the children that were opened meanwhile.
        children = EndUserSession._default_manager.filter(parent_id__in=browsers, ended_at=None)
        children = children.exclude(pk__in=[row[0] for row in ended]).order_by("pk")
        ended = ended + list(children.select_for_update(no_key=True, of=("self",)).values_list(*_COLUMNS))
    if not ended:
        return 0
    EndUserSession._default_manager.filter(pk__in=[row[0] for row in ended]).update(ended_at=now(), end_reason=reason)
    due = [Logout(client, user, pk) for pk, user, client, told, _ in ended if told and client is not None]
    if logouts.write(due):
        wake_after_commit()
    return len(ended)


def end_everything(realm: Realm, *, user_id: UUID, reason: str) -> int:
    """End every session, ticket and enrollment window of a user; return the number of sessions.

    Call it in the realm's transaction. It locks the user first, as a sign-in does, so a sign-in at the same moment waits,
    or its session ends here.
    """
    realm.users._default_manager.select_for_update(no_key=True).filter(pk=user_id).first()
    ended = end_sessions(realm, user_id=user_id, reason=reason)
    tickets.end_tickets(realm, user_id)
    return ended


def require_active_session(realm: Realm, principal: Principal) -> None:
    """Raise AccessTokenInvalid (401) when the caller's session has ended since the request was authenticated.

    For changes that would outlast the session: an address, a factor. Call it in the realm's transaction with the user's row
    locked: a password reset locks that row before it ends the sessions.
    """
    active = realm.sessions._default_manager.filter(user_id=principal.id, ended_at=None, expires_at__gt=now())
    if principal.session_id is None or not active.filter(pk=principal.session_id).exists():
        raise AccessTokenInvalid


def record_end(realm: Realm, target: tuple[str, object], tenant_id: UUID | None, **details: object) -> None:
    """Audit the end of sessions by request."""
    realm.record("session.ended", target=target, tenant_id=tenant_id, details=details)


def sign_out(*, principal: Principal, everywhere: bool = False) -> int:
    """End the caller's session, or with `everywhere` all access of the caller. Return the number of sessions.

    Raises NotAllowed (`everywhere`, by a third-party application).
    """
    if everywhere:
        reject_third_party(principal)
    realm = issue.realm_of(principal.kind)
    with realm.entered(principal.tenant_id), realm.atomic():
        if everywhere:
            ended = end_everything(realm, user_id=principal.id, reason="signed_out")
        else:
            ended = end_sessions(realm, user_id=principal.id, session_id=principal.session_id, reason="signed_out")
        record_end(realm, ("user", principal.id), principal.tenant_id, sessions=ended, everywhere=everywhere)
    return ended
