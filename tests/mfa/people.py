"""Users of the MFA tests: registered over the API from an address of their own, with an authenticator."""

import json
import secrets
import time
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

import pyotp
from django.conf import settings
from django.utils.timezone import now

from tenants.entering.context import in_tenant
from tests.userflow.sessions.aged import proof_token
from tests.world import PASSWORD, Api, TestTenant
from userflow.accounts.models import EndUser


@dataclass
class TestUser:
    """An end user, with the API client that registered them."""

    __test__ = False

    tenant: TestTenant
    email: str
    id: UUID
    # Without a token, from the IP address of the registration.
    api: Api
    ticket: str
    secret: str = ""
    # The code of the enrollment.
    spent: str = ""
    backup_codes: list[str] = field(default_factory=list)
    phone: str = ""

    @property
    def name(self) -> dict[str, str]:
        """How the specification's examples name a user."""
        return {"email": self.email, "tenant_id": str(self.tenant.id)}

    @property
    def named_with_client(self) -> dict[str, str]:
        return {**self.name, "client_id": str(self.tenant.client_id)}

    def sign_in(self, api: Api | None = None) -> Any:
        """The login's answer."""
        body = {"client_id": str(self.tenant.client_id), "email": self.email, "password": PASSWORD}
        response = (api or Api()).post("/uflow/auth/enduser/login", body)
        assert response.status_code == 200, response.content
        return response

    def token(self) -> str:
        """Return a fresh access token of a user without a factor; the login is from another address."""
        return str(self.sign_in().json()["access_token"])

    def second_step_token(self) -> str:
        """Return an access token of a new sign-in with the password and a backup code, which is used up."""
        body = {**self.name, "mfa_token": self.sign_in().json()["mfa_token"], "backup_code": self.backup_codes.pop()}
        response = Api().post("/webauthn/totp/verifyLogin", body)
        assert response.status_code == 200, response.content
        return str(response.json()["access_token"])

    def code(self, steps: int = 0) -> str:
        """Return the code of an independent authenticator, now or some steps of 30 seconds later."""
        return pyotp.TOTP(self.secret).at(now(), counter_offset=steps)

    def _with_proof(self, how: dict[str, Any]) -> dict[str, Any]:
        """By the ticket of the registration unless a test names another proof; `headers={}` is the window."""
        return how if "token" in how or "headers" in how else {**how, "headers": {"X-Enrollment-Ticket": self.ticket}}

    def enrol_totp(self, **how: Any) -> "TestUser":
        """Begin and confirm."""
        how = self._with_proof(how)
        begun = self.api.post("/webauthn/totp/beginSetup", self.name, **how)
        assert begun.status_code == 200, begun.content
        self.secret = begun.json()["secret"]
        self.spent = self.code()
        response = self.api.post(
            "/webauthn/totp/confirmSetup",
            {**self.name, **self.proof_of_enrollment(how), "secret": self.secret, "code": self.spent},
            **how,
        )
        assert response.status_code == 200, response.content
        self.backup_codes = response.json()["backup_codes"]
        return self

    def enrol_phone(self, **how: Any) -> "TestUser":
        """Begin and confirm a phone."""
        how = self._with_proof(how)
        self.phone = some_phone()
        begun = self.api.post("/webauthn/sms/beginSetup", {**self.named_with_client, "phone_number": self.phone}, **how)
        assert begun.status_code == 200, begun.content
        body = {
            **self.named_with_client,
            **self.proof_of_enrollment(how),
            "phone_number": self.phone,
            "code": code_to(self.phone),
        }
        response = self.api.post("/webauthn/sms/confirmSetup", body, **how)
        assert response.status_code == 200, response.content
        self.minutes_pass(2)
        return self

    def raised(self, token: str) -> str:
        """An access token of the same session after a step-up, which uses up a backup code.

        Where the factor is newer than the session, the password comes first.
        """
        Api().post("/authmgr/step-up", {"password": PASSWORD}, token=token)
        body = {"backup_code": self.backup_codes.pop()}
        response = Api().post("/authmgr/step-up", body, token=token)
        assert response.status_code == 200, response.content
        return str(response.json()["access_token"])

    def proof(self) -> dict[str, str]:
        """A proof for the body of a request, which counts for a first factor and where one is removed or replaced."""
        return {"current_password": PASSWORD}

    def proof_of_enrollment(self, how: dict[str, Any]) -> dict[str, str]:
        """A proof that the token of an enrollment needs: the password for the first factor, else a factor."""
        if "token" in how and self.row().mfa_methods:
            return {"proof_token": proof_token(how["token"])}
        return self.proof()

    def row(self) -> EndUser:
        """The user as stored."""
        with in_tenant(self.tenant.id):
            return EndUser.objects.get(pk=self.id)

    def minutes_pass(self, minutes: float) -> None:
        """Make every row of this user that much older."""
        back = timedelta(minutes=minutes)
        with in_tenant(self.tenant.id):
            user = EndUser.objects.get(pk=self.id)
            for rows, columns in (
                (user.tickets, ["expires_at"]),
                # Sign-ins by password, which have the ticket and window of an enrollment.
                (user.sessions.exclude(enrollment_network=None), ["created_at"]),
                (user.enrollment_windows, ["expires_at"]),
                (user.totp_secrets, ["expires_at"]),
                (user.sms_codes, ["expires_at", "known_tried_at", "stranger_tried_at"]),
                (user.sms_messages, ["sent_at"]),
            ):
                for row in rows.all():
                    for column in columns:
                        if (moment := getattr(row, column)) is not None:
                            setattr(row, column, moment - back)
                    row.save()
            for secret in user.totp_secrets.exclude(last_step=None):
                secret.last_step = (secret.last_step or 0) - int(minutes * 2)
                secret.save()

    def locks_end(self) -> None:
        """Let the time of Retry-After pass."""
        from userflow.accounts.realms import END_USERS
        from userflow.credentials.attempts import subject_of

        with in_tenant(self.tenant.id):
            END_USERS.attempts._default_manager.filter(subject=subject_of(END_USERS, self.id)).update(
                locked_until=now()
            )


