"""Each tenant signs its tokens with keys of its own, and no verifier set up for one tenant takes another's tokens."""

import secrets
import time
from collections.abc import Callable
from io import StringIO
from typing import Any
from uuid import uuid4

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from django.conf import settings
from django.core.management import call_command
from joserfc import jwt as jose
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from tenants.entering import lookup
from tenants.entering.context import in_tenant
from tests.copies import change_mapping
from tests.parallel import run_concurrently
from tests.userflow.sessions.clients import basic, form, make_client, own_token
from tests.userflow.sessions.test_refresh import refresh
from tests.world import Api, TestTenant, capture_statements
from userflow.sessions import signing
from userflow.sessions.models import SigningKey, TenantSigningKey

VALIDATE = "/authmgr/validate"


def metadata(tenant: TestTenant) -> dict[str, Any]:
    response = Api().get(f"/.well-known/oauth-authorization-server/t/{tenant.slug}")
    assert response.status_code == 200, response.content
    return dict(response.json())


def jwks(tenant: TestTenant) -> dict[str, Any]:
    return dict(Api().get(f"/t/{tenant.slug}/jwks").json())


def user_token(tenant: TestTenant) -> str:
    return str(tenant.sign_in(tenant.register())["access_token"])


def rotate(tenant: TestTenant, *arguments: str) -> str:
    out = StringIO()
    call_command("rotate_signing_keys", f"--tenant={tenant.slug}", *arguments, stdout=out)
    return out.getvalue()


# --- stock verifiers -------------------------------------------------------------------------------------------------


def by_pyjwt(tenant: TestTenant, token: str) -> bool:
    try:
        key = jwt.PyJWKSet.from_dict(jwks(tenant))[jwt.get_unverified_header(token)["kid"]]
        jwt.decode(token, key, algorithms=["ES256"], issuer=metadata(tenant)["issuer"], audience="identity-api")
    except (jwt.InvalidTokenError, KeyError):
        return False
    return True


def by_joserfc(tenant: TestTenant, token: str) -> bool:
    rules = jose.JWTClaimsRegistry(
        iss={"essential": True, "value": metadata(tenant)["issuer"]}, aud={"essential": True, "value": "identity-api"}
    )
    try:
        rules.validate(jose.decode(token, KeySet.import_key_set(jwks(tenant)), algorithms=["ES256"]).claims)  # type: ignore[arg-type]  # a plain document
    except (JoseError, ValueError):
        return False
    return True


VERIFIERS = [by_pyjwt, by_joserfc]


@pytest.mark.parametrize("verify", VERIFIERS)
def test_stock_verifier_accepts_only_its_tenants_tokens(
    verify: Callable[[TestTenant, str], bool], tenant: TestTenant, other_tenant: TestTenant
) -> None:
    pair = tenant.sign_in(tenant.register())
    assert verify(tenant, pair["access_token"])
    assert verify(tenant, own_token(make_client(tenant)))
    foreign = [user_token(other_tenant), own_token(make_client(other_tenant)), str(tenant.api.token)]
    assert [verify(tenant, token) for token in (*foreign, pair["refresh_token"])] == [False] * 4


# --- keys ------------------------------------------------------------------------------------------------------------


def test_keys_are_sealed_in_the_tenants_database(
    new_tenant: Callable[[], TestTenant], other_tenant: TestTenant
) -> None:
    # A key that another test has just added to a shared tenant is not in its cached document yet.
    tenant = new_tenant()
    published = {key["kid"] for key in jwks(tenant)["keys"]}
    with in_tenant(tenant.id):
        stored = {key.kid: key for key in TenantSigningKey.objects.all()}
    assert published == set(stored)
    assert all(b"PRIVATE" not in bytes(key.private_sealed) for key in stored.values())
    assert not SigningKey.objects.filter(pk__in=published).exists()
    assert published.isdisjoint(key["kid"] for key in jwks(other_tenant)["keys"])


