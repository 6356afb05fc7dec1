"""What the view sets of all factors share: they are public, and look at every proof that a request brings along."""

from typing import Any
from uuid import UUID

from identity_platform.api.views import ApiViewSet
from mfa.enrollment import Caller
from userflow.permissions import Anyone, tenant_at
from userflow.principals import Principal
from userflow.signin.views import NO_STORE, TICKET_HEADER

PROOFS = {TICKET_HEADER: "Enrollment ticket of the user's registration or last sign-in; or send a fresh access token."}
__all__ = ["NO_STORE", "PROOFS", "FactorViewSet"]


class FactorViewSet(ApiViewSet):
    """MFA endpoints work without a token; a token that is sent must be valid (401) and of the tenant (403)."""

    permission_classes = [Anyone]

    def caller(self, tenant_id: UUID | None = None) -> Caller:
        """The proofs of this request. Refuses with TenantMismatch (403) when the token is of another tenant."""
        principal: Any = self.request.user
        if not isinstance(principal, Principal):
            principal = None
        elif tenant_id is not None:
            tenant_at(self.request, tenant_id)
        return Caller(
            principal=principal,
            ticket=self.request.META.get("HTTP_X_ENROLLMENT_TICKET"),
            user_agent=self.request.META.get("HTTP_USER_AGENT", ""),
        )
