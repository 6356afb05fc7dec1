"""The payload of events about end users, roles and groups: the fields that the API shows, never a hash or a secret."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from userflow.accounts.models import EndUser, Group, Role


def person(user: "EndUser", **more: object) -> dict[str, object]:
    """Return an end user as GET /uflow/user/enduser/{tenant_id}/{user_id} shows it, with `user_id` for `id`, and `more`."""
    return {
        "user_id": user.pk,
        "email": user.email,
        "name": user.name,
        "active": user.active,
        "provider": user.provider,
        "client_id": user.client_id,
        "language": user.language or None,
        "external_id": user.external_id,
        "metadata": user.metadata,
        "app_metadata": user.app_metadata,
        "mfa_methods": user.mfa_methods,
        "created_at": user.created_at,
        "updated_at": user.updated_at,
        "last_login": user.last_login,
        **more,
    }


def role_payload(role: "Role", **more: object) -> dict[str, object]:
    """Return a role, with `more`."""
    fields = {"role_id": role.pk, "name": role.name, "description": role.description}
    return {**fields, "permissions": role.permissions, **more}


def group_payload(group: "Group", roles: Iterable[str], **more: object) -> dict[str, object]:
    """Return a group with the names of its roles, and `more`."""
    fields = {"group_id": group.pk, "name": group.name, "description": group.description}
    return {**fields, "roles": sorted(roles), **more}
