"""Realms of Keycloak with clients and users, created by its admin API."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlencode

from bench.issuers import CALLBACK, FORM, Issuer, call, json_post
from bench.peers.keycloak.distribution import ADMIN, Distribution
from bench.servers import Server
from bench.world import password_hash

APPLICATION, BACK_END, ADMINISTRATION = "app", "back-end", "administration"
SECRET = "s" * 32
TOKEN_SECONDS = 86_400
# Introspection says "inactive" of a token that is not for the client that asks.
_AUDIENCE = {
    "name": "audience",
    "protocol": "openid-connect",
    "protocolMapper": "oidc-audience-mapper",
    "config": {"included.client.audience": BACK_END, "access.token.claim": "true"},
}
BASIC = {
    client: f"Basic {base64.b64encode(f'{client}:{SECRET}'.encode()).decode()}" for client in (BACK_END, ADMINISTRATION)
}


class Realms:
    """The realms of a server. Each `create` and `time_to_create` is one request of the admin API."""

    def __init__(self, server: Server, distribution: Distribution) -> None:
        self.server, self._password = server, distribution.password
        # The token of the realm "master" would expire after a minute.
        self._call("PUT", "/admin/realms/master", {"realm": "master", "accessTokenLifespan": TOKEN_SECONDS})
        self._authorization = self._authorize()

    def number(self) -> int:
        """Return how many realms there are, without the realm "master"."""
        return len(self._call("GET", "/admin/realms?briefRepresentation=true")) - 1

    def time_to_create(self, name: str) -> float:
        """Create a realm as the admin console does; return the milliseconds that it took."""
        began = time.perf_counter()
        self._call("POST", "/admin/realms", {"realm": name, "enabled": True})
        return (time.perf_counter() - began) * 1000

    def create(self, name: str, emails: Sequence[str]) -> Issuer:
        """Create a realm with three clients and the users; return it with a token of its administration."""
        document = {
            "realm": name,
            "enabled": True,
            "sslRequired": "none",
            "accessTokenLifespan": TOKEN_SECONDS,
            "clients": list(_clients()),
            "users": [*(_user(email) for email in emails), _administration()],
        }
        self._call("POST", "/admin/realms", document)
        root = f"/realms/{name}/protocol/openid-connect"
        token = call(
            self.server.port, "POST", f"{root}/token", "grant_type=client_credentials", **FORM, Authorization=BASIC[ADMINISTRATION]
        )
        users = f"/admin/realms/{name}/users"
        authorization = f"Bearer {token['access_token']}"
        return Issuer(
            authorize=f"{root}/auth",
            token=f"{root}/token",
            userinfo=f"{root}/userinfo",
            introspect=f"{root}/token/introspect",
            metadata=f"/realms/{name}/.well-known/openid-configuration",
            keys=f"{root}/certs",
            client_id=APPLICATION,
            back_end=BASIC[BACK_END],
            administration=authorization,
            lists=tuple(f"{users}?first={first}&max=20" for first in range(0, max(1, len(emails) - 19), 20)),
            emails=tuple(emails),
            login=lambda email, password: (
                f"{root}/token",
                urlencode({"grant_type": "password", "client_id": APPLICATION, "username": email, "password": password}),
                FORM["Content-Type"],
            ),
            new_user=lambda email, password: json_post(
                users, {**_person(email), "credentials": [{"type": "password", "value": password}]}
            ),
        )

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        content = None if body is None else json.dumps(body)
        headers = {"Content-Type": "application/json", "Authorization": self._authorization_of_admin()}
        return call(self.server.port, method, path, content, **headers)

    def _authorization_of_admin(self) -> str:
        return getattr(self, "_authorization", "") or self._authorize()

    def _authorize(self) -> str:
        grant = {"grant_type": "password", "client_id": "admin-cli", "username": ADMIN, "password": self._password}
        path = "/realms/master/protocol/openid-connect/token"
        return f"Bearer {call(self.server.port, 'POST', path, urlencode(grant), **FORM)['access_token']}"


def _clients() -> Iterator[dict[str, Any]]:
    yield {
        "clientId": APPLICATION,
        "publicClient": True,
        "directAccessGrantsEnabled": True,
        "redirectUris": [CALLBACK],
        "attributes": {"pkce.code.challenge.method": "S256"},
        "protocolMappers": [_AUDIENCE],
    }
    for client in (BACK_END, ADMINISTRATION):
        yield {
            "clientId": client,
            "secret": SECRET,
            "serviceAccountsEnabled": True,
            "standardFlowEnabled": False,
            "protocolMappers": [_AUDIENCE],
        }


def _administration() -> dict[str, Any]:
    return {
        "username": f"service-account-{ADMINISTRATION}",
        "enabled": True,
        "serviceAccountClientId": ADMINISTRATION,
        "clientRoles": {"realm-management": ["manage-users", "view-users"]},
    }


def _person(email: str) -> dict[str, Any]:
    names = {"firstName": "Person", "lastName": "Example"}
    return {"username": email, "email": email, "emailVerified": True, "enabled": True, **names}


def _user(email: str) -> dict[str, Any]:
    """Return a user with the hash that the platform's users have."""
    _, _, _, parameters, salt, value = password_hash().removeprefix("argon2").split("$")
    numbers = dict(pair.split("=") for pair in parameters.split(","))
    more = {"hashLength": ["32"], "memory": [numbers["m"]], "type": ["id"], "version": ["1.3"], "parallelism": [numbers["p"]]}
    credential = {"hashIterations": int(numbers["t"]), "algorithm": "argon2", "additionalParameters": more}
    secret = {"value": _padded(value), "salt": _padded(salt), "additionalParameters": {}}
    stored = {"type": "password", "secretData": json.dumps(secret), "credentialData": json.dumps(credential)}
    return {**_person(email), "credentials": [stored]}


def _padded(text: str) -> str:
    return text + "=" * (-len(text) % 4)
