"""Token validation for back ends that do not parse tokens. Permissions come from the database, not from claims."""

from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.fields import fields_of
from identity_platform.api.responses import NO_STORE
from identity_platform.api.views import ApiViewSet, endpoint
from userflow.accounts.principals import GROUPS_SCOPE, ROLES_SCOPE, Principal, moment, reveals
from userflow.errors import PermissionsMissing
from userflow.sessions.permissions import SignedIn, principal_at
from userflow.validation import serializers


class ValidationViewSet(ApiViewSet):
    permission_classes = [SignedIn]

    @endpoint(id="validateToken", returns={200: serializers.TokenValidationOut})
    def validate(self, request: Request) -> Response:
        """Validate the access token.

        Return its subject and the permissions that the subject holds now.
        """
        caller = principal_at(request)
        permissions = sorted(caller.permissions)
        body = fields_of(
            serializers.TokenValidationOut,
            caller,
            message="The token is valid.",
            sub=caller.id,
            roles=caller.roles if reveals(caller.grant, ROLES_SCOPE) else (),
            groups=caller.groups if reveals(caller.grant, GROUPS_SCOPE) else (),
            permissions=permissions,
            scopes=permissions,
            expires_at=moment(caller.claims["exp"]),
        )
        return Response(body, headers=NO_STORE)

    @endpoint(
        id="checkScope",
        query=serializers.ScopeQuery,
        returns={200: serializers.ScopeCheckOut},
        errors=[PermissionsMissing],
    )
    def scope(self, request: Request) -> Response:
        """Check a scope of the caller.

        Return 200 if the caller holds the scope, or all of several. Otherwise return 403 with the missing ones in
        `details`.
        """
        required = self.valid_query(serializers.ScopeQuery)["scope"]
        return Response(_held_rights(principal_at(request), required), headers=NO_STORE)

    @endpoint(
        id="checkResource",
        query=serializers.ResourceQuery,
        returns={200: serializers.ResourceCheckOut},
        errors=[PermissionsMissing],
    )
    def resource(self, request: Request) -> Response:
        """Check the caller's access to a resource.

        Return 200 if the caller may perform any action on the resource, or the action after the colon. Otherwise return
        403.
        """
        requested = self.valid_query(serializers.ResourceQuery)["resource"]
        caller = principal_at(request)
        name, colon, _ = requested.partition(":")
        of_resource = sorted(permission for permission in caller.permissions if permission.partition(":")[0] == name)
        # Without an action, any permission on the resource is enough; if there is none, the resource itself is missing.
        required = [requested] if colon else (of_resource or [requested])
        body = _held_rights(caller, required)
        return Response(
            {
                **body,
                "required": [requested],
                "resource": name,
                "actions": [permission.partition(":")[2] for permission in of_resource],
            },
            headers=NO_STORE,
        )

    @endpoint(
        serializers.PermissionCheckIn,
        id="checkPermissions",
        returns={200: serializers.PermissionCheckOut},
        errors=[PermissionsMissing],
    )
    def permissions(self, request: Request) -> Response:
        """Check several permissions of the caller.

        Return 200 if the caller holds all of them, or with `mode: any` at least one. Otherwise return 403 with the
        missing ones in `details`.
        """
        fields = self.valid(serializers.PermissionCheckIn)
        body = _held_rights(principal_at(request), fields["permissions"], mode=fields["mode"])
        return Response({**body, "mode": fields["mode"]}, headers=NO_STORE)


def _held_rights(caller: Principal, required: list[str], *, mode: str = serializers.ALL) -> dict[str, object]:
    """Return required and held permissions. Raises PermissionsMissing with the same facts."""
    missing = [permission for permission in required if not caller.may(permission)]
    if len(missing) == len(required) or (missing and mode == serializers.ALL):
        raise PermissionsMissing(details={"required": required, "missing": missing, "held": sorted(caller.permissions)})
    return {
        "message": "The token has the requested permissions.",
        "required": required,
        "held": sorted(caller.permissions),
    }
