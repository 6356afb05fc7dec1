"""Enrolling a passkey: options, both forms of the response, and every reason to refuse one."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.mfa.webauthn.authenticator import EDDSA, ES384, RS256, UP, UV, Authenticator, b64, unb64
from tests.mfa.webauthn.passkeys import ADMIN_USERS, ORIGIN, Home, end_users_of, new_authenticator
from tests.world import Api, House, Person


@pytest.fixture
def person(house: House) -> Person:
    return house.register()


@pytest.fixture
def door(house: House, person: Person) -> Api:
    """The person's own door, freshly signed in."""
    return house.as_user(person)


def test_options_are_ready_for_the_browser(home: Home, house: House, door: Api, person: Person) -> None:
    answer = home.begin_registration(door, person)
    options = answer.json()
    assert answer.status_code == 200
    assert answer.headers["Cache-Control"] == "no-store"
    assert options["rp"] == {"id": "localhost", "name": house.made.tenant.name}
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
def test_credential_as_object_or_string(home: Home, door: Api, person: Person, form: Callable[..., Any]) -> None:
    authenticator = new_authenticator()
    credential = authenticator.create(home.begin_registration(door, person).json())
    answer = home.finish_registration(door, person, form(credential))
    assert answer.status_code == 200
    assert answer.json() == {
        "success": True,
        "message": "The passkey is enrolled.",
        "credential_id": b64(authenticator.credential_id),
    }


@pytest.mark.parametrize("alg", [EDDSA, RS256])
def test_other_algorithms_that_are_offered(home: Home, door: Api, person: Person, alg: int) -> None:
    authenticator = home.enrol(door, person, new_authenticator(alg=alg))
    assert home.finish_authentication(person, authenticator.get(home.options(person))).status_code == 200


def test_one_more_passkey_excludes_the_first(home: Home, door: Api, person: Person) -> None:
    first = home.enrol(door, person)
    options = home.begin_registration(door, person).json()
    assert [found["id"] for found in options["excludeCredentials"]] == [b64(first.credential_id)]
    assert options["excludeCredentials"][0]["transports"] == ["usb"]
    assert home.finish_registration(door, person, new_authenticator().create(options)).status_code == 200


def test_the_factor_list_names_the_authenticator(home: Home, door: Api, person: Person) -> None:
    authenticator = new_authenticator()
    authenticator.aaguid = bytes.fromhex("bada5566a7aa401fbd9645619a55120d")
    home.enrol(door, person, authenticator)
    factors = door.get("/webauthn/factors").json()
    assert [(f["kind"], f["name"]) for f in factors["factors"]] == [("webauthn", "1Password")]
    assert factors["methods"] == ["webauthn"]


def test_an_admin_user_enrols_in_the_global_database(new_house: Callable[[], House]) -> None:
    # Of a tenant of the test's own: others sign the shared one's admin in without a factor.
    house = new_house()
    home, admin = ADMIN_USERS, house.admin
    authenticator = home.enrol(house.api, admin)
    answer = home.finish_authentication(admin, authenticator.get(home.options(admin)))
    assert answer.json() == {"success": True, "user_id": str(admin.id)}


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


@pytest.mark.parametrize("knobs", REFUSED.values(), ids=REFUSED.keys())
def test_refused(home: Home, door: Api, person: Person, knobs: dict[str, Any]) -> None:
    credential = new_authenticator().create(home.begin_registration(door, person).json(), **knobs)
    answer = home.finish_registration(door, person, credential)
    assert (answer.status_code, answer.json()["error"]) == (400, "Bad Request")
    assert door.get("/webauthn/factors").json()["factors"] == []


def test_the_longest_credential_id_is_taken(home: Home, door: Api, person: Person) -> None:
    authenticator = new_authenticator()
    authenticator.credential_id = bytes(1019) + person.id.bytes[:4]
    home.enrol(door, person, authenticator)
    assert home.finish_authentication(person, authenticator.get(home.options(person))).status_code == 200


def test_an_algorithm_that_was_not_offered(home: Home, door: Api, person: Person) -> None:
    credential = new_authenticator(alg=ES384).create(home.begin_registration(door, person).json())
    assert home.finish_registration(door, person, credential).status_code == 400


