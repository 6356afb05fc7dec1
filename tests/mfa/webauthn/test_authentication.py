"""Using a passkey: as a verification, as a second step, as the only step, and every reason to reject."""

import json
from typing import Any

import pytest

from tests.copies import change_client
from tests.mfa.webauthn.authenticator import UP, UV, Authenticator, b64, unb64
from tests.mfa.webauthn.passkeys import (
    ADMIN_USERS,
    ORIGIN,
    Home,
    end_users_of,
    new_authenticator,
    user_with_passkey,
)
from tests.world import Api, TestTenant, User, sign_in_admin

Enrolled = tuple[User, Authenticator]


def test_options_list_passkeys_of_user(home: Home, enrolled: Enrolled) -> None:
    person, authenticator = enrolled
    options = home.options(person)
    assert options["rpId"] == "localhost"
    assert options["userVerification"] == "preferred"
    assert options["allowCredentials"] == [
        {"id": b64(authenticator.credential_id), "type": "public-key", "transports": ["usb"]}
    ]
    assert len(unb64(options["challenge"])) == 32


@pytest.mark.parametrize("form", [lambda found: found, json.dumps], ids=["object", "string"])
def test_use_without_ticket_is_verification_only(home: Home, enrolled: Enrolled, form: Any) -> None:
    person, authenticator = enrolled
    response = home.finish_authentication(person, form(authenticator.get(home.options(person))))
    assert response.status_code == 200
    assert response.json() == {"success": True, "user_id": str(person.id)}


def test_passkey_completes_login(home: Home, tenant: TestTenant, enrolled: Enrolled) -> None:
    person, authenticator = enrolled
    login = tenant.sign_in(person)
    assert (login["mfa_required"], login["methods"]) == (True, ["webauthn"])
    response = authenticator.get(home.options(person))
    answer = home.finish_authentication(person, response, mfa_token=login["mfa_token"]).json()
    assert (answer["success"], answer["user_id"], answer["token_type"]) == (True, str(person.id), "Bearer")
    claims = Api(token=answer["access_token"]).get("/exsvc/debug/auth").json()["claims"]
    assert (claims["amr"], claims["sub"], claims["client_id"]) == (
        ["pwd", "pop"],
        str(person.id),
        str(tenant.client_id),
    )
    assert answer["refresh_token"]
    assert answer["expires_in"] == 3600


def test_passkey_completes_admin_login(new_tenant: Any) -> None:
    tenant = new_tenant()
    authenticator = ADMIN_USERS.enrol(tenant.api, tenant.admin)
    login = sign_in_admin(tenant.admin.username)
    assert "access_token" not in login
    response = authenticator.get(ADMIN_USERS.options(tenant.admin))
    answer = ADMIN_USERS.finish_authentication(tenant.admin, response, mfa_token=login["mfa_token"]).json()
    me = Api(token=answer["access_token"]).get("/uflow/admin/users/me").json()
    assert (me["id"], me["mfa_methods"]) == (str(tenant.admin.id), ["webauthn"])


def test_passkey_rejects_admin_of_suspended_tenant(new_tenant: Any, operator: Api) -> None:
    tenant = new_tenant()
    authenticator = ADMIN_USERS.enrol(tenant.api, tenant.admin)
    response = authenticator.get(ADMIN_USERS.options(tenant.admin))
    for status, expected in (("suspended", 403), ("active", 401)):
        assert operator.patch(f"/uflow/admin/tenants/{tenant.id}", {"status": status}).status_code == 200
        # The challenge is used up by the first try.
        assert ADMIN_USERS.finish_authentication(tenant.admin, response).status_code == expected
    again = authenticator.get(ADMIN_USERS.options(tenant.admin))
    assert ADMIN_USERS.finish_authentication(tenant.admin, again).status_code == 200


def test_ticket_works_once_and_for_its_user_only(home: Home, tenant: TestTenant, enrolled: Enrolled) -> None:
    person, authenticator = enrolled
    other, key_of_other = user_with_passkey(tenant)
    ticket = tenant.sign_in(person)["mfa_token"]
    foreign = key_of_other.get(home.options(other))
    assert home.finish_authentication(other, foreign, mfa_token=ticket).status_code == 401
    for status in (200, 401):
        response = authenticator.get(home.options(person))
        assert home.finish_authentication(person, response, mfa_token=ticket).status_code == status


