"""What a proxy asks before it gets a certificate for a host (on-demand TLS): whether it is a tenant's sign-in domain."""

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.errors import NotFound
from identity_platform.api.fields import Text
from identity_platform.api.views import endpoint
from tenants.addresses.hosts import check_budget, find_host
from userflow.sessions.view_sets import PublicViewSet


class DomainCheckQuery(serializers.Serializer[object]):
    domain = Text(max_length=255, required=False, allow_blank=True, help_text="Domain name to look up.")


class DomainCheckOut(serializers.Serializer[object]):
    status = serializers.CharField(help_text="Always known.")


class UnknownSignInDomain(NotFound):
    code = "sign_in_domain_not_found"
    message = "No tenant has this sign-in domain."


class DomainCheckViewSet(PublicViewSet):
    @endpoint(
        id="checkSignInDomain",
        query=DomainCheckQuery,
        returns={200: DomainCheckOut},
        errors=[UnknownSignInDomain],
        token="none",
    )
    def retrieve(self, request: Request) -> Response:
        """Check whether a tenant has a sign-in domain.

        For a proxy that gets certificates on demand: 200 if it has, 404 if not.
        """
        query = self.valid_query(DomainCheckQuery)
        if find_host(str(query.get("domain", "")).lower().removesuffix("."), check_budget) is None:
            raise UnknownSignInDomain
        return Response({"status": "known"}, headers={"Cache-Control": "no-store"})
