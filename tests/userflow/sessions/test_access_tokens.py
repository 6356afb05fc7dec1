"""Access tokens at the door: genuine, of the right class, and still standing."""

import base64
import json
import secrets
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from django.utils.timezone import now

from tenants.entering.context import in_tenant
from tests.userflow.sessions.clients import basic, form, make_client
from tests.world import PASSWORD, Api, TestTenant, sign_in_admin
from userflow.accounts.models import AdminUser
from userflow.accounts.session_models import EndUserSession
from userflow.sessions import signing

VALIDATE = "/authmgr/validate"


def signed(
    claims: dict[str, Any],
    *,
    tenant_id: UUID | None = None,
    header: dict[str, Any] | None = None,
    key: Any = None,
    alg: str = "ES256",
) -> str:
    """A token signed by the platform's current key, by that of a tenant, or by another key."""
    signer = signing.signer(tenant_id)
    head = {"kid": signer.kid, "typ": "at+jwt", **(header or {})}
    return jwt.encode(claims, key or signer.key, algorithm=alg, headers=head)


def claims_in(token: str) -> dict[str, Any]:
    return dict(jwt.decode(token, options={"verify_signature": False}))


def refused(token: str) -> bool:
    response = Api(token=token).get(VALIDATE)
    assert response.status_code in (200, 401, 403), response.content
    if response.status_code == 401:
        assert response.headers["WWW-Authenticate"].startswith("Bearer")
    return bool(response.status_code != 200)


def test_resigned_claims_are_accepted(tenant: TestTenant) -> None:
    assert not refused(signed(claims_in(str(tenant.api.token))))


def test_access_token_header_must_be_at_jwt(tenant: TestTenant) -> None:
    claims = claims_in(str(tenant.api.token))
    assert jwt.get_unverified_header(str(tenant.api.token))["typ"] == "at+jwt"
    for other in ("JWT", "jwt", "logout+jwt", "dpop+jwt", "", None, 7):
        assert refused(signed(claims, header={"typ": other})), other
    assert not refused(signed(claims, header={"typ": "application/at+jwt"}))


def test_refresh_token_and_tickets_are_no_jwt(tenant: TestTenant) -> None:
    pair = tenant.sign_in(tenant.register())
    for opaque in (pair["refresh_token"], sign_in_admin(tenant.admin.username)["refresh_token"]):
        with pytest.raises(jwt.DecodeError):
            jwt.decode(opaque, options={"verify_signature": False})


