from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.responses import NO_STORE
from identity_platform.api.views import ApiViewSet, endpoint
from identity_platform.transfer.errors import FileUnusable
from identity_platform.transfer.runs import Options
from tenants.errors import TenantBusy, TenantRequired, TenantSuspended, UnknownTenant
from userflow.errors import (
    ExternalIdTaken,
    ImportsBusy,
    InsufficientAuthentication,
    TooManyFromAddress,
    TooManyNames,
    TooManyRows,
)
from userflow.sessions.assurance import Action
from userflow.sessions.permissions import needs, principal_at, tenant_at
from userflow.transfer import actions, exporting, serializers

TENANCY = [UnknownTenant, TenantSuspended, TenantBusy, TenantRequired, TooManyFromAddress]


class ImportViewSet(ApiViewSet):
    permission_classes = [needs("endusers:write")]

    @endpoint(
        serializers.EndUserImportIn,
        id="importEndUsers",
        returns={200: serializers.EndUserImportOut},
        errors=[
            *TENANCY,
            FileUnusable,
            TooManyRows,
            TooManyNames,
            ExternalIdTaken,
            ImportsBusy,
            InsufficientAuthentication,
        ],
        assurance=Action.GRANT_ROLES,
    )
    def create(self, request: Request) -> Response:
        """Import end users.

        Up to 1000 users. Invalid rows are listed in `report`; all others are imported. Rows with groups and roles need
        `groups:write` and `roles:write`, and the caller must hold what they grant.
        """
        fields = self.valid(serializers.EndUserImportIn)
        tenant_id = tenant_at(request, fields["tenant_id"])
        options = Options(
            dry_run=fields["dry_run"], on_conflict=fields["on_conflict"], create_missing=fields["create_missing"]
        )
        tally, report = actions.import_few(
            tenant_id=tenant_id,
            by=principal_at(request),
            options=options,
            rows=fields.get("rows"),
            content=fields.get("content", ""),
            form=fields["format"],
        )
        faults = [{"line": fault.line, "field": fault.field, "reason": fault.reason} for fault in report.first_faults]
        answer = {"dry_run": options.dry_run, "rows": tally.rows, **tally.counts(), "report": faults}
        return Response(answer, headers=NO_STORE)


class ExportViewSet(ApiViewSet):
    permission_classes = [needs("endusers:read")]

    @endpoint(
        serializers.EndUserExportIn,
        id="exportEndUsers",
        returns={200: serializers.EndUserExportOut},
        errors=[InsufficientAuthentication, *TENANCY],
        assurance=Action.EXPORT_PASSWORD_HASHES,
    )
    def create(self, request: Request) -> Response:
        """Export end users.

        One page in the format of an import, by cursor. Each page is an audit event. Password hashes need
        `endusers:export_hashes`, which only admins and operators hold; the tenant's admins get a mail about each page
        with hashes.
        """
        fields = self.valid(serializers.EndUserExportIn)
        tenant_id = tenant_at(request, fields["tenant_id"])
        users, cursor = exporting.page_of_export(
            tenant_id=tenant_id,
            by=principal_at(request),
            hashes=fields["with_hashes"],
            after=fields.get("cursor"),
            limit=fields["limit"],
        )
        return Response({"users": users, "next_cursor": cursor}, headers=NO_STORE)
