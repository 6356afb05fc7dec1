"""Look up users: one admin user, or many end users of which all must exist."""

from collections.abc import Collection, Iterable
from uuid import UUID

from django.db.models import Model

from identity_platform.audit.writer import record_for_each_in_tenant
from identity_platform.postgresql.row_errors import first_or
from userflow.accounts.models import AdminUser, EndUser, Group, GroupMembership, Role, RoleBinding
from userflow.errors import UnknownUser, UnknownUsers
from userflow.events.outbox import publish

# More in one call would hold too many locks and build too large a statement for one request.
MOST_AT_ONCE = 1000


def must_exist(user_ids: Iterable[UUID]) -> None:
    """Raise UnknownUsers (404), with each id that no end user of the entered tenant has.

    The others are locked against erasure until the transaction ends.
    """
    distinct_ids = set(user_ids)
    users = EndUser.objects.filter(pk__in=distinct_ids).order_by("pk").select_for_update(no_key=True)
    missing = distinct_ids - set(users.values_list("pk", flat=True))
    if missing:
        raise UnknownUsers(details={"user_ids": [f"No user has the id {user_id}." for user_id in sorted(missing)]})


def change_members(holder: Role | Group, user_ids: Collection[UUID], *, add: bool, audit: str, event: str) -> int:
    """Add all of the users to a locked role or group, or remove them; return how many changed. Raises UnknownUsers."""
    field = "role" if isinstance(holder, Role) else "group"
    model: type[Model] = RoleBinding if isinstance(holder, Role) else GroupMembership
    rows = model._default_manager
    must_exist(user_ids)
    members = rows.filter(**{field: holder}, user_id__in=user_ids)
    changed = sorted(members.values_list("user_id", flat=True))
    if add:
        changed = sorted(set(user_ids) - set(changed))
        rows.bulk_create(model(**{field: holder}, user_id=user_id) for user_id in changed)
    else:
        members.delete()
    record_for_each_in_tenant(audit, kind="end_user", ids=changed, details={f"{field}_id": str(holder.pk)})
    if changed:
        publish(event, {f"{field}_id": holder.pk, "name": holder.name, "user_ids": changed})
    return len(changed)


def find_admin_user(*, user_id: UUID, within: UUID | None, lock: bool = False) -> AdminUser:
    """Return one admin user; `within` is the caller's tenant (None: an operator sees all). Raises UnknownUser.

    `lock` locks the row until the caller's transaction ends.
    """
    users = AdminUser.objects.prefetch_related("roles").filter(pk=user_id)
    if lock:
        users = users.select_for_update(of=("self",), no_key=True)
    if within is not None:
        users = users.filter(tenant_id=within)
    return first_or(users, UnknownUser)
