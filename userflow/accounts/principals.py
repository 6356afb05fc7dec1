"""The caller of a request: the subject of its token, as stored now."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, TypedDict, TypeGuard
from uuid import UUID

OPERATOR, ADMIN, END_USER, CLIENT = "operator", "admin", "end_user", "client"
# Sensitive actions need a proof at most this old, so that a stolen token alone is not enough.
FRESH: Final = timedelta(minutes=15)
# What a first-party application or one with the scope of this name learns of the user from an access token.
EMAIL_SCOPE: Final = "email"
ROLES_SCOPE: Final = "roles"
GROUPS_SCOPE: Final = "groups"
# Greater numbers in tokens of others are no times, and those of hundreds of digits cannot be compared with one.
_END_OF_TIME: Final = 2**53


class Claims(TypedDict, total=False):
    """Claims of an access token (RFC 9068, `docs/tokens.md`), or what stands for them in the console and at a refresh."""

    iss: str
    aud: str | list[str]
    sub: str
    jti: str
    typ: str
    exp: int
    iat: int
    nbf: int
    # The header's key id, added when the token is verified.
    kid: str
    kind: str
    tenant_id: str | None
    client_id: str | None
    sid: str | None
    amr: list[str]
    acr: str
    auth_time: float
    roles: list[str]
    groups: list[str]
    permissions: list[str]
    # Of a client's own token, and of a session that OpenID Connect has opened.
    scope: str
    # Of a client's own token.
    gen: int
    # The key or certificate that the token is bound to (RFC 9449 section 6.1, RFC 8705 section 3.1).
    cnf: dict[str, str]


class UserFields(TypedDict, total=False):
    """Columns of the user's row, or of the client's, that the state check reads."""

    username: str
    email: str
    name: str
    mfa_methods: list[str]
    project_id: str | None


@dataclass(frozen=True, slots=True)
class Grant:
    """What OpenID Connect has granted to the application of a session, and how that application is treated."""

    scopes: tuple[str, ...]
    audiences: tuple[str, ...]
    # What the tokens are bound to (`userflow.sessions.sender_constraint`); empty for bearer tokens.
    binding: str = ""
    first_party: bool = False

    def allowed(self, permissions: frozenset[str]) -> frozenset[str]:
        """Return those of the user's permissions that the application may use: all if it is first-party, else those that
        its scopes name."""
        return permissions if self.first_party else permissions & frozenset(self.scopes)


def reveals(grant: Grant | None, scope: str) -> bool:
    """Return whether a token of this grant shows what the scope stands for: an address (`email`), `roles` or `groups`.

    A first-party application and a session without OpenID Connect (`grant` is None) see all of them.
    """
    return grant is None or grant.first_party or scope in grant.scopes


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
    # The methods and assurance level of the session, and the level that the policy in force requires.
    amr: tuple[str, ...] = ()
    acr: str = "aal1"
    required_acr: str = "aal1"
    # Whether the tenant requires a verified e-mail address and the user has none.
    must_verify_email: bool = False
    auth_time: datetime | None = None
    claims: Claims = field(default_factory=Claims)
    user: UserFields = field(default_factory=UserFields)
    # Of a session that OpenID Connect has opened; `permissions` are limited by it.
    grant: Grant | None = None
    # Of an end user's session: it belongs to the tenant's hosted pages or to one of the tenant's own applications.
    first_party: bool = False
    # Lifetime of the access tokens of the session's client; None is the tenant's setting.
    access_token_seconds: int | None = None
    # Algorithm that signs them.
    access_token_alg: str = "ES256"
    # An end user's record, if the request has read it with the state of the session (`userflow.profile.queries`).
    record: Mapping[str, object] | None = None

    is_authenticated = True
    is_anonymous = False

    @property
    def pk(self) -> UUID:
        return self.id

    @property
    def is_admin(self) -> bool:
        """Return whether the caller is an operator or a tenant's admin."""
        return self.kind in (OPERATOR, ADMIN)

    @property
    def is_third_party(self) -> bool:
        """Return whether an end user's token was issued to an application that is not known to be the tenant's own."""
        return self.kind == END_USER and not self.first_party

    def is_fresh(self) -> bool:
        """Return whether the user was verified in the last fifteen minutes."""
        return self.auth_time is not None and datetime.now(UTC) - self.auth_time <= FRESH

    def meets_policy(self) -> bool:
        """Return whether the session has the assurance level, and the user the verified address, that the policy requires."""
        return self.acr >= self.required_acr and not self.must_verify_email

    def may(self, permission: str) -> bool:
        """Return whether the caller holds the permission now."""
        return permission in self.permissions


def moment(seconds: int | float | None) -> datetime | None:
    """Return a NumericDate claim (RFC 7519 section 2) as an aware datetime."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def is_numeric_date(value: object) -> TypeGuard[int | float]:
    """Return whether a claim is a number of seconds: neither text, which PyJWT takes too, nor NaN, which equals no limit."""
    return not isinstance(value, bool) and isinstance(value, int | float) and 0 <= value < _END_OF_TIME
