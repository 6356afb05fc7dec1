"""The payload of events about end users: the fields that the API shows, never a hash or a secret."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from userflow.accounts.models import EndUser


def person(user: "EndUser", **more: object) -> dict[str, object]:
    """Return an end user as GET /uflow/user/enduser/{tenant_id}/{user_id} shows it, with `user_id` for `id`, and `more`."""
    return {
        "user_id": user.pk,
        "email": user.email,
        "name": user.name,
        "active": user.active,
        "provider": user.provider,
        "client_id": user.client_id,
        "metadata": user.metadata,
        "mfa_methods": user.mfa_methods,
        "created_at": user.created_at,
        "updated_at": user.updated_at,
        "last_login": user.last_login,
        **more,
    }
