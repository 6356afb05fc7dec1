"""Authenticate clients: a confidential one by its secret or key, a public one by its id alone."""

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, NewType, NoReturn
from urllib.parse import unquote_plus
from uuid import UUID

import orjson
from cryptography import x509

from identity_platform.audit.origin import set_tenant
from identity_platform.audit.writer import record_for_tenant
from identity_platform.crypto import constant_time_equal, hash_token
from tenants.entering import lookup
from tenants.entering.context import in_tenant
from tenants.errors import UnknownTenant
from tenants.states import Purpose
from userflow.accounts.client_fields import CONFIDENTIAL, PUBLIC
from userflow.accounts.grant_types import may_use, rotates_refresh_tokens
from userflow.accounts.security_profiles import SecurityProfile, profile_of
from userflow.credentials import attempts
from userflow.errors import ClientNotAuthenticated, DirectSignInDisabled
from userflow.ids import FORM
from userflow.oauth_errors import DpopProofInvalid, InvalidClient, InvalidRequest, UnauthorizedClient
from userflow.sessions import client_assertions, client_uses
from userflow.sessions.certificate_authentication import TLS, TLS_METHODS, is_of_authority, is_registered
from userflow.sessions.client_certificates import takes_certificates
from userflow.sessions.queries import STORED_CLIENT
from userflow.sessions.sender_constraint import is_certificate

# Values of `token_endpoint_auth_method` (OpenID Connect Core section 9).
NONE, BASIC, POST, PRIVATE_KEY_JWT = "none", "client_secret_basic", "client_secret_post", "private_key_jwt"
# Of clients without a secret.
KEY_METHODS: Final = (PRIVATE_KEY_JWT, *TLS_METHODS)
METHODS: Final = (NONE, BASIC, POST, *KEY_METHODS)
METHODS_OF_TYPE: Final[Mapping[str, tuple[str, ...]]] = {PUBLIC: (NONE,), CONFIDENTIAL: (BASIC, POST, *KEY_METHODS)}
# How a certificate was sent: not with the request, but by the connection.
CERTIFICATE: Final = "certificate"


def supported_methods() -> tuple[str, ...]:
    """Return how confidential clients can authenticate here: with certificates only if a proxy passes them on."""
    return tuple(name for name in METHODS_OF_TYPE[CONFIDENTIAL] if name not in TLS_METHODS or takes_certificates())


