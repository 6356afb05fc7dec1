"""Enrolling a passkey: options, both forms of the response, and every reason to reject one."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.mfa.webauthn.authenticator import EDDSA, ES256, ES384, RS256, UP, UV, Authenticator, b64, unb64
from tests.mfa.webauthn.passkeys import (
    ADMIN_USERS,
    ORIGIN,
    Home,
    by_factor,
    end_users_of,
    new_authenticator,
    stepped_up,
)
from tests.world import Api, TestTenant, User


@pytest.fixture
def person(tenant: TestTenant) -> User:
    return tenant.register()


@pytest.fixture
def api(tenant: TestTenant, person: User) -> Api:
    """Return the user's API client, freshly signed in."""
    return tenant.as_user(person)


def test_options_are_ready_for_the_browser(home: Home, tenant: TestTenant, api: Api, person: User) -> None:
    response = home.begin_registration(api, person)
    options = response.json()
    assert response.status_code == 200
    assert response.headers["Cache-Control"] == "no-store"
    assert options["rp"] == {"id": "localhost", "name": tenant.name}
    assert options["user"] == {"id": b64(person.id.bytes), "name": person.email, "displayName": "Some One"}
    assert len(unb64(options["challenge"])) == 32
    assert [(p["type"], p["alg"]) for p in options["pubKeyCredParams"]] == [("public-key", a) for a in (-8, -7, -257)]
    assert options["attestation"] == "none"
    assert options["authenticatorSelection"] == {
        "residentKey": "preferred",
        "requireResidentKey": False,
        "userVerification": "preferred",
    }


@pytest.mark.parametrize("form", [lambda found: found, json.dumps], ids=["object", "string"])
def test_credential_as_object_or_string(home: Home, api: Api, person: User, form: Callable[..., Any]) -> None:
    authenticator = new_authenticator()
    credential = authenticator.create(home.begin_registration(api, person).json())
    response = home.finish_registration(api, person, form(credential))
    assert response.status_code == 200
    assert response.json() == {
        "success": True,
        "message": "The passkey is enrolled.",
        "credential_id": b64(authenticator.credential_id),
    }


@pytest.mark.parametrize("alg", [EDDSA, RS256])
def test_registration_accepts_every_offered_algorithm(home: Home, api: Api, person: User, alg: int) -> None:
    authenticator = home.enrol(api, person, new_authenticator(alg=alg))
    assert home.finish_authentication(person, authenticator.get(home.options(person))).status_code == 200


def test_second_registration_excludes_first_passkey(home: Home, api: Api, person: User) -> None:
    first = home.enrol(api, person)
    api = stepped_up(api)
    options = home.begin_registration(api, person).json()
    assert [found["id"] for found in options["excludeCredentials"]] == [b64(first.credential_id)]
    assert options["excludeCredentials"][0]["transports"] == ["usb"]
    response = home.finish_registration(api, person, new_authenticator().create(options), **by_factor(api))
    assert response.status_code == 200


def test_factor_list_names_the_authenticator(home: Home, api: Api, person: User) -> None:
    authenticator = new_authenticator()
    authenticator.aaguid = bytes.fromhex("bada5566a7aa401fbd9645619a55120d")
    home.enrol(api, person, authenticator)
    factors = api.get("/webauthn/factors").json()
    assert [(f["kind"], f["name"]) for f in factors["factors"]] == [("webauthn", "1Password")]
    assert factors["methods"] == ["webauthn"]


def test_admin_passkey_is_stored_in_global_database(new_tenant: Callable[[], TestTenant]) -> None:
    # Of a tenant of the test's own: others sign the shared one's admin in without a factor.
    tenant = new_tenant()
    home, admin = ADMIN_USERS, tenant.admin
    authenticator = home.enrol(tenant.api, admin)
    response = home.finish_authentication(admin, authenticator.get(home.options(admin)))
    assert response.json() == {"success": True, "user_id": str(admin.id)}


