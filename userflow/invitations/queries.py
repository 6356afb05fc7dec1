"""Reads of invitations: by status, with the names of their roles, and as pages over two databases."""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar
from uuid import UUID

from django.db.models import Q, QuerySet
from django.utils.timezone import now

from identity_platform.api.pagination import Page, offset
from tenants.entering import lookup
from userflow.accounts.models import EndUser, Role
from userflow.accounts.realms import Realm
from userflow.invitations import models
from userflow.invitations.models import ADMIN, END_USER, AdminInvitation, EndUserInvitation, Invitation

Row = AdminInvitation | EndUserInvitation
Invited = TypeVar("Invited", bound=Invitation)


@dataclass(frozen=True, slots=True)
class InvitationRecord:
    """An invitation as responses show it: with role names and current status."""

    row: Row
    tenant_id: UUID | None
    roles: list[str]
    status: str


def with_status(invitations: "QuerySet[Invited]", status: str | None) -> "QuerySet[Invited]":
    """Filter by current status; None keeps all."""
    match status:
        case models.PENDING:
            return invitations.filter(Invitation.OPEN, expires_at__gt=now())
        case models.EXPIRED:
            return invitations.filter(Invitation.OPEN, expires_at__lte=now())
        case models.ACCEPTED:
            return invitations.exclude(accepted_at=None)
        case models.CANCELLED:
            return invitations.exclude(cancelled_at=None)
        case _:
            return invitations


def merged_page(sources: "Mapping[str, QuerySet[Row]]", tenant_id: UUID, page: int, limit: int) -> Page:
    """A page over two databases, newest first; `sources` are query sets by kind.

    As many keys of each as could be on the page are merged, then the rows of the page alone are read.
    """
    total = sum(source.count() for source in sources.values())
    start = offset(page, limit)
    if start >= total:
        return Page([], page, limit, total)
    keys: list[Iterable[tuple[datetime, UUID, str]]] = [
        [
            (created_at, key, kind)
            for created_at, key in source.order_by("-created_at", "-id").values_list("created_at", "id")[
                : start + limit
            ]
        ]
        for kind, source in sources.items()
    ]
    chosen = list(heapq.merge(*keys, reverse=True))[start : start + limit]
    rows: dict[UUID, Row] = {}
    for kind, source in sources.items():
        rows |= source.in_bulk([key for _, key, of in chosen if of == kind])
    names = _role_names([row for row in rows.values() if row.kind == END_USER])
    return Page(
        [shown(rows[key], tenant_id, names.get(key, rows[key].roles)) for _, key, _ in chosen], page, limit, total
    )


def with_role_names(row: Row, tenant: lookup.TenantContext | None) -> InvitationRecord:
    """Return one invitation with role names; for an end user's, the tenant must be entered."""
    roles = row.roles if row.kind == ADMIN else _role_names([row])[row.pk]
    return shown(row, tenant.tenant_id if tenant else None, roles)


def _role_names(rows: Sequence[Row]) -> dict[UUID, list[str]]:
    """Return the role names of end users' invitations, without deleted roles."""
    role_ids = {role_id for row in rows for role_id in row.roles}
    names = (
        {str(key): name for key, name in Role.objects.filter(pk__in=role_ids).values_list("pk", "name")}
        if role_ids
        else {}
    )
    return {row.pk: [names[role_id] for role_id in row.roles if role_id in names] for row in rows}


def shown(row: Row, tenant_id: UUID | None, roles: Sequence[str]) -> InvitationRecord:
    """Return an invitation with the given role names."""
    return InvitationRecord(row, tenant_id, sorted(roles), row.status(now()))


def record(realm: Realm, action: str, row: Row, tenant_id: UUID | None, **details: object) -> None:
    """Write an audit event about an invitation."""
    realm.record(action, target=("invitation", row.pk), tenant_id=tenant_id, details={"kind": row.kind, **details})


def event_data(row: EndUserInvitation, **more: object) -> dict[str, object]:
    """Return the payload of an invitation's events, without the token: only the invited user receives it."""
    shown = {"invitation_id": row.pk, "email": row.email, "client_id": row.client_id, "expires_at": row.expires_at}
    return {**shown, **more}


def delete_invitations_of(user: EndUser) -> tuple[type[EndUserInvitation], list[UUID]]:
    """Delete the invitations of the user's address and the one by which the user joined; return model and ids.

    An open invitation would let the user in again, with its roles. The one that the user has accepted holds an address
    of the user too, which may have changed since. Invitations go before the user: accepting one locks the invitation
    and then the address, and the other order could end in a deadlock.
    """
    theirs = EndUserInvitation.objects.filter(Q(email_key=user.email_key) | Q(user_id=user.pk))
    ids = list(theirs.values_list("pk", flat=True))
    EndUserInvitation.objects.filter(pk__in=ids).delete()
    return EndUserInvitation, ids
