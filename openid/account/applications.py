"""Applications that a user has connected: by consent, or by a session that is active."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from uuid import UUID

from django.db.models import Count, Max, Min, Q, QuerySet
from django.utils.timezone import now

from identity_platform.audit.writer import record_for_tenant
from identity_platform.postgresql.row_errors import first_or
from openid.device.codes import delete_device_codes
from openid.models import AuthorizationCode, Consent
from tenants.entering.context import in_tenant, tenant_atomic
from tenants.entering.lookup import TenantContext
from tenants.entering.target import in_target
from userflow.accounts.models import EndUser, TenantClient
from userflow.accounts.principals import Principal
from userflow.accounts.rank import must_outrank
from userflow.accounts.realms import END_USERS
from userflow.accounts.session_models import EndUserSession, Session
from userflow.errors import UnknownUser
from userflow.sessions.assurance import Action, require_assurance
from userflow.sessions.ending import end_found
from userflow.sessions.permissions import editing_users, require

# Sessions of a browser that are searched for an application with an address.
MOST_APPLICATIONS: Final = 20


@dataclass(slots=True)
class Connected:
    """An application and what the user lets it have."""

    id: UUID
    name: str
    scopes: list[str] = field(default_factory=list)
    audiences: list[str] = field(default_factory=list)
    # Mapped claims, by name.
    claims: list[str] = field(default_factory=list)
    consented: bool = False
    since: datetime | None = None
    last_used_at: datetime | None = None
    # Those that are active.
    sessions: int = 0


def connected_applications(user_id: UUID) -> list[Connected]:
    """Return the applications of the user, by name. Call it inside the tenant."""
    applications: dict[UUID, Connected] = {}
    for consent in Consent.objects.filter(user_id=user_id):
        applications[consent.client_id] = Connected(
            consent.client_id,
            "",
            consent.scopes,
            consent.audiences,
            consent.claims,
            consented=True,
            since=consent.created_at,
        )
    used = (
        _application_sessions(user_id)
        .values("client_id")
        .annotate(
            active=Count("pk", filter=Q(ended_at=None, expires_at__gt=now())),
            first=Min("created_at"),
            last=Max("last_used_at"),
        )
    )
    for client_id, sessions, first, last in used.values_list("client_id", "active", "first", "last"):
        if client_id and (sessions or client_id in applications):
            application = applications.setdefault(client_id, Connected(client_id, "", since=first))
            application.sessions, application.last_used_at = sessions, last
    for client_id, name in TenantClient.objects.filter(pk__in=applications).values_list("pk", "name"):
        applications[client_id].name = name
    return sorted(
        (application for application in applications.values() if application.name),
        key=lambda application: (application.name.lower(), str(application.id)),
    )


def application_to_open(session: EndUserSession) -> TenantClient | None:
    """Return the application that the pages of the account lead to; None if there is none with an address.

    The one that this session of a browser has signed in last, else the one that the user has registered with or was invited
    to, else the tenant's default client. Call it inside the tenant.
    """
    opened = EndUserSession._default_manager.filter(parent_id=session.pk).order_by("-created_at")
    preferred = [*opened.values_list("client_id", flat=True)[:MOST_APPLICATIONS], session.user.client_id]
    clients = TenantClient.objects.filter(Q(pk__in=preferred) | Q(is_default=True), active=True).exclude(client_uri="")
    order = {client_id: position for position, client_id in reversed([*enumerate(preferred)])}
    return min(clients, key=lambda client: order.get(client.pk, len(preferred)), default=None)


def names_of_applications(sessions: Sequence[Session], tenant: TenantContext) -> dict[UUID, str]:
    """Return the names of the applications that OpenID Connect has signed in on devices of their own, by session."""
    client_ids = {
        session.pk: session.client_id
        for session in sessions
        if isinstance(session, EndUserSession) and session.audiences
    }
    with in_target(tenant.target):
        clients = TenantClient.objects.filter(pk__in=set(client_ids.values())) if client_ids else ()
        names = {client.pk: client.name for client in clients}
    return {session: names[client] for session, client in client_ids.items() if client in names}


def applications_of_browsers(sessions: Sequence[Session], tenant: TenantContext) -> dict[UUID, list[str]]:
    """Return the names of the applications that each of these browsers has signed in. Call it inside the tenant."""
    children = EndUserSession._default_manager.filter(
        parent_id__in=[session.pk for session in sessions], ended_at=None, expires_at__gt=now()
    )
    pairs = set(children.values_list("parent_id", "client_id"))
    clients = TenantClient.objects.filter(pk__in={client for _, client in pairs})
    names = dict(clients.values_list("pk", "name")) if pairs else {}
    names_by_browser: dict[UUID, list[str]] = {}
    for browser, client in pairs:
        if browser is not None and client in names:
            names_by_browser.setdefault(browser, []).append(names[client])
    return {browser: sorted(application_names) for browser, application_names in names_by_browser.items()}


def disconnect(user_id: UUID, client_id: UUID) -> int:
    """Delete the user's consent and unused codes, and end the sessions of the application; return the sessions' number.

    Call it inside the tenant.
    """
    with tenant_atomic():
        # In the order in which an exchange locks them: it ends before, and its session ends here, or it finds no consent.
        AuthorizationCode.objects.filter(user_id=user_id, client_id=client_id, used_at=None).delete()
        delete_device_codes(client_id=client_id, user_id=user_id)
        Consent.objects.filter(user_id=user_id, client_id=client_id).delete()
        active = _application_sessions(user_id).filter(client_id=client_id, ended_at=None, expires_at__gt=now())
        ended = end_found(END_USERS, active, reason="consent_revoked")
        details = {"user_id": str(user_id), "sessions": ended}
        record_for_tenant("consent.revoked", target=("client", client_id), details=details)
    return ended


def disconnect_user(*, by: Principal, tenant_id: UUID, user_id: UUID, client_id: UUID) -> int:
    """Disconnect an application of another user; return the number of sessions that ended.

    Raises NotAllowed, UnknownUser, GrantsMoreThanHeld (the user holds permissions that the caller lacks),
    InsufficientAuthentication.
    """
    require(by, "sessions:write")
    require_assurance(Action.END_SESSIONS_OF_OTHERS, by)
    with in_tenant(tenant_id, editing_users(by)), tenant_atomic():
        user = first_or(EndUser.objects.select_for_update(no_key=True).filter(pk=user_id), UnknownUser)
        must_outrank(by, user)
        return disconnect(user.pk, client_id)


def _application_sessions(user_id: UUID) -> "QuerySet[EndUserSession]":
    """Return the sessions that OpenID Connect has opened: these have audiences."""
    return EndUserSession._default_manager.filter(user_id=user_id, client_id__isnull=False).exclude(audiences=[])
