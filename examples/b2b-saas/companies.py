"""Companies: each is a tenant of the platform, with a database of its own, and a client of this application there."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx2
from store import Store

from identity_sdk import ApiError, ClientCredentials
from identity_sdk.errors import json_of

ADMIN = "admin"


@dataclass(frozen=True)
class Company:
    """A company, and what the application needs to sign its people in."""

    slug: str
    name: str
    tenant_id: str
    issuer: str
    client_id: str
    client_secret: str = field(repr=False)


@dataclass(frozen=True)
class Companies:
    """Finds companies, opens new ones and invites people.

    `username` and `password` are those of an operator of the platform who can open tenants and do what their admins can.
    """

    store: Store
    platform: str
    address: str
    username: str
    password: str = field(repr=False)

    def find(self, slug: str) -> Company | None:
        """Return the company with this slug."""
        found = self.store.run("SELECT * FROM company WHERE slug = ?", slug)
        return Company(**dict(found[0])) if found else None

    def open(self, *, name: str, slug: str, email: str) -> Company:
        """Open a tenant for a company and invite its first admin, who chooses a password at the platform.

        Raises ApiError.
        """
        with self._operator() as http:
            # Users join a company by invitation only.
            body = {"name": name, "slug": slug, "settings": {"self_registration": False}}
            tenant = json_of(http.post("/uflow/admin/tenants", json=body))
            http.headers["X-Tenant-ID"] = tenant["tenant_id"]
            try:
                role = {"name": ADMIN, "description": "Invites colleagues", "permissions": ["members:invite"]}
                json_of(http.post("/authmgr/roles", json=role))
                company = self._add_client(http, tenant)
                invited = {"email": email, "kind": "end_user", "roles": [ADMIN], "client_id": company.client_id}
                json_of(http.post("/uflow/admin/invitations", json=invited))
            except (ApiError, httpx2.HTTPError):
                # The slug stays free for another try.
                confirmed = {"confirm": tenant["slug"], "final_backup": False}
                http.request("DELETE", f"/uflow/admin/tenants/{tenant['tenant_id']}", json=confirmed)
                raise
        self.store.run(
            "INSERT INTO company (slug, name, tenant_id, issuer, client_id, client_secret) VALUES (?, ?, ?, ?, ?, ?)",
            *(company.slug, company.name, company.tenant_id, company.issuer, company.client_id, company.client_secret),
        )
        return company

    def invite(self, company: Company, email: str) -> None:
        """Invite a colleague with the rights of the company's own client, which ends at its tenant. Raises ApiError."""
        own = ClientCredentials(self.platform, company.client_id, company.client_secret, scope="invitations:write")
        body = {"email": email, "kind": "end_user", "client_id": company.client_id}
        json_of(httpx2.post(f"{self.platform}/uflow/admin/invitations", json=body, auth=own, timeout=30))

    @contextmanager
    def _operator(self) -> Iterator[httpx2.Client]:
        """Sign the operator in for a few calls, and out."""
        with httpx2.Client(base_url=self.platform, timeout=60) as http:
            body = {"username": self.username, "password": self.password}
            said = json_of(http.post("/uflow/admin/auth/login", json=body))
            http.headers["Authorization"] = f"Bearer {said['access_token']}"
            try:
                yield http
            finally:
                http.post("/authmgr/logout", json={})

    def _add_client(self, http: httpx2.Client, tenant: dict[str, str]) -> Company:
        home = f"{self.address}/c/{tenant['slug']}"
        body = {
            "name": "Planboard",
            "type": "confidential",
            "first_party": True,
            "redirect_uris": [f"{home}/callback"],
            "post_logout_redirect_uris": [f"{self.address}/"],
            "scopes": ["invitations:write"],
        }
        client = json_of(http.post(f"/clientms/tenants/{tenant['tenant_id']}/clients", json=body))
        return Company(
            slug=tenant["slug"],
            name=tenant["name"],
            tenant_id=tenant["tenant_id"],
            issuer=f"{self.platform}/t/{tenant['slug']}",
            client_id=client["client_id"],
            client_secret=client["client_secret"],
        )
