"""Every kind of authority that can be revoked, each through the public door: it works, is revoked, and works no more."""

import secrets
from typing import Any, ClassVar, Protocol

import jwt
import pyotp
from django.test.utils import override_settings
from django.utils.timezone import now

from openid.authorization.consents import grant_consent
from tenants.entering.context import in_tenant
from tests.mfa.people import new_user
from tests.mfa.webauthn.passkeys import by_factor, end_users_of, user_with_passkey
from tests.openid.pages.visitor import Visitor
from tests.openid.relying_party import Application, query_of, register_application
from tests.tenants.conftest import run_command
from tests.userflow.mailbox import mails_to, token_in
from tests.userflow.sessions.clients import make_client, own_token
from tests.world import PASSWORD, Api, TestTenant
from userflow.events.models import WebhookEndpoint
from userflow.sessions import signing

NEW_PASSWORD = "another horse 9 battery"
LOCAL_WEBHOOKS: dict[str, Any] = {"WEBHOOK_ALLOWED_NETWORKS": ["127.0.0.0/8"], "WEBHOOK_PLAIN_HTTP": True}


class Authority(Protocol):
    """One authority of a tenant."""

    # Whether it works after a restore, if it was not revoked.
    survives: ClassVar[bool]

    def works(self) -> bool: ...

    def revoke(self) -> None: ...


def _ok(response: Any) -> Any:
    assert response.status_code in (200, 201), response.content
    return response.json()


class ActiveUser:
    """A user who is then deactivated."""

    survives = True

    def __init__(self, tenant: TestTenant) -> None:
        self.tenant, self.user = tenant, tenant.register()

    def signs_in(self, password: str = PASSWORD, email: str = "") -> bool:
        body = {"client_id": str(self.tenant.client_id), "email": email or self.user.email, "password": password}
        return bool(Api().post("/uflow/auth/enduser/login", body).status_code == 200)

    def works(self) -> bool:
        return self.signs_in()

    def _set_active(self, active: bool) -> None:
        body = {"tenant_id": str(self.tenant.id), "user_id": str(self.user.id), "active": active}
        _ok(self.tenant.api.post("/uflow/admin/enduser/active", body))

    def revoke(self) -> None:
        self._set_active(False)

    def grant_again(self) -> None:
        self._set_active(True)


class ErasedUser(ActiveUser):
    """A user who is then erased."""

    def works(self) -> bool:
        path = f"/uflow/user/enduser/{self.tenant.id}/{self.user.id}"
        return self.signs_in() or self.tenant.api.get(path).status_code == 200

    def revoke(self) -> None:
        body = {"tenant_id": str(self.tenant.id), "user_id": str(self.user.id)}
        _ok(self.tenant.api.post("/uflow/user/enduser/delete_all", body))


class Password(ActiveUser):
    """A password that its user then changes."""

    new = NEW_PASSWORD

    def revoke(self) -> None:
        body = {"current_password": PASSWORD, "new_password": NEW_PASSWORD}
        _ok(self.tenant.as_user(self.user).post("/authmgr/profile/password", body))

    def reset(self, password: str) -> None:
        forgot = {"email": self.user.email, "tenant_id": str(self.tenant.id)}
        _ok(Api().post("/uflow/auth/enduser/password/forgot", forgot))
        token = token_in(mails_to(self.user.email, "new password")[-1])
        _ok(Api().post("/uflow/auth/enduser/password/reset", {"token": token, "password": password}))


class PasswordAlone(ActiveUser):
    """A password without a factor, until its user enrolls one that the backup does not have."""

    def __init__(self, tenant: TestTenant) -> None:
        self.tenant, self.person = tenant, new_user(tenant)

    def works(self) -> bool:
        body = {"client_id": str(self.tenant.client_id), "email": self.person.email, "password": PASSWORD}
        return "access_token" in Api().post("/uflow/auth/enduser/login", body).json()

    def revoke(self) -> None:
        # A ticket from before a restore is closed.
        self.person.ticket = self.person.sign_in().headers["X-Enrollment-Ticket"]
        self.person.enrol_totp()


class Address(ActiveUser):
    """An address that its user then leaves: its mailbox sets the password."""

    def works(self) -> bool:
        forgot = {"email": self.user.email, "tenant_id": str(self.tenant.id)}
        before = len(mails_to(self.user.email, "new password"))
        _ok(Api().post("/uflow/auth/enduser/password/forgot", forgot))
        return self.signs_in() or len(mails_to(self.user.email, "new password")) > before

    def revoke(self) -> None:
        body = {"email": f"new-{secrets.token_hex(5)}@example.com", "current_password": PASSWORD}
        _ok(self.tenant.as_user(self.user).put("/authmgr/profile", body))