def test_passkey_sign_in_needs_no_email(home: Home, tenant: TestTenant, enrolled: Enrolled) -> None:
    person, authenticator = enrolled
    options = home.options()
    assert (options["userVerification"], options["allowCredentials"]) == ("required", [])
    response = home.finish_authentication(None, authenticator.get(options)).json()
    assert (response["success"], response["user_id"]) == (True, str(person.id))
    claims = Api(token=response["access_token"]).get("/exsvc/debug/auth").json()["claims"]
    assert (claims["amr"], claims["client_id"]) == (["pop", "mfa"], str(tenant.client_id))


def test_passkey_sign_in_may_send_email_at_finish(home: Home, tenant: TestTenant, enrolled: Enrolled) -> None:
    person, authenticator = enrolled
    other = tenant.register()
    assert home.finish_authentication(other, authenticator.get(home.options())).status_code == 401
    response = home.finish_authentication(person, authenticator.get(home.options()))
    assert "access_token" in response.json()


SIGN_IN_REFUSED: dict[str, dict[str, Any]] = {
    "no user verification": {"flags": UP},
    "no user handle": {"without_handle": True},
    "another's handle": {"user_handle": bytes(16)},
    "an empty handle": {"user_handle": b""},
}


@pytest.mark.parametrize("knobs", SIGN_IN_REFUSED.values(), ids=SIGN_IN_REFUSED.keys())
def test_passkey_sign_in_rejects_invalid_response(home: Home, enrolled: Enrolled, knobs: dict[str, Any]) -> None:
    person, authenticator = enrolled
    response = home.finish_authentication(person, authenticator.get(home.options(), **knobs))
    assert (response.status_code, "access_token" in response.json()) == (401, False)


def test_verification_challenge_opens_no_session(home: Home, enrolled: Enrolled) -> None:
    person, authenticator = enrolled
    response = home.finish_authentication(None, authenticator.get(home.options(person)))
    assert response.status_code == 401


def test_finish_without_user_is_400(home: Home, enrolled: Enrolled) -> None:
    _, authenticator = enrolled
    response = home.finish_authentication(None, authenticator.get(home.options(), without_handle=True))
    assert response.status_code == 400
    assert "email" in response.json()["details"]


def test_inactive_client_opens_no_session(new_tenant: Any) -> None:
    tenant = new_tenant()
    home = end_users_of(tenant)
    _, authenticator = user_with_passkey(tenant)
    options = home.options()
    _deactivate_client(tenant)
    assert home.finish_authentication(None, authenticator.get(options)).status_code == 401


def _deactivate_client(tenant: TestTenant) -> None:
    # The endpoint for it belongs to client management.

    change_client(tenant.client_id, active=False)


def test_inactive_user_is_rejected(home: Home, tenant: TestTenant, enrolled: Enrolled) -> None:
    person, authenticator = enrolled
    named, unnamed = home.options(person), home.options()
    tenant.api.put(f"/uflow/user/enduser/{tenant.id}/{person.id}/status", {"active": False})
    assert home.finish_authentication(person, authenticator.get(named)).status_code == 401
    assert home.finish_authentication(None, authenticator.get(unnamed)).status_code == 401
    assert home.begin_authentication(person).status_code == 404


REFUSED: dict[str, dict[str, Any]] = {
    "wrong origin": {"origin": "https://evil.example"},
    "wrong port": {"origin": ORIGIN + "1"},
    "origin with a slash": {"origin": ORIGIN + "/"},
    "wrong rp id": {"rp_id": "example.com"},
    "wrong type": {"type": "webauthn.create"},
    "no user presence": {"flags": UV},
    "became backup eligible": {"flags": UP | UV | 0x08},
    "cross-origin": {"client_data": {"crossOrigin": True}},
    "top origin": {"client_data": {"topOrigin": "https://evil.example"}},
    "unknown challenge": {"challenge": b64(bytes(32))},
    "another user's handle": {"user_handle": bytes(16)},
    "tampered signature": {"tamper_signature": True},
    "unknown credential id": {"credential_id": bytes(32)},
    "a credential id of 60,000 bytes": {"credential_id": bytes(60_000)},
    "equal counter": {"sign_count": 0},
}


