"""What an attacker prepares under the address of a victim without an account, and tries later.

Every preparation does what the platform lets it do and goes on where it is rejected: which step is rejected depends on the
tenant's settings, and nothing that was kept may work afterwards.
"""

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyotp
from django.utils.timezone import now

from tests.mfa.people import code_to, some_phone
from tests.mfa.webauthn.authenticator import Authenticator
from tests.mfa.webauthn.passkeys import new_authenticator
from tests.userflow.mailbox import mails_to
from tests.world import Api, TestTenant

REGISTER, LOGIN = "/uflow/user/clients/register", "/uflow/auth/enduser/login"
STOLEN = "attacker horse 5 battery"


def tokens_in_mail(sent: Any) -> list[str]:
    """Return the tokens of the links in a mail."""
    return re.findall(r"#token=([A-Za-z0-9._-]+)", sent.body)


@dataclass
class Attacker:
    """A caller who knows the address of the victim and has another mailbox."""

    tenant: TestTenant
    victim: str
    # One network for all calls: enrollment windows depend on it.
    api: Api = field(default_factory=Api)
    mailbox: str = field(default_factory=lambda: f"attacker-{secrets.token_hex(5)}@example.com")
    logins: list[dict[str, Any]] = field(default_factory=list)
    tickets: list[str] = field(default_factory=list)
    passkeys: list[Authenticator] = field(default_factory=list)
    totp: str = ""
    backup_codes: list[str] = field(default_factory=list)
    # Where the factors were enrolled.
    named: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> dict[str, str]:
        """Return the fields that identify the victim in calls."""
        return {"email": self.victim, "tenant_id": str(self.tenant.id)}

    @property
    def token(self) -> str:
        """Return the newest access token, or an invalid one."""
        return str(self.logins[-1].get("access_token", "none")) if self.logins else "none"

    # --- steps of preparations ---------------------------------------------------------------------------------------

    def register(self, email: str, **fields: Any) -> Any:
        body = {"tenant_id": str(self.tenant.id), "client_id": str(self.tenant.client_id), "email": email}
        response = self.api.post(REGISTER, {**body, "password": STOLEN, **fields})
        self._keep_ticket(response)
        return response

    def sign_in(self, email: str) -> Any:
        body = {"client_id": str(self.tenant.client_id), "email": email, "password": STOLEN}
        response = self.api.post(LOGIN, body)
        self._keep_ticket(response)
        if response.status_code == 200:
            self.logins.append(response.json())
        return response

    def _keep_ticket(self, response: Any) -> None:
        ticket = response.headers.get("X-Enrollment-Ticket")
        if ticket is not None:
            self.tickets.append(ticket)

    def enrol_passkey(self, **how: Any) -> None:
        begun = self.api.post("/webauthn/enduser/beginRegistration", self.name, **how)
        if begun.status_code == 200:
            passkey = new_authenticator()
            body = {**self.name, "credential": passkey.create(begun.json()), "current_password": STOLEN}
            if self.api.post("/webauthn/enduser/finishRegistration", body, **how).status_code == 200:
                self.passkeys.append(passkey)

    def enrol_totp(self, **how: Any) -> None:
        begun = self.api.post("/webauthn/totp/beginSetup", self.name, **how)
        if begun.status_code == 200:
            secret = begun.json()["secret"]
            body = {**self.name, "secret": secret, "code": pyotp.TOTP(secret).at(now()), "current_password": STOLEN}
            done = self.api.post("/webauthn/totp/confirmSetup", body, **how)
            if done.status_code == 200:
                self.totp, self.backup_codes = secret, done.json()["backup_codes"]

    def enrol_phone(self, **how: Any) -> None:
        body = {**self.name, "client_id": str(self.tenant.client_id), "phone_number": some_phone()}
        if self.api.post("/webauthn/sms/beginSetup", body, **how).status_code == 200:
            code = code_to(body["phone_number"])
            self.api.post("/webauthn/sms/confirmSetup", {**body, "code": code, "current_password": STOLEN}, **how)

    def second_step(self) -> None:
        """Complete the newest login, which waits for its second step; an older one keeps waiting."""
        waiting = self.logins[-1].get("mfa_token") if self.logins else None
        if waiting and self.backup_codes:
            body = {**self.name, "mfa_token": waiting, "backup_code": self.backup_codes.pop()}
            done = self.api.post("/webauthn/totp/verifyLogin", body)
            if done.status_code == 200:
                self.logins.append(done.json())

    # --- afterwards --------------------------------------------------------------------------------------------------

    def successes(self, victim_id: str) -> list[str]:
        """Return the kept secrets that still act for the victim."""
        return [name for name, attempt in self._attempts().items() if attempt(victim_id)]

    def _attempts(self) -> dict[str, Callable[[str], bool]]:
        return {
            "access token": lambda who: any(self._acts(login.get("access_token"), who) for login in self.logins),
            "refresh token": lambda who: any(self._refreshes(login, who) for login in self.logins),
            "waiting login": self._completes_login,
            "enrollment ticket": lambda _: any(self._begins(headers=by) for by in self._ticket_headers()),
            "window": lambda _: self._begins(),
            "token for an enrollment": lambda _: self._begins(token=self.token),
            "password": self._signs_in_by_password,
            "passkey alone": lambda who: any(self._signs_in_by_passkey(one, who) for one in self.passkeys),
            "passkey": lambda _: any(self._verifies_passkey(one) for one in self.passkeys),
            "code": lambda _: self._verifies({"code": self._code()}) if self.totp else False,
            "backup code": lambda _: self._verifies({"backup_code": self.backup_codes[-1]}) if self.totp else False,
            "mailed link": self._uses_mails,
            "password again": self._signs_in_by_password,
        }

    def _acts(self, token: Any, who: str) -> bool:
        """Return whether the token is accepted and belongs to the victim."""
        if not token:
            return False
        response = self.api.get("/authmgr/profile", token=token)
        return response.status_code == 200 and who in response.content.decode()

    def _refreshes(self, login: dict[str, Any], who: str) -> bool:
        if not login.get("refresh_token"):
            return False
        form = f"grant_type=refresh_token&refresh_token={login['refresh_token']}".encode()
        response = self.api.post("/authmgr/token", raw=form, content_type="application/x-www-form-urlencoded")
        return response.status_code == 200 and self._acts(response.json()["access_token"], who)

    def _completes_login(self, who: str) -> bool:
        worked = False
        for login in self.logins:
            if login.get("mfa_token") and self.totp:
                body = {**self.name, "mfa_token": login["mfa_token"], "backup_code": self.backup_codes[-1]}
                done = self.api.post("/webauthn/totp/verifyLogin", body)
                worked = worked or (done.status_code == 200 and self._acts(done.json().get("access_token"), who))
        return worked

    def _ticket_headers(self) -> list[dict[str, str]]:
        return [{"X-Enrollment-Ticket": ticket} for ticket in self.tickets]

    def _begins(self, **how: Any) -> bool:
        totp = self.api.post("/webauthn/totp/beginSetup", self.name, **how)
        passkey = self.api.post("/webauthn/enduser/beginRegistration", self.name, **how)
        return 200 in (totp.status_code, passkey.status_code)

    def _signs_in_by_password(self, who: str) -> bool:
        return self.sign_in(self.victim).status_code == 200

    def _signs_in_by_passkey(self, passkey: Authenticator, who: str) -> bool:
        options = self.api.post("/webauthn/enduser/beginAuthentication", {"tenant_id": str(self.tenant.id)}).json()
        body = {"tenant_id": str(self.tenant.id), "response": passkey.get(options)}
        done = self.api.post("/webauthn/enduser/finishAuthentication", body)
        return done.status_code == 200 and who in done.content.decode()

    def _verifies_passkey(self, passkey: Authenticator) -> bool:
        begun = self.api.post("/webauthn/enduser/beginAuthentication", self.name)
        if begun.status_code != 200:
            return False
        body = {**self.name, "response": passkey.get(begun.json())}
        return self.api.post("/webauthn/enduser/finishAuthentication", body).status_code == 200

    def _code(self) -> str:
        return pyotp.TOTP(self.totp).at(now(), counter_offset=1)

    def _verifies(self, proof: dict[str, str]) -> bool:
        return self.api.post("/webauthn/totp/verify", {**self.name, **proof}).status_code == 200

    def _uses_mails(self, who: str) -> bool:
        """Use every link in the attacker's mailbox; the victim's record must not change."""
        for sent in mails_to(self.mailbox):
            for token in tokens_in_mail(sent):
                for path in ("/uflow/user/email/verify", "/uflow/user/email/undo"):
                    self.api.post(path, {"token": token})
        query = {"tenant_id": str(self.tenant.id), "email": self.victim}
        users = self.tenant.api.get("/uflow/user/enduser/list", query).json()["users"]
        return [user["id"] for user in users] != [who]


