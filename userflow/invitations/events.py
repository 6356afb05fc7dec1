"""Audit events and outbox payloads of invitations."""

from uuid import UUID

from userflow.accounts.realms import Realm
from userflow.invitations.models import EndUserInvitation
from userflow.invitations.queries import Row


def record(realm: Realm, action: str, row: Row, tenant_id: UUID | None, **details: object) -> None:
    """Write an audit event about an invitation."""
    realm.record(action, target=("invitation", row.pk), tenant_id=tenant_id, details={"kind": row.kind, **details})


def event_data(row: EndUserInvitation, **more: object) -> dict[str, object]:
    """Return the payload of an invitation's events, without the token: only the invited user receives it."""
    shown = {"invitation_id": row.pk, "email": row.email, "client_id": row.client_id, "expires_at": row.expires_at}
    return {**shown, **more}
