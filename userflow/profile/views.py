"""The profile over HTTP."""

from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.views import ApiViewSet, endpoint
from userflow.errors import AddressNeedsFreshSignIn, AdminNameTaken, EmailTaken, UnknownUser
from userflow.permissions import SignedIn, principal_at
from userflow.principals import END_USER
from userflow.profile import actions, serializers


class ProfileViewSet(ApiViewSet):
    permission_classes = [SignedIn]

    @endpoint(returns={200: serializers.ProfileOut}, refuses=[UnknownUser])
    def retrieve(self, request: Request) -> Response:
        """The caller's own record with roles, groups, permissions and factors."""
        return Response(actions.read_profile(of=principal_at(request)))

    @endpoint(
        serializers.ProfileChanges,
        returns={200: serializers.ProfileOut},
        refuses=[AddressNeedsFreshSignIn, EmailTaken, AdminNameTaken, UnknownUser],
    )
    def update(self, request: Request) -> Response:
        """Change the members that are there."""
        caller = principal_at(request)
        own = caller.kind == END_USER
        changes = self.valid(serializers.EndUserProfileChanges if own else serializers.AdminProfileChanges)
        return Response(actions.update_profile(of=caller, changes=changes))
