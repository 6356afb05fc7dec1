"""Taking end users out, with everything that another tenant or another system needs to let them in.

Never in it: sessions, tokens, tickets, and the secrets of factors (TOTP secrets, passkeys, telephone numbers, backup codes).
"""

from collections.abc import Generator, Iterator
from typing import Final
from uuid import UUID

import orjson
from django.db import transaction

from identity_platform.audit.writer import record_for_platform
from identity_platform.postgresql.transactions import read_one_snapshot, set_timeout
from tenants.entering.context import in_tenant, tenant_atomic
from tenants.entering.target import TENANT_ALIAS
from tenants.states import Purpose
from userflow.accounts.admin_notices import actor_name, notify_admins
from userflow.accounts.models import Client, Group, Role
from userflow.accounts.permissions_catalogue import EXPORT_HASHES
from userflow.accounts.principals import ADMIN, OPERATOR, Principal
from userflow.credentials import attempts
from userflow.endusers.queries import exported_page
from userflow.sessions.assurance import Action, require_assurance
from userflow.sessions.permissions import reading, require
from userflow.transfer.row_fields import END_USERS, GROUP, ROLE

AT_ONCE = 1000
# What an import reads.
COLUMNS: Final = tuple(name for name in END_USERS.fields if name != "kind")
NO_CLIENT = UUID(int=0)


def export_end_users(*, tenant_id: UUID, hashes: bool, definitions: bool) -> Generator[dict[str, object], None, None]:
    """Yield every end user as a row, with `definitions` after the tenant's roles and groups; write an audit event.

    One snapshot (REPEATABLE READ) read in pages, so memory use is constant; it holds back vacuum until the end. For a
    command on the server: with `hashes` the tenant's admins get a mail, also if the export is interrupted. Raises
    UnknownTenant, TenantBusy.
    """
    number = 0
    try:
        for row in _every_row(tenant_id, hashes, definitions):
            number += "kind" not in row
            yield row
    finally:
        if hashes and number:
            notify_admins(
                "hashes_exported",
                tenant_id=tenant_id,
                by="the command export_users, run on the server",
                facts={"number": number},
            )


def _every_row(tenant_id: UUID, hashes: bool, definitions: bool) -> Iterator[dict[str, object]]:
    record_for_platform(
        "end_users.exported", tenant_id=tenant_id, target=("tenant", tenant_id), details={"hashes": hashes}
    )
    client_id = _default_client(tenant_id)
    with in_tenant(tenant_id, Purpose.INSPECT), tenant_atomic():
        read_one_snapshot(TENANT_ALIAS, read_only=True)
        # The reader of a pipe may be slow.
        set_timeout(TENANT_ALIAS, "idle_in_transaction_session_timeout", 0)
        set_timeout(TENANT_ALIAS, "statement_timeout", 60_000)
        if definitions:
            yield from _definitions()
        after: UUID | None = None
        while rows := exported_page(after=after, limit=AT_ONCE, hashes=hashes, default_client=client_id):
            yield from (orjson.loads(row) for _, row in rows)
            after = rows[-1][0]


def page_of_export(
    *, tenant_id: UUID, by: Principal, hashes: bool, after: UUID | None, limit: int
) -> tuple[orjson.Fragment, UUID | None]:
    """Return one page by id for REST, as ready JSON, with the next cursor; write an audit event.

    With `hashes` the caller needs `endusers:export_hashes` and recent authentication, and the tenant's active admins get a
    mail about each page. Raises InsufficientScope, InsufficientAuthentication, UnknownTenant, TenantSuspended,
    TenantBusy, TooManyFromAddress.
    """
    if hashes:
        require(by, EXPORT_HASHES, OPERATOR, ADMIN)
        require_assurance(Action.EXPORT_PASSWORD_HASHES, by)
    attempts.limit_address("transfer")
    client_id = _default_client(tenant_id)
    with in_tenant(tenant_id, reading(by)):
        rows = exported_page(after=after, limit=limit + 1, hashes=hashes, default_client=client_id)
    more, rows = len(rows) > limit, rows[:limit]
    with transaction.atomic():
        record_for_platform(
            "end_users.exported",
            tenant_id=tenant_id,
            target=("tenant", tenant_id),
            details={"hashes": hashes, "rows": len(rows)},
        )
        if hashes and rows:
            facts = {"number": len(rows)}
            # Exported hashes allow password guesses without any limit.
            notify_admins("hashes_exported", tenant_id=tenant_id, by=actor_name(by), facts=facts)
    return orjson.Fragment(f"[{','.join(row for _, row in rows)}]"), rows[-1][0] if more else None


def _default_client(tenant_id: UUID) -> UUID:
    client_id = Client.objects.filter(tenant_id=tenant_id, is_default=True).values_list("pk", flat=True).first()
    return client_id or NO_CLIENT


def _definitions() -> Iterator[dict[str, object]]:
    for role in Role.objects.order_by("name"):
        yield {
            "kind": ROLE,
            "name": role.name,
            "description": role.description,
            "permissions": role.permissions,
        }
    for group in Group.objects.prefetch_related("roles").order_by("name"):
        yield {
            "kind": GROUP,
            "name": group.name,
            "description": group.description,
            "roles": sorted(role.name for role in group.roles.all()),
        }
