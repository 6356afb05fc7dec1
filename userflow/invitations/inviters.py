"""Whoever has invited somebody, as the store knows that principal now.

An invitation waits for a week. What its inviter has lost by then (the role, the permission, the access as a whole) it
must not grant any more.
"""

from uuid import UUID

from userflow.accounts.models import AdminUser, Client
from userflow.accounts.principals import CLIENT, Principal
from userflow.invitations.models import Invitation


def inviter_now(invitation: Invitation) -> Principal:
    """The inviter with the permissions held now: none when that user or client is gone or switched off."""
    tenant_id, permissions = _standing(invitation.invited_by_kind, invitation.invited_by_id)
    return Principal(
        kind=invitation.invited_by_kind,
        id=invitation.invited_by_id,
        tenant_id=tenant_id,
        client_id=invitation.invited_by_id if invitation.invited_by_kind == CLIENT else None,
        session_id=None,
        roles=(),
        permissions=frozenset(permissions),
    )


def _standing(kind: str, inviter_id: UUID) -> tuple[UUID | None, set[str]]:
    if kind == CLIENT:
        client = Client.objects.filter(pk=inviter_id, active=True).first()
        return (client.tenant_id, set(client.scopes)) if client else (None, set())
    user = AdminUser.objects.prefetch_related("roles").filter(pk=inviter_id, active=True).first()
    if user is None:
        return None, set()
    return user.tenant_id, {permission for role in user.roles.all() for permission in role.permissions}
