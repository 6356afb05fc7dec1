"""What a token is worth right now, for back ends that do not read tokens themselves. From the store, not the claims."""

from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.views import ApiViewSet, endpoint
from userflow.accounts.principals import Principal, moment
from userflow.errors import PermissionsMissing
from userflow.sessions.permissions import SignedIn, principal_at
from userflow.signin.views import NO_STORE
from userflow.validation import serializers


class ValidationViewSet(ApiViewSet):
    permission_classes = [SignedIn]

    @endpoint(returns={200: serializers.ValidOut})
    def validate(self, request: Request) -> Response:
        """Whom the token speaks for and what they may do now."""
        caller = principal_at(request)
        answer = {
            "message": "The token is valid.",
            "sub": caller.id,
            "kind": caller.kind,
            "tenant_id": caller.tenant_id,
            "client_id": caller.client_id,
            "roles": caller.roles,
            "permissions": sorted(caller.permissions),
            "scopes": sorted(caller.permissions),
            "groups": caller.groups,
            "expires_at": moment(caller.claims["exp"]),
        }
        return Response(answer, headers=NO_STORE)

    @endpoint(query=serializers.ScopeQuery, returns={200: serializers.HoldsOut}, errors=[PermissionsMissing])
    def scope(self, request: Request) -> Response:
        """Whether the caller holds the scope, or all of several."""
        required = self.valid_query(serializers.ScopeQuery)["scope"]
        return Response(_held(principal_at(request), required), headers=NO_STORE)

    @endpoint(query=serializers.ResourceQuery, returns={200: serializers.ResourceOut}, errors=[PermissionsMissing])
    def resource(self, request: Request) -> Response:
        """Whether the caller may do anything on the resource, or the one action named behind a colon."""
        asked = self.valid_query(serializers.ResourceQuery)["resource"]
        caller = principal_at(request)
        name, colon, _ = asked.partition(":")
        found = sorted(held for held in caller.permissions if held.partition(":")[0] == name)
        # Without an action, whichever the caller holds meets it; if there is none, the name itself is what is missing.
        required = [asked] if colon else (found or [asked])
        answer = _held(caller, required)
        return Response(
            {**answer, "required": [asked], "resource": name, "actions": [held.partition(":")[2] for held in found]},
            headers=NO_STORE,
        )

    @endpoint(serializers.PermissionsIn, returns={200: serializers.PermissionsOut}, errors=[PermissionsMissing])
    def permissions(self, request: Request) -> Response:
        """Whether the caller holds all of the permissions, or any of them."""
        asked = self.valid(serializers.PermissionsIn)
        answer = _held(principal_at(request), asked["permissions"], mode=asked["mode"])
        return Response({**answer, "mode": asked["mode"]}, headers=NO_STORE)


def _held(caller: Principal, required: list[str], *, mode: str = serializers.ALL) -> dict[str, object]:
    """What was required and what is held, if that is enough; PermissionsMissing (403) with the same facts if not."""
    missing = [permission for permission in required if not caller.may(permission)]
    if len(missing) == len(required) or (missing and mode == serializers.ALL):
        raise PermissionsMissing(details={"required": required, "missing": missing, "held": sorted(caller.permissions)})
    return {
        "message": "The token carries what was asked for.",
        "required": required,
        "held": sorted(caller.permissions),
    }
