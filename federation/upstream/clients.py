"""The platform's client at an identity provider: what a connection configures."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final
from uuid import UUID

from userflow.sessions.client_keys import SIGNING_ALGORITHMS
from userflow.sessions.foreign_tokens import Expected

DEFAULT_SCOPES: Final = ("openid", "email", "profile")


class Rules(StrEnum):
    """Whose rules about subjects and addresses apply (`federation.upstream.identities`)."""

    GENERIC = "generic"
    GOOGLE = "google"
    MICROSOFT = "microsoft"
    APPLE = "apple"
    GITHUB = "github"


@dataclass(frozen=True, slots=True)
class ClientSecret:
    """A secret that the provider has issued, sent as `client_secret_basic` or `client_secret_post`."""

    secret: str = field(repr=False)
    in_body: bool = False


@dataclass(frozen=True, slots=True)
class AssertionKey:
    """A private key (PKCS #8 in DER) whose public part the provider knows: private_key_jwt.

    The audience is the issuer. With `for_token_endpoint` it is the token endpoint, which some providers demand.
    `certificate_thumbprint` (SHA-256, base64url) is what Entra ID finds the key by.
    """

    private: bytes = field(repr=False)
    kid: str
    algorithm: str = "ES256"
    for_token_endpoint: bool = False
    certificate_thumbprint: str = ""


@dataclass(frozen=True, slots=True)
class AppleKey:
    """The private key (PEM) of Sign in with Apple, from which a client secret is made at each use."""

    private: str = field(repr=False)
    key_id: str
    team_id: str


Credential = ClientSecret | AssertionKey | AppleKey


@dataclass(frozen=True, slots=True)
class UpstreamClient:
    """The platform's client at a provider, as the connection with this id configures it.

    `issuer` is what ID tokens must have as `iss`; `{tenantid}` in it stands for the claim `tid` (Microsoft), and then
    `discovery_base` is the issuer whose discovery document is read. `token_endpoint` is the address that the credential was
    entered for: it is sent to no other one. `organizations` are the values that Google's `hd` or Microsoft's `tid` may
    have; empty allows all. `reads_userinfo` is for providers that leave claims out of ID tokens. `authorities` (PEM) are those
    of the tenant.
    """

    connection_id: UUID
    issuer: str
    client_id: str
    credential: Credential
    token_endpoint: str
    rules: Rules = Rules.GENERIC
    discovery_base: str = ""
    scopes: tuple[str, ...] = DEFAULT_SCOPES
    algorithms: frozenset[str] = frozenset(SIGNING_ALGORITHMS)
    organizations: frozenset[str] = frozenset()
    reads_userinfo: bool = False
    authorities: str = ""

    @property
    def expected(self) -> Expected:
        """Return what tokens of the provider must say."""
        return Expected(self.issuer, self.client_id, self.algorithms)

    @property
    def discovery_issuer(self) -> str:
        """Return the issuer below which the discovery document is."""
        return self.discovery_base or self.issuer