def basic_credentials(header: str) -> tuple[str, str] | None:
    """Return client id and secret of a Basic header, each form-encoded (RFC 6749 section 2.3.1); None for another form."""
    scheme, _, encoded = header.partition(" ")
    try:
        pair = base64.b64decode(encoded.strip(), validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    name, colon, key = pair.partition(":")
    if scheme.lower() != "basic" or not colon:
        return None
    return unquote_plus(name), unquote_plus(key)


@dataclass(frozen=True, slots=True)
class Credential:
    """What a client authenticates with, and how it was sent: BASIC, POST, PRIVATE_KEY_JWT or CERTIFICATE."""

    method: str
    text: str = ""
    # The address that an assertion was sent to, if that may be its audience beside those of the tenant.
    endpoint: str = ""
    certificate: x509.Certificate | None = None


class StoredClient(NamedTuple):
    """A client of an existing tenant as its tokens need it, active or not."""

    # Its state is not checked: callers check it once they know that the client may learn it.
    tenant: lookup.TenantContext
    id: UUID
    type: str
    active: bool
    secret_digest: bytes | None
    # While it is valid.
    previous_secret_digest: bytes | None
    # As stored: empty for either form of the secret.
    token_endpoint_auth_method: str
    jwks_uri: str
    generation: int
    first_party: bool
    # Whether it may sign users in by JSON, with all rights of the user: a first-party client with `direct_sign_in`.
    signs_in_directly: bool
    # Of applications that sign users in by OpenID Connect.
    access_token_seconds: int | None
    access_token_signed_response_alg: str
    dpop_bound: bool
    certificate_bound: bool
    # As stored: None for the default of its kind.
    refresh_token_rotation: bool | None
    security_profile: str
    id_token_signed_response_alg: str
    backchannel_logout_uri: str
    jwks: dict[str, object]
    scopes: tuple[str, ...]
    audiences: tuple[str, ...]
    # As stored: empty for the default of its type.
    grant_types: tuple[str, ...]
    # The fields `tls_client_auth_…`, if it authenticates by them.
    certificate_subject: dict[str, str]

    @property
    def confidential(self) -> bool:
        """Whether the client has a secret or key."""
        return self.type == CONFIDENTIAL

    @property
    def profile(self) -> SecurityProfile:
        """What the security profile of the client demands."""
        return profile_of(self.security_profile)

    @property
    def gets_bound_tokens_only(self) -> bool:
        """Whether its tokens are bound to a key or certificate."""
        return self.dpop_bound or self.certificate_bound

    @property
    def rotates_refresh_tokens(self) -> bool:
        """Whether a refresh replaces the client's refresh token."""
        return rotates_refresh_tokens(
            self.refresh_token_rotation,
            type_=self.type,
            bound=self.gets_bound_tokens_only,
            by_key=self.token_endpoint_auth_method in KEY_METHODS,
        )

    def check_direct_sign_in(self) -> None:
        """Raise DirectSignInDisabled (403) unless the client may sign users in by JSON."""
        if not self.signs_in_directly:
            raise DirectSignInDisabled

    def check_binding(self, binding: str) -> None:
        """Raise an error unless `binding` is what tokens of the client have to be bound to.

        DpopProofInvalid for a key (RFC 9449 section 5.2), InvalidRequest for a certificate (RFC 8705 section 3).
        """
        if self.certificate_bound and not is_certificate(binding):
            raise InvalidRequest(
                "This client gets tokens that are bound to its certificate only. Present it to its tenant's token endpoint."
            )
        if self.dpop_bound and (not binding or is_certificate(binding)):
            raise DpopProofInvalid(
                "This client gets tokens that are bound to a key only. Send a DPoP proof to its tenant's token endpoint."
            )

    def check_grant_type(self, grant_type: str) -> None:
        """Raise UnauthorizedClient (RFC 6749 section 5.2) if the client may not use this grant type."""
        if not may_use(self, grant_type):
            raise UnauthorizedClient(
                "The client may not use this grant type. Its field `grant_types` lists those it may use."
            )

    def accepts(self, secret: str | None) -> bool:
        """Return whether the client signs users in with this secret, or without one. One with a key has no secret."""
        return is_authenticated(secret, self.type, self.secret_digest, self.previous_secret_digest)

    def authenticates(self, credential: Credential | None) -> bool:
        """Return whether the client authenticates with this credential, sent in this way, or without one.

        Raises AssertionsUnavailable, ClientKeysBusy.
        """
        if self.token_endpoint_auth_method in TLS_METHODS:
            return self._authenticates_by_certificate(credential.certificate if credential else None)
        if credential is not None and credential.method == CERTIFICATE:
            # Of the connection, for tokens that are bound to it: it is no credential of this client.
            credential = None
        if credential is None or credential.method != PRIVATE_KEY_JWT:
            as_registered = credential is None or self.token_endpoint_auth_method in ("", credential.method)
            return as_registered and self.accepts(credential.text if credential else None)
        if not self.confidential or self.token_endpoint_auth_method != PRIVATE_KEY_JWT:
            return False
        try:
            client_assertions.check_assertion(
                credential.text,
                endpoint=credential.endpoint,
                client_id=self.id,
                tenant=self.tenant,
                jwks=self.jwks,
                jwks_uri=self.jwks_uri,
                profile=self.profile,
            )
        except client_assertions.AssertionInvalid:
            return False
        return True

    def _authenticates_by_certificate(self, certificate: x509.Certificate | None) -> bool:
        if certificate is None or not self.confidential:
            return False
        if self.token_endpoint_auth_method == TLS:
            return is_of_authority(certificate, self.certificate_subject)
        return is_registered(
            certificate,
            client_id=self.id,
            jwks=self.jwks,
            jwks_uri=self.jwks_uri,
            authorities=self.tenant.authorities,
        )


# An active client that has authenticated as its type requires.
KnownClient = NewType("KnownClient", StoredClient)


def find_client(client_id: UUID) -> StoredClient | None:
    """Return the client, or None if it does not exist. Raises as `lookup.read_with_record`."""
    tenant_id = lookup.tenant_of_client(client_id)
    if tenant_id is None:
        return None
    try:
        tenant, row = lookup.read_with_record(tenant_id, STORED_CLIENT, [client_id])
    except UnknownTenant:
        lookup.forget_client(client_id)
        return None
    if row[0] is None:
        lookup.forget_client(client_id)
    return client_of_row(tenant, row)


def client_of_row(tenant: lookup.TenantContext, row: Sequence[Any]) -> StoredClient | None:
    """Return the client of the columns of STORED_CLIENT, None if they are null."""
    if row[0] is None:
        return None
    set_tenant(tenant.tenant_id, row[0])
    *columns, jwks, scopes, audiences, grant_types, subject = row
    lists = (tuple(orjson.loads(text)) for text in (scopes, audiences, grant_types))
    return StoredClient._make((tenant, *columns, orjson.loads(jwks), *lists, orjson.loads(subject) if subject else {}))


def authenticate_client(
    *, client_id: str, credential: Credential | None, read: Callable[[UUID], StoredClient | None] = find_client
) -> KnownClient:
    """Return the client of this id (RFC 6749 section 2.3): a confidential one by its secret or key, a public one without.

    `read` reads it, alone or with what else the request needs. Raises InvalidClient (unknown, inactive, wrong or missing
    credential, one sent in another way than the client has registered, deleted tenant: all alike), TooManyFromAddress,
    AssertionsUnavailable, ClientKeysBusy.
    """
    client = read(UUID(client_id)) if FORM.fullmatch(client_id) else None
    # A right secret of 256 bits always passes: guesses of others from the same address do not lock its owner out.
    if client is None:
        attempts.count_wrong_secret()
        raise InvalidClient
    tenant = client.tenant
    if not client.active or not client.authenticates(credential):
        _count_rejected(tenant, client_id)
        raise InvalidClient
    if tenant.status in lookup.GONE:
        raise InvalidClient
    lookup.remember(tenant)
    client_uses.note(client.id)
    return KnownClient(client)


def is_authenticated(secret: str | None, type_: str, *digests: bytes | memoryview | None) -> bool:
    """Return whether a client of this type authenticated: a confidential one by its secret, a public one without.

    `digests` are those of its secret and, while it is valid, of the secret before.
    """
    if type_ != CONFIDENTIAL:
        return secret is None
    secret_digest = hash_token(secret or "")
    return any(constant_time_equal(secret_digest, bytes(digest)) for digest in digests if digest is not None)


def reject_sign_in(tenant: lookup.TenantContext, client_id: UUID) -> NoReturn:
    """Count and audit a sign-in through a client that did not authenticate. Raises ClientNotAuthenticated (401)."""
    _count_rejected(tenant, str(client_id))
    raise ClientNotAuthenticated


def _count_rejected(tenant: lookup.TenantContext, client_id: str) -> None:
    attempts.count_wrong_secret()
    # During a job on the tenant nothing is written, and who has no right secret is not told of it.
    if not tenant.allows(Purpose.RECORD):
        return
    with in_tenant(tenant.tenant_id, Purpose.RECORD):
        record_for_tenant("client.refused", target=("client", client_id), outcome="refused")
