"""Directories over HTTP."""

from uuid import UUID

from django.conf import settings
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.views import ApiViewSet, endpoint
from tenants.errors import DataKeyLocked, TenantBusy, TenantRequired, TenantSuspended, UnknownTenant
from userflow.directory import actions, serializers, synchronising
from userflow.errors import (
    DirectoryBusy,
    DirectoryFailed,
    DirectoryNameTaken,
    DirectorySecretLocked,
    GrantsMoreThanHeld,
    InsufficientAuthentication,
    LdapNotInstalled,
    TooManyDirectories,
    UnknownClient,
    UnknownDirectory,
)
from userflow.ids import id_or
from userflow.named_tenant import NamedTenant, TenantPageQuery
from userflow.sessions.assurance import Action
from userflow.sessions.permissions import needs, principal_at, tenant_at

TENANCY = [UnknownTenant, TenantSuspended, TenantBusy, TenantRequired]
NEEDS = {
    "list": "directory:read",
    "retrieve": "directory:read",
    "runs": "directory:read",
    # Both send the stored secret.
    "test": "directory:sync",
    "sync": "directory:sync",
}


class DirectoryViewSet(ApiViewSet):
    def get_permissions(self) -> list[BasePermission]:
        return [needs(NEEDS.get(self.action, "directory:write"))()]

    @endpoint(query=TenantPageQuery, returns={200: serializers.DirectoryListOut}, errors=TENANCY)
    def list(self, request: Request) -> Response:
        """List directories of a tenant with their last runs, newest first, without secrets."""
        asked = self.valid_query(TenantPageQuery)
        found = actions.list_directories(tenant_id=tenant_at(request, asked.pop("tenant_id", None)), **asked)
        return Response({"directories": [serializers.directory(shown) for shown in found.rows], **found.totals()})

    @endpoint(
        serializers.DirectoryIn,
        returns={201: serializers.DirectoryOut},
        errors=[
            DirectoryNameTaken,
            TooManyDirectories,
            LdapNotInstalled,
            UnknownClient,
            GrantsMoreThanHeld,
            DataKeyLocked,
            InsufficientAuthentication,
            *TENANCY,
        ],
        assurance=Action.CHANGE_CONNECTIONS,
    )
    def create(self, request: Request) -> Response:
        """Configure an Active Directory (LDAP) or an Entra ID (Microsoft Graph). Nothing is read yet."""
        fields = self.valid(serializers.DirectoryIn)
        tenant_id = tenant_at(request, fields.pop("tenant_id", None))
        shown = actions.create_directory(tenant_id=tenant_id, by=principal_at(request), **fields)
        return Response(serializers.directory(shown), status=201)

    @endpoint(query=NamedTenant, returns={200: serializers.DirectoryOut}, errors=[UnknownDirectory, *TENANCY])
    def retrieve(self, request: Request, config_id: str) -> Response:
        """Return one directory with its last run."""
        shown = actions.find_directory(tenant_id=self._tenant(request), config_id=id_or(config_id, UnknownDirectory))
        return Response(serializers.directory(shown))

    @endpoint(
        serializers.DirectoryChanges,
        returns={200: serializers.DirectoryOut},
        errors=[
            UnknownDirectory,
            DirectoryNameTaken,
            DirectoryBusy,
            UnknownClient,
            GrantsMoreThanHeld,
            DataKeyLocked,
            InsufficientAuthentication,
            *TENANCY,
        ],
        assurance=Action.CHANGE_CONNECTIONS,
    )
    def update(self, request: Request, config_id: str) -> Response:
        """Change the given fields. A change of the target (server, names, TLS) needs the secret again."""
        changes = self.valid(serializers.DirectoryChanges)
        tenant_id = tenant_at(request, changes.pop("tenant_id", None))
        wanted = id_or(config_id, UnknownDirectory)
        shown = actions.update_directory(tenant_id=tenant_id, config_id=wanted, by=principal_at(request), **changes)
        return Response(serializers.directory(shown))

    @endpoint(
        query=NamedTenant,
        returns={200: serializers.DirectoryDeletedOut},
        errors=[UnknownDirectory, DirectoryBusy, GrantsMoreThanHeld, InsufficientAuthentication, *TENANCY],
        assurance=Action.CHANGE_CONNECTIONS,
    )
    def destroy(self, request: Request, config_id: str) -> Response:
        """Delete a directory with its secret and its runs; its users stay unchanged."""
        wanted = id_or(config_id, UnknownDirectory)
        actions.delete_directory(tenant_id=self._tenant(request), config_id=wanted, by=principal_at(request))
        return Response({"message": "The directory was deleted. Its users stay unchanged.", "id": wanted})

    @endpoint(
        query=NamedTenant,
        returns={200: serializers.TriedOut},
        errors=[UnknownDirectory, LdapNotInstalled, DataKeyLocked, DirectorySecretLocked, *TENANCY],
    )
    def test(self, request: Request, config_id: str) -> Response:
        """Connect and read the first few users without changes; the response names the problem, if any."""
        found = synchronising.try_directory(
            tenant_id=self._tenant(request), config_id=id_or(config_id, UnknownDirectory)
        )
        return Response(serializers.tried(found), headers={"Cache-Control": "no-store"})

    @endpoint(
        serializers.SyncIn,
        returns={200: serializers.RunOut},
        errors=[
            UnknownDirectory,
            DirectoryBusy,
            DirectoryFailed,
            LdapNotInstalled,
            DataKeyLocked,
            DirectorySecretLocked,
            UnknownClient,
            GrantsMoreThanHeld,
            *TENANCY,
        ],
    )
    def sync(self, request: Request, config_id: str) -> Response:
        """Synchronise the tenant's users with the directory, or with dry_run only report the changes.

        Ends after DIRECTORY_REQUEST_SECONDS with the state `incomplete`; the command sync_directory has more time.
        """
        asked = self.valid(serializers.SyncIn)
        tenant_id = tenant_at(request, asked.pop("tenant_id", None))
        done = synchronising.synchronise(
            tenant_id=tenant_id,
            config_id=id_or(config_id, UnknownDirectory),
            seconds=settings.DIRECTORY_REQUEST_SECONDS,
            by=principal_at(request),
            **asked,
        )
        return Response(serializers.ran(done), headers={"Cache-Control": "no-store"})

    @endpoint(query=TenantPageQuery, returns={200: serializers.RunListOut}, errors=[UnknownDirectory, *TENANCY])
    def runs(self, request: Request, config_id: str) -> Response:
        """List the directory's runs of the last 90 days, newest first."""
        asked = self.valid_query(TenantPageQuery)
        tenant_id = tenant_at(request, asked.pop("tenant_id", None))
        found = actions.list_runs(tenant_id=tenant_id, config_id=id_or(config_id, UnknownDirectory), **asked)
        return Response({"runs": [serializers.run(row) for row in found.rows], **found.totals()})

    def _tenant(self, request: Request) -> UUID:
        return tenant_at(request, self.valid_query(NamedTenant).get("tenant_id"))
