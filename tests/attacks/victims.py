"""Users of every kind without a factor, for attacks from the same network address."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyotp
from django.utils.timezone import now

from tenants.entering.context import in_tenant
from tests.userflow.directory.conftest import CONFIGS
from tests.userflow.directory.entra import Entra
from tests.userflow.mailbox import mails_to, token_in
from tests.world import PASSWORD, Api, TestTenant
from userflow.accounts.models import EndUser
from userflow.admins.actions import create_admin_user
from userflow.credentials.passwords import hashed

TICKET = "X-Enrollment-Ticket"


@dataclass
class Victim:
    """A user without a factor, and the credentials issued so far."""

    tenant: TestTenant
    email: str
    # The network that the attacker shares.
    api: Api
    # Path of the calls for factors, and the fields that identify the user.
    prefix: str
    user_fields: dict[str, str]
    # A ticket that is older than that of the newest sign-in.
    older_ticket: str = ""
    login: dict[str, Any] = field(default_factory=dict)
    ticket: str = ""
    backup_codes: list[str] = field(default_factory=list)

    @property
    def token(self) -> str:
        return str(self.login["access_token"])

    @property
    def is_admin(self) -> bool:
        return self.prefix == "/webauthn/admin"

    @property
    def totp(self) -> str:
        """Return the path of the calls for authenticator apps."""
        return "/webauthn/admin/totp" if self.is_admin else "/webauthn/totp"

    def sign_in(self, api: Api) -> Any:
        """Return the login's response."""
        if self.is_admin:
            return api.post("/uflow/admin/auth/login", {"username": self.email, "password": PASSWORD})
        body = {"client_id": str(self.tenant.client_id), "email": self.email, "password": PASSWORD}
        return api.post("/uflow/auth/enduser/login", body)

    def signed_in(self) -> "Victim":
        """Sign in at the shared address."""
        response = self.sign_in(self.api)
        assert response.status_code == 200, response.content
        self.login, self.ticket = response.json(), response.headers[TICKET]
        return self

    def begin_totp(self, **how: Any) -> Any:
        return self.api.post(f"{self.totp}/beginSetup", self.user_fields, **how)

    def begin_passkey(self, **how: Any) -> Any:
        prefix = self.prefix if self.is_admin else "/webauthn/enduser"
        return self.api.post(f"{prefix}/beginRegistration", self.user_fields, **how)

    def enroll_totp(self, **how: Any) -> None:
        """Begin and confirm, with the ticket of the newest sign-in unless a proof is given."""
        how = how or {"headers": {TICKET: self.ticket}}
        begun = self.begin_totp(**how)
        assert begun.status_code == 200, begun.content
        secret = begun.json()["secret"]
        body = {**self.user_fields, "secret": secret, "code": pyotp.TOTP(secret).at(now())}
        if "token" in how:
            body["current_password"] = PASSWORD
        done = self.api.post(f"{self.totp}/confirmSetup", body, **how)
        assert done.status_code == 200, done.content
        self.backup_codes = done.json()["backup_codes"]

    def methods(self) -> list[str]:
        """Return the factors that a login from another address requires."""
        return list(self.sign_in(Api()).json()["methods"])

    def second_step(self) -> dict[str, Any]:
        """Sign in elsewhere with password and backup code; return the tokens."""
        waiting = self.sign_in(Api()).json()["mfa_token"]
        body = {**self.user_fields, "mfa_token": waiting, "backup_code": self.backup_codes.pop()}
        done = Api().post(f"{self.totp}/verifyLogin", body)
        assert done.status_code == 200, done.content
        return dict(done.json())


def _end_user(tenant: TestTenant, email: str, api: Api, older: str) -> Victim:
    return Victim(tenant, email, api, "/webauthn", {"email": email, "tenant_id": str(tenant.id)}, older).signed_in()


def _address(kind: str) -> str:
    return f"{kind}-{secrets.token_hex(5)}@example.com"


def registered_user(tenant: TestTenant, entra: Entra) -> Victim:
    email, api = _address("registered"), Api()
    body = {"tenant_id": str(tenant.id), "client_id": str(tenant.client_id), "email": email, "password": PASSWORD}
    response = api.post("/uflow/user/clients/register", body)
    return _end_user(tenant, email, api, response.headers[TICKET])


def invited_user(tenant: TestTenant, entra: Entra) -> Victim:
    email, api = _address("invited"), Api()
    assert tenant.api.post("/uflow/admin/invitations", {"email": email, "kind": "end_user"}).status_code == 201
    response = api.post("/uflow/invitations/accept", {"token": token_in(mails_to(email)[-1]), "password": PASSWORD})
    return _end_user(tenant, email, api, response.headers[TICKET])


def directory_user(tenant: TestTenant, entra: Entra) -> Victim:
    email, api = _address("directory"), Api()
    entra.add(email)
    made = tenant.api.post(CONFIGS, {"name": f"Office {secrets.token_hex(4)}", **entra.members()}).json()
    assert tenant.api.post(f"{CONFIGS}/{made['id']}/sync", {}).json()["users_created"] == 1
    with in_tenant(tenant.id):
        # Directory users have no password on the platform; this one is set so that the test can sign in.
        EndUser.objects.filter(email=email).update(password=hashed(PASSWORD))
    first = api.post(
        "/uflow/auth/enduser/login", {"client_id": str(tenant.client_id), "email": email, "password": PASSWORD}
    )
    return _end_user(tenant, email, api, first.headers[TICKET])


def _admin(tenant: TestTenant, tenant_id: Any) -> Victim:
    email, api = _address("admin"), Api()
    create_admin_user(tenant_id=tenant_id, username=email.partition("@")[0], email=email, password=PASSWORD)
    first = api.post("/uflow/admin/auth/login", {"username": email, "password": PASSWORD})
    return Victim(tenant, email, api, "/webauthn/admin", {"email": email}, first.headers[TICKET]).signed_in()


def tenant_admin(tenant: TestTenant, entra: Entra) -> Victim:
    return _admin(tenant, tenant.id)


def operator(tenant: TestTenant, entra: Entra) -> Victim:
    return _admin(tenant, None)


KINDS: list[Callable[[TestTenant, Entra], Victim]] = [
    registered_user,
    invited_user,
    directory_user,
    tenant_admin,
    operator,
]