@pytest.mark.parametrize("knobs", REFUSED.values(), ids=REFUSED.keys())
def test_refused(home: Home, tenant: TestTenant, enrolled: Enrolled, knobs: dict[str, Any]) -> None:
    person, authenticator = enrolled
    assert home.finish_authentication(person, authenticator.get(home.options(person))).status_code == 200
    response = home.finish_authentication(person, authenticator.get(home.options(person), **knobs))
    assert (response.status_code, response.json()["error"]) == (401, "Unauthorized")


@pytest.mark.parametrize("flags", [UP | UV | 0x08, UP | UV | 0x18], ids=["eligible", "backed up"])
def test_backup_eligibility_must_not_change(home: Home, tenant: TestTenant, flags: int) -> None:
    person = tenant.register()
    api = tenant.as_user(person)
    authenticator = home.enrol(api, person, new_authenticator(flags=flags))
    assert api.get("/webauthn/factors").json()["factors"][0]["backed_up"] == bool(flags & 0x10)
    backed_up = authenticator.get(home.options(person), flags=UP | UV | 0x18)
    assert home.finish_authentication(person, backed_up).status_code == 200
    assert api.get("/webauthn/factors").json()["factors"][0]["backed_up"] is True
    single = authenticator.get(home.options(person), flags=UP | UV)
    assert home.finish_authentication(person, single).status_code == 401


def test_counter_must_rise(home: Home, tenant: TestTenant, enrolled: Enrolled) -> None:
    person, authenticator = enrolled
    for count, status in ((7, 200), (7, 401), (6, 401), (0, 401), (8, 200)):
        response = authenticator.get(home.options(person), sign_count=count)
        assert home.finish_authentication(person, response).status_code == status, count
    assert _stored(tenant, person).sign_count == 8
    reasons = [event.details["reason"] for event in _errors(tenant, person)]
    assert reasons == ["counter did not rise"] * 3


def test_authenticator_without_counter_is_accepted(home: Home, tenant: TestTenant) -> None:
    person, authenticator = user_with_passkey(tenant, counting=False)
    for count, status in ((0, 200), (0, 200), (1, 200), (0, 401)):
        response = authenticator.get(home.options(person), sign_count=count)
        assert home.finish_authentication(person, response).status_code == status
    assert _stored(tenant, person).sign_count == 1


def _stored(tenant: TestTenant, person: User) -> Any:
    from mfa.webauthn.models import EndUserPasskey
    from tenants.entering.context import in_tenant

    with in_tenant(tenant.id):
        return EndUserPasskey.objects.get(user_id=person.id)


def _errors(tenant: TestTenant, person: User) -> list[Any]:
    from identity_platform.audit.models import TenantEvent
    from tenants.entering.context import in_tenant

    with in_tenant(tenant.id):
        return list(TenantEvent.objects.filter(action="factor.refused", target_id=str(person.id)))


def test_challenge_works_once(home: Home, enrolled: Enrolled) -> None:
    person, authenticator = enrolled
    options = home.options(person)
    assert home.finish_authentication(person, authenticator.get(options)).status_code == 200
    assert home.finish_authentication(person, authenticator.get(options)).status_code == 401


def test_assertion_works_once(home: Home, tenant: TestTenant) -> None:
    person, authenticator = user_with_passkey(tenant, counting=False)
    response = authenticator.get(home.options(person))
    assert [home.finish_authentication(person, response).status_code for _ in range(2)] == [200, 401]


def test_challenge_is_bound_to_user(home: Home, tenant: TestTenant, enrolled: Enrolled) -> None:
    person, authenticator = enrolled
    other, _ = user_with_passkey(tenant)
    response = authenticator.get(home.options(other))
    assert home.finish_authentication(person, response).status_code == 401


def test_challenge_is_bound_to_tenant(home: Home, other_tenant: TestTenant, enrolled: Enrolled) -> None:
    person, authenticator = enrolled
    there = end_users_of(other_tenant)
    for options in (home.options(), home.options(person)):
        response = authenticator.get(options)
        assert there.finish_authentication(person, response).status_code == 401
        assert there.finish_authentication(None, response).status_code == 401


