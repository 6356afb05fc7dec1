"""A data key that cannot be decrypted is a 503 on every path that needs it, never a 500."""

import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tenants import keys
from tenants.models import DataKey
from tests.mfa.people import TestUser, new_user
from tests.registry.conftest import Registry, credentials_of
from tests.world import PASSWORD, Api, TestTenant
from userflow.sessions import signing

DIRECTORY = {
    "name": "People",
    "kind": "active_directory",
    "server": "dc1.corp.example",
    "base_dn": "dc=corp,dc=example",
    "bind_dn": "cn=reader,dc=corp,dc=example",
    "secret": "bind secret",
}
LOST: dict[str, dict[str, Any]] = {
    "no ring key": {"ring_key_id": "not-here"},
    "altered": {"wrapped": b"\x01" * 61},
}
Call = Callable[[], Any]


@pytest.fixture(params=[*LOST, "no row"])
def lock(request: pytest.FixtureRequest) -> Iterator[Callable[[str], None]]:
    """Make an owner's data key unusable until the end of the test."""
    kept: list[dict[str, Any]] = []

    def lose(owner: str) -> None:
        row = DataKey.objects.filter(pk=owner)
        kept.append(row.values("owner", "ring_key_id", "wrapped").get())
        row.update(**LOST[request.param]) if request.param in LOST else row.delete()
        keys.forget(owner)

    yield lose
    for row in kept:
        keys.forget(owner := row.pop("owner"))
        DataKey.objects.update_or_create(owner=owner, defaults=row)
    signing.forget()


def login(tenant: TestTenant, email: str, password: str = PASSWORD) -> Any:
    return Api().post(
        "/uflow/auth/enduser/login", {"client_id": str(tenant.client_id), "email": email, "password": password}
    )


def secret_calls(tenant: TestTenant, user: TestUser, phoned: TestUser, refresh_token: str) -> dict[str, Call]:
    """Return a call for every path that reads or stores a secret of a tenant."""
    registry = Registry(tenant.api)
    service = registry.create()
    registry.bind(service)
    hook = tenant.api.post("/uflow/webhooks/endpoints", {"url": "https://1.1.1.1/in", "events": ["*"]})
    assert hook.status_code == 201, hook.content
    bearer = tenant.register()
    token = tenant.sign_in(bearer)["access_token"]
    named = {"email": bearer.email, "tenant_id": str(tenant.id)}
    return {
        "sign-in": lambda: login(tenant, user.email),
        "sign-in of an unknown user": lambda: login(tenant, "unknown@example.com"),
        "totp verify": lambda: Api().post("/webauthn/totp/verify", {**user.name, "code": "000000"}),
        "backup code": lambda: Api().post("/webauthn/totp/verify", {**user.name, "backup_code": user.backup_codes[0]}),
        "totp begin": lambda: Api(token=token).post("/webauthn/totp/beginSetup", named),
        "sms request": lambda: Api().post("/webauthn/sms/requestCode", phoned.named_with_client),
        "refresh": lambda: Api().post(
            "/authmgr/token", {"grant_type": "refresh_token", "refresh_token": refresh_token}
        ),
        "webhook": lambda: tenant.api.post("/uflow/webhooks/endpoints", {"url": "https://1.1.1.1/in", "events": ["*"]}),
        "webhook secret": lambda: tenant.api.post(f"/uflow/webhooks/endpoints/{hook.json()['id']}/secret"),
        "directory": lambda: tenant.api.post("/uflow/directory/configs", DIRECTORY),
        "credential read": lambda: tenant.api.get(credentials_of(service)),
        "credential bind": lambda: tenant.api.post(credentials_of(service), {"name": "x", "secret": "y"}),
    }


@pytest.mark.needs("python-ldap")
def test_locked_tenant_data_key_is_503_everywhere(
    new_tenant: Callable[[], TestTenant],
    other_tenant: TestTenant,
    lock: Callable[[str], None],
) -> None:
    tenant, other_user = new_tenant(), other_tenant.register()
    user, phoned = new_user(tenant).enrol_totp(), new_user(tenant).enrol_phone()
    plain = tenant.register()
    calls = secret_calls(tenant, user, phoned, tenant.sign_in(plain)["refresh_token"])
    lock(str(tenant.id))
    responses = {name: call() for name, call in calls.items()}
    assert {name: response.status_code for name, response in responses.items()} == dict.fromkeys(calls, 503)
    assert all(response.headers["Retry-After"] == "30" for response in responses.values())
    assert responses["credential read"].json()["error"]["code"] == "UNAVAILABLE"
    assert responses["refresh"].json()["error"] == "temporarily_unavailable"
    assert login(other_tenant, other_user.email).status_code == 200


def test_locked_data_key_uses_no_attempts(new_tenant: Callable[[], TestTenant], lock: Callable[[str], None]) -> None:
    tenant = new_tenant()
    user = new_user(tenant).enrol_totp()
    row = DataKey.objects.get(pk=str(tenant.id))
    lock(str(tenant.id))
    for _ in range(12):
        assert login(tenant, user.email).status_code == 503
        assert Api().post("/webauthn/totp/verify", {**user.name, "code": user.code(1)}).status_code == 503
    DataKey.objects.update_or_create(owner=row.owner, defaults={"ring_key_id": row.ring_key_id, "wrapped": row.wrapped})
    assert login(tenant, user.email).status_code == 200
    assert Api().post("/webauthn/totp/verify", {**user.name, "code": user.code(1)}).status_code == 200


@pytest.mark.parametrize("lock", list(LOST), indirect=True)
def test_locked_platform_data_key_is_503(tenant: TestTenant, lock: Callable[[str], None]) -> None:
    lock(DataKey.PLATFORM)
    signing.forget()
    body = {"username": tenant.admin.username, "password": PASSWORD}
    responses = [
        Api().get("/.well-known/jwks.json"),
        Api().post("/uflow/admin/auth/login", body),
        tenant.api.get("/uflow/admin/users/me"),
        Api().post("/uflow/admin/auth/login", {**body, "username": f"unknown-{secrets.token_hex(4)}"}),
    ]
    assert [response.status_code for response in responses] == [503] * len(responses)
