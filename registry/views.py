"""The registry over HTTP, in the order of the specification's table."""

import base64
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, Final

import orjson
from django.utils.timezone import now
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.errors import NotAllowed, NotSignedIn, TooManyRequests
from identity_platform.api.ratelimit import Usage
from identity_platform.api.responses import NO_STORE, DeletedRecordOut
from identity_platform.api.views import Contract, endpoint
from registry import actions, limits, serializers
from registry.errors import (
    AlreadyExpired,
    CredentialExists,
    CredentialNotFound,
    SecretBroken,
    ServiceExists,
    ServiceInactive,
    ServiceInUse,
    ServiceNotFound,
)
from tenants.entering import lookup
from tenants.errors import DataKeyLocked, TenantBusy, TenantRequired, TenantSuspended, UnknownTenant
from tenants.states import Purpose
from userflow.accounts.principals import Principal
from userflow.errors import GrantsMoreThanHeld
from userflow.ids import id_or
from userflow.named_tenant import InTenantViewSet, TenantParameter
from userflow.sessions.authentication import presented_token
from userflow.sessions.permissions import (
    ADMIN,
    CLIENT,
    END_USER,
    OPERATOR,
    SignedIn,
    needs,
    principal_at,
    require,
    tenant_at,
)

KINDS = (OPERATOR, ADMIN, CLIENT, END_USER)
RATE_HEADERS = {
    "X-RateLimit-Limit": "Calls allowed in a minute.",
    "X-RateLimit-Remaining": "Calls left in this minute.",
    "X-RateLimit-Reset": "Unix time at which the next minute begins.",
}
TENANCY = [UnknownTenant, TenantRequired, TenantSuspended, TenantBusy]
UNKNOWN: Final = {"service_id": ServiceNotFound, "credential_id": CredentialNotFound}
FOR_TENANT = {"X-Tenant-ID": "The tenant for which an operator acts; ignored for all other callers."}
registry_endpoint = partial(endpoint, query=TenantParameter, headers=FOR_TENANT, limit_headers=RATE_HEADERS)