def test_token_tolerates_clock_differences(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    claims = claims_in(str(tenant.api.token))
    for seconds, taken in ((90, True), (-90, True), (300, False)):
        moved = {name: claims[name] + seconds for name in ("exp", "iat", "nbf", "auth_time")}
        token = signed({**claims, **moved})
        assert refused(token) is not taken, seconds
        # It also stays the sign-in of a moment ago that changing one's address wants.
        body = {"email": f"by{seconds}@example.com", "current_password": PASSWORD}
        response = Api(token=token).put("/authmgr/profile", body)
        assert (response.status_code == 200) is taken, seconds


@pytest.mark.parametrize("missing", ["exp", "iat", "nbf", "iss", "aud", "sub", "jti", "typ", "kind", "sid"])
def test_token_without_required_claim_is_rejected(tenant: TestTenant, missing: str) -> None:
    claims = claims_in(str(tenant.api.token))
    del claims[missing]
    assert refused(signed(claims))


@pytest.mark.parametrize(
    "changed",
    [
        {"exp": 1},
        {"exp": "soon"},
        {"nbf": 32503680000},
        {"iss": "https://elsewhere.example"},
        {"aud": "another-api"},
        {"aud": []},
        {"typ": "refresh"},
        {"typ": "ticket"},
        {"kind": "operator"},
        {"kind": "end_user"},
        {"kind": "client"},
        {"kind": "root"},
        {"kind": 7},
        {"sub": "00000000-0000-4000-8000-000000000000"},
        {"sub": "unknown"},
        {"sub": 7},
        {"sid": "00000000-0000-4000-8000-000000000000"},
        {"sid": "none"},
        {"tenant_id": None},
        {"tenant_id": "00000000-0000-4000-8000-000000000000"},
        {"tenant_id": 7},
    ],
)
def test_token_with_changed_claim_is_rejected(tenant: TestTenant, changed: dict[str, Any]) -> None:
    assert refused(signed({**claims_in(str(tenant.api.token)), **changed}))


@pytest.mark.parametrize(
    "changed",
    [
        {"client_id": None},
        {"client_id": "00000000-0000-4000-8000-000000000000"},
        {"client_id": "x"},
        {"tenant_id": None},
        {"tenant_id": "x"},
        {"kind": "admin"},
        {"kind": "operator"},
        {"kind": "client"},
        {"sid": None},
        {"sid": 7},
    ],
)
def test_end_user_token_with_changed_claim_is_rejected(tenant: TestTenant, changed: dict[str, Any]) -> None:
    claims = {**claims_in(str(tenant.as_user(tenant.register()).token)), **changed}
    response = Api(token=signed(claims, tenant_id=tenant.id)).get("/uflow/admin/users")
    assert response.status_code in (401, 403)


def test_end_user_token_of_other_tenant_is_rejected(tenant: TestTenant, other_tenant: TestTenant) -> None:
    claims = claims_in(str(tenant.as_user(tenant.register()).token))
    assert not refused(signed(claims, tenant_id=tenant.id))
    for key_of in (tenant.id, other_tenant.id, None):
        moved = {**claims, "tenant_id": str(other_tenant.id)}
        assert refused(signed(moved, tenant_id=key_of))
        assert refused(signed({**moved, "client_id": str(other_tenant.client_id)}, tenant_id=key_of))


def test_key_signs_only_for_its_own_issuer(tenant: TestTenant, other_tenant: TestTenant) -> None:
    user, admin = claims_in(str(tenant.as_user(tenant.register()).token)), claims_in(str(tenant.api.token))
    assert not refused(signed(user, tenant_id=tenant.id))
    assert refused(signed(user))
    assert refused(signed(user, tenant_id=other_tenant.id))
    assert not refused(signed(admin))
    assert refused(signed(admin, tenant_id=tenant.id))
    assert refused(signed({**user, "iss": admin["iss"]}, tenant_id=tenant.id))


def test_alg_none_and_hmac_with_public_key_are_rejected(tenant: TestTenant) -> None:
    claims = claims_in(str(tenant.api.token))
    assert refused(jwt.encode(claims, None, algorithm="none", headers={"kid": signing.signer().kid}))
    public = signing.signer().key.public_key()
    pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    for secret in (pem, json.dumps(signing.key_set().jwks[0]).encode()):
        head = {"alg": "HS256", "typ": "JWT", "kid": signing.signer().kid}
        assert refused(by_hand(head, claims, secret))


def by_hand(head: dict[str, Any], claims: dict[str, Any], secret: bytes) -> str:
    """HS256 without PyJWT, which rejects to take a public key for a secret."""
    import hashlib
    import hmac

    signing_input = b".".join(encoded(json.dumps(part).encode()) for part in (head, claims))
    return (signing_input + b"." + encoded(hmac.digest(secret, signing_input, hashlib.sha256))).decode()


def encoded(raw: bytes) -> bytes:
    return base64.urlsafe_b64encode(raw).rstrip(b"=")


@pytest.mark.parametrize("kid", ["", "x", "../../etc/passwd", "' OR 1=1 --", "A" * 43, 7, None, ["a"], {"a": 1}])
def test_unknown_kid_is_rejected(tenant: TestTenant, kid: Any) -> None:
    head = {"alg": "ES256", "typ": "JWT", "kid": kid}
    _, body, signature = str(tenant.api.token).split(".")
    assert refused(f"{encoded(json.dumps(head).encode()).decode()}.{body}.{signature}")


def test_keys_in_token_headers_are_ignored(tenant: TestTenant) -> None:
    other_key = ec.generate_private_key(ec.SECP256R1())
    claims = claims_in(str(tenant.api.token))
    jwk = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(other_key.public_key()))
    assert refused(signed(claims, key=other_key))
    assert refused(signed(claims, key=other_key, header={"jwk": jwk}))
    assert refused(signed(claims, key=other_key, header={"jku": "http://127.0.0.1:9/jwks.json", "kid": "A" * 43}))
    assert refused(signed(claims, key=other_key, header={"x5u": "http://127.0.0.1:9/cert", "kid": "A" * 43}))


def test_malleated_signature_does_not_bypass_checks(tenant: TestTenant) -> None:
    person = tenant.register()
    token = str(tenant.as_user(person).token)
    variants = [token + "=", token + "==", token[:-1] + chr(ord(token[-1]) ^ 1)]
    Api(token=token).post("/authmgr/logout")
    assert all(refused(variant) for variant in (token, *variants))


@pytest.mark.parametrize("header", ["Bearer", "Bearer ", "Bearer a b", "Basic abc", "bearer\tx", "Token x", "Bearer é"])
def test_malformed_authorization_header_is_rejected(header: str) -> None:
    assert Api().get(VALIDATE, headers={"Authorization": header}).status_code == 401


def test_refresh_and_access_tokens_are_not_interchangeable(tenant: TestTenant) -> None:
    pair = tenant.sign_in(tenant.register())
    assert refused(pair["refresh_token"])
    swapped = Api().post("/authmgr/token", **form(grant_type="refresh_token", refresh_token=pair["access_token"]))
    assert (swapped.status_code, swapped.json()["error"]) == (400, "invalid_grant")


def test_cached_token_is_rejected_after_expiry(tenant: TestTenant) -> None:
    for _ in range(5):  # again where the machine was busy
        expires = int(time.time()) + 3
        token = signed({**claims_in(str(tenant.api.token)), "exp": expires})
        taken = not refused(token)
        if time.time() < expires:
            break
    assert taken
    time.sleep(max(0.0, expires + 0.1 - time.time()))
    assert refused(token)