REFUSED: dict[str, dict[str, Any]] = {
    "wrong origin": {"origin": "https://evil.example"},
    "wrong port": {"origin": ORIGIN + "1"},
    "wrong scheme": {"origin": ORIGIN.replace("http:", "https:")},
    "opaque origin": {"origin": "null"},
    "wrong rp id": {"rp_id": "example.com"},
    "wrong type": {"type": "webauthn.get"},
    "no user presence": {"flags": UV | 0x40},
    "no attested key": {"flags": UP | UV},
    "backed up but not eligible": {"flags": UP | UV | 0x10 | 0x40},
    "cross-origin": {"client_data": {"crossOrigin": True}},
    "cross-origin in disguise": {"client_data": {"crossOrigin": "false"}},
    "top origin": {"client_data": {"topOrigin": ORIGIN}},
    "unknown challenge": {"challenge": b64(bytes(32))},
    "empty challenge": {"challenge": ""},
    "tampered signature": {"tamper_signature": True},
    "unknown attestation": {"attestation": "made-up"},
    "no credential id": {"credential_id": b""},
    "a credential id of 1,024 bytes": {"credential_id": bytes(1024)},
    "a key that is a number": {"attestation": "none", "public_key": 4},
    "a key that is no point": {
        "attestation": "none",
        "public_key": {1: 2, 3: -7, -1: 1, -2: bytes(32), -3: bytes(31) + b"\1"},
    },
    "a key of another curve": {
        "attestation": "none",
        "public_key": {1: 1, 3: -7, -1: 6, -2: bytes(32)},
    },
}