def test_a_challenge_is_answered_once(home: Home, door: Api, person: Person) -> None:
    options = home.begin_registration(door, person).json()
    assert home.finish_registration(door, person, new_authenticator().create(options)).status_code == 200
    assert home.finish_registration(door, person, new_authenticator().create(options)).status_code == 400
    assert len(door.get("/webauthn/factors").json()["factors"]) == 1


def test_a_failed_answer_spends_the_challenge(home: Home, door: Api, person: Person) -> None:
    options = home.begin_registration(door, person).json()
    wrong = new_authenticator().create(options, origin="https://evil.example")
    assert home.finish_registration(door, person, wrong).status_code == 400
    assert home.finish_registration(door, person, new_authenticator().create(options)).status_code == 400


def test_a_challenge_is_its_users(home: Home, house: House, door: Api, person: Person) -> None:
    other = house.register()
    credential = new_authenticator().create(home.begin_registration(door, person).json())
    assert home.finish_registration(house.as_user(other), other, credential).status_code == 400
    assert home.finish_registration(door, person, credential).status_code == 200


def test_a_challenge_is_its_tenants(home: Home, house: House, other_house: House, door: Api, person: Person) -> None:
    namesake = other_house.register(email=person.email)
    credential = new_authenticator().create(home.begin_registration(door, person).json())
    there = end_users_of(other_house)
    assert there.finish_registration(other_house.as_user(namesake), namesake, credential).status_code == 400


def test_a_challenge_is_its_realms(home: Home, house: House, door: Api, person: Person) -> None:
    credential = new_authenticator().create(home.begin_registration(door, person).json())
    assert ADMIN_USERS.finish_registration(house.api, house.admin, credential).status_code == 400


def test_a_challenge_is_its_ceremonys(home: Home, enrolled: tuple[Person, Authenticator], house: House) -> None:
    person, authenticator = enrolled
    challenge = home.options(person)["challenge"]
    door = Api(token=_second_step(home, house, person, authenticator))
    credential = new_authenticator().create(home.begin_registration(door, person).json(), challenge=challenge)
    assert home.finish_registration(door, person, credential).status_code == 400


def _second_step(home: Home, house: House, person: Person, authenticator: Authenticator) -> str:
    waiting = house.sign_in(person)["mfa_token"]
    response = authenticator.get(home.options(person))
    return str(home.finish_authentication(person, response, mfa_token=waiting).json()["access_token"])


def test_a_credential_id_belongs_to_one_user(home: Home, house: House, enrolled: tuple[Person, Authenticator]) -> None:
    _, taken = enrolled
    other = house.register()
    door = house.as_user(other)
    credential = new_authenticator().create(
        home.begin_registration(door, other).json(), credential_id=taken.credential_id
    )
    assert home.finish_registration(door, other, credential).status_code == 400
    assert door.get("/webauthn/factors").json()["factors"] == []


@pytest.mark.parametrize(
    "credential",
    ["", "no json", "[]", "{}", {}, [], 1, None, True, {"id": 1}, '{"id": "a", "id": "b"}', "9" * 300_000],
    ids=repr,
)
def test_what_is_no_credential(home: Home, door: Api, person: Person, credential: Any) -> None:
    answer = home.finish_registration(door, person, credential)
    assert answer.status_code == 400


def test_twenty_passkeys_and_no_more(home: Home, door: Api, person: Person) -> None:
    for _ in range(20):
        home.enrol(door, person)
    assert home.begin_registration(door, person).status_code == 400


def test_erasing_the_user_counts_the_passkeys(home: Home, house: House, door: Api, person: Person) -> None:
    home.enrol(door, person)
    home.begin_registration(door, person)
    answer = house.api.post("/uflow/user/enduser/delete_all", {"tenant_id": str(house.id), "user_id": str(person.id)})
    assert answer.status_code == 200
    assert answer.json()["deleted"]["webauthn_credentials"] == 1
    assert answer.json()["deleted"]["webauthn_challenges"] == 1


def test_the_user_is_told_and_the_trail_knows_how(home: Home, house: House, door: Api, person: Person) -> None:
    from identity_platform.audit.models import TenantEvent
    from tenants.context import in_tenant

    home.enrol(door, person)
    with in_tenant(house.id):
        event = TenantEvent.objects.get(action="factor.enrolled", target_id=str(person.id))
    assert (event.details["kind"], event.details["rung"], event.address) == ("webauthn", "bearer", door.address)
