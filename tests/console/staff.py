"""Admin users with browsers: created by the platform's actions, signed in through its public pages."""

import secrets
import time
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

import pyotp
from django.db.models import F
from django.test import Client
from django.utils.timezone import now

from mfa.totp.models import AdminBackupCode, AdminTotpSecret
from mfa.webauthn.models import AdminPasskey
from tests.mfa.people import a_step_lasts
from tests.world import PASSWORD, Api, TestTenant, new_client, unique_ip
from userflow.accounts.models import AdminRole, AdminUser
from userflow.accounts.session_models import AdminSession
from userflow.admins.actions import create_admin_user

LOGIN = "/admin/login/"


@dataclass
class Staff:
    """An admin user with a browser; `browser` is Django's test client, signed in by `sign_in`."""

    username: str
    email: str
    id: UUID
    tenant_id: UUID | None
    password: str = PASSWORD
    # The secret of the authenticator app in base32; empty without one.
    secret: str = ""
    backup_codes: list[str] = field(default_factory=list)
    browser: Client = field(default_factory=lambda: new_client(REMOTE_ADDR=unique_ip()))
    steps_used: int = 0

    def sign_in(self, next_path: str = "/admin/") -> "Staff":
        """Sign in by password and, if enrolled, the authenticator app."""
        response = self.send_password(next_path)
        if response.headers.get("Location") == "/admin/second-step/":
            response = self.browser.post("/admin/second-step/", {"code": self.code()})
        assert response.status_code == 302, response.content.decode()
        assert response.headers["Location"] == next_path
        return self

    def send_password(self, next_path: str = "/admin/", *, password: str | None = None) -> Any:
        """Send the form of the sign-in page; return the response."""
        body = {"username": self.username, "password": password or self.password, "next": next_path}
        return self.browser.post(LOGIN, body)

    def enrol_totp(self) -> "Staff":
        """Enroll an authenticator app over the API."""
        api = Api(token=self.api_token())
        begun = api.post("/webauthn/admin/totp/beginSetup", {"email": self.email})
        assert begun.status_code == 200, begun.content
        self.secret = begun.json()["secret"]
        body = {"email": self.email, "secret": self.secret, "code": self.code(), "current_password": self.password}
        response = api.post("/webauthn/admin/totp/confirmSetup", body)
        assert response.status_code == 200, response.content
        self.backup_codes = response.json()["backup_codes"]
        return self

    def api_token(self) -> str:
        """Return an access token by password alone, of a user without a factor."""
        response = Api().post("/uflow/admin/auth/login", {"username": self.username, "password": self.password})
        assert response.status_code == 200, response.content
        return str(response.json()["access_token"])

    def code(self) -> str:
        """Return the next unused code; after three of them, half a minute must pass."""
        step = [-1, 0, 1][self.steps_used % 3]
        self.steps_used += 1
        if step < 0:
            # The previous code is valid only as long as the current one.
            a_step_lasts()
        return pyotp.TOTP(self.secret).at(now(), counter_offset=step)

    def get(self, path: str, **query: Any) -> Any:
        """Request a page."""
        return self.browser.get(path, query)

    def post(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """Send a form."""
        return self.browser.post(path, body or {})

    def choose(self, tenant: TestTenant) -> "Staff":
        """Open this tenant."""
        session = self.browser.session
        session["console_tenant"] = str(tenant.id)
        session.save()
        return self

    def time_passes(self, minutes: float) -> None:
        """Move the last sign-in or re-authentication, and what it was made with, into the past."""
        back = timedelta(minutes=minutes)
        AdminSession.objects.filter(pk=self.browser.session["console_session"]).update(auth_time=F("auth_time") - back)
        # What the sign-in was made with is older than it.
        AdminUser.objects.filter(pk=self.id).update(password_changed_at=F("password_changed_at") - back)
        AdminTotpSecret.objects.filter(user_id=self.id, confirmed_at__isnull=False).update(
            confirmed_at=F("confirmed_at") - back
        )
        for factors in (AdminBackupCode, AdminPasskey):
            factors.objects.filter(user_id=self.id).update(created_at=F("created_at") - back)

    def just_seen(self) -> "Staff":
        """Pretend that a request was made just now: the first one in a minute stores the use of the session."""
        session = self.browser.session
        session["console_seen"] = time.time()
        session.save()
        return self

    def row(self) -> AdminUser:
        """Return the stored user."""
        return AdminUser.objects.get(pk=self.id)


def new_operator(*permissions: str) -> Staff:
    """Create an operator, not yet signed in, with these permissions or all."""
    return _new(None, permissions)


def new_tenant_admin(tenant: TestTenant, *permissions: str, roles: list[str] | None = None) -> Staff:
    """Create an admin of the tenant, not yet signed in, with these permissions or roles, or all of a tenant."""
    return _new(tenant.id, permissions, roles)


def new_auditor(tenant: TestTenant | None = None) -> Staff:
    """Create an admin user with the built-in role that only reads tenants."""
    return _new(tenant.id if tenant else None, (), roles=["auditor"])


def _new(tenant_id: UUID | None, permissions: tuple[str, ...], roles: list[str] | None = None) -> Staff:
    name = f"staff-{secrets.token_hex(5)}"
    if permissions:
        role = AdminRole.objects.create(name=f"role-{name}", permissions=list(permissions))
        roles = [role.name]
    email = f"{name}@example.com"
    user, _ = create_admin_user(tenant_id=tenant_id, username=name, email=email, password=PASSWORD, roles=roles)
    return Staff(name, email, user.pk, tenant_id)
