"""What `check_consistency` compares of users, clients, directories, webhooks, keys and counters (`tenants.consistency`)."""

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db.models import Q
from django.utils.timezone import now

from identity_platform.audit.models import PlatformEvent
from identity_platform.crypto import SealBroken
from tenants import keys
from tenants.addresses import domain_claims
from tenants.consistency.examination import is_cut_off
from tenants.consistency.findings import MOST_IDS, Finding, sealed_finding
from tenants.consistency.records import find_differing
from tenants.consistency.references import Reference, find_missing
from tenants.entering.router import GLOBAL_ALIAS
from tenants.entering.target import TENANT_ALIAS
from tenants.models import DataKey, Tenant, WebhookTenant
from tenants.records.tenant_records import list_webhooks
from userflow.accounts import principals
from userflow.accounts.client_records import CLIENT_DELETED, CLIENTS
from userflow.accounts.models import DEFAULT_ROLE, AdminUser, Client, EndUser, Role
from userflow.accounts.realms import END_USERS
from userflow.accounts.session_models import EndUserSession
from userflow.clients.models import PendingClientChange
from userflow.directory import configs
from userflow.directory.models import DirectoryConfig, DirectoryLink
from userflow.domains.models import TenantDomain
from userflow.endusers import queries
from userflow.events.models import WebhookEndpoint, WebhookMessage
from userflow.invitations.models import EndUserInvitation, Invitation
from userflow.sessions import signing
from userflow.sessions.ending import end_found
from userflow.user_index.actions import compare
from userflow.user_index.models import UnindexedEndUser
from userflow.webhooks import signing as webhook_signing

CLIENT_LOST: Final = (
    "Their client does not exist and no deletion of it is recorded: the global database is older than the tenant's."
)
CREATE_AGAIN: Final = "Restore a newer global database, or create the client again; ids of clients are not reused."


def _changing(tenant_id: UUID) -> Collection[UUID]:
    """Return the clients whose sessions are about to follow a change."""
    return list(PendingClientChange.objects.filter(tenant_id=tenant_id).values_list("pk", flat=True))


def _open_invitations(moment: datetime) -> Q:
    return Invitation.OPEN & Q(expires_at__gt=moment)


def _end_sessions(ids: Collection[str]) -> int:
    sessions = EndUserSession._default_manager.filter(client_id__in=ids)
    return end_found(END_USERS, sessions, reason="client_deleted")


def _delete_endpoints(ids: Collection[str]) -> int:
    messages, _ = WebhookMessage.objects.filter(endpoint_id__in=ids).delete()
    endpoints, _ = WebhookEndpoint.objects.filter(pk__in=ids).exclude(client_id=None).delete()
    return messages + endpoints


# Ids in the tenant's database of rows in the global one.
REFERENCES: Final = (
    Reference(
        EndUser,
        "client_id",
        Client,
        "users of lost client",
        CLIENT_LOST,
        f"The users are complete and sign in with other clients. {CREATE_AGAIN}",
        deleted=CLIENT_DELETED,
    ),
    Reference(
        EndUserSession,
        "client_id",
        Client,
        "sessions of missing client",
        "These sessions are open, and their client was deleted or lost: one of the databases is older than the other.",
        "--repair ends them; applications with a logout address get a logout token.",
        among=lambda moment: Q(ended_at=None, expires_at__gt=moment),
        pending=_changing,
        repair=_end_sessions,
    ),
    Reference(
        EndUserInvitation,
        "client_id",
        Client,
        "invitations of lost client",
        f"They cannot be accepted. {CLIENT_LOST}",
        f"Cancel the invitations and send new ones. {CREATE_AGAIN}",
        deleted=CLIENT_DELETED,
        among=_open_invitations,
    ),
    Reference(
        EndUserInvitation,
        "invited_by_id",
        Client,
        "invitations by lost client",
        f"They grant no roles any more. {CLIENT_LOST}",
        "Cancel the invitations and send new ones.",
        deleted=CLIENT_DELETED,
        among=lambda moment: _open_invitations(moment) & Q(invited_by_kind=principals.CLIENT),
        of_tenant=False,
    ),
    Reference(
        EndUserInvitation,
        "invited_by_id",
        AdminUser,
        "invitations by lost admin",
        "They grant no roles any more. The admin user does not exist: the global database is older than the tenant's.",
        "Cancel the invitations and send new ones.",
        among=lambda moment: _open_invitations(moment) & Q(invited_by_kind__in=[principals.ADMIN, principals.OPERATOR]),
        of_tenant=False,
    ),
    Reference(
        WebhookEndpoint,
        "client_id",
        Client,
        "logout tokens of missing client",
        "The client was lost without keeping its logout address, so its logout tokens cannot be sent.",
        "--repair deletes them. Users of the application are signed out there when its own session ends.",
        among=lambda moment: Q(signed_response_alg=""),
        pending=_changing,
        repair=_delete_endpoints,
    ),
    Reference(
        DirectoryLink,
        "config_id",
        DirectoryConfig,
        "users of lost directory",
        "Their directory does not exist and no deletion of it is recorded: the global database is older than the tenant's.",
        "Configure the directory again: its first run takes over the users that it finds by their object ids.",
        deleted="directory.deleted",
    ),
)


def examine(tenant_id: UUID | None) -> Iterable[Finding]:
    """Return what is found about the entered tenant, or about the platform."""
    if tenant_id is None:
        return list(_signing_keys(None))
    return [
        *find_differing("client record", CLIENTS, tenant_id),
        *find_missing(REFERENCES, tenant_id),
        *_signing_keys(tenant_id),
        *_sealed(tenant_id),
        *_webhooks(tenant_id),
        *_directories(tenant_id),
        *_has_domains(tenant_id),
        *_roles(),
        *_counters(),
        *_index(tenant_id),
    ]


