"""The two homes of users: the global database for admin users, the tenant's database for end users.

Sessions, attempts, tickets and factors are one mechanism; it asks the realm which tables and which transaction to use.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TypedDict, Unpack
from uuid import UUID

from django.db import connections, transaction
from django.db.transaction import TransactionManagementError

from identity_platform.audit import writer
from tenants import keys
from tenants.entering.context import current_tenant, in_tenant, tenant_atomic
from tenants.entering.lookup import TenantContext
from tenants.states import Purpose
from userflow.accounts import session_models as rows
from userflow.accounts.models import Account, AdminUser, EndUser
from userflow.mail.queue import queue_mail


class Facts(TypedDict, total=False):
    """The target (kind and id), outcome and details of an audit event."""

    target: tuple[str, object] | None
    outcome: str
    details: Mapping[str, object] | None


@dataclass(frozen=True, slots=True)
class Realm:
    """Tables, transaction, data key and audit trail of one kind of user."""

    name: str
    alias: str
    users: type[Account]
    sessions: type[rows.Session]
    refresh_tokens: type[rows.RefreshToken]
    attempts: type[rows.Attempts]
    tickets: type[rows.Ticket]
    windows: type[rows.EnrollmentWindow]

    def entered(
        self, tenant_id: UUID | None, purpose: Purpose = Purpose.WRITE
    ) -> AbstractContextManager[TenantContext | None]:
        """Enter the users' database: the tenant's for end users, the global one, which needs no entry, for admin users.

        Raises UnknownTenant, TenantSuspended, TenantBusy.
        """
        if self is ADMINS:
            return nullcontext()
        assert tenant_id is not None  # end users always have a tenant
        return in_tenant(tenant_id, purpose)

    def lock_user(self, user_id: UUID) -> Account | None:
        """Return the active user, locked until the transaction ends."""
        return self.users._default_manager.select_for_update(no_key=True).filter(pk=user_id, active=True).first()

    def atomic(self) -> AbstractContextManager[object]:
        """A transaction in the users' database."""
        return tenant_atomic() if self is END_USERS else transaction.atomic()

    def require_transaction(self) -> None:
        """Raise TransactionManagementError outside a transaction, for what must be written together."""
        if not connections[self.alias].in_atomic_block:
            raise TransactionManagementError("Call this in the realm's transaction.")

    def data_key(self) -> bytes:
        """The key that seals these users' secrets."""
        return keys.tenant_key(current_tenant().tenant_id) if self is END_USERS else keys.platform_key()

    def owner(self) -> str:
        """Whose secrets they are, for the associated data of a seal."""
        return str(current_tenant().tenant_id) if self is END_USERS else "platform"

    def record(self, action: str, *, tenant_id: UUID | None = None, **facts: Unpack[Facts]) -> None:
        """One audit row in the users' trail; see `identity_platform.audit.writer`."""
        if self is END_USERS:
            writer.record_for_tenant(action, **facts)
        else:
            writer.record_for_platform(action, tenant_id=tenant_id, **facts)

    def record_about(
        self, user: Account, action: str, details: Mapping[str, object] | None = None, *, outcome: str = "success"
    ) -> None:
        """One audit row about this user in the users' trail."""
        target = ("end_user" if self is END_USERS else "admin_user", user.pk)
        self.record(action, target=target, tenant_id=user.home_tenant_id, outcome=outcome, details=details)

    def tell(self, user: Account, template: str, facts: Mapping[str, object], *, to: str = "") -> None:
        """Mail the user, at another address with `to`, once the realm's transaction is committed; see `queue_mail`."""
        tenant_id, language = user.home_tenant_id, user.own_language
        to = to or user.email
        queue_mail(template, to=to, facts=facts, after=self.alias, tenant_id=tenant_id, language=language)


ADMINS = Realm(
    name="admin",
    alias="default",
    users=AdminUser,
    sessions=rows.AdminSession,
    refresh_tokens=rows.AdminRefreshToken,
    attempts=rows.AdminAttempts,
    tickets=rows.AdminTicket,
    windows=rows.AdminEnrollmentWindow,
)
END_USERS = Realm(
    name="end_user",
    alias="tenant",
    users=EndUser,
    sessions=rows.EndUserSession,
    refresh_tokens=rows.EndUserRefreshToken,
    attempts=rows.EndUserAttempts,
    tickets=rows.EndUserTicket,
    windows=rows.EndUserEnrollmentWindow,
)
