from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.views import ApiViewSet, endpoint
from tenants.errors import TenantBusy, TenantRequired, TenantSuspended, UnknownTenant
from userflow.audit import actions, serializers
from userflow.audit.actions import PLATFORM, TENANT, Filters
from userflow.sessions.permissions import OPERATOR, needs, principal_at, reading, tenant_at, tenant_or_platform_at


class AuditViewSet(ApiViewSet):
    permission_classes = [needs("audit:read")]

    @endpoint(
        id="listAuditEvents",
        query=serializers.AuditQuery,
        returns={200: serializers.AuditEventListOut},
        errors=[UnknownTenant, TenantSuspended, TenantBusy, TenantRequired],
    )
    def list(self, request: Request) -> Response:
        """List audit events.

        Newest first, by cursor. A tenant's admins and clients read their tenant's log and, with `trail=platform`, the
        platform's events about their tenant; `actor_id` and `address` of operators are empty for them. An operator without
        `tenant_id` reads the platform's log.
        """
        query = self.valid_query(serializers.AuditQuery)
        caller = principal_at(request)
        tenant_id = tenant_or_platform_at(request, query.get("tenant_id"))
        trail = query.get("trail") or (TENANT if tenant_id else PLATFORM)
        if trail == TENANT and tenant_id is None:
            tenant_id = tenant_at(request)
        filters = Filters(
            actor=query.get("actor"),
            action=query.get("action"),
            target=query.get("target"),
            since=query.get("from"),
            until=query.get("to"),
        )
        rows, next_cursor = actions.page_of_events(
            tenant_id=tenant_id,
            trail=trail,
            limit=query["limit"],
            filters=filters,
            before=query.get("cursor"),
            purpose=reading(caller),
            to_operator=caller.kind == OPERATOR,
        )
        return Response({"events": rows, "limit": query["limit"], "next_cursor": next_cursor})
