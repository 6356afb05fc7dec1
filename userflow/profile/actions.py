"""One's own record: of an admin user or an end user, with what it may do now."""

from collections.abc import Mapping
from typing import Any

from identity_platform.api.errors import NotAllowed
from tenants.context import in_tenant
from tenants.states import Purpose
from userflow.accounts.models import AdminUser
from userflow.accounts.principals import CLIENT, END_USER, Principal
from userflow.admins.actions import update_admin_user
from userflow.endusers.actions import update_end_user
from userflow.errors import UnknownUser
from userflow.profile import queries

ADMIN_COLUMNS = (
    "id",
    "username",
    "email",
    "first_name",
    "last_name",
    "active",
    "created_at",
    "updated_at",
    "last_login",
)


def read_profile(*, of: Principal) -> dict[str, Any]:
    """The caller's record with roles, groups, permissions and factors. Raises NotAllowed (a client has no user)."""
    _must_have_user(of)
    record: dict[str, Any] | None
    if of.kind == END_USER:
        assert of.tenant_id is not None  # an end user always has a tenant
        with in_tenant(of.tenant_id, Purpose.READ):
            record = queries.end_user_profile(of.id)
    else:
        record = AdminUser.objects.filter(pk=of.id).values(*ADMIN_COLUMNS).first()
    if record is None:  # erased since the token was checked
        raise UnknownUser
    return {
        **record,
        "kind": of.kind,
        "tenant_id": of.tenant_id,
        # As the state check has just read them.
        "roles": of.roles,
        "groups": of.groups,
        "permissions": sorted(of.permissions),
        "mfa_methods": of.user["mfa_methods"],
    }


def update_profile(
    *, of: Principal, changes: dict[str, Any], proof: Mapping[str, Any] | None = None, user_agent: str = ""
) -> dict[str, Any]:
    """Change what is there: an end user `name`, `email`, `metadata` (replaced whole); an admin user `username`, `email`,
    `first_name`, `last_name`. Gives the profile as it is then. `proof` is for another `email`.

    Raises NotAllowed (a client), InsufficientAuthentication and the errors of `check_proof` (another `email`),
    EmailTaken, AdminNameTaken, ValidationFailed.
    """
    _must_have_user(of)
    own: dict[str, Any] = {"user_id": of.id, "by": of, "changes": changes, "proof": proof, "user_agent": user_agent}
    if of.kind == END_USER:
        assert of.tenant_id is not None  # an end user always has a tenant
        update_end_user(tenant_id=of.tenant_id, **own)
    else:
        update_admin_user(**own)
    return read_profile(of=of)


def _must_have_user(principal: Principal) -> None:
    if principal.kind == CLIENT:
        raise NotAllowed("A client has no profile: it is read at /clientms/tenants/{tenant_id}/clients/{id}.")