class Authenticator:
    """An authenticator app that its user then removes."""

    survives = True

    def __init__(self, tenant: TestTenant) -> None:
        self.person = new_user(tenant).enrol_totp()

    def token(self) -> str:
        """Return the token of a sign-in with both steps."""
        waiting = self.person.sign_in().json()["mfa_token"]
        body = {**self.person.named_with_client, "mfa_token": waiting, "backup_code": self.person.backup_codes.pop()}
        return str(_ok(Api().post("/webauthn/totp/verifyLogin", body))["access_token"])

    def works(self) -> bool:
        self.person.minutes_pass(2)
        body = {**self.person.name, "code": self.person.code()}
        return bool(Api().post("/webauthn/totp/verify", body).status_code == 200)

    def revoke(self) -> None:
        token = self.token()
        body = {**self.person.name, "backup_code": self.person.backup_codes.pop()}
        _ok(self.person.api.post("/webauthn/totp/disable", body, token=token))


class ReplacedAuthenticator(Authenticator):
    """An authenticator app that an attacker has copied, and that its user then replaces."""

    def revoke(self) -> None:
        token = self.token()
        begun = _ok(self.person.api.post("/webauthn/totp/beginSetup", self.person.name, token=token))
        code = pyotp.TOTP(begun["secret"]).at(now())
        proof = {"backup_code": self.person.backup_codes.pop()}
        body = {**self.person.name, **proof, "secret": begun["secret"], "code": code}
        _ok(self.person.api.post("/webauthn/totp/confirmSetup", body, token=token))


class BackupCode(Authenticator):
    """A backup code that is then used."""

    def __init__(self, tenant: TestTenant) -> None:
        super().__init__(tenant)
        self.code = self.person.backup_codes[-1]
        self.spent = False

    def works(self) -> bool:
        if not self.spent:
            # Trying it would use it.
            return "backup_code" in self.person.sign_in().json()["methods"]
        return bool(
            Api().post("/webauthn/totp/verify", {**self.person.name, "backup_code": self.code}).status_code == 200
        )

    def revoke(self) -> None:
        self.spent = True
        _ok(Api().post("/webauthn/totp/verify", {**self.person.name, "backup_code": self.code}))


class Phone(Authenticator):
    """A phone that an admin then resets with all factors of its user."""

    def __init__(self, tenant: TestTenant) -> None:
        self.person = new_user(tenant)
        self.person.enrol_phone()

    def works(self) -> bool:
        return "sms" in self.person.sign_in().json().get("methods", [])

    def revoke(self) -> None:
        body = {"tenant_id": str(self.person.tenant.id), "user_id": str(self.person.id), "reason": "stolen"}
        _ok(self.person.tenant.api.post("/webauthn/factors/reset", body))


class Passkey:
    """A passkey that an admin then resets with all factors of its user."""

    survives = True

    def __init__(self, tenant: TestTenant) -> None:
        self.tenant, self.passkeys = tenant, end_users_of(tenant)
        self.user, self.authenticator = user_with_passkey(tenant)

    def signs_in(self) -> Any:
        return self.passkeys.finish_authentication(None, self.authenticator.get(self.passkeys.options()))

    def works(self) -> bool:
        return bool(self.signs_in().status_code == 200)

    def revoke(self) -> None:
        body = {"tenant_id": str(self.tenant.id), "user_id": str(self.user.id), "reason": "stolen"}
        _ok(self.tenant.api.post("/webauthn/factors/reset", body))


class LostPasskey(Passkey):
    """One of two passkeys, which its user then removes."""

    def __init__(self, tenant: TestTenant) -> None:
        super().__init__(tenant)
        api = Api(token=_ok(self.signs_in())["access_token"])
        self.passkeys.enrol(api, self.user, **by_factor(api))

    def revoke(self) -> None:
        api = Api(token=_ok(self.signs_in())["access_token"])
        (lost, _) = sorted(_ok(api.get("/webauthn/factors"))["factors"], key=lambda factor: factor["created_at"])
        _ok(api.delete(f"/webauthn/factors/{lost['id']}", by_factor(api)))


class RoleOfUser:
    """A role that is then taken from its user."""

    survives = True
    permission = "doors:open"

    def __init__(self, tenant: TestTenant) -> None:
        self.tenant, self.user = tenant, tenant.register()
        body = {"name": f"role-{secrets.token_hex(4)}", "permissions": [self.permission]}
        self.role = _ok(tenant.api.post("/authmgr/roles", body))
        self.bind()

    @property
    def path(self) -> str:
        return f"/authmgr/roles/{self.role['id']}"

    @property
    def members(self) -> dict[str, list[str]]:
        return {"user_ids": [str(self.user.id)]}

    def bind(self) -> None:
        _ok(self.tenant.api.post(f"{self.path}/bindings", self.members))

    def works(self) -> bool:
        return self.permission in self.tenant.as_user(self.user).get("/exsvc/debug/auth").json()["permissions"]

    def revoke(self) -> None:
        _ok(self.tenant.api.delete(f"{self.path}/bindings", self.members))

    def grant_again(self) -> None:
        self.bind()


