"""Limits hit the guesser: not the server that passes guesses on, not its tenant, not others behind the same address."""

from collections import Counter
from typing import Any
from uuid import uuid4

import pytest
from pytest_django.fixtures import Settings

from tests.mfa.people import new_user
from tests.openid.devices import Device, new_device
from tests.openid.pages.visitor import Visitor
from tests.parallel import run_concurrently
from tests.userflow.clients.keys import assertion, new_key, public_jwk
from tests.userflow.clients.test_assertions import TYPE, issuer, key_client
from tests.userflow.sessions.clients import basic, form, make_client
from tests.world import PASSWORD, Api, TestTenant

LOGIN, TOKEN = "/uflow/auth/enduser/login", "/authmgr/token"
# Of 300 in ten minutes, so that the tests are quick.
MOST = 6


@pytest.fixture(autouse=True)
def limits(settings: Settings) -> None:
    settings.LIMITS = {**settings.LIMITS, "wrong_secret": (MOST, 600)}


class Server:
    """The server of an application: all of its calls come from one address."""

    def __init__(self, tenant: TestTenant, api: Api | None = None) -> None:
        self.tenant, self.api = tenant, api or Api()
        self.client = make_client(tenant, scopes=["services:read"], first_party=True)
        self.user = tenant.register()

    def sign_in(self, email: str, password: str = PASSWORD, **fields: str) -> Any:
        body = {"client_id": self.client["client_id"], "email": email, "password": password, **fields}
        return self.api.post(LOGIN, body, headers=basic(self.client))

    def oauth(self, path: str, **fields: str) -> Any:
        return self.api.post(path, **form(**fields), headers=basic(self.client))

    def works(self) -> list[int]:
        """Return the statuses of everything that the server does for its users and itself."""
        tokens = self.sign_in(self.user.email)
        refresh_token = tokens.json().get("refresh_token", "none")
        at_issuer = f"/t/{self.tenant.slug}"
        return [
            tokens.status_code,
            self.oauth(TOKEN, grant_type="client_credentials").status_code,
            self.oauth(f"{at_issuer}/token", grant_type="client_credentials").status_code,
            self.oauth(f"{TOKEN}/introspect", token=refresh_token).status_code,
            self.oauth(f"{at_issuer}/introspect", token=refresh_token).status_code,
            self.oauth(TOKEN, grant_type="refresh_token", refresh_token=refresh_token).status_code,
            self.oauth(f"{TOKEN}/revoke", token="unknown").status_code,
            self.oauth(f"{at_issuer}/revoke", token="unknown").status_code,
        ]


def guess_passwords(api: Api, tenant: TestTenant, number: int = MOST) -> list[int]:
    """Type wrong passwords of unknown users into an application without a secret."""
    body = {"client_id": str(tenant.client_id), "password": "wrong wrong"}
    return [api.post(LOGIN, {**body, "email": f"{uuid4().hex}@example.com"}).status_code for _ in range(number)]


def test_wrong_passwords_in_a_form_leave_its_server_on(tenant: TestTenant, other_tenant: TestTenant) -> None:
    server = Server(tenant)
    other = Server(other_tenant, server.api)
    typed = [server.sign_in(f"{uuid4().hex}@example.com", "wrong wrong").status_code for _ in range(MOST + 2)]
    assert typed == [401] * (MOST + 2)
    assert set(server.works()) == {200}
    assert set(other.works()) == {200}


@pytest.mark.parametrize("secret", ["of a public client", "of an unknown client", "of the client itself"])
def test_wrong_client_secrets_switch_no_server_off(tenant: TestTenant, other_tenant: TestTenant, secret: str) -> None:
    server = Server(tenant)
    other = Server(other_tenant, server.api)
    client_id = {
        "of a public client": str(tenant.client_id),
        "of an unknown client": str(uuid4()),
        "of the client itself": server.client["client_id"],
    }[secret]
    sent = form(grant_type="client_credentials", client_id=client_id, client_secret="wrong")
    assert [server.api.post(TOKEN, **sent).status_code for _ in range(MOST + 2)] == [401] * MOST + [429] * 2
    assert set(server.works()) == {200}
    assert set(other.works()) == {200}
    # The guesser stays limited: nothing right was counted, and nothing wrong forgotten.
    assert server.api.post(TOKEN, **sent).status_code == 429


