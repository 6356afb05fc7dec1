"""The two homes of users: the global database for admin users, the tenant's database for end users.

Sessions, attempts, tickets and factors are one mechanism; it asks the realm which tables and which transaction to use.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final, TypedDict, TypeVar, Unpack
from uuid import UUID

from django.db import connections, transaction
from django.db.transaction import TransactionManagementError

from identity_platform.audit import writer
from tenants import keys
from tenants.entering.context import current_tenant, in_tenant, tenant_atomic
from tenants.entering.lookup import TenantContext
from tenants.states import Purpose
from userflow.accounts import principals
from userflow.accounts import session_models as rows
from userflow.accounts.models import Account, AdminUser, EndUser
from userflow.mail.queue import queue_mail

# A tenant or its id.
AnyTenant = TypeVar("AnyTenant", TenantContext, UUID)


class Facts(TypedDict, total=False):
    """The target (kind and id), outcome and details of an audit event."""

    target: tuple[str, object] | None
    outcome: str
    details: Mapping[str, object] | None


@dataclass(frozen=True, slots=True)
class Realm(ABC):
    """Tables, transaction, data key and audit trail of one kind of user."""

    name: str
    # The kinds of principal that its users are (`userflow.accounts.principals`).
    kinds: frozenset[str]
    # What audit events about them name as their target.
    audit_target: str
    alias: str
    users: type[Account]
    sessions: type[rows.Session]
    refresh_tokens: type[rows.RefreshToken]
    attempts: type[rows.Attempts]
    tickets: type[rows.Ticket]
    windows: type[rows.EnrollmentWindow]

    @abstractmethod
    def entered(
        self, tenant_id: UUID | None, purpose: Purpose = Purpose.WRITE
    ) -> AbstractContextManager[TenantContext | None]:
        """Enter the users' database: the tenant's for end users, the global one, which needs no entry, for admin users.

        Raises UnknownTenant, TenantSuspended, TenantBusy.
        """

    @abstractmethod
    def tenant(self) -> TenantContext | None:
        """Return the entered tenant, whose users these are; None for admin users. Raises NoActiveTenant."""

    @abstractmethod
    def home(self, tenant: AnyTenant | None) -> AnyTenant | None:
        """Return the tenant whose database has the row of a user who belongs to `tenant`; None is the global database."""

    @abstractmethod
    def atomic(self) -> AbstractContextManager[object]:
        """A transaction in the users' database."""

    @abstractmethod
    def data_key(self) -> bytes:
        """The key that seals these users' secrets."""

    @abstractmethod
    def owner(self) -> str:
        """Whose secrets they are, for the associated data of a seal."""

    @abstractmethod
    def record(self, action: str, *, tenant_id: UUID | None = None, **facts: Unpack[Facts]) -> None:
        """One audit row in the users' trail; see `identity_platform.audit.writer`."""

    def model_of(self, related_name: str) -> Any:
        """Return the model of what these users have under this related name, such as `passkeys`, which both realms share."""
        return self.users._meta.get_field(related_name).related_model

    def lock_user(self, user_id: UUID) -> Account | None:
        """Return the active user, locked until the transaction ends."""
        return self.users._default_manager.select_for_update(no_key=True).filter(pk=user_id, active=True).first()

    def require_transaction(self) -> None:
        """Raise TransactionManagementError outside a transaction, for what must be written together."""
        if not connections[self.alias].in_atomic_block:
            raise TransactionManagementError("Call this in the realm's transaction.")

    def record_about(
        self, user: Account, action: str, details: Mapping[str, object] | None = None, *, outcome: str = "success"
    ) -> None:
        """One audit row about this user in the users' trail."""
        target = (self.audit_target, user.pk)
        self.record(action, target=target, tenant_id=user.home_tenant_id, outcome=outcome, details=details)

    def notify(self, user: Account, template: str, facts: Mapping[str, object], *, to: str = "") -> None:
        """Mail the user, at another address with `to`, once the realm's transaction is committed; see `queue_mail`."""
        tenant_id, language = user.home_tenant_id, user.own_language
        to = to or user.email
        queue_mail(template, to=to, facts=facts, after=self.alias, tenant_id=tenant_id, language=language)


class AdminRealm(Realm):
    """The global database, which every request has at hand."""

    __slots__ = ()

    def entered(
        self, tenant_id: UUID | None, purpose: Purpose = Purpose.WRITE
    ) -> AbstractContextManager[TenantContext | None]:
        return nullcontext()

    def tenant(self) -> TenantContext | None:
        return None

    def home(self, tenant: AnyTenant | None) -> AnyTenant | None:
        return None

    def atomic(self) -> AbstractContextManager[object]:
        return transaction.atomic()

    def data_key(self) -> bytes:
        return keys.platform_key()

    def owner(self) -> str:
        return "platform"

    def record(self, action: str, *, tenant_id: UUID | None = None, **facts: Unpack[Facts]) -> None:
        writer.record_for_platform(action, tenant_id=tenant_id, **facts)


class EndUserRealm(Realm):
    """The database of the tenant that is entered."""

    __slots__ = ()

    def entered(
        self, tenant_id: UUID | None, purpose: Purpose = Purpose.WRITE
    ) -> AbstractContextManager[TenantContext | None]:
        assert tenant_id is not None  # end users always have a tenant
        return in_tenant(tenant_id, purpose)

    def tenant(self) -> TenantContext | None:
        return current_tenant()

    def home(self, tenant: AnyTenant | None) -> AnyTenant | None:
        return tenant

    def atomic(self) -> AbstractContextManager[object]:
        return tenant_atomic()

    def data_key(self) -> bytes:
        return keys.tenant_key(current_tenant().tenant_id)

    def owner(self) -> str:
        return str(current_tenant().tenant_id)

    def record(self, action: str, *, tenant_id: UUID | None = None, **facts: Unpack[Facts]) -> None:
        writer.record_for_tenant(action, **facts)


ADMINS: Final = AdminRealm(
    name="admin",
    kinds=frozenset({principals.OPERATOR, principals.ADMIN}),
    audit_target="admin_user",
    alias="default",
    users=AdminUser,
    sessions=rows.AdminSession,
    refresh_tokens=rows.AdminRefreshToken,
    attempts=rows.AdminAttempts,
    tickets=rows.AdminTicket,
    windows=rows.AdminEnrollmentWindow,
)
END_USERS: Final = EndUserRealm(
    name="end_user",
    kinds=frozenset({principals.END_USER}),
    audit_target="end_user",
    alias="tenant",
    users=EndUser,
    sessions=rows.EndUserSession,
    refresh_tokens=rows.EndUserRefreshToken,
    attempts=rows.EndUserAttempts,
    tickets=rows.EndUserTicket,
    windows=rows.EndUserEnrollmentWindow,
)
