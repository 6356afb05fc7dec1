"""The caller's own record, of an admin user or an end user, with current permissions."""

from collections.abc import Mapping
from typing import Any

from identity_platform.api.errors import NotAllowed
from tenants.entering.context import in_tenant
from tenants.states import Purpose
from userflow.accounts.models import AdminUser
from userflow.accounts.principals import CLIENT, END_USER, Principal
from userflow.admins.actions import update_admin_user
from userflow.endusers.actions import update_end_user
from userflow.errors import UnknownUser
from userflow.profile import queries
from userflow.sessions.assurance import reject_third_party

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


def read_profile(*, of: Principal) -> dict[str, object]:
    """Return the caller's record with roles, groups, permissions and factors. Raises NotAllowed (a client, which has no user; a
    third-party application)."""
    _require_user(of)
    record = _stored_record(of) if of.record is None else of.record
    if record is None:  # erased since the token was checked
        raise UnknownUser
    return {
        **record,
        "kind": of.kind,
        "tenant_id": of.tenant_id,
        # The session check has just read these.
        "roles": of.roles,
        "groups": of.groups,
        "permissions": sorted(of.permissions),
        "mfa_methods": of.user["mfa_methods"],
    }


def update_profile(
    *, of: Principal, changes: dict[str, Any], proof: Mapping[str, object] | None = None
) -> dict[str, object]:
    """Change the given fields and return the profile. `proof` is for a new `email`.

    End users: `name`, `email`, `language`, `metadata` (replaced as a whole). Admin users: `username`, `email`,
    `first_name`, `last_name`.

    Raises NotAllowed (a client, a third-party application), InsufficientAuthentication and the errors of
    `check_proof` (a new `email`), EmailTaken, AdminNameTaken, ValidationFailed.
    """
    _require_user(of)
    if of.kind == END_USER:
        assert of.tenant_id is not None  # an end user always has a tenant
        update_end_user(tenant_id=of.tenant_id, user_id=of.id, by=of, changes=changes, proof=proof)
    else:
        update_admin_user(user_id=of.id, by=of, changes=changes, proof=proof)
    return read_profile(of=of)


def _stored_record(principal: Principal) -> Mapping[str, object] | None:
    if principal.kind != END_USER:
        record: Mapping[str, object] | None = AdminUser.objects.filter(pk=principal.id).values(*ADMIN_COLUMNS).first()
        return record
    assert principal.tenant_id is not None  # an end user always has a tenant
    with in_tenant(principal.tenant_id, Purpose.READ):
        return queries.end_user_profile(principal.id)


def _require_user(principal: Principal) -> None:
    if principal.kind == CLIENT:
        raise NotAllowed("A client has no profile. Read it at /clientms/tenants/{tenant_id}/clients/{id}.")
    reject_third_party(principal)