# --- the five classes ------------------------------------------------------------------------------------------------


def classic_federated_merge(attacker: Attacker) -> None:
    """Set a password under the victim's address; the victim joins in another way, and both records are merged."""
    attacker.register(attacker.victim)


def unexpired_session(attacker: Attacker) -> None:
    """Keep a session under the victim's address alive."""
    attacker.register(attacker.victim)
    attacker.sign_in(attacker.victim)
    attacker.sign_in(attacker.victim)


def trojan_passkey(attacker: Attacker) -> None:
    """Enroll a passkey of the attacker through the enrollment window, without a sign-in."""
    attacker.register(attacker.victim)
    attacker.enrol_passkey()


def trojan_factors(attacker: Attacker) -> None:
    """Enroll every factor that a ticket allows; keep a session that used them and a waiting login."""
    attacker.register(attacker.victim)
    attacker.sign_in(attacker.victim)
    by = {"X-Enrollment-Ticket": attacker.tickets[-1] if attacker.tickets else "none"}
    attacker.enrol_totp(headers=by)
    attacker.enrol_phone(headers=by)
    attacker.sign_in(attacker.victim)
    attacker.second_step()
    attacker.sign_in(attacker.victim)
    attacker.enrol_passkey(token=attacker.token)


def pending_change_away(attacker: Attacker) -> None:
    """Request a change of the victim's address to the attacker's, and leave it pending."""
    trojan_factors(attacker)
    tokens = [login["access_token"] for login in attacker.logins if login.get("access_token")]
    for token in tokens[-1:]:
        body = {"email": attacker.mailbox, "backup_code": (attacker.backup_codes or ["none"])[-1]}
        attacker.api.put("/authmgr/profile", body, token=token)
        attacker.backup_codes = attacker.backup_codes[:-1] or attacker.backup_codes