def _signing_keys(tenant_id: UUID | None) -> Iterator[Finding]:
    if keys.is_readable(str(tenant_id) if tenant_id else DataKey.PLATFORM):
        yield from sealed_finding(
            "signing keys",
            signing.unreadable_keys(tenant_id),
            "No tokens can be signed with them: withdraw them with rotate_signing_keys.",
            alias=TENANT_ALIAS if tenant_id else GLOBAL_ALIAS,
        )


def _sealed(tenant_id: UUID) -> Iterator[Finding]:
    if not keys.is_readable(str(tenant_id)):
        return
    endpoints = [
        endpoint.pk
        for endpoint in WebhookEndpoint.objects.filter(client_id=None)
        if not _opens(
            lambda row=endpoint: webhook_signing.open_secret(row.secret_sealed, tenant_id=tenant_id, endpoint_id=row.pk)
        )
    ]
    yield from sealed_finding("webhook secrets", endpoints, "Rotate the secrets of these endpoints.")
    directories = [
        config.pk
        for config in DirectoryConfig.objects.filter(tenant_id=tenant_id)
        if not _opens(lambda row=config: configs.open_secret(row))
    ]
    yield from sealed_finding(
        "directory secrets", directories, "Enter the secrets of these directories again.", alias=GLOBAL_ALIAS
    )


def _opens(open_secret: Any) -> bool:
    try:
        open_secret()
    except SealBroken:
        return False
    return True


def _webhooks(tenant_id: UUID) -> Iterator[Finding]:
    endpoints = list(WebhookEndpoint.objects.order_by("pk").values_list("pk", flat=True))
    if endpoints and not WebhookTenant.objects.filter(pk=tenant_id).exists():
        yield Finding(
            "unlisted webhooks",
            {str(endpoint): 1 for endpoint in endpoints},
            "The global database does not list the tenant among those with webhooks: no events are published or delivered.",
            "--repair lists it. Events since it was lost are not published.",
            lambda ids: int(list_webhooks(tenant_id)),
            GLOBAL_ALIAS,
        )


def _directories(tenant_id: UUID) -> Iterator[Finding]:
    """Find directories that would read only changes since a time that the tenant's database has not seen."""
    restored = PlatformEvent.objects.filter(action="tenant.restored", tenant_id=tenant_id).order_by("-at").first()
    directories = DirectoryConfig.objects.filter(tenant_id=tenant_id).exclude(cursor="")
    if not is_cut_off(tenant_id):
        directories = directories.filter(Q(read_in_full_at__lt=restored.at) if restored else Q(pk__in=[]))
    if rows := {str(pk): 1 for pk in directories.values_list("pk", flat=True)}:
        yield Finding(
            "directory ahead of its users",
            rows,
            "The directory would read changes only, and changes before the restore are missing in the tenant's database.",
            "--repair makes the next run read the directory in full.",
            lambda ids: DirectoryConfig.objects.filter(pk__in=ids).update(cursor=""),
            GLOBAL_ALIAS,
        )


def _has_domains(tenant_id: UUID) -> Iterator[Finding]:
    domains = {str(pk): 1 for pk in TenantDomain.objects.values_list("pk", flat=True)}
    if domains and not Tenant.objects.filter(pk=tenant_id, has_domains=True).exists():

        def note(ids: Collection[str]) -> int:
            domain_claims.note_domains(tenant_id)
            return 1

        yield Finding(
            "unlisted domains",
            domains,
            "The global database does not list the tenant among those with domains, so they are not compared with it.",
            "--repair lists it; then check again.",
            note,
            GLOBAL_ALIAS,
        )


def _roles() -> Iterator[Finding]:
    if not Role.objects.filter(name=DEFAULT_ROLE).exists():
        yield Finding(
            "missing role",
            {DEFAULT_ROLE: 1},
            "The role that every new user gets does not exist.",
            "Restore the tenant from a backup, or create the role again.",
        )


def _counters() -> Iterator[Finding]:
    rows = {
        f"{'active' if active else 'inactive'} {provider} {client_id or '-'}": abs(difference)
        for active, client_id, provider, difference in queries.wrong_counts()
    }
    if rows:
        yield Finding(
            "wrong user count",
            rows,
            "Lists of users show totals that differ from the number of users by this much.",
            "--repair counts them again.",
            _count_again,
        )


def _count_again(ids: Collection[str]) -> int:
    queries.count_again()
    return len(ids)


# How old a note can be whose entry is delivered soon: the periodic task visits every tenant once an hour.
DELIVERED_WITHIN: Final = timedelta(hours=2)


def _index(tenant_id: UUID) -> Iterator[Finding]:
    if not keys.is_readable(DataKey.PLATFORM):
        return
    rows: dict[str, int] = {}

    def note(user_ids: Collection[UUID]) -> None:
        # Those are delivered in a moment, and old ones are not: no process delivers, or it fails.
        recent = UnindexedEndUser.objects.filter(user_id__in=user_ids, noted_at__gt=now() - DELIVERED_WITHIN)
        waiting = set(recent.values_list("user_id", flat=True))
        rows.update((str(user_id), 1) for user_id in sorted(set(user_ids) - waiting)[: MOST_IDS - len(rows)])

    compare(tenant_id, dry_run=True, differing=note)
    if rows:
        yield Finding(
            "index of end users",
            rows,
            "The console's search misses these end users, or finds them although they do not exist or have another address.",
            "--repair corrects the index.",
            lambda ids: compare(tenant_id).total,
            GLOBAL_ALIAS,
        )