def new_user(tenant: TestTenant, api: Api | None = None) -> TestUser:
    """A freshly registered end user."""
    api = api or Api()
    email = f"mfa-{secrets.token_hex(6)}@example.com"
    body = {"tenant_id": str(tenant.id), "client_id": str(tenant.client_id), "email": email, "password": PASSWORD}
    response = api.post("/uflow/user/clients/register", body)
    assert response.status_code == 201, response.content
    return TestUser(tenant, email, UUID(response.json()["user_id"]), api, response.headers["X-Enrollment-Ticket"])


def old_user(tenant: TestTenant) -> TestUser:
    """Registered long ago: no window and no ticket is left."""
    person = new_user(tenant)
    person.minutes_pass(60)
    return person


def wrong_code(secret: str) -> str:
    """A code of none of the steps around now."""
    near = {pyotp.TOTP(secret).at(now(), counter_offset=steps) for steps in range(-3, 8)}
    return next(f"{number:06d}" for number in range(1000) if f"{number:06d}" not in near)


def a_step_lasts(seconds: float = 3.0) -> None:
    """Wait for the next step of an authenticator where the present one is over sooner."""
    left = 30 - time.time() % 30
    if left < seconds:
        time.sleep(left)


def some_phone() -> str:
    """A German mobile number that no other test has."""
    return f"+49151{secrets.randbelow(90_000_000) + 10_000_000}"


def messages_to(phone: str) -> list[dict[str, str]]:
    """What the file back end has written for a number."""
    path = settings.OUTBOX / "sms.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [message for message in map(json.loads, lines) if message["to"] == phone]


def code_to(phone: str) -> str:
    """The newest code that the phone received."""
    return messages_to(phone)[-1]["body"][:6]
