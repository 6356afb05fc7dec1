from dataclasses import replace

from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.views import ApiViewSet, endpoint
from userflow.accounts.principals import END_USER, Claims, Principal
from userflow.admins.serializers import AdminProfileChanges
from userflow.endusers.serializers import EndUserChanges
from userflow.errors import PROOF_ERRORS, AdminNameTaken, EmailTaken, UnknownUser
from userflow.profile import actions, queries, serializers
from userflow.sessions.assurance import Action
from userflow.sessions.authentication import BearerAuthentication
from userflow.sessions.permissions import SignedIn, principal_at
from userflow.sessions.verify import principal_and
from userflow.signin.proof_fields import proof_in, without_proof


class ProfileAuthentication(BearerAuthentication):
    """Reads the profile of an end user in the statement that reads the session. Not for a change, which follows it."""

    def read_principal(self, request: Request, claims: Claims) -> Principal:
        if request.method != "GET" or claims["kind"] != END_USER:
            return super().read_principal(request, claims)
        principal, columns = principal_and(claims, queries.STATE_AND_PROFILE)
        return replace(principal, record=queries.profile_of(columns))


class ProfileViewSet(ApiViewSet):
    authentication_classes = [ProfileAuthentication]
    permission_classes = [SignedIn]

    @endpoint(id="getProfile", returns={200: serializers.ProfileOut}, errors=[UnknownUser])
    def retrieve(self, request: Request) -> Response:
        """Get the caller's own profile.

        For users of every kind, with roles, groups, permissions and factors. A client gets 403.
        """
        return Response(actions.read_profile(of=principal_at(request)))

    @endpoint(
        serializers.ProfileChanges,
        id="updateProfile",
        returns={200: serializers.ProfileOut},
        errors=[*PROOF_ERRORS, EmailTaken, AdminNameTaken, UnknownUser],
        assurance=Action.CHANGE_OWN_EMAIL,
    )
    def update(self, request: Request) -> Response:
        """Change the caller's own profile.

        Only the fields in the body change. End users have `name`, `language` and `metadata`; admin users have
        `username`, `first_name` and `last_name`. `app_metadata` and `external_id` are ignored: admins write them. A new
        `email` needs a proof; the old address gets a link that undoes the change.
        """
        caller = principal_at(request)
        is_end_user = caller.kind == END_USER
        fields = self.valid(EndUserChanges if is_end_user else AdminProfileChanges)
        return Response(actions.update_profile(of=caller, changes=without_proof(fields), proof=proof_in(fields)))
