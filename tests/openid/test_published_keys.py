"""A tenant's key is in /jwks before verifiers need it: at the start, after an upgrade, at a rotation, after a withdrawal."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import jwt
import pytest
from django.utils.timezone import now

from tenants.entering.context import in_tenant
from tenants.jobs import fleet
from tenants.models import TenantDatabase
from tests.copies import change_client
from tests.openid.test_code_exchange import application, claims_of
from tests.world import Api, TestTenant
from userflow.accounts.session_models import EndUserSession
from userflow.sessions import signing
from userflow.sessions.models import TenantSigningKey

NewTenant = Callable[[], TestTenant]
BOTH = {"ES256", "RS256"}


def published(tenant: TestTenant) -> dict[str, str]:
    """Return the algorithms of the keys in /jwks by key id."""
    return {key["kid"]: key["alg"] for key in Api().get(f"/t/{tenant.slug}/jwks").json()["keys"]}


def stored(tenant: TestTenant) -> list[TenantSigningKey]:
    with in_tenant(tenant.id):
        return list(TenantSigningKey.objects.order_by("created_at"))


def user_token(tenant: TestTenant) -> str:
    return str(tenant.sign_in(tenant.register())["access_token"])


def algorithm_of(token: str) -> str:
    return str(jwt.get_unverified_header(token)["alg"])


def of_older_release(tenant: TestTenant) -> TestTenant:
    """Leave the tenant with the keys that a release without RS256 by default has created."""
    user_token(tenant)
    with in_tenant(tenant.id):
        TenantSigningKey.objects.filter(public_jwk__alg="RS256").delete()
    signing.forget(tenant.id)
    return tenant


def let_time_pass(tenant: TestTenant) -> None:
    with in_tenant(tenant.id):
        TenantSigningKey.objects.filter(signs_from__gt=now()).update(signs_from=now())
    signing.forget(tenant.id)


@pytest.mark.parametrize("path", ["/t/{}/jwks", "/t/{}/.well-known/openid-configuration"])
def test_first_document_creates_a_complete_set(path: str, new_tenant: NewTenant) -> None:
    tenant = new_tenant()
    assert Api().get(path.format(tenant.slug)).status_code == 200
    assert {key.algorithm for key in stored(tenant)} == BOTH
    assert all(key.signs_from <= now() for key in stored(tenant))


def test_first_token_creates_a_complete_set(new_tenant: NewTenant) -> None:
    tenant = new_tenant()
    assert algorithm_of(user_token(tenant)) == "ES256"
    assert set(published(tenant).values()) == BOTH
    app = application(tenant, tenant.register())
    token = app.tokens()["id_token"]
    assert (algorithm_of(token), claims_of(app, token, app.client["client_id"])["nonce"]) == ("RS256", "a nonce")


def test_key_of_older_tenant_is_published_before_it_signs(new_tenant: NewTenant) -> None:
    tenant = of_older_release(new_tenant())
    assert set(published(tenant).values()) == BOTH
    (newest,) = (key for key in stored(tenant) if key.algorithm == "RS256")
    assert timedelta(minutes=9) < newest.signs_from - now() <= timedelta(minutes=10)
    assert algorithm_of(user_token(tenant)) == "ES256"
    let_time_pass(tenant)
    assert signing.signer(tenant.id, "RS256").kid == newest.kid


def test_migration_publishes_key_of_older_tenant(new_tenant: NewTenant) -> None:
    tenant, unused = of_older_release(new_tenant()), new_tenant()
    TenantDatabase.objects.filter(pk__in=[tenant.id, unused.id]).update(schema_version="0-000000000000")
    report = fleet.migrate_tenants(only=[tenant.slug, unused.slug])
    assert report.count(fleet.Result.MIGRATED) == 2
    assert {key.algorithm for key in stored(tenant)} == BOTH
    assert stored(unused) == []


def assert_too_new(response: Any) -> None:
    assert (response.status_code, response.json()["error"]) == (503, "temporarily_unavailable")
    assert 500 < int(response.headers["Retry-After"]) <= 600


def test_code_stays_valid_while_key_is_too_new(new_tenant: NewTenant) -> None:
    tenant = of_older_release(new_tenant())
    app = application(tenant, tenant.register())
    code = app.code()
    assert_too_new(app.exchange(code))
    let_time_pass(tenant)
    assert algorithm_of(app.exchange(code).json()["id_token"]) == "RS256"


def test_refresh_token_stays_valid_while_key_is_too_new(new_tenant: NewTenant) -> None:
    tenant = of_older_release(new_tenant())
    app = application(tenant, tenant.register(), id_token_signed_response_alg="ES256")
    refresh_token = app.tokens()["refresh_token"]
    change_client(app.client["client_id"], id_token_signed_response_alg="RS256")
    assert_too_new(app.token(grant_type="refresh_token", refresh_token=refresh_token))
    let_time_pass(tenant)
    renewed = app.token(grant_type="refresh_token", refresh_token=refresh_token)
    assert algorithm_of(renewed.json()["id_token"]) == "RS256"


def test_json_sign_in_waits_for_key_without_session(new_tenant: NewTenant) -> None:
    tenant = of_older_release(new_tenant())
    user = tenant.register()
    change_client(tenant.client_id, access_token_signed_response_alg="RS256")
    with in_tenant(tenant.id):
        before = EndUserSession.objects.count()
    body = {"client_id": str(tenant.client_id), "email": user.email, "password": user.password}
    response = Api().post("/uflow/auth/enduser/login", body)
    assert (response.status_code, response.json()["code"]) == (503, "signing_key_not_published")
    with in_tenant(tenant.id):
        assert EndUserSession.objects.count() == before


def test_rotation_publishes_next_key_of_each_algorithm(new_tenant: NewTenant) -> None:
    tenant = new_tenant()
    before = set(published(tenant))
    made = signing.rotate_signing_keys(tenant.id)
    assert {key.algorithm for key in made} == BOTH
    assert set(published(tenant)) == before | {key.kid for key in made}
    assert {signing.signer(tenant.id, name).kid for name in BOTH} == before
    let_time_pass(tenant)
    assert {signing.signer(tenant.id, name).kid for name in BOTH} == {key.kid for key in made}


def test_rotation_before_first_use_signs_at_once(new_tenant: NewTenant) -> None:
    tenant = new_tenant()
    made = signing.rotate_signing_keys(tenant.id)
    assert {signing.signer(tenant.id, name).kid for name in BOTH} == {key.kid for key in made} == set(published(tenant))


def test_rotated_out_key_signs_until_its_successor_may(new_tenant: NewTenant) -> None:
    tenant = new_tenant()
    before = set(published(tenant))
    # As a restore leaves keys that were rotated out after the backup.
    with in_tenant(tenant.id):
        TenantSigningKey.objects.update(verifies_until=now() + timedelta(hours=1))
    signing.forget(tenant.id)
    assert set(published(tenant)) > before
    assert {signing.signer(tenant.id, name).kid for name in BOTH} == before
    let_time_pass(tenant)
    assert {signing.signer(tenant.id, name).kid for name in BOTH} == set(published(tenant)) - before


@pytest.mark.parametrize("algorithm", sorted(BOTH))
def test_successor_of_withdrawn_key_signs_at_once(algorithm: str, new_tenant: NewTenant) -> None:
    tenant = new_tenant()
    signing.signer(tenant.id)
    leaked = signing.signer(tenant.id, algorithm).kid
    # As a restore leaves a key that was withdrawn after the backup.
    with in_tenant(tenant.id):
        TenantSigningKey.objects.filter(pk=leaked).update(verifies_until=now())
    signing.forget(tenant.id)
    successor = signing.signer(tenant.id, algorithm).kid
    assert successor != leaked
    assert set(published(tenant)) >= {successor}
    assert leaked not in published(tenant)