P256 = new_authenticator().key.public_key().public_numbers()
RSA = new_authenticator(alg=RS256).key.public_key().public_numbers()
X, Y = (number.to_bytes(32, "big") for number in (P256.x, P256.y))
N, E = RSA.n.to_bytes(256, "big"), (65537).to_bytes(3, "big")
ED25519 = new_authenticator(alg=EDDSA).cose_key()[-2]
# 2^255 - 19; the field of Ed25519 (RFC 8032 section 5.1). The sign of x is the highest bit.
FIELD, SIGN = 2**255 - 19, 2**255
ORDER_8 = int.from_bytes(bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"), "little")
# A signature under such a point needs no private key: one signature fits many messages.
SMALL_ORDER = [y | sign for y in (0, 1, FIELD - 1, ORDER_8, FIELD - ORDER_8) for sign in (0, SIGN)]
NOT_CANONICAL = [FIELD + y | sign for y in range(19) for sign in (0, SIGN)]
NOT_ON_CURVE = [2, 2 | SIGN]

DEGENERATE_KEYS: dict[str, dict[Any, Any]] = {
    **{
        f"Ed25519 {y:#x}": {1: 1, 3: EDDSA, -1: 6, -2: y.to_bytes(32, "little")}
        for y in (*SMALL_ORDER, *NOT_CANONICAL, *NOT_ON_CURVE)
    },
    "Ed25519 of 31 bytes": {1: 1, 3: EDDSA, -1: 6, -2: ED25519[:31]},
    "Ed25519 with its private key": {1: 1, 3: EDDSA, -1: 6, -2: ED25519, -4: bytes(32)},
    "Ed25519 as X25519": {1: 1, 3: EDDSA, -1: 4, -2: ED25519},
    "Ed25519 whose type is true": {1: True, 3: EDDSA, -1: 6, -2: ED25519},
    "Ed25519 whose curve is a float": {1: 1, 3: EDDSA, -1: 6.0, -2: ED25519},
    "Ed25519 with a key id": {1: 1, 2: b"id", 3: EDDSA, -1: 6, -2: ED25519},
    "P-256 off the curve": {1: 2, 3: ES256, -1: 1, -2: X, -3: X},
    "P-256 compressed": {1: 2, 3: ES256, -1: 1, -2: X, -3: bool(P256.y & 1)},
    "P-256 with a longer coordinate": {1: 2, 3: ES256, -1: 1, -2: b"\0" + X, -3: Y},
    "P-256 with its private key": {1: 2, 3: ES256, -1: 1, -2: X, -3: Y, -4: bytes(32)},
    "P-256 with operations": {1: 2, 3: ES256, 4: [2], -1: 1, -2: X, -3: Y},
    "P-256 with an unknown parameter": {1: 2, 3: ES256, -1: 1, -2: X, -3: Y, -70000: b"x"},
    "P-256 as an Edwards key": {1: 2, 3: EDDSA, -1: 1, -2: X, -3: Y},
    "P-256 as an RSA key": {1: 2, 3: RS256, -1: 1, -2: X, -3: Y},
    "RSA as P-256": {1: 3, 3: ES256, -1: N, -2: E},
    "RSA with its private key": {1: 3, 3: RS256, -1: N, -2: E, -3: N},
    "RSA with e = 1": {1: 3, 3: RS256, -1: N, -2: b"\1"},
    "RSA with e = 3": {1: 3, 3: RS256, -1: N, -2: b"\3"},
    "RSA with an even e": {1: 3, 3: RS256, -1: N, -2: (65538).to_bytes(3, "big")},
    "RSA with e = n - 2": {1: 3, 3: RS256, -1: N, -2: (RSA.n - 2).to_bytes(256, "big")},
    "RSA with an even n": {1: 3, 3: RS256, -1: (RSA.n + 1).to_bytes(256, "big"), -2: E},
    "RSA with a factor of three": {1: 3, 3: RS256, -1: (RSA.n * 3).to_bytes(257, "big"), -2: E},
    "RSA of 2047 bits": {1: 3, 3: RS256, -1: (RSA.n >> 1 | 1).to_bytes(256, "big"), -2: E},
    "RSA of 16 bits": {1: 3, 3: RS256, -1: (251 * 257).to_bytes(2, "big"), -2: b"\3"},
}


@pytest.fixture(scope="module")
def registrant(tenant: TestTenant, django_db_blocker: Any) -> tuple[Api, User]:
    """A signed-in user whose registrations all fail."""
    with django_db_blocker.unblock():
        person = tenant.register()
        return tenant.as_user(person), person


def _finish(home: Home, registrant: tuple[Api, User], alg: int = ES256, **knobs: Any) -> tuple[int, int]:
    """The status of a registration with these knobs, and how many factors the user has then."""
    api, person = registrant
    credential = new_authenticator(alg=alg).create(home.begin_registration(api, person).json(), **knobs)
    response = home.finish_registration(api, person, credential)
    return response.status_code, len(api.get("/webauthn/factors").json()["factors"])


@pytest.mark.parametrize("public_key", DEGENERATE_KEYS.values(), ids=DEGENERATE_KEYS.keys())
def test_registration_rejects_degenerate_key(
    home: Home, registrant: tuple[Api, User], public_key: dict[Any, Any]
) -> None:
    assert _finish(home, registrant, attestation="none", public_key=public_key) == (400, 0)


@pytest.mark.parametrize("statement", [{"x": 1}, {"sig": b""}, {1: 1}, [], None, "", 0], ids=repr)
def test_registration_rejects_none_with_statement(home: Home, registrant: tuple[Api, User], statement: Any) -> None:
    assert _finish(home, registrant, attestation="none", statement=statement) == (400, 0)


@pytest.mark.parametrize("alg", [ES256, EDDSA, RS256])
def test_registration_accepts_none_with_empty_map(home: Home, api: Api, person: User, alg: int) -> None:
    assert _finish(home, (api, person), alg, attestation="none") == (200, 1)


@pytest.mark.parametrize("knobs", REFUSED.values(), ids=REFUSED.keys())
def test_refused(home: Home, api: Api, person: User, knobs: dict[str, Any]) -> None:
    credential = new_authenticator().create(home.begin_registration(api, person).json(), **knobs)
    response = home.finish_registration(api, person, credential)
    assert (response.status_code, response.json()["error"]) == (400, "Bad Request")
    assert api.get("/webauthn/factors").json()["factors"] == []


def test_registration_accepts_longest_credential_id(home: Home, api: Api, person: User) -> None:
    authenticator = new_authenticator()
    authenticator.credential_id = bytes(1019) + person.id.bytes[:4]
    home.enrol(api, person, authenticator)
    assert home.finish_authentication(person, authenticator.get(home.options(person))).status_code == 200


def test_registration_rejects_algorithm_not_offered(home: Home, api: Api, person: User) -> None:
    credential = new_authenticator(alg=ES384).create(home.begin_registration(api, person).json())
    assert home.finish_registration(api, person, credential).status_code == 400


def test_challenge_works_once(home: Home, api: Api, person: User) -> None:
    options = home.begin_registration(api, person).json()
    assert home.finish_registration(api, person, new_authenticator().create(options)).status_code == 200
    api = stepped_up(api)
    again = home.finish_registration(api, person, new_authenticator().create(options), **by_factor(api))
    assert (again.status_code, again.json()["code"]) == (400, "passkey_rejected")
    assert len(api.get("/webauthn/factors").json()["factors"]) == 1


def test_failed_response_consumes_challenge(home: Home, api: Api, person: User) -> None:
    options = home.begin_registration(api, person).json()
    wrong = new_authenticator().create(options, origin="https://evil.example")
    assert home.finish_registration(api, person, wrong).status_code == 400
    assert home.finish_registration(api, person, new_authenticator().create(options)).status_code == 400


def test_challenge_is_bound_to_user(home: Home, tenant: TestTenant, api: Api, person: User) -> None:
    other = tenant.register()
    credential = new_authenticator().create(home.begin_registration(api, person).json())
    assert home.finish_registration(tenant.as_user(other), other, credential).status_code == 400
    assert home.finish_registration(api, person, credential).status_code == 200


def test_challenge_is_bound_to_tenant(
    home: Home, tenant: TestTenant, other_tenant: TestTenant, api: Api, person: User
) -> None:
    namesake = other_tenant.register(email=person.email)
    credential = new_authenticator().create(home.begin_registration(api, person).json())
    there = end_users_of(other_tenant)
    assert there.finish_registration(other_tenant.as_user(namesake), namesake, credential).status_code == 400


def test_challenge_is_bound_to_realm(home: Home, tenant: TestTenant, api: Api, person: User) -> None:
    credential = new_authenticator().create(home.begin_registration(api, person).json())
    assert ADMIN_USERS.finish_registration(tenant.api, tenant.admin, credential).status_code == 400


def test_challenge_is_bound_to_ceremony(home: Home, enrolled: tuple[User, Authenticator], tenant: TestTenant) -> None:
    person, authenticator = enrolled
    challenge = home.options(person)["challenge"]
    api = Api(token=_second_step(home, tenant, person, authenticator))
    credential = new_authenticator().create(home.begin_registration(api, person).json(), challenge=challenge)
    assert home.finish_registration(api, person, credential).status_code == 400


def _second_step(home: Home, tenant: TestTenant, person: User, authenticator: Authenticator) -> str:
    waiting = tenant.sign_in(person)["mfa_token"]
    response = authenticator.get(home.options(person))
    return str(home.finish_authentication(person, response, mfa_token=waiting).json()["access_token"])


def test_credential_id_belongs_to_one_user(
    home: Home, tenant: TestTenant, enrolled: tuple[User, Authenticator]
) -> None:
    _, taken = enrolled
    other = tenant.register()
    api = tenant.as_user(other)
    credential = new_authenticator().create(
        home.begin_registration(api, other).json(), credential_id=taken.credential_id
    )
    assert home.finish_registration(api, other, credential).status_code == 400
    assert api.get("/webauthn/factors").json()["factors"] == []


@pytest.mark.parametrize(
    "credential",
    ["", "no json", "[]", "{}", {}, [], 1, None, True, {"id": 1}, '{"id": "a", "id": "b"}', "9" * 300_000],
    ids=repr,
)
def test_registration_rejects_malformed_credential(home: Home, api: Api, person: User, credential: Any) -> None:
    response = home.finish_registration(api, person, credential)
    assert response.status_code == 400


def test_twenty_first_passkey_is_rejected(home: Home, api: Api, person: User) -> None:
    home.enrol(api, person)
    api = stepped_up(api)
    for _ in range(19):
        home.enrol(api, person, **by_factor(api))
    assert home.begin_registration(api, person).status_code == 400


def test_erasure_counts_passkeys(home: Home, tenant: TestTenant, api: Api, person: User) -> None:
    home.enrol(api, person)
    assert home.begin_registration(stepped_up(api), person).status_code == 200
    response = tenant.api.post(
        "/uflow/user/enduser/delete_all", {"tenant_id": str(tenant.id), "user_id": str(person.id)}
    )
    assert response.status_code == 200
    assert response.json()["deleted"]["webauthn_credentials"] == 1
    assert response.json()["deleted"]["webauthn_challenges"] == 1


def test_registration_is_mailed_and_audited(home: Home, tenant: TestTenant, api: Api, person: User) -> None:
    from identity_platform.audit.models import TenantEvent
    from tenants.entering.context import in_tenant

    home.enrol(api, person)
    with in_tenant(tenant.id):
        event = TenantEvent.objects.get(action="factor.enrolled", target_id=str(person.id))
    assert (event.details["kind"], event.details["rung"], event.address) == ("webauthn", "bearer", api.address)