def test_right_assertion_passes_at_a_limited_address(tenant: TestTenant) -> None:
    api, key = Api(), new_key()
    client = key_client(tenant, public_jwk(key))

    def token(stated: str) -> int:
        proof = {"client_assertion_type": TYPE, "client_assertion": stated, "grant_type": "client_credentials"}
        return int(api.post(f"/t/{tenant.slug}/token", **form(**proof)).status_code)

    forged = [token(assertion(new_key(), client["id"], issuer(tenant))) for _ in range(MOST + 1)]
    assert forged == [401] * MOST + [429]
    assert token(assertion(key, client["id"], issuer(tenant))) == 200


def test_strong_secrets_of_users_pass_at_a_limited_address(tenant: TestTenant) -> None:
    person, api = new_user(tenant).enrol_totp(), Api()
    tokens, signed_in = tenant.sign_in(tenant.register()), person.sign_in(api).json()
    assert guess_passwords(api, tenant) == [401] * MOST
    assert (
        api.post(LOGIN, {"client_id": str(tenant.client_id), "email": person.email, "password": PASSWORD}).status_code
        == 429
    )
    # A wrong code with the ticket of a login counts for ticket and user, a right one passes.
    step = {**person.name, "mfa_token": signed_in["mfa_token"]}
    assert api.post("/webauthn/totp/verifyLogin", {**step, "code": "000000"}).status_code == 400
    completed = api.post("/webauthn/totp/verifyLogin", {**step, "code": person.code(1)})
    assert (completed.status_code, "access_token" in completed.json()) == (200, True)
    refreshed = api.post(
        TOKEN,
        **form(grant_type="refresh_token", refresh_token=tokens["refresh_token"], client_id=str(tenant.client_id)),
    )
    assert refreshed.status_code == 200
    step_up = api.post("/authmgr/step-up", {"password": PASSWORD}, token=refreshed.json()["access_token"])
    assert step_up.status_code == 200


def test_invented_tickets_are_limited(tenant: TestTenant) -> None:
    person, api = new_user(tenant).enrol_totp(), Api()
    sent = {**person.name, "code": "000000", "mfa_token": "x" * 43}
    statuses = [api.post("/webauthn/totp/verifyLogin", sent).status_code for _ in range(MOST + 2)]
    assert statuses == [401] * MOST + [429] * 2
    # Nor does a ticket that is none tell who exists: unknown addresses have the same limit.
    unknown = {**sent, "email": f"{uuid4().hex}@example.com"}
    assert api.post("/webauthn/totp/verifyLogin", unknown).status_code == 429


def test_server_names_the_address_of_its_user(tenant: TestTenant, other_tenant: TestTenant) -> None:
    server, guesser, honest = Server(tenant), "192.0.2.7", "2001:db8::7"
    wrong = [
        server.sign_in(f"{uuid4().hex}@example.com", "wrong wrong", ip_address=guesser).status_code
        for _ in range(MOST + 1)
    ]
    assert wrong == [401] * MOST + [429]
    assert server.sign_in(server.user.email, ip_address=guesser).status_code == 429
    assert server.sign_in(server.user.email, ip_address=f"::ffff:{guesser}").status_code == 429
    # Others of the application, and those whom another application names with the same address, go on.
    signed_in = server.sign_in(server.user.email, ip_address=honest)
    assert signed_in.status_code == 200
    assert set(server.works()) == {200}
    assert Server(other_tenant).sign_in(server.user.email, "wrong wrong", ip_address=guesser).status_code == 401
    sessions = Api(token=signed_in.json()["access_token"]).get("/authmgr/sessions").json()["sessions"]
    assert honest in {session["address"] for session in sessions}


def test_only_an_authenticated_server_names_addresses(tenant: TestTenant) -> None:
    server, api = Server(tenant), Api()
    for number in range(MOST):
        body = {"client_id": str(tenant.client_id), "email": f"{uuid4().hex}@example.com", "password": "wrong wrong"}
        assert api.post(LOGIN, {**body, "ip_address": f"192.0.2.{number}"}).status_code == 401
    assert api.post(LOGIN, {**body, "ip_address": "192.0.2.99"}).status_code == 429
    wrong = server.sign_in(server.user.email, ip_address="192.0.2.300")
    assert (wrong.status_code, set(wrong.json()["details"])) == (400, {"ip_address"})


