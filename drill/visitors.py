"""End users: they sign in, read their profile, refresh their session, and prove a second factor if they have one."""

from __future__ import annotations

import base64
from typing import Any
from uuid import UUID

from django_otp.oath import totp

from drill.load import Client

# A code works once, so a user of an authenticator app signs in once in a time step.
STEP_SECONDS = 30.0


class NotEnrolled(Exception):
    """A user could not set up an authenticator app."""


class Visitor(Client):
    """One end user with a password, and with an authenticator app after `enroll`."""

    pause = 1.0

    def __init__(self, port: int, tenant: UUID, client_id: UUID, email: str, password: str) -> None:
        super().__init__(port, tenant)
        self.credentials = {"client_id": str(client_id), "email": email, "password": password}
        self.who = {"tenant_id": str(tenant), "email": email}
        self.secret: bytes | None = None

    def take_turn(self, turn: int) -> None:
        session = self.sign_in()
        if session:
            self.call("GET", "/authmgr/profile", token=session["access_token"])
            session = self.refresh(session)
        if session:
            self.call("GET", "/authmgr/validate", token=session["access_token"])

    def sign_in(self) -> dict[str, Any]:
        """Return the tokens of a new session; nothing if that failed."""
        _, said = self.call("POST", "/uflow/auth/enduser/login", self.credentials)
        if said.get("mfa_required") and self.secret is not None:
            proof = {"code": self._code(), "mfa_token": said["mfa_token"]}
            _, said = self.call("POST", "/webauthn/totp/verifyLogin", {**self.who, **proof})
        return said if "access_token" in said else {}

    def refresh(self, session: dict[str, Any]) -> dict[str, Any]:
        """Return the tokens after a refresh; nothing if that failed."""
        client = {"client_id": self.credentials["client_id"], "refresh_token": session["refresh_token"]}
        _, said = self.call("POST", "/authmgr/token", {"grant_type": "refresh_token", **client})
        return said if "access_token" in said else {}

    def enroll(self) -> None:
        """Set up an authenticator app, over the API. Raises NotEnrolled."""
        self.sign_in()
        _, begun = self.call("POST", "/webauthn/totp/beginSetup", self.who)
        if "secret" not in begun:
            raise NotEnrolled(f"beginSetup: {dict(self.heard.statuses)}")
        self.secret = base64.b32decode(begun["secret"])
        confirmation = {**self.who, "secret": begun["secret"], "code": self._code()}
        status, _ = self.call("POST", "/webauthn/totp/confirmSetup", confirmation)
        if status >= 300 or status == 0:
            raise NotEnrolled(f"confirmSetup: {status}")
        self.pause = STEP_SECONDS + 1

    def _code(self) -> str:
        assert self.secret is not None
        return f"{totp(self.secret, t0=0, step=int(STEP_SECONDS)):06d}"