def test_jwks_has_only_public_fields_and_is_cacheable(tenant: TestTenant) -> None:
    response = Api().get(f"/t/{tenant.slug}/jwks")
    assert response.headers["Cache-Control"] == "public, max-age=300"
    assert response.headers["Access-Control-Allow-Origin"] == "*"
    for key in response.json()["keys"]:
        assert set(key) == {"kty", "use", "alg", "kid", *({"n", "e"} if key["kty"] == "RSA" else {"crv", "x", "y"})}
    again = Api().get(f"/t/{tenant.slug}/jwks", headers={"If-None-Match": response.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_concurrent_first_uses_create_one_key_set(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    responses = run_concurrently([lambda: Api().get(f"/t/{tenant.slug}/jwks").json() for _ in range(8)])
    assert {len(response["keys"]) for response in responses} == {2}
    with in_tenant(tenant.id):
        assert TenantSigningKey.objects.count() == 2


def test_rs256_key_is_created_at_first_use(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    signer = signing.signer(tenant.id, "RS256")
    token = jwt.encode({"sub": "x"}, signer.key, algorithm="RS256", headers={"kid": signer.kid})
    key = jwt.PyJWKSet.from_dict(jwks(tenant))[signer.kid]
    assert jwt.decode(token, key, algorithms=["RS256"]) == {"sub": "x"}


def test_tenant_key_rotates_without_rejecting_tokens(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    old = user_token(tenant)
    announced = rotate(tenant).split()[0]
    assert announced in {key["kid"] for key in jwks(tenant)["keys"]}
    assert jwt.get_unverified_header(user_token(tenant))["kid"] != announced
    newest = rotate(tenant, "--at-once").split()[0]
    assert jwt.get_unverified_header(user_token(tenant))["kid"] == newest
    assert Api(token=old).get(VALIDATE).status_code == 200


def test_withdrawn_tenant_key_is_rejected_and_replaced(
    new_tenant: Callable[[], TestTenant], tenant: TestTenant
) -> None:
    own = new_tenant()
    token, elsewhere = user_token(own), user_token(tenant)
    rotate(own, f"--withdraw={jwt.get_unverified_header(token)['kid']}")
    assert Api(token=token).get(VALIDATE).status_code == 401
    assert Api(token=elsewhere).get(VALIDATE).status_code == 200
    assert Api(token=user_token(own)).get(VALIDATE).status_code == 200


# --- the issuer ------------------------------------------------------------------------------------------------------


def test_metadata_names_issuer_and_keys(tenant: TestTenant) -> None:
    document = metadata(tenant)
    assert document["issuer"] == f"{settings.BASE_URL}/t/{tenant.slug}"
    assert document["jwks_uri"] == f"{document['issuer']}/jwks"
    claims = jwt.decode(user_token(tenant), options={"verify_signature": False})
    assert claims["iss"] == document["issuer"]


@pytest.mark.parametrize("path", ["/t/{}/jwks", "/.well-known/oauth-authorization-server/t/{}"])
def test_unknown_slug_is_404(path: str) -> None:
    for slug in ("unknown", "%27", "é", "a" * 300):
        assert Api().get(path.format(slug)).status_code == 404


def test_deleted_tenant_has_no_keys(new_tenant: Callable[[], TestTenant], operator: Api) -> None:
    tenant = new_tenant()
    assert jwks(tenant)["keys"]
    operator.patch(f"/uflow/admin/tenants/{tenant.id}", {"status": "suspended"})
    assert jwks(tenant)["keys"]
    body = {"confirm": tenant.slug}
    assert operator.delete(f"/uflow/admin/tenants/{tenant.id}", body).status_code in (200, 202, 204)
    assert Api().get(f"/t/{tenant.slug}/jwks").status_code == 404


def test_new_slug_ends_access_tokens_but_no_session(new_tenant: Callable[[], TestTenant], operator: Api) -> None:
    tenant = new_tenant()
    pair = tenant.sign_in(tenant.register())
    body = {"slug": f"renamed-{secrets.token_hex(4)}", "confirm": tenant.slug}
    assert operator.patch(f"/uflow/admin/tenants/{tenant.id}", body).status_code == 200
    assert Api(token=pair["access_token"]).get(VALIDATE).status_code == 401
    fresh = refresh(pair["refresh_token"]).json()["access_token"]
    assert Api(token=fresh).get(VALIDATE).status_code == 200
    claims = jwt.decode(fresh, options={"verify_signature": False})
    assert claims["iss"] == f"{settings.BASE_URL}/t/{body['slug']}"


def test_introspection_names_the_tenants_issuer(tenant: TestTenant) -> None:
    client, pair = make_client(tenant), tenant.sign_in(tenant.register())
    for token in (pair["access_token"], pair["refresh_token"]):
        known = Api().post("/authmgr/token/introspect", **form(token=token), headers=basic(client)).json()
        assert (known["active"], known["iss"]) == (True, metadata(tenant)["issuer"])


# --- forged tokens ---------------------------------------------------------------------------------------------------


def forged(tenant_id: object, kid: str) -> str:
    """A token that names a tenant, signed by an unknown key."""
    claims = {"kind": "end_user", "tenant_id": str(tenant_id), "sub": str(uuid4()), "exp": time.time() + 60}
    key = ec.generate_private_key(ec.SECP256R1())
    return jwt.encode(claims, key, algorithm="ES256", headers={"kid": kid, "typ": "at+jwt"})


def test_forged_key_ids_cause_few_look_ups(tenant: TestTenant) -> None:
    user_token(tenant)
    with capture_statements() as captured:
        for _ in range(3 * signing.LOOKUPS):
            assert Api(token=forged(tenant.id, secrets.token_urlsafe(32))).get(VALIDATE).status_code == 401
    assert len([sql for sql in captured.tenant if "signingkey" in sql]) <= signing.LOOKUPS
    assert captured.counts <= (0, 2 * signing.LOOKUPS)
    signing.forget(tenant.id)


def test_known_unknown_key_id_is_looked_up_once(tenant: TestTenant) -> None:
    user_token(tenant)
    signing.forget(tenant.id)
    token = forged(tenant.id, secrets.token_urlsafe(32))
    Api(token=token).get(VALIDATE)
    Api(token=token).get(VALIDATE)
    with capture_statements() as captured:
        Api(token=token).get(VALIDATE)
    assert captured.tenant == []


@pytest.mark.parametrize("status", ["provisioning", "deleting", "suspended"])
def test_forged_token_does_not_tell_a_tenants_state(status: str, new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    change_mapping(tenant.id, status=status)
    lookup.forget()
    named, unknown = (Api(token=forged(id_, secrets.token_urlsafe(32))).get(VALIDATE) for id_ in (tenant.id, uuid4()))
    assert (named.status_code, named.json()) == (unknown.status_code, unknown.json()) == (401, unknown.json())
    change_mapping(tenant.id, status="active")
    lookup.forget()