def changed_away(attacker: Attacker) -> None:
    """Give the attacker's user the address for a while, then change it away."""
    attacker.register(attacker.victim)
    attacker.sign_in(attacker.victim)
    attacker.api.put("/authmgr/profile", {"email": attacker.mailbox, "current_password": STOLEN}, token=attacker.token)


def pending_change_to(attacker: Attacker) -> None:
    """Give the attacker's account the victim's address; the attacker's mailbox keeps the link that undoes it."""
    attacker.register(attacker.mailbox)
    for sent in mails_to(attacker.mailbox):
        for token in tokens_in_mail(sent):
            attacker.api.post("/uflow/user/email/verify", {"token": token})
    attacker.sign_in(attacker.mailbox)
    body = {"email": attacker.victim, "current_password": STOLEN}
    attacker.api.put("/authmgr/profile", body, token=attacker.token)


def non_verifying_provider(attacker: Attacker) -> None:
    """Use a record of an identity provider that does not verify addresses, and try to create one."""
    attacker.register(attacker.victim, provider="google")
    fields = {"provider": "google", "email": attacker.victim, "name": "Not the victim"}
    body = {"tenant_id": str(attacker.tenant.id), "client_id": str(attacker.tenant.client_id), **fields}
    attacker.tenant.api.post(REGISTER, body)


CLASSES = [
    classic_federated_merge,
    unexpired_session,
    trojan_passkey,
    trojan_factors,
    pending_change_away,
    changed_away,
    pending_change_to,
    non_verifying_provider,
]
