"""Who calls: what the store says now about whoever the token speaks for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

OPERATOR, ADMIN, END_USER, CLIENT = "operator", "admin", "end_user", "client"
# For what a stolen token must not do.
FRESH: Final = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller of an authenticated request; also DRF's `request.user`."""

    kind: str
    id: UUID
    tenant_id: UUID | None
    client_id: UUID | None
    session_id: UUID | None
    roles: tuple[str, ...]
    permissions: frozenset[str]
    # Names; only end users are in groups.
    groups: tuple[str, ...] = ()
    # What the token proves, and what the policy in force asks of it (userflow.accounts.session_policy).
    amr: tuple[str, ...] = ()
    acr: str = "aal1"
    required_acr: str = "aal1"
    # Whether the tenant requires a verified e-mail address and the user has none.
    must_verify_email: bool = False
    auth_time: datetime | None = None
    claims: Mapping[str, Any] = field(default_factory=dict)
    # Columns of the user's row that the state check has read anyway.
    user: Mapping[str, Any] = field(default_factory=dict)

    is_authenticated = True
    is_anonymous = False

    @property
    def pk(self) -> UUID:
        return self.id

    @property
    def is_admin(self) -> bool:
        """Signs in to the global side: an operator or a tenant's admin."""
        return self.kind in (OPERATOR, ADMIN)

    def is_fresh(self) -> bool:
        """Whether the sign-in behind the call is at most fifteen minutes old."""
        return self.auth_time is not None and datetime.now(UTC) - self.auth_time <= FRESH

    def meets_policy(self) -> bool:
        """Whether the session has what the policy in force asks of all sessions of this kind: assurance level, address."""
        return self.acr >= self.required_acr and not self.must_verify_email

    def may(self, permission: str) -> bool:
        """Whether the caller holds the permission now."""
        return permission in self.permissions


def moment(seconds: int | float | None) -> datetime | None:
    """A NumericDate claim (RFC 7519 section 2) as an aware time."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
