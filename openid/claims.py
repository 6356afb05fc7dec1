"""Claims about users, by scope and by name (OpenID Connect Core sections 5.1, 5.4 and 5.5)."""

from collections.abc import Collection, Mapping
from typing import Final

from mfa.sms.actions import confirmed_number
from userflow.accounts.models import EndUser
from userflow.sessions.queries import Rights

# The scopes, and the claims that each stands for. `groups` and `roles` are this platform's own.
CLAIMS_OF_SCOPES: Final[Mapping[str, tuple[str, ...]]] = {
    "profile": ("name", "updated_at"),
    "email": ("email", "email_verified"),
    "phone": ("phone_number", "phone_number_verified"),
    "groups": ("groups",),
    "roles": ("roles",),
}
CLAIMS: Final = tuple(name for names in CLAIMS_OF_SCOPES.values() for name in names)


def claims_about(
    user: EndUser, rights: Rights, *, scopes: Collection[str], names: Collection[str] = ()
) -> dict[str, object]:
    """Return the claims of these scopes, and those requested by name. Claims without a value are left out.

    Call it inside the tenant. Only the phone costs a statement.
    """
    wanted = {name for scope in scopes for name in CLAIMS_OF_SCOPES.get(scope, ())} | set(names)
    phone = confirmed_number(user.pk) if wanted & set(CLAIMS_OF_SCOPES["phone"]) else None
    values: dict[str, object] = {
        "name": user.name or None,
        "updated_at": int(user.updated_at.timestamp()),
        "email": user.email,
        "email_verified": user.email_verified_at is not None,
        "phone_number": phone,
        "phone_number_verified": True if phone else None,
        "groups": list(rights.groups),
        "roles": list(rights.roles),
    }
    return {name: value for name, value in values.items() if name in wanted and value is not None}