class RegistryViewSet(InTenantViewSet):
    """Counts every call once the caller is known, and adds the rate-limit headers to every response."""

    # Records carry it, and clients send records back as they got them: it is ignored here.
    tenant_of_body_counts = False

    usage: Usage | None = None
    # The permission that an action needs.
    permissions: ClassVar[dict[str, str]] = {}

    def initial(self, request: Request, *args: object, **kwargs: object) -> None:
        self._meter(request)
        super().initial(request, *args, **kwargs)

    def get_permissions(self) -> Sequence[BasePermission]:
        return [needs(self.permissions[self.action], *KINDS)()]

    def finalize_response(self, request: Request, response: Response, *args: object, **kwargs: object) -> Response:
        final = super().finalize_response(request, response, *args, **kwargs)
        if self.usage is not None:
            for name, value in limits.headers_of(self.usage).items():
                final.headers[name] = value
        return final

    def _meter(self, request: Request) -> None:
        try:
            caller = request.user
        except (NotSignedIn, NotAllowed):
            limits.count_anonymous()
            # An unsupported method is rejected first, for every caller.
            if (request.method or "").lower() in self.action_map:
                raise
            return
        if not isinstance(caller, Principal):
            limits.count_anonymous()
            return
        self.usage = limits.count_call(caller)
        if self.usage.limited:
            raise TooManyRequests(retry_after=limits.RETRY_AFTER_SECONDS)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the use case: the tenant, the ids of the path, and the fields of query and body.

        The tenant must not be deleted or being provisioned. The state of its own database does not matter, as services live
        in the global one. Raises TENANCY.
        """
        contract: Contract = getattr(self, self.action).contract
        body = self.valid(contract.body) if contract.body else {}
        # Most calls have no query and only its optional tenant to look for.
        has_query = self.request.META.get("QUERY_STRING") or contract.query is not TenantParameter
        query = self.valid_query(contract.query) if contract.query and has_query else {}
        tenant_id = tenant_at(self.request, query.pop("tenant_id", None))
        lookup.find(tenant_id).check(Purpose.INSPECT)
        ids = {name: id_or(text, UNKNOWN[name]) for name, text in self.kwargs.items()}
        return {"tenant_id": tenant_id, **ids, **query, **body}


class ServiceViewSet(RegistryViewSet):
    permissions = {
        "list": "services:read",
        "create": "services:write",
        "retrieve": "services:read",
        "update": "services:write",
        "destroy": "services:delete",
    }

    @registry_endpoint(
        id="listServices", query=serializers.ServiceListQuery, returns={200: serializers.ServiceListOut}, errors=TENANCY
    )
    def list(self, request: Request) -> Response:
        """List services.

        Services of the tenant, newest first, without their credentials.
        """
        page = actions.list_services(**self.arguments())
        return Response({"services": page.rows, "pagination": page.totals()})

    @registry_endpoint(
        serializers.ServiceIn,
        id="createService",
        returns={201: serializers.ServiceOut},
        errors=[ServiceExists, *TENANCY],
    )
    def create(self, request: Request) -> Response:
        """Create a service.

        Its name must be unique in the tenant.
        """
        return Response(serializers.service(actions.create_service(**self.arguments())), status=201)

    @registry_endpoint(id="getService", returns={200: serializers.ServiceOut}, errors=[ServiceNotFound, *TENANCY])
    def retrieve(self, request: Request, service_id: str) -> Response:
        """Get a service.

        The service without its credentials.
        """
        return Response(actions.read_service(**self.arguments()))

    @registry_endpoint(
        serializers.ServiceChanges,
        id="updateService",
        returns={200: serializers.ServiceOut},
        errors=[ServiceNotFound, ServiceExists, GrantsMoreThanHeld, *TENANCY],
    )
    def update(self, request: Request, service_id: str) -> Response:
        """Change a service.

        Only the fields in the body change; `metadata` is replaced as a whole. Another `base_url` of a service with
        credentials needs `services:credentials` as well.
        """
        return Response(serializers.service(actions.update_service(by=principal_at(request), **self.changes())))

    @registry_endpoint(
        id="deleteService",
        returns={200: DeletedRecordOut},
        errors=[ServiceNotFound, ServiceInUse, *TENANCY],
    )
    def destroy(self, request: Request, service_id: str) -> Response:
        """Delete a service.

        A service with active credentials returns 409: revoke or delete them first.
        """
        arguments = self.arguments()
        actions.delete_service(**arguments)
        return Response({"message": "The service was deleted.", "id": arguments["service_id"]})


class MayChangeCredentials(BasePermission):
    """Like reading secrets, but a client also needs `services:write`: most applications only fetch their secrets."""

    access = "Requires `services:credentials`; a client needs `services:write` as well."

    def has_permission(self, request: Request, view: object) -> bool:
        caller = principal_at(request)
        require(caller, "services:credentials", *KINDS)
        if caller.kind == CLIENT:
            require(caller, "services:write", *KINDS)
        return True


class CredentialViewSet(RegistryViewSet):
    def get_permissions(self) -> Sequence[BasePermission]:
        reads = self.action in ("list", "retrieve")
        return [needs("services:credentials", *KINDS)() if reads else MayChangeCredentials()]

    @registry_endpoint(
        id="listServiceCredentials",
        query=serializers.ServiceCredentialQuery,
        returns={200: serializers.ServiceSecretsOut},
        errors=[ServiceNotFound, ServiceInactive, DataKeyLocked, *TENANCY],
    )
    def list(self, request: Request, service_id: str) -> Response:
        """Read the credentials of a service with their secrets.

        Newest first. Only active credentials have their secrets; each returned secret is an audit event. An inactive
        service returns 409.
        """
        return Response(serializers.secrets(actions.read_credentials(**self.arguments())), headers=NO_STORE)

    @registry_endpoint(
        id="getServiceCredential",
        returns={200: serializers.ServiceCredentialWithSecretOut},
        errors=[ServiceNotFound, CredentialNotFound, ServiceInactive, SecretBroken, DataKeyLocked, *TENANCY],
    )
    def retrieve(self, request: Request, service_id: str, credential_id: str) -> Response:
        """Read one credential of a service with its secret.

        The secret is null unless the credential is active. Each returned secret is an audit event.
        """
        credential, secret = actions.read_credential(**self.arguments())
        return Response(serializers.one_secret(credential, secret, now()), headers=NO_STORE)

    @registry_endpoint(
        serializers.ServiceCredentialIn,
        id="createServiceCredential",
        returns={201: serializers.ServiceCredentialOut},
        errors=[ServiceNotFound, CredentialExists, AlreadyExpired, DataKeyLocked, *TENANCY],
    )
    def create(self, request: Request, service_id: str) -> Response:
        """Create a credential of a service.

        The secret is stored encrypted; the response does not repeat it.
        """
        made = actions.create_credential(**self.arguments())
        return Response(serializers.credential(made, now()), status=201)

    @registry_endpoint(
        serializers.ServiceCredentialChanges,
        id="updateServiceCredential",
        returns={200: serializers.ServiceCredentialOut},
        errors=[ServiceNotFound, CredentialNotFound, DataKeyLocked, *TENANCY],
    )
    def update(self, request: Request, service_id: str, credential_id: str) -> Response:
        """Change a credential, or rotate its secret.

        Only the fields in the body change. The response does not repeat the secret.
        """
        return Response(serializers.credential(actions.update_credential(**self.changes()), now()))

    @registry_endpoint(
        id="deleteServiceCredential",
        returns={200: DeletedRecordOut},
        errors=[ServiceNotFound, CredentialNotFound, *TENANCY],
    )
    def destroy(self, request: Request, service_id: str, credential_id: str) -> Response:
        """Delete a credential with its secret.

        It cannot be restored. To keep the record, revoke the credential.
        """
        arguments = self.arguments()
        actions.delete_credential(**arguments)
        return Response({"message": "The credential was deleted.", "id": arguments["credential_id"]})


class DebugViewSet(RegistryViewSet):
    def get_permissions(self) -> Sequence[BasePermission]:
        return [SignedIn()]

    @endpoint(
        id="inspectToken",
        returns={200: serializers.PresentedTokenOut},
        errors=[TenantSuspended, TenantBusy],
        limit_headers=RATE_HEADERS,
    )
    def auth(self, request: Request) -> Response:
        """Inspect the access token.

        Return its claims, its header and the permissions that its owner holds now; never the token itself.
        """
        caller = principal_at(request)
        _, token = presented_token(request) or ("", "")
        answer = {
            # `kid` belongs to the header; the key look-up has put it beside the claims.
            "claims": {name: value for name, value in caller.claims.items() if name != "kid"},
            "header": _header_of(token),
            "kind": caller.kind,
            "tenant_id": caller.tenant_id,
            "client_id": caller.client_id,
            "roles": caller.roles,
            "permissions": sorted(caller.permissions),
            "expires_in": max(0, int(caller.claims["exp"] - time.time())),
        }
        return Response(answer, headers=NO_STORE)


def _header_of(token: str) -> dict[str, object]:
    """Return the JOSE header of a verified token (RFC 7515 section 4)."""
    encoded = token.partition(".")[0]
    header: dict[str, object] = orjson.loads(base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)))
    return header