def test_challenge_is_bound_to_realm(new_tenant: Any) -> None:
    tenant = new_tenant()
    authenticator = ADMIN_USERS.enrol(tenant.api, tenant.admin)
    response = authenticator.get(ADMIN_USERS.options(tenant.admin))
    assert end_users_of(tenant).finish_authentication(tenant.admin, response).status_code == 401
    assert ADMIN_USERS.finish_authentication(tenant.admin, response).status_code == 200


def test_challenge_is_bound_to_ceremony(home: Home, tenant: TestTenant, enrolled: Enrolled) -> None:
    person, authenticator = enrolled
    ticket = tenant.sign_in(person)["mfa_token"]
    token = home.finish_authentication(person, authenticator.get(home.options(person)), mfa_token=ticket).json()
    options = home.begin_registration(Api(token=token["access_token"]), person).json()
    response = authenticator.get({"rpId": "localhost", "challenge": options["challenge"]})
    assert home.finish_authentication(person, response).status_code == 401


def test_challenge_expires_after_five_minutes(home: Home, tenant: TestTenant, enrolled: Enrolled) -> None:
    person, authenticator = enrolled
    options = home.options(person)
    _age_challenges(tenant, person)
    assert home.finish_authentication(person, authenticator.get(options)).status_code == 401


def _age_challenges(tenant: TestTenant, person: User) -> None:
    from datetime import timedelta

    from django.db.models import F

    from mfa.webauthn.models import EndUserChallenge
    from tenants.entering.context import in_tenant

    with in_tenant(tenant.id):
        EndUserChallenge.objects.filter(user_id=person.id).update(expires_at=F("expires_at") - timedelta(minutes=5))


def test_user_without_passkey_and_unknown_user(home: Home, tenant: TestTenant) -> None:
    person = tenant.register()
    missing = User(person.id, "unknown@example.com")
    assert home.begin_authentication(person).status_code == 400
    assert home.begin_authentication(missing).status_code == 404
    responses = [home.finish_authentication(who, {"id": "x"}) for who in (person, missing)]
    assert [response.status_code for response in responses] == [401, 401]
    assert responses[0].json() == responses[1].json()


def test_token_of_another_tenant_is_403(home: Home, other_tenant: TestTenant, enrolled: Enrolled) -> None:
    person, authenticator = enrolled
    assert home.begin_authentication(person, api=other_tenant.api).status_code == 403
    response = authenticator.get(home.options(person))
    assert home.finish_authentication(person, response, api=other_tenant.api).status_code == 403


def test_unknown_tenant_gets_documented_errors(home: Home, tenant: TestTenant, enrolled: Enrolled) -> None:
    person, authenticator = enrolled
    nowhere = Home(home.prefix, {"tenant_id": "00000000-0000-4000-8000-000000000000"})
    assert nowhere.begin_authentication(person).status_code == 404
    assert nowhere.begin_registration(Api(), person).status_code == 404
    response = authenticator.get(home.options(person))
    assert nowhere.finish_authentication(person, response).status_code == 401


def test_five_failures_lock_other_callers_only(home: Home, tenant: TestTenant, enrolled: Enrolled) -> None:
    person, authenticator = enrolled
    for _ in range(5):
        wrong = authenticator.get(home.options(person), tamper_signature=True)
        assert home.finish_authentication(person, wrong).status_code == 401
    locked = home.finish_authentication(person, authenticator.get(home.options(person)))
    assert locked.status_code == 429
    assert 50 < int(locked.headers["Retry-After"]) <= 61
    ticket = tenant.sign_in(person)["mfa_token"]
    response = authenticator.get(home.options(person))
    assert home.finish_authentication(person, response, mfa_token=ticket).status_code == 200


def test_extra_fields_have_no_effect(home: Home, enrolled: Enrolled) -> None:
    person, authenticator = enrolled
    response = authenticator.get(home.options(person))
    answer = home.finish_authentication(person, response, mfa_verified=True, role="operator", user_id="x")
    assert answer.json() == {"success": True, "user_id": str(person.id)}


def test_admin_calls_require_email(tenant: TestTenant) -> None:
    assert ADMIN_USERS.begin_authentication().status_code == 400
    assert ADMIN_USERS.finish_authentication(None, {"id": "x"}).status_code == 400
