from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.responses import DeletedRecordOut
from identity_platform.api.views import endpoint
from tenants.errors import DomainNotClaimed, DomainTaken, RelyingPartyInUse, RelyingPartyTaken
from userflow.domains import actions, serializers
from userflow.errors import (
    DomainExists,
    DomainNotVerified,
    GrantsMoreThanHeld,
    InsufficientAuthentication,
    NameServersBusy,
    TooManyDomains,
    UnknownDomain,
)
from userflow.named_tenant import TENANCY, InTenantViewSet, OptionalTenantIn, TenantParameter
from userflow.sessions.assurance import Action
from userflow.sessions.permissions import principal_at, reading


class DomainViewSet(InTenantViewSet):
    """Domains of a tenant, verified by a TXT record."""

    area = "domains"
    unknown = UnknownDomain

    @endpoint(id="listDomains", query=TenantParameter, returns={200: serializers.DomainListOut}, errors=TENANCY)
    def list(self, request: Request) -> Response:
        """List domains.

        Domains of a tenant, oldest first.
        """
        domains = actions.list_domains(purpose=reading(principal_at(request)), **self.arguments())
        return Response({"domains": [serializers.domain(domain) for domain in domains]})

    @endpoint(
        serializers.DomainIn,
        id="addDomain",
        returns={201: serializers.DomainOut},
        errors=[DomainExists, DomainTaken, TooManyDomains, InsufficientAuthentication, *TENANCY],
        assurance=Action.CHANGE_TENANT_SETTINGS,
    )
    def create(self, request: Request) -> Response:
        """Add a domain.

        Set the TXT record of the response in DNS, then verify the domain.
        """
        made = actions.add_domain(by=principal_at(request), **self.arguments())
        return Response(serializers.domain(made), status=201)

    @endpoint(
        id="getDomain", query=TenantParameter, returns={200: serializers.DomainOut}, errors=[UnknownDomain, *TENANCY]
    )
    def retrieve(self, request: Request, domain_id: str) -> Response:
        """Get a domain."""
        domain = actions.find_domain(purpose=reading(principal_at(request)), **self.arguments())
        return Response(serializers.domain(domain))

    @endpoint(
        serializers.DomainChanges,
        id="updateDomain",
        returns={200: serializers.DomainOut},
        errors=[
            UnknownDomain,
            DomainNotClaimed,
            RelyingPartyTaken,
            RelyingPartyInUse,
            InsufficientAuthentication,
            GrantsMoreThanHeld,
            *TENANCY,
        ],
        assurance=Action.CHANGE_TENANT_SETTINGS,
    )
    def partial_update(self, request: Request, domain_id: str) -> Response:
        """Make a domain the sign-in domain, or end that.

        The domain must be verified. The tenant's issuer changes at once.
        """
        changed = actions.update_domain(by=principal_at(request), **self.arguments())
        return Response(serializers.domain(changed))

    @endpoint(
        OptionalTenantIn,
        id="verifyDomain",
        returns={200: serializers.DomainOut},
        errors=[
            UnknownDomain,
            DomainNotVerified,
            DomainTaken,
            NameServersBusy,
            InsufficientAuthentication,
            *TENANCY,
        ],
        assurance=Action.CHANGE_TENANT_SETTINGS,
    )
    def verify(self, request: Request, domain_id: str) -> Response:
        """Verify a domain.

        Look the TXT record up now. A verified domain belongs to one tenant.
        """
        return Response(serializers.domain(actions.verify_domain(by=principal_at(request), **self.arguments())))

    @endpoint(
        id="deleteDomain",
        query=TenantParameter,
        returns={200: DeletedRecordOut},
        errors=[UnknownDomain, InsufficientAuthentication, GrantsMoreThanHeld, *TENANCY],
        assurance=Action.CHANGE_TENANT_SETTINGS,
    )
    def destroy(self, request: Request, domain_id: str) -> Response:
        """Delete a domain.

        Another tenant can verify it from now on.
        """
        arguments = self.arguments()
        actions.delete_domain(by=principal_at(request), **arguments)
        return Response({"message": "The domain was deleted.", "id": arguments["domain_id"]})
