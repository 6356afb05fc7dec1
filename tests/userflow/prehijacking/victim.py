"""The ways in which the owner of an address gets an account."""

import secrets
from dataclasses import dataclass, field
from typing import Any

from tenants.entering.context import in_tenant
from tests.userflow.directory.conftest import CONFIGS
from tests.userflow.directory.entra import Entra
from tests.userflow.mailbox import mails_to
from tests.userflow.prehijacking.attacker import LOGIN, REGISTER, tokens_in_mail
from tests.world import Api, TestTenant
from userflow.accounts.models import EndUser
from userflow.credentials.passwords import hashed

VERIFY = "/uflow/user/email/verify"
OWN = "victim horse 6 battery"


@dataclass
class Victim:
    """The owner of a mailbox, in another network than the attacker."""

    tenant: TestTenant
    entra: Entra
    email: str = field(default_factory=lambda: f"victim-{secrets.token_hex(5)}@example.com")
    api: Api = field(default_factory=Api)

    def newest_token(self, address: str | None = None) -> str:
        return tokens_in_mail(mails_to(address or self.email)[-1])[-1]

    def _registration(self, email: str) -> Any:
        body = {"tenant_id": str(self.tenant.id), "client_id": str(self.tenant.client_id), "email": email}
        return self.api.post(REGISTER, {**body, "password": OWN})

    def _or_resets(self, response: Any) -> None:
        """Register; if the address is taken, reset the password."""
        assert response.status_code in (200, 201, 409), response.content
        if response.status_code == 409:
            self.resets()

    def registers_and_verifies(self) -> None:
        registered = self._registration(self.email)
        self._or_resets(registered)
        if registered.status_code == 201:
            self._verifies()

    def _verifies(self) -> None:
        verified = self.api.post(VERIFY, {"token": self.newest_token(), "current_password": OWN})
        assert verified.status_code == 200, verified.content

    def resets(self) -> None:
        body = {"email": self.email, "tenant_id": str(self.tenant.id)}
        before = len(mails_to(self.email))
        assert self.api.post("/uflow/auth/enduser/password/forgot", body).status_code == 200
        if len(mails_to(self.email)) == before:
            # No account has this address, so the owner registers.
            registered = self._registration(self.email)
            assert registered.status_code == 201, registered.content
            return self._verifies()
        token = self.newest_token()
        done = self.api.post("/uflow/auth/enduser/password/reset", {"token": token, "password": OWN})
        assert done.status_code == 200, done.content
        return None

    def confirms_foreign_registration(self) -> None:
        """Follow the link of a foreign registration, then reset the password."""
        links = [token for sent in mails_to(self.email, "verify your e-mail address") for token in tokens_in_mail(sent)]
        for token in links:
            self.api.post(VERIFY, {"token": token})
        self.resets()

    def moves_an_account_here(self) -> None:
        """Verify the address as the new address of the owner's older account."""
        old = f"old-{secrets.token_hex(5)}@example.com"
        assert self._registration(old).status_code == 201
        assert self.api.post(VERIFY, {"token": self.newest_token(old), "current_password": OWN}).status_code == 200
        token = self._login(old).json()["access_token"]
        asked = self.api.put("/authmgr/profile", {"email": self.email, "current_password": OWN}, token=token)
        self._or_resets(asked)
        if asked.status_code == 200 and asked.json()["email"] != self.email:
            self._or_resets(self.api.post(VERIFY, {"token": self.newest_token()}))

    def accepts_an_invitation(self) -> None:
        invited = self.tenant.api.post("/uflow/admin/invitations", {"email": self.email, "kind": "end_user"})
        self._or_resets(invited)
        if invited.status_code == 201:
            body = {"token": self.newest_token(), "password": OWN}
            self._or_resets(self.api.post("/uflow/invitations/accept", body))

    def is_synchronised(self) -> None:
        """Join by a directory; if another account keeps the address, reset its password."""
        self.entra.add(self.email)
        config = {"name": f"Office {secrets.token_hex(4)}", **self.entra.members()}
        made = self.tenant.api.post(CONFIGS, config).json()
        report = self.tenant.api.post(f"{CONFIGS}/{made['id']}/sync", {}).json()
        if not report["users_created"]:
            return self.resets()
        with in_tenant(self.tenant.id):
            # Directory users have no password on the platform; this one is set so that the test can sign in.
            EndUser.objects.filter(email=self.email).update(password=hashed(OWN))
        return None

    def _login(self, email: str) -> Any:
        body = {"client_id": str(self.tenant.client_id), "email": email, "password": OWN}
        return self.api.post(LOGIN, body)

    def record(self) -> dict[str, Any]:
        """Return the user who has the address."""
        query = {"tenant_id": str(self.tenant.id), "email": self.email}
        (found,) = self.tenant.api.get("/uflow/user/enduser/list", query).json()["users"]
        return dict(self.tenant.api.get(f"/uflow/user/enduser/{self.tenant.id}/{found['id']}").json())

    def signs_in(self) -> Any:
        return self._login(self.email)


STEPS = [
    Victim.registers_and_verifies,
    Victim.resets,
    Victim.confirms_foreign_registration,
    Victim.moves_an_account_here,
    Victim.accepts_an_invitation,
    Victim.is_synchronised,
]
