"""Devices at the protocol's endpoints (RFC 8628): codes, polling, tokens and the sessions of devices."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import jwt
import pytest
from django.core.cache import cache
from django.utils.timezone import now

from identity_platform.api import valkey
from openid.device.codes import ALPHABET
from openid.models import AuthorizationRequest, Consent, DeviceCode
from tenants.entering.context import in_tenant
from tests.copies import change_client
from tests.openid.devices import Device, error_of, new_device
from tests.openid.dpop_keys import DpopKey
from tests.openid.pages.visitor import Visitor, begin, code_of
from tests.parallel import run_concurrently
from tests.userflow.sessions.clients import basic
from tests.world import PASSWORD, Api, TestTenant, User, capture_statements
from userflow.accounts.grant_types import DEVICE_CODE
from userflow.accounts.realms import END_USERS
from userflow.accounts.session_models import EndUserSession
from userflow.events.models import WebhookMessage
from userflow.sessions.ending import end_sessions


@pytest.fixture
def user(tenant: TestTenant) -> User:
    return tenant.register()


@pytest.fixture
def visitor(tenant: TestTenant, user: User) -> Visitor:
    """A browser in which the user is signed in."""
    opened = Visitor(tenant)
    opened.signs_in(user)
    return opened


@pytest.fixture
def device(tenant: TestTenant) -> Device:
    started = new_device(tenant)
    started.starts(scope="openid email")
    return started


def change(device: Device, **fields: Any) -> None:
    """Change the stored codes of a device."""
    with in_tenant(device.tenant.id):
        assert DeviceCode.objects.filter(client_id=device.client["client_id"]).update(**fields) == 1


def session_of(device: Device, tokens: dict[str, Any]) -> EndUserSession:
    sid = jwt.decode(tokens["access_token"], options={"verify_signature": False})["sid"]
    with in_tenant(device.tenant.id):
        return EndUserSession.objects.get(pk=sid)


def signs_in_again(visitor: Visitor, user: User) -> None:
    """Sign in where an application asks for it, while the browser is signed in."""
    begin(visitor, prompt="login")
    assert visitor.at == "signin", visitor.text
    code_of(visitor.sends(email=user.email, password=user.password))


# --- codes -----------------------------------------------------------------------------------------------------------


def test_device_gets_codes_and_addresses(device: Device) -> None:
    codes = device.codes
    assert set(codes) == {
        "device_code",
        "user_code",
        "verification_uri",
        "verification_uri_complete",
        "expires_in",
        "interval",
    }
    assert codes["verification_uri"].endswith(f"{device.issuer}/device")
    assert codes["verification_uri_complete"] == f"{codes['verification_uri']}?user_code={codes['user_code']}"
    assert (codes["expires_in"], codes["interval"]) == (900, 5)
    assert len(codes["device_code"]) >= 43
    letters = codes["user_code"].replace("-", "")
    assert len(letters) == 8
    assert set(letters) <= set(ALPHABET)


def test_codes_are_not_stored(device: Device, visitor: Visitor) -> None:
    visitor.opens(f"device?user_code={device.codes['user_code']}")
    with in_tenant(device.tenant.id):
        stored = str([*DeviceCode.objects.values(), *AuthorizationRequest.objects.values()])
    for secret in (device.codes["device_code"], device.codes["user_code"], device.codes["user_code"].replace("-", "")):
        assert secret not in stored


def test_client_needs_the_grant_type(tenant: TestTenant) -> None:
    other = new_device(tenant, grant_types=["authorization_code"])
    assert error_of(other.post("device_authorization")) == "unauthorized_client"
    other.codes = {"device_code": "x"}
    assert other.error == "unauthorized_client"


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        ({"scope": "unknown"}, "invalid_scope"),
        ({"scope": "a  b"}, "invalid_scope"),
        ({"resource": "https://other.example.com"}, "invalid_target"),
        ({"scope": ["openid", "email"]}, "invalid_request"),
    ],
    ids=str,
)
def test_wrong_device_request_is_rejected(tenant: TestTenant, sent: dict[str, Any], error: str) -> None:
    assert error_of(new_device(tenant).post("device_authorization", **sent)) == error


def test_confidential_client_authenticates_at_both_endpoints(tenant: TestTenant, visitor: Visitor) -> None:
    own = new_device(tenant, type="confidential")
    assert error_of(own.post("device_authorization")) == "invalid_client"
    own.codes = own.post("device_authorization", basic(own.client)).json()
    own.approved_by(visitor)
    assert own.error == "invalid_client"
    assert own.polls(basic(own.client)).status_code == 200


def test_client_of_another_tenant_gets_no_codes(device: Device, other_tenant: TestTenant) -> None:
    assert error_of(Device(other_tenant, device.client).post("device_authorization")) == "invalid_client"


# --- polling ---------------------------------------------------------------------------------------------------------


def test_device_waits_for_the_user(device: Device, visitor: Visitor) -> None:
    response = device.polls()
    assert (response.status_code, response.json()["error"]) == (400, "authorization_pending")
    assert response.headers["Cache-Control"] == "no-store"
    device.approved_by(visitor)
    assert device.polls().status_code == 200


def test_fast_polling_raises_the_interval(device: Device) -> None:
    assert [device.error for _ in range(3)] == ["authorization_pending", "slow_down", "slow_down"]
    with in_tenant(device.tenant.id):
        row = DeviceCode.objects.get(client_id=device.client["client_id"])
    assert row.interval == 15
    # The next poll is due after the interval, less a second for its way.
    name = f"device_poll:{bytes(row.digest).hex()}"
    assert 10 < int(valkey.client().ttl(cache.make_key(name))) <= 14
    cache.delete(name)
    assert device.error == "authorization_pending"


def test_poll_on_time_writes_no_row(device: Device) -> None:
    with capture_statements() as seen:
        assert device.error == "authorization_pending"
    assert not [sql for sql in seen.tenant if sql.startswith(("INSERT", "DELETE"))]
    with in_tenant(device.tenant.id):
        before = DeviceCode.objects.values().get(client_id=device.client["client_id"])
    cache.delete(f"device_poll:{bytes(before['digest']).hex()}")
    assert device.error == "authorization_pending"
    with in_tenant(device.tenant.id):
        assert DeviceCode.objects.values().get(client_id=device.client["client_id"]) == before


def test_denied_device_is_told(device: Device, visitor: Visitor) -> None:
    visitor.opens(f"device?user_code={device.codes['user_code']}")
    visitor.sends(deny="1")
    assert "The device was not signed in." in visitor.words
    assert [device.error, device.error] == ["access_denied", "access_denied"]


def test_expired_code_is_rejected(device: Device, visitor: Visitor) -> None:
    device.approved_by(visitor)
    change(device, expires_at=now())
    assert device.error == "expired_token"


def test_code_of_another_client_is_rejected(device: Device, visitor: Visitor, tenant: TestTenant) -> None:
    device.approved_by(visitor)
    thief = new_device(tenant)
    thief.codes = device.codes
    assert thief.error == "invalid_grant"
    assert device.polls().status_code == 200


def test_code_of_another_tenant_is_rejected(device: Device, visitor: Visitor, other_tenant: TestTenant) -> None:
    device.approved_by(visitor)
    elsewhere = new_device(other_tenant)
    elsewhere.codes = device.codes
    assert elsewhere.error == "invalid_grant"
    outsider = Visitor(other_tenant)
    outsider.opens(f"device?user_code={device.codes['user_code']}")
    assert "This code is not valid." in outsider.words


def test_code_works_once(device: Device, visitor: Visitor) -> None:
    device.approved_by(visitor)
    tokens = device.polls().json()
    assert device.error == "invalid_grant"
    assert session_of(device, tokens).ended_at is None


def test_concurrent_polls_have_one_winner(device: Device, visitor: Visitor) -> None:
    device.approved_by(visitor)
    responses = run_concurrently([device.polls for _ in range(6)])
    assert sorted(response.status_code for response in responses) == [200] + [400] * 5


def test_missing_device_code_is_named(device: Device) -> None:
    response = device.post("token", grant_type=DEVICE_CODE)
    assert error_of(response) == "invalid_request"
    assert "device_code" in response.json()["error_description"]


def test_poll_costs_few_statements(device: Device, visitor: Visitor) -> None:
    assert device.error == "authorization_pending"
    with capture_statements() as waiting:
        device.polls()
    device.approved_by(visitor)
    with capture_statements() as issuing:
        assert device.polls().status_code == 200
    assert (waiting.counts, issuing.counts) == ((0, 4), (0, 4))


# --- tokens ----------------------------------------------------------------------------------------------------------


def test_device_gets_the_tokens_of_its_scopes(device: Device, visitor: Visitor, user: User) -> None:
    device.approved_by(visitor)
    tokens = device.polls().json()
    assert set(tokens) == {"access_token", "token_type", "expires_in", "refresh_token", "id_token", "scope"}
    identity = jwt.decode(tokens["id_token"], options={"verify_signature": False})
    assert (identity["sub"], identity["email"], identity["amr"]) == (str(user.id), user.email, ["pwd"])
    assert "nonce" not in identity
    again = device.post("token", grant_type="refresh_token", refresh_token=tokens["refresh_token"])
    assert again.json()["scope"] == "openid email"
    userinfo = Api(token=again.json()["access_token"]).get(f"{device.issuer}/userinfo")
    assert userinfo.json()["email"] == user.email


def test_device_gets_requested_resources_only(tenant: TestTenant, visitor: Visitor) -> None:
    first, second = "https://films.example.com", "https://music.example.com"
    own = new_device(tenant, audiences=[first, second, "identity-api"])
    own.starts(resource=[first, second])
    own.approved_by(visitor)
    assert error_of(own.polls(resource="identity-api")) == "invalid_target"
    token = own.polls(resource=second).json()["access_token"]
    assert jwt.decode(token, options={"verify_signature": False})["aud"] == second


def test_device_gets_what_its_client_may_still_have(tenant: TestTenant, visitor: Visitor) -> None:
    first, second = "https://api.example.com", "https://more.example.com"
    device = new_device(tenant, audiences=[first, second])
    own = device.client["client_id"]
    change_client(own, scopes=["services:read"])
    device.starts(scope="openid services:read", resource=[first, second])
    change_client(own, scopes=[], audiences=[second])
    visitor.opens(f"device?user_code={device.codes['user_code']}")
    assert "api.example.com" not in visitor.words
    assert "services:read" not in visitor.words
    visitor.sends(allow="1")
    tokens = device.polls().json()
    claims = jwt.decode(tokens["access_token"], options={"verify_signature": False})
    assert (tokens["scope"], claims["scope"], claims["aud"]) == ("openid", "openid", second)
    device.starts(scope="openid", resource=second)
    device.approved_by(visitor)
    change_client(own, audiences=[])
    assert device.error == "invalid_target"


def test_device_gets_the_scopes_that_the_page_showed(tenant: TestTenant, visitor: Visitor) -> None:
    first, second = "https://api.example.com", "https://more.example.com"
    device = new_device(tenant, audiences=[first, second])
    own = device.client["client_id"]
    change_client(own, scopes=["services:read"])
    device.starts(scope="openid services:read", resource=[first, second])
    change_client(own, scopes=[], audiences=[second])
    device.approved_by(visitor)
    change_client(own, scopes=["services:read"], audiences=[first, second])
    tokens = device.polls().json()
    claims = jwt.decode(tokens["access_token"], options={"verify_signature": False})
    assert (tokens["scope"], claims["scope"], claims["aud"]) == ("openid", "openid", second)


def test_tokens_of_a_device_are_bound_to_its_key(tenant: TestTenant, visitor: Visitor) -> None:
    own, key = new_device(tenant, dpop_bound_access_tokens=True), DpopKey()
    own.starts(scope="openid")
    own.approved_by(visitor)
    assert own.error == "invalid_dpop_proof"
    tokens = own.polls({"DPoP": key.proof("POST", f"{own.issuer}/token")}).json()
    assert tokens["token_type"] == "DPoP"
    refresh = {"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"]}
    assert error_of(own.post("token", {"DPoP": DpopKey().proof("POST", f"{own.issuer}/token")}, **refresh)) == (
        "invalid_grant"
    )
    assert own.post("token", {"DPoP": key.proof("POST", f"{own.issuer}/token")}, **refresh).status_code == 200


# --- consent ---------------------------------------------------------------------------------------------------------


def test_consent_of_third_party_is_recorded(tenant: TestTenant, visitor: Visitor, user: User) -> None:
    own = new_device(tenant, first_party=False)
    own.starts(scope="openid offline_access")
    own.approved_by(visitor)
    assert "refresh_token" in own.polls().json()
    with in_tenant(tenant.id):
        consent = Consent.objects.get(user_id=user.id, client_id=own.client["client_id"])
    assert consent.scopes == ["offline_access", "openid"]
    own.starts(scope="openid")
    visitor.opens(f"device?user_code={own.codes['user_code']}")
    assert visitor.at == "consent"


def test_withdrawn_consent_takes_the_approval_back(tenant: TestTenant, visitor: Visitor) -> None:
    own = new_device(tenant, first_party=False)
    own.starts(scope="openid")
    own.approved_by(visitor)
    with in_tenant(tenant.id):
        Consent.objects.filter(client_id=own.client["client_id"]).update(scopes=[])
    assert own.error == "access_denied"
    visitor.opens("account/applications")
    visitor.sends(client=own.client["client_id"])
    assert own.error == "invalid_grant"


# --- sessions --------------------------------------------------------------------------------------------------------


def test_device_stays_signed_in_without_the_browser(device: Device, visitor: Visitor) -> None:
    device.approved_by(visitor)
    tokens = device.polls().json()
    visitor.opens("signout")
    visitor.sends()
    refreshed = device.post("token", grant_type="refresh_token", refresh_token=tokens["refresh_token"])
    assert refreshed.status_code == 200
    session = session_of(device, tokens)
    assert (session.parent_id, session.user_agent) == (None, "Set-top box")
    assert session.expires_at > now() + timedelta(days=13)


def test_sign_in_again_keeps_the_approval(device: Device, visitor: Visitor, user: User) -> None:
    device.approved_by(visitor)
    signs_in_again(visitor, user)
    assert session_of(device, device.polls().json()).user_id == user.id


def test_sign_in_of_another_user_takes_the_approval_back(device: Device, visitor: Visitor, tenant: TestTenant) -> None:
    device.approved_by(visitor)
    signs_in_again(visitor, tenant.register())
    assert device.error == "access_denied"


@pytest.mark.parametrize("everything", [False, True], ids=["others", "all"])
def test_approval_kept_at_a_sign_in_still_ends(everything: bool, device: Device, visitor: Visitor, user: User) -> None:
    device.approved_by(visitor)
    signs_in_again(visitor, user)
    with in_tenant(device.tenant.id):
        own = EndUserSession.objects.get(user_id=user.id, ended_at=None)
        end_sessions(END_USERS, user_id=user.id, keep=None if everything else own.pk, reason="password_changed")
    assert device.error == ("access_denied" if everything else "invalid_grant")


def test_sign_out_before_the_poll_takes_the_approval_back(device: Device, visitor: Visitor) -> None:
    device.approved_by(visitor)
    visitor.opens("signout")
    visitor.sends()
    assert device.error == "access_denied"


def test_clean_up_of_sessions_takes_the_approval_back(device: Device, visitor: Visitor, user: User) -> None:
    device.approved_by(visitor)
    with in_tenant(device.tenant.id):
        kept = EndUserSession.objects.get(user_id=user.id, ended_at=None)
        end_sessions(END_USERS, user_id=user.id, keep=kept.pk, reason="password_changed")
        assert EndUserSession.objects.filter(pk=kept.pk, ended_at=None).exists()
    assert device.error == "invalid_grant"


@pytest.fixture
def neighbor(tenant: TestTenant, device: Device) -> Device:
    """Another device of the same client, approved by another user of the tenant."""
    person, own = tenant.register(), Device(tenant, device.client)
    own.starts(scope="openid email")
    opened = Visitor(tenant)
    opened.signs_in(person)
    own.approved_by(opened)
    return own


def test_ending_other_sessions_keeps_devices_of_others(
    device: Device, neighbor: Device, visitor: Visitor, user: User
) -> None:
    device.approved_by(visitor)
    token = device.tenant.as_user(user)
    body = {"current_password": PASSWORD, "new_password": "another horse 9 battery"}
    assert token.post("/authmgr/profile/password", body).status_code == 200
    assert device.error in ("invalid_grant", "access_denied")
    assert neighbor.polls().status_code == 200


def test_disconnecting_keeps_devices_of_others(device: Device, neighbor: Device, visitor: Visitor) -> None:
    device.approved_by(visitor)
    visitor.opens("account/applications")
    visitor.sends(client=device.client["client_id"])
    assert device.error == "invalid_grant"
    assert neighbor.polls().status_code == 200


def test_deactivated_client_keeps_devices_of_others(device: Device, visitor: Visitor, tenant: TestTenant) -> None:
    other = new_device(tenant)
    other.starts(scope="openid email")
    other.approved_by(visitor)
    path = f"/clientms/tenants/{tenant.id}/clients/{device.client['client_id']}/deactivate"
    assert tenant.api.patch(path).status_code == 200
    assert other.polls().status_code == 200


def test_user_sees_and_signs_out_the_device(device: Device, visitor: Visitor) -> None:
    device.approved_by(visitor)
    session = session_of(device, tokens := device.polls().json())
    visitor.opens("account/devices")
    assert "Television" in visitor.words
    visitor.opens("account/applications")
    assert "Television" in visitor.words
    with in_tenant(device.tenant.id):
        EndUserSession.objects.filter(pk=session.pk).update(backchannel_logout=True)
    visitor.opens("account/devices")
    visitor.sends(session=str(session.pk))
    with in_tenant(device.tenant.id):
        logout = WebhookMessage.objects.get(endpoint_id=session.client_id)
        assert str(session.pk) in logout.body
        logout.delete()
    refreshed = device.post("token", grant_type="refresh_token", refresh_token=tokens["refresh_token"])
    assert error_of(refreshed) == "invalid_grant"


def test_disconnecting_the_application_ends_the_device(device: Device, visitor: Visitor) -> None:
    device.approved_by(visitor)
    tokens = device.polls().json()
    visitor.opens("account/applications")
    visitor.sends(client=device.client["client_id"])
    assert session_of(device, tokens).end_reason == "consent_revoked"


def test_token_of_third_party_device_cannot_change_the_account(tenant: TestTenant, visitor: Visitor) -> None:
    own = new_device(tenant, first_party=False, audiences=["identity-api"])
    own.starts(scope="openid", resource="identity-api")
    own.approved_by(visitor)
    api = Api(token=own.polls().json()["access_token"])
    assert api.put("/authmgr/profile", {"name": "Mallory"}).status_code == 403
    assert api.get("/authmgr/sessions").status_code == 403


def test_deactivated_client_leaves_no_code(device: Device, visitor: Visitor, tenant: TestTenant) -> None:
    device.approved_by(visitor)
    place = f"/clientms/tenants/{tenant.id}/clients/{device.client['client_id']}"
    for verb in ("deactivate", "activate"):
        assert tenant.api.patch(f"{place}/{verb}").status_code == 200
    assert device.error == "invalid_grant"


def test_client_without_the_grant_type_gets_no_tokens(device: Device, visitor: Visitor) -> None:
    visitor.opens(f"device?user_code={device.codes['user_code']}")
    change_client(device.client["client_id"], grant_types=["authorization_code"])
    visitor.sends(allow="1")
    assert visitor.page.status_code == 400
    assert device.error == "unauthorized_client"


def test_suspended_tenant_signs_no_device_in(new_tenant: Callable[[], TestTenant], operator: Api) -> None:
    own = new_tenant()
    visitor, waiting = Visitor(own), new_device(own)
    waiting.starts(scope="openid")
    visitor.signs_in(own.register())
    waiting.approved_by(visitor)
    operator.patch(f"/uflow/admin/tenants/{own.id}", {"status": "suspended"})
    for response in (waiting.polls(), waiting.post("device_authorization")):
        body = response.json()
        assert (body["error"], body["code"]) == ("unauthorized_client", "tenant_suspended")
    assert visitor.opens("device").status_code == 200


def test_decisions_are_audited(device: Device, visitor: Visitor, user: User, tenant: TestTenant) -> None:
    device.approved_by(visitor)
    device.polls()
    for action in ("device.approved", "application.signed_in"):
        events = tenant.api.get("/uflow/admin/audit", {"action": action, "limit": 100}).json()
        assert str(device.client["client_id"]) in str(events), action
        assert str(user.id) in str(events), action
