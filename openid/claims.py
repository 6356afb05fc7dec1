"""Claims about users, by scope and by name (OpenID Connect Core sections 5.1, 5.4 and 5.5)."""

from collections.abc import Collection, Mapping
from typing import Final

from mfa.sms.actions import confirmed_number
from openid.profile_values import standard_value
from tenants.entering.context import current_tenant
from tenants.entering.lookup import TenantContext
from tenants.settings.profile_claims import APP_METADATA, METADATA, PROFILE_CLAIMS, Source, profile_claims
from tenants.settings.reserved_claims import is_issued
from tenants.settings.values import names_in
from userflow.accounts.models import EndUser
from userflow.sessions.queries import Rights

PROFILE: Final = "profile"
# A field of a user that a tenant can map to a claim, beside `metadata` and `app_metadata`.
EXTERNAL_ID: Final = "external_id"
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
    """Return the scope that covers a claim; those that a tenant maps belong to the profile."""
    return next((scope for scope, names in CLAIMS_OF_SCOPES.items() if name in names), PROFILE)


def mapped_claims(tenant: TenantContext) -> dict[str, Source]:
    """Return the claims that the tenant's settings add, each with its source.

    A key of both fields is read from `app_metadata`, which no user can write. Stored names that are reserved by now are left
    out: the tenant's applications could take what a user writes for what the platform says.
    """
    tenant_settings = tenant.settings
    mapped = {
        name: Source(field, name)
        for field in (METADATA, APP_METADATA)
        for name in names_in(tenant_settings, f"{field}_claims")
        if is_issued(name)
    }
    if tenant_settings.get("external_id_claim"):
        mapped[EXTERNAL_ID] = Source(EXTERNAL_ID, EXTERNAL_ID)
    return mapped | profile_claims(tenant_settings)


def mapped_claims_of(scopes: Collection[str], tenant: TenantContext) -> tuple[str, ...]:
    """Return the mapped claims that these scopes stand for at present.

    A request keeps them by name: what the user was shown does not grow with the settings.
    """
    return tuple(mapped_claims(tenant)) if PROFILE in scopes else ()


def names_for_token(
    names: Collection[str], *, session_scopes: Collection[str], scopes: Collection[str]
) -> Collection[str]:
    """Return the claims that a session returns by name with a token of these scopes: mapped ones not without its profile."""
    if PROFILE in session_scopes and PROFILE not in scopes:
        return [name for name in names if name in CLAIMS]
    return names


def claims_of(tenant: TenantContext) -> tuple[str, ...]:
    """Return the names of all claims about users of this tenant, with those that its settings map."""
    return (*CLAIMS, *mapped_claims(tenant))


def claims_about(
    user: EndUser, rights: Rights, *, scopes: Collection[str], names: Collection[str] = ()
) -> dict[str, object]:
    """Return the claims of these scopes, and those requested by name. Claims without a value are left out.

    Mapped ones are returned by name only. Call it inside the tenant. Only the phone costs a statement.
    """
    claim_names = {name for scope in scopes for name in CLAIMS_OF_SCOPES.get(scope, ())}
    mapped = mapped_claims(current_tenant())
    claim_names.update(name for name in (*CLAIMS, *mapped) if name in names)
    phone = confirmed_number(user.pk) if claim_names & set(CLAIMS_OF_SCOPES["phone"]) else None
    values: dict[str, object] = {
        **{name: _mapped_value(user, name, source) for name, source in mapped.items()},
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
    return {name: value for name, value in values.items() if name in claim_names and value is not None}


def _mapped_value(user: EndUser, name: str, source: Source) -> object:
    if source.field == EXTERNAL_ID:
        return user.external_id
    value = (user.app_metadata if source.field == APP_METADATA else user.metadata).get(source.key)
    return standard_value(name, value) if name in PROFILE_CLAIMS else value