# --- what the store says ---------------------------------------------------------------------------------------------


def test_deactivated_user_is_rejected_at_next_request(tenant: TestTenant) -> None:
    person = tenant.register()
    api = tenant.as_user(person)
    assert api.get(VALIDATE).status_code == 200
    tenant.api.put(f"/uflow/user/enduser/{tenant.id}/{person.id}/status", {"active": False})
    assert api.get(VALIDATE).status_code == 401
    tenant.api.put(f"/uflow/user/enduser/{tenant.id}/{person.id}/status", {"active": True})
    assert api.get(VALIDATE).status_code == 401


def test_erased_user_is_rejected_at_next_request(tenant: TestTenant) -> None:
    person, _ = tenant.register(), tenant.register()
    api = tenant.as_user(person)
    body = {"tenant_id": str(tenant.id), "user_id": str(person.id)}
    assert tenant.api.post("/uflow/user/enduser/delete_all", body).status_code == 200
    assert api.get(VALIDATE).status_code == 401


def test_deactivated_admin_is_rejected_at_next_request(new_tenant: Any, operator: Api) -> None:
    own = new_tenant()
    name = f"second-{secrets.token_hex(4)}"
    member = {"username": name, "email": f"{name}@example.com", "first_name": "A", "last_name": "B"}
    made = own.api.post("/uflow/admin/users", {**member, "password": "correct horse 9 battery"})
    assert made.status_code == 201
    own.api.delete(f"/uflow/admin/users/{own.admin.id}")
    api = Api(token=sign_in_admin(name)["access_token"])
    assert api.delete(f"/uflow/admin/users/{own.admin.id}").status_code == 200
    assert own.api.get(VALIDATE).status_code == 401


def test_suspended_tenant_rejects_every_kind_of_principal(new_tenant: Any, operator: Api) -> None:
    own = new_tenant()
    user, client = own.as_user(own.register()), make_client(own)
    token = Api().post("/authmgr/token", **form(grant_type="client_credentials"), headers=basic(client)).json()
    apis = [own.api, user, Api(token=token["access_token"])]
    assert [api.get(VALIDATE).status_code for api in apis] == [200, 200, 200]
    assert operator.patch(f"/uflow/admin/tenants/{own.id}", {"status": "suspended"}).status_code == 200
    assert {api.get(VALIDATE).status_code for api in apis} <= {401, 403}
    again = Api().post("/authmgr/token", **form(grant_type="client_credentials"), headers=basic(client))
    assert (again.status_code, again.json()["error"]) == (400, "unauthorized_client")
    assert operator.patch(f"/uflow/admin/tenants/{own.id}", {"status": "active"}).status_code == 200
    assert [api.get(VALIDATE).status_code for api in apis] == [200, 200, 200]


def test_ended_or_expired_session_is_rejected_at_next_request(tenant: TestTenant) -> None:
    person = tenant.register()
    one, two = tenant.as_user(person), tenant.as_user(person)
    assert one.post("/authmgr/logout").json()["sessions_ended"] == 1
    assert (one.get(VALIDATE).status_code, two.get(VALIDATE).status_code) == (401, 200)
    with in_tenant(tenant.id):
        EndUserSession.objects.filter(user_id=person.id).update(expires_at=now() - timedelta(seconds=1))
    assert two.get(VALIDATE).status_code == 401


def test_logout_everywhere_ends_every_session(tenant: TestTenant) -> None:
    person = tenant.register()
    apis = [tenant.as_user(person) for _ in range(3)]
    assert apis[0].post("/authmgr/logout", {"all": True}).json()["sessions_ended"] == 3
    assert {api.get(VALIDATE).status_code for api in apis} == {401}


def test_admin_token_is_rejected_in_other_tenant(tenant: TestTenant, other_tenant: TestTenant) -> None:
    person = other_tenant.register()
    for response in (
        tenant.api.get("/uflow/user/enduser/list", {"tenant_id": str(other_tenant.id)}),
        tenant.api.get(f"/uflow/user/enduser/{other_tenant.id}/{person.id}"),
        tenant.api.get(f"/clientms/tenants/{other_tenant.id}/clients"),
        tenant.api.get("/uflow/admin/users", {"tenant_id": str(other_tenant.id)}),
    ):
        assert response.status_code == 403
    forged = tenant.api.get("/uflow/admin/users", headers={"X-Tenant-ID": str(other_tenant.id)})
    assert {item["tenant_id"] for item in forged.json()["items"]} == {str(tenant.id)}


def test_revoked_role_counts_at_next_request(new_tenant: Any) -> None:
    own = new_tenant()
    assert own.api.get("/uflow/admin/users").status_code == 200
    AdminUser.objects.get(pk=own.admin.id).roles.clear()
    assert own.api.get("/uflow/admin/users").status_code == 403
