"""Claims about users, by scope and by name (OpenID Connect Core sections 5.1, 5.4 and 5.5)."""

from collections.abc import Collection, Mapping
from typing import Final, cast

from mfa.sms.actions import confirmed_number
from tenants.context import current_tenant
from tenants.lookup import TenantContext
from userflow.accounts.models import EndUser
from userflow.sessions.queries import Rights

PROFILE: Final = "profile"
# The scopes, and the claims that each stands for. `groups` and `roles` are this platform's own.
CLAIMS_OF_SCOPES: Final[Mapping[str, tuple[str, ...]]] = {
    PROFILE: ("name", "locale", "updated_at"),
    "email": ("email", "email_verified"),
    "phone": ("phone_number", "phone_number_verified"),
    "groups": ("groups",),
    "roles": ("roles",),
}
CLAIMS: Final = tuple(name for names in CLAIMS_OF_SCOPES.values() for name in names)


def scope_of_claim(name: str) -> str:
    """Return the scope that covers a claim; those from metadata belong to the profile."""
    return next((scope for scope, names in CLAIMS_OF_SCOPES.items() if name in names), PROFILE)


def metadata_claims(tenant: TenantContext) -> tuple[str, ...]:
    """Return the keys of users' metadata that are claims by the tenant's setting."""
    # Not by `effective`, which computes all settings.
    return tuple(cast(Collection[str], tenant.settings.get("metadata_claims") or ()))


def metadata_claims_of(scopes: Collection[str], tenant: TenantContext) -> tuple[str, ...]:
    """Return the keys of users' metadata that these scopes stand for at present.

    A request keeps them by name: what the user was shown does not grow with the setting.
    """
    return metadata_claims(tenant) if PROFILE in scopes else ()


def claims_of(tenant: TenantContext) -> tuple[str, ...]:
    """Return the names of all claims about users of this tenant, with those of its setting `metadata_claims`."""
    return (*CLAIMS, *metadata_claims(tenant))


def claims_about(
    user: EndUser, rights: Rights, *, scopes: Collection[str], names: Collection[str] = ()
) -> dict[str, object]:
    """Return the claims of these scopes, and those requested by name. Claims without a value are left out.

    Those from metadata are returned by name only. Call it inside the tenant. Only the phone costs a statement.
    """
    wanted = {name for scope in scopes for name in CLAIMS_OF_SCOPES.get(scope, ())}
    wanted.update(name for name in claims_of(current_tenant()) if name in names)
    phone = confirmed_number(user.pk) if wanted & set(CLAIMS_OF_SCOPES["phone"]) else None
    values: dict[str, object] = {
        **user.metadata,
        "name": user.name or None,
        "locale": user.language or None,
        "updated_at": int(user.updated_at.timestamp()),
        "email": user.email,
        "email_verified": user.email_verified_at is not None,
        "phone_number": phone,
        "phone_number_verified": True if phone else None,
        "groups": list(rights.groups),
        "roles": list(rights.roles),
    }
    return {name: value for name, value in values.items() if name in wanted and value is not None}
