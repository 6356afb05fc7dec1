"""The inviter's current permissions.

An invitation is valid for a week. It must not grant what the inviter has lost in the meantime: a role, a permission or
the account.
"""

from uuid import UUID

from userflow.accounts.models import AdminUser, Client
from userflow.accounts.principals import CLIENT, Principal
from userflow.invitations.models import Invitation


def inviter_now(invitation: Invitation) -> Principal:
    """Return the inviter with its current permissions: none if that user or client is deleted or deactivated."""
    tenant_id, permissions = _current_permissions(invitation.invited_by_kind, invitation.invited_by_id)
    return Principal(
        kind=invitation.invited_by_kind,
        id=invitation.invited_by_id,
        tenant_id=tenant_id,
        client_id=invitation.invited_by_id if invitation.invited_by_kind == CLIENT else None,
        session_id=None,
        roles=(),
        permissions=frozenset(permissions),
    )


def _current_permissions(kind: str, inviter_id: UUID) -> tuple[UUID | None, set[str]]:
    if kind == CLIENT:
        client = Client.objects.filter(pk=inviter_id, active=True).first()
        return (client.tenant_id, set(client.scopes)) if client else (None, set())
    user = AdminUser.objects.prefetch_related("roles").filter(pk=inviter_id, active=True).first()
    if user is None:
        return None, set()
    return user.tenant_id, {permission for role in user.roles.all() for permission in role.permissions}