class DeletedRole(RoleOfUser):
    """A role that is then deleted."""

    def revoke(self) -> None:
        _ok(self.tenant.api.delete(self.path))


class PermissionOfRole(RoleOfUser):
    """A permission that is then removed from its role."""

    def revoke(self) -> None:
        _ok(self.tenant.api.put(self.path, {"permissions": ["doors:lock"]}))

    def grant_again(self) -> None:
        _ok(self.tenant.api.put(self.path, {"permissions": ["doors:lock", self.permission]}))


class MemberOfGroup(RoleOfUser):
    """A user who is then removed from a group."""

    def bind(self) -> None:
        body = {"name": f"group-{secrets.token_hex(4)}", "roles": [self.role["name"]]}
        self.group = _ok(self.tenant.api.post("/authmgr/groups", body))
        _ok(self.tenant.api.post(f"{self.group_path}/users", self.members))

    @property
    def group_path(self) -> str:
        return f"/authmgr/groups/{self.group['id']}"

    def revoke(self) -> None:
        _ok(self.tenant.api.delete(f"{self.group_path}/users", self.members))


class DeletedGroup(MemberOfGroup):
    """A group that is then deleted."""

    def revoke(self) -> None:
        _ok(self.tenant.api.delete(self.group_path))


class RoleOfGroup(MemberOfGroup):
    """A role that is then taken from a group."""

    def revoke(self) -> None:
        _ok(self.tenant.api.put(self.group_path, {"roles": []}))

    def grant_again(self) -> None:
        _ok(self.tenant.api.put(self.group_path, {"roles": [self.role["name"]]}))


class GrantedConsent:
    """A consent that its user then withdraws."""

    survives = True

    def __init__(self, tenant: TestTenant) -> None:
        self.tenant, self.user = tenant, tenant.register()
        self.application = Application(tenant, register_application(tenant, first_party=False))
        with in_tenant(tenant.id):
            grant_consent(user_id=self.user.id, client_id=self.application.client["client_id"], scopes=["openid"])

    def works(self) -> bool:
        browser = Application(self.tenant, self.application.client)
        browser.sign_in(self.user)
        return "code" in query_of(browser.authorize(prompt="none").headers["Location"])

    def revoke(self) -> None:
        visitor = Visitor(self.tenant)
        visitor.signs_in(self.user)
        visitor.opens("account/applications")
        visitor.sends(client=self.application.client["client_id"])
        assert visitor.page.status_code == 200


class SigningKey:
    """The key that signs, leaked and then withdrawn. The token is a client's, which no session ends."""

    # The restored tenant has a new key.
    survives = False

    def __init__(self, tenant: TestTenant) -> None:
        self.tenant, self.client = tenant, make_client(tenant)
        self.token = own_token(self.client)

    def works(self) -> bool:
        signing.forget(self.tenant.id)  # a process reads the keys again after ten seconds
        return bool(Api(token=self.token).get("/authmgr/validate").status_code == 200)

    def revoke(self) -> None:
        kid = jwt.get_unverified_header(self.token)["kid"]
        run_command("rotate_signing_keys", tenant=self.tenant.slug, withdraw=kid)


class Webhook:
    """An endpoint that is then deleted."""

    survives = True

    def __init__(self, tenant: TestTenant) -> None:
        self.tenant = tenant
        body = {"url": f"http://127.0.0.1:9/{secrets.token_hex(4)}", "events": ["import.finished"]}
        with override_settings(**LOCAL_WEBHOOKS):
            self.endpoint = _ok(tenant.api.post("/uflow/webhooks/endpoints", body))

    @property
    def path(self) -> str:
        return f"/uflow/webhooks/endpoints/{self.endpoint['id']}"

    def works(self) -> bool:
        with in_tenant(self.tenant.id):
            found = WebhookEndpoint.objects.filter(pk=self.endpoint["id"], url=self.endpoint["url"], enabled=True)
            return found.exists()

    def revoke(self) -> None:
        _ok(self.tenant.api.delete(self.path))


class DisabledWebhook(Webhook):
    """An endpoint that is then disabled."""

    def revoke(self) -> None:
        _ok(self.tenant.api.patch(self.path, {"enabled": False}))


class MovedWebhook(Webhook):
    """An endpoint whose address is then replaced."""

    def revoke(self) -> None:
        with override_settings(**LOCAL_WEBHOOKS):
            _ok(self.tenant.api.patch(self.path, {"url": "http://127.0.0.1:9/new"}))


KINDS: list[type[Any]] = [
    ActiveUser,
    ErasedUser,
    Password,
    PasswordAlone,
    Address,
    Authenticator,
    ReplacedAuthenticator,
    BackupCode,
    Phone,
    Passkey,
    LostPasskey,
    RoleOfUser,
    DeletedRole,
    PermissionOfRole,
    MemberOfGroup,
    DeletedGroup,
    RoleOfGroup,
    GrantedConsent,
    SigningKey,
    Webhook,
    DisabledWebhook,
    MovedWebhook,
]
