"""Users of both realms with an authenticator app, in a session that has proven the password only."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pyotp
from django.db.models import F
from django.utils.timezone import now

from tenants.entering.context import in_tenant
from tests.mfa.signin.test_admins import new_admin
from tests.world import PASSWORD, Api, TestTenant, sign_in_admin
from userflow.accounts.realms import ADMINS, END_USERS, Realm

STEP_UP = "/authmgr/step-up"
WRONG = "wrong horse 9 battery"
REALMS = [END_USERS, ADMINS]


def realm_name(realm: Realm) -> str:
    return realm.name


@dataclass
class Member:
    """A user with the API client of one session; a step-up replaces its token."""

    realm: Realm
    tenant: TestTenant
    id: str
    email: str
    username: str
    api: Api
    refresh_token: str
    secret: str = ""
    backup_codes: list[str] = field(default_factory=list)

    def entered(self) -> AbstractContextManager[Any]:
        """The database of the user."""
        return in_tenant(self.tenant.id) if self.realm is END_USERS else nullcontext()

    @property
    def named(self) -> dict[str, str]:
        """How calls of second factors name the user."""
        return {"email": self.email, **({"tenant_id": str(self.tenant.id)} if self.realm is END_USERS else {})}

    @property
    def totp(self) -> str:
        """Where the calls of the authenticator app are."""
        return "/webauthn/totp" if self.realm is END_USERS else "/webauthn/admin/totp"

    def row(self) -> Any:
        """The user as stored."""
        with self.entered():
            return self.realm.users._default_manager.get(pk=self.id)

    def session(self) -> Any:
        """The newest session that has not ended."""
        with self.entered():
            sessions = self.realm.sessions._default_manager.filter(user_id=self.id, ended_at=None)
            return sessions.order_by("-created_at").first()

    def code(self) -> str:
        """A code that the server accepts: what it used up before is forgotten."""
        with self.entered():
            self.row().totp_secrets.update(last_step=None)
        return pyotp.TOTP(self.secret).at(now())

    def wrong_code(self) -> str:
        """A code of none of the steps around now."""
        near = {pyotp.TOTP(self.secret).at(now(), counter_offset=steps) for steps in range(-3, 8)}
        return next(f"{number:06d}" for number in range(1000) if f"{number:06d}" not in near)

    def enrol(self) -> "Member":
        """Enrol an authenticator app in this session, which goes on with one factor: other sessions end.

        The password is verified once more, so that the factor counts in the session.
        """
        begun = self.api.post(f"{self.totp}/beginSetup", self.named)
        assert begun.status_code == 200, begun.content
        self.secret = begun.json()["secret"]
        code = pyotp.TOTP(self.secret).at(now())
        body = {**self.named, "secret": self.secret, "code": code, "current_password": PASSWORD}
        done = self.api.post(f"{self.totp}/confirmSetup", body)
        assert done.status_code == 200, done.content
        self.backup_codes = done.json()["backup_codes"]
        assert self.step_up(password=PASSWORD).status_code == 200
        return self

    def step_up(self, **proof: Any) -> Any:
        """The response of the step-up; the door goes on with the new access token."""
        response = self.api.post(STEP_UP, proof or {"backup_code": self.backup_codes.pop()})
        if response.status_code == 200:
            self.api.token = response.json()["access_token"]
        return response

    def proof_token(self) -> str:
        """A proof token of a new step-up."""
        response = self.step_up()
        assert response.status_code == 200, response.content
        return str(response.json()["proof_token"])

    def time_passes(self, minutes: float) -> None:
        """The last proof of the session, what it was made with and the user's tickets are that much older; refresh for a
        token that says so."""
        back = timedelta(minutes=minutes)
        session = self.session()
        session.auth_time -= back
        with self.entered():
            session.save(update_fields=["auth_time"])
            user = self.row()
            self.realm.users._default_manager.filter(pk=user.pk).update(
                password_changed_at=user.password_changed_at - back
            )
            user.totp_secrets.exclude(confirmed_at=None).update(confirmed_at=F("confirmed_at") - back)
            user.backup_codes.update(created_at=F("created_at") - back)
            for ticket in self.row().tickets.all():
                ticket.expires_at -= back
                ticket.save(update_fields=["expires_at"])
        self.refresh()

    def refresh(self) -> Any:
        """Refresh the session; the door goes on with the new access token."""
        body = {"grant_type": "refresh_token", "refresh_token": self.refresh_token}
        if self.realm is END_USERS:
            body["client_id"] = str(self.tenant.client_id)
        response = Api().post("/authmgr/token", body)
        assert response.status_code == 200, response.content
        self.api.token, self.refresh_token = response.json()["access_token"], response.json()["refresh_token"]
        return response

    def wait_is_over(self) -> None:
        """Let the time of Retry-After pass."""
        with self.entered():
            self.realm.attempts._default_manager.filter(subject=str(self.id)).update(locked_until=now())


def member(realm: Realm, tenant: TestTenant) -> Member:
    """A new user without a factor, signed in with the password."""
    if realm is END_USERS:
        person = tenant.register()
        tokens = tenant.sign_in(person)
        who = (str(person.id), person.email, "")
    else:
        admin = new_admin(tenant)
        tokens = sign_in_admin(admin.username, PASSWORD)
        who = (admin.id, admin.email, admin.username)
    return Member(realm, tenant, *who, Api(token=tokens["access_token"]), tokens["refresh_token"])
