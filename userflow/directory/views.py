from collections.abc import Sequence

from django.conf import settings
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.responses import DeletedRecordOut
from identity_platform.api.views import endpoint
from tenants.errors import DataKeyLocked
from userflow.directory import actions, serializers, synchronising
from userflow.errors import (
    DirectoriesBusy,
    DirectoryAddressRejected,
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
from userflow.named_tenant import TENANCY, InTenantViewSet, TenantPageQuery, TenantParameter
from userflow.sessions.assurance import Action
from userflow.sessions.permissions import needs, principal_at

CHANGING = (DirectoryAddressRejected, GrantsMoreThanHeld, DataKeyLocked, InsufficientAuthentication, *TENANCY)
READING = (LdapNotInstalled, DirectoryAddressRejected, DirectoriesBusy, DataKeyLocked, DirectorySecretLocked)


class DirectoryViewSet(InTenantViewSet):
    area = "directory"
    reads = ("list", "retrieve", "runs")
    unknown = UnknownDirectory

    def get_permissions(self) -> Sequence[BasePermission]:
        # Both send the stored secret.
        return [needs("directory:sync")()] if self.action in ("test", "sync") else super().get_permissions()

    @endpoint(id="listDirectories", query=TenantPageQuery, returns={200: serializers.DirectoryListOut}, errors=TENANCY)
    def list(self, request: Request) -> Response:
        """List directories.

        With their last runs, newest first, without secrets.
        """
        page = actions.list_directories(**self.arguments())
        return Response({"directories": [serializers.directory(shown) for shown in page.rows], **page.totals()})

    @endpoint(
        serializers.DirectoryIn,
        id="createDirectory",
        returns={201: serializers.DirectoryOut},
        errors=[DirectoryNameTaken, TooManyDirectories, LdapNotInstalled, UnknownClient, *CHANGING],
        assurance=Action.CHANGE_CONNECTIONS,
    )
    def create(self, request: Request) -> Response:
        """Configure a directory.

        An Active Directory (LDAP) or an Entra ID (Microsoft Graph). Nothing is read yet: test it, then synchronize.
        """
        shown = actions.create_directory(by=principal_at(request), **self.arguments())
        return Response(serializers.directory(shown), status=201)

    @endpoint(
        id="getDirectory",
        query=TenantParameter,
        returns={200: serializers.DirectoryOut},
        errors=[UnknownDirectory, *TENANCY],
    )
    def retrieve(self, request: Request, config_id: str) -> Response:
        """Get a directory.

        With its last run, without the secret.
        """
        return Response(serializers.directory(actions.find_directory(**self.arguments())))

    @endpoint(
        serializers.DirectoryChanges,
        id="updateDirectory",
        returns={200: serializers.DirectoryOut},
        errors=[UnknownDirectory, DirectoryNameTaken, DirectoryBusy, UnknownClient, *CHANGING],
        assurance=Action.CHANGE_CONNECTIONS,
    )
    def update(self, request: Request, config_id: str) -> Response:
        """Change a directory.

        Only the fields in the body change. A change of the target (server, names, TLS) needs the secret again.
        """
        shown = actions.update_directory(by=principal_at(request), **self.arguments())
        return Response(serializers.directory(shown))

    @endpoint(
        id="deleteDirectory",
        query=TenantParameter,
        returns={200: DeletedRecordOut},
        errors=[UnknownDirectory, DirectoryBusy, GrantsMoreThanHeld, InsufficientAuthentication, *TENANCY],
        assurance=Action.CHANGE_CONNECTIONS,
    )
    def destroy(self, request: Request, config_id: str) -> Response:
        """Delete a directory.

        With its secret and its runs. Its users stay unchanged.
        """
        arguments = self.arguments()
        actions.delete_directory(by=principal_at(request), **arguments)
        return Response(
            {"message": "The directory was deleted. Its users stay unchanged.", "id": arguments["config_id"]}
        )

    @endpoint(
        id="testDirectory",
        query=TenantParameter,
        returns={200: serializers.DirectoryTestOut},
        errors=[UnknownDirectory, *READING, *TENANCY],
    )
    def test(self, request: Request, config_id: str) -> Response:
        """Test a directory.

        Connect and read the first few users without changes. `message` says what is wrong, if anything.
        """
        trial = synchronising.try_directory(**self.arguments())
        return Response(serializers.tried(trial), headers={"Cache-Control": "no-store"})

    @endpoint(
        serializers.DirectorySyncIn,
        id="syncDirectory",
        returns={200: serializers.DirectoryRunOut},
        errors=[
            UnknownDirectory,
            DirectoryBusy,
            DirectoryFailed,
            *READING,
            UnknownClient,
            GrantsMoreThanHeld,
            *TENANCY,
        ],
    )
    def sync(self, request: Request, config_id: str) -> Response:
        """Synchronize users with a directory.

        With `dry_run` it only reports the changes. A run that takes too long for a request ends with the state
        `incomplete`; the command `sync_directory` has more time.
        """
        seconds = settings.DIRECTORY_REQUEST_SECONDS
        done = synchronising.synchronise(seconds=seconds, by=principal_at(request), **self.arguments())
        return Response(serializers.ran(done), headers={"Cache-Control": "no-store"})

    @endpoint(
        id="listDirectoryRuns",
        query=TenantPageQuery,
        returns={200: serializers.DirectoryRunListOut},
        errors=[UnknownDirectory, *TENANCY],
    )
    def runs(self, request: Request, config_id: str) -> Response:
        """List the runs of a directory.

        Those of the last 90 days, newest first.
        """
        page = actions.list_runs(**self.arguments())
        return Response({"runs": [serializers.run(row) for row in page.rows], **page.totals()})