def test_lockout_of_a_user_holds_through_a_server(tenant: TestTenant) -> None:
    server = Server(tenant)
    statuses = [server.sign_in(server.user.email, "wrong wrong").status_code for _ in range(6)]
    assert statuses == [401] * 5 + [429]


@pytest.mark.parametrize("kind", ["password", "code", "client secret", "user code"])
def test_burst_gets_no_more_guesses_than_the_limit(tenant: TestTenant, settings: Settings, kind: str) -> None:
    others = {"unknown_user": (1000, 60), "signin": (1000, 60)}
    settings.LIMITS = {**settings.LIMITS, **others, "wrong_secret": (30, 600), "user_code": (30, 600)}
    api = Api()

    def guess() -> int:
        named = {"client_id": str(tenant.client_id), "email": f"{uuid4().hex}@example.com"}
        if kind == "password":
            return int(api.post(LOGIN, {**named, "password": "wrong wrong"}).status_code)
        if kind == "code":
            sent = {**named, "tenant_id": str(tenant.id), "code": "000000"}
            return int(api.post("/webauthn/sms/verify", sent).status_code)
        if kind == "client secret":
            secret = form(grant_type="client_credentials", client_id=str(uuid4()), client_secret="wrong")
            return int(api.post(TOKEN, **secret).status_code)
        visitor = Visitor(tenant, address=api.address)
        visitor.opens("device?user_code=BBBB-BBBB")
        return int(visitor.page.status_code)

    statuses = Counter(run_concurrently([guess] * 60))
    compared = statuses[400] + statuses[401]
    if kind == "password":
        # A guess that no hasher was free for is not compared, and does not count.
        assert compared <= 30
        assert statuses[429] >= 30 - statuses[503]
    else:
        assert (compared, statuses[429]) == (30, 30)
    assert (
        api.post(TOKEN, **form(grant_type="client_credentials"), headers=basic(make_client(tenant))).status_code == 200
    )


def test_right_passwords_in_a_burst_do_not_count(tenant: TestTenant) -> None:
    api, person = Api(), tenant.register()
    body = {"client_id": str(tenant.client_id), "email": person.email, "password": PASSWORD}
    for _ in range(MOST + 2):
        assert api.post(LOGIN, body).status_code == 200
    assert guess_passwords(api, tenant, MOST + 1) == [401] * MOST + [429]


def test_pushed_requests_are_limited_by_client_or_address(tenant: TestTenant, settings: Settings) -> None:
    settings.LIMITS = {**settings.LIMITS, "authorization": (3, 60)}
    api = Api()
    public, confidential = new_device(tenant), new_device(tenant, type="confidential")

    def begin(device: Device, caller: Api) -> Any:
        how = form(client_id=device.client["client_id"]) if device is public else form()
        headers = {} if device is public else basic(device.client)
        return caller.post(f"{device.issuer}/device_authorization", **how, headers=headers)

    limited = [begin(public, api) for _ in range(4)]
    assert [response.status_code for response in limited] == [200, 200, 200, 429]
    assert limited[-1].json()["error"] == "temporarily_unavailable"
    assert int(limited[-1].headers["Retry-After"]) <= 60
    # A public client's id is known to all: another address is not limited. A confidential client has a limit of its own.
    assert begin(public, Api()).status_code == 200
    assert [begin(confidential, api).status_code for _ in range(2)] == [200, 200]
    assert [begin(confidential, Api()).status_code for _ in range(2)] == [200, 429]


def test_malformed_bodies_of_an_address_are_limited(tenant: TestTenant, settings: Settings) -> None:
    settings.LIMITS = {**settings.LIMITS, "malformed": (3, 60)}
    server, brackets = Server(tenant), b'{"email":[' + b"[]," * 340_000 + b"[]]}"
    statuses = [server.api.post(LOGIN, raw=brackets).status_code for _ in range(5)]
    assert statuses == [400] * 3 + [429] * 2
    refused = server.api.post(LOGIN, raw=b"{")
    assert (refused.status_code, "Retry-After" in refused.headers) == (429, True)
    # Well-formed requests of the same address go on, and callers with a token get the error itself.
    assert set(server.works()) == {200}
    assert Api(token=tenant.api.token, address=server.api.address).post("/authmgr/groups", raw=b"{").status_code == 400
    in_form = server.api.post(TOKEN, raw=b"a=%", content_type="application/x-www-form-urlencoded")
    assert (in_form.status_code, in_form.json()["error"]) == (429, "temporarily_unavailable")
