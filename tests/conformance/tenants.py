"""What the plans need at the platform: tenants, users and clients, made through its API."""

import secrets
from dataclasses import dataclass
from typing import Any

from tests.conformance.keys import new_rsa_key, private_jwk, public_jwk
from tests.conformance.web import Server

# The user's claims of the scope `profile`, by the setting of the tenant.
PROFILE = {
    "given_name": "Ann",
    "family_name": "Brook",
    "middle_name": "Mary",
    "nickname": "Annie",
    "gender": "female",
    "picture": "https://app.example.com/ann.png",
    "profile": "https://app.example.com/ann",
    "website": "https://app.example.com",
    "birthdate": "1990-04-01",
    "zoneinfo": "Europe/Berlin",
}


@dataclass(frozen=True)
class Person:
    """An end user who can sign in."""

    email: str
    password: str


@dataclass
class Tenant:
    """A tenant of the platform, with the token of an operator who manages it."""

    server: Server
    id: str
    slug: str
    default_client: str

    @property
    def issuer(self) -> str:
        """Return the issuer, as its metadata names it."""
        return f"{self.server.url.rstrip('/')}/t/{self.slug}"

    def mutual_tls_endpoint(self, name: str) -> str:
        """Return the address of an endpoint for clients with certificates (RFC 8705 section 5)."""
        metadata = self.server.call("GET", f"t/{self.slug}/.well-known/openid-configuration")
        return str({**metadata, **metadata.get("mtls_endpoint_aliases", {})}[name])

    def register(self) -> Person:
        """Register a user with a name and claims of a profile."""
        person = Person(f"ann-{secrets.token_hex(6)}@example.com", secrets.token_urlsafe(18))
        who = {"tenant_id": self.id, "client_id": self.default_client, "name": "Ann Brook", "metadata": PROFILE}
        body = {**who, "email": person.email, "password": person.password}
        user = self.server.call("POST", "uflow/user/clients/register", body)["user_id"]
        more = {"language": "en", "app_metadata": {"preferred_username": person.email.split("@")[0]}}
        self.server.call("PUT", f"uflow/user/enduser/{self.id}/{user}", more)
        return person

    def add_client(self, **fields: Any) -> dict[str, Any]:
        """Create a confidential client."""
        body = {"name": "Conformance suite", "type": "confidential", **fields}
        return dict(self.server.call("POST", f"clientms/tenants/{self.id}/clients", body))

    def add_signing_client(self, algorithm: str, **fields: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Create a client with a new key; return it with the private key as a key set."""
        key = new_rsa_key()
        key_id = f"{algorithm.lower()}-{secrets.token_hex(4)}"
        client = self.add_client(jwks={"keys": [public_jwk(key, algorithm, key_id)]}, **fields)
        return client, {"keys": [private_jwk(key, algorithm, key_id)]}


def create_tenant(server: Server) -> Tenant:
    """Create a tenant that returns the claims of `PROFILE`."""
    slug = f"conformance-{secrets.token_hex(4)}"
    made = server.call("POST", "uflow/admin/tenants", {"name": "Conformance", "slug": slug})
    claims = [*(f"{claim}=metadata.{claim}" for claim in PROFILE), "preferred_username=app_metadata.preferred_username"]
    settings = {"profile_claims": claims}
    server.call("PATCH", f"uflow/admin/tenants/{made['tenant_id']}", {"settings": settings})
    return Tenant(server, made["tenant_id"], slug, made["client_id"])
