"""List and remove own factors, reset by an admin, and the mails to the user."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from identity_platform.audit.models import TenantEvent
from mfa.sms.models import SmsCode, SmsMessage
from mfa.totp.models import EndUserTotpSecret
from tenants.entering.context import in_tenant
from tenants.journals.audit_trails import Owner
from tenants.lifecycle.retention import purge
from tests.mfa.enrollment.calls import enrol_passkey
from tests.mfa.people import TestUser, new_user
from tests.userflow.sessions.aged import aged, proof_token, strong
from tests.world import PASSWORD, Api, TestTenant, capture_statements, sign_in_admin
from userflow.mail_delivery.background import settle


@pytest.fixture
def ann(tenant: TestTenant) -> TestUser:
    return new_user(tenant)


def events(person: TestUser, action: str) -> list[Any]:
    with in_tenant(person.tenant.id):
        return list(TenantEvent.objects.filter(target_id=str(person.id), action=action).order_by("id"))


def test_list_returns_own_factors(tenant: TestTenant, ann: TestUser) -> None:
    token = ann.token()
    ann.enrol_totp(token=token)
    own = Api(token=strong(token))
    ann.enrol_phone(token=own.token)
    new_user(tenant).enrol_totp()
    listed = own.get("/webauthn/factors").json()
    assert listed["methods"] == ["totp", "sms", "backup_code"]
    assert listed["backup_codes_remaining"] == 10
    assert [(factor["kind"], factor["name"]) for factor in listed["factors"]] == [
        ("totp", "Authenticator app"),
        ("sms", f"***-***-{ann.phone[-4:]}"),
    ]
    assert ann.phone not in str(listed)
    assert Api().get("/webauthn/factors").status_code == 401


def test_remove_requires_fresh_sign_in_and_own_factor(tenant: TestTenant, ann: TestUser) -> None:
    token = ann.token()
    ann.enrol_totp(token=token)
    assert Api(token=token).delete(f"/webauthn/factors/{uuid.uuid4()}", ann.proof()).status_code == 401
    token = strong(token)
    ben_token = new_user(tenant).token()
    factor = Api(token=token).get("/webauthn/factors").json()["factors"][0]["id"]
    path = f"/webauthn/factors/{factor}"
    assert Api().delete(path, ann.proof()).status_code == 401
    assert Api(token=aged(token, 16)).delete(path, ann.proof()).status_code == 401
    assert Api(token=token).delete(path).status_code == 400
    unknown = Api(token=token).delete(f"/webauthn/factors/{uuid.uuid4()}", ann.proof())
    foreign = Api(token=ben_token).delete(path, ann.proof())
    assert (foreign.status_code, foreign.json()) == (unknown.status_code, unknown.json()) == (404, unknown.json())
    assert Api(token=token).delete("/webauthn/factors/nonsense", ann.proof()).status_code == 404
    assert Api(token=token).delete(path, {"proof_token": proof_token(token)}).status_code == 200
    assert Api(token=token).delete(path, ann.proof()).status_code == 404
    assert Api(token=token).get("/webauthn/factors").json() == {
        "factors": [],
        "methods": [],
        "backup_codes_remaining": 0,
    }


def test_rename_passkey_names_only_own_passkeys(tenant: TestTenant, other_tenant: TestTenant) -> None:
    ann = new_user(tenant)
    token = ann.token()
    enrol_passkey(ann, token=token)
    own = Api(token=strong(token))
    (passkey,) = own.get("/webauthn/factors").json()["factors"]
    path, model = f"/webauthn/factors/{passkey['id']}", passkey["name"]
    renamed = own.patch(path, {"name": " Laptop \U0001f4bb "})
    assert (renamed.status_code, renamed.json()) == (200, {**passkey, "name": "Laptop \U0001f4bb"})
    assert own.get("/webauthn/factors").json()["factors"] == [renamed.json()]
    (event,) = events(ann, "factor.renamed")
    assert event.details == {"kind": "webauthn", "factor_id": passkey["id"]}
    with capture_statements() as statements:
        assert own.patch(path, {"name": ""}).json()["name"] == model
    assert statements.counts == (0, 5)
    for name in (None, 7, "x" * 61, "two\nlines"):
        assert own.patch(path, {"name": name}).status_code == 400
    assert Api().patch(path, {"name": "x"}).status_code == 401
    unknown = own.patch(f"/webauthn/factors/{uuid.uuid4()}", {"name": "x"})
    for other in (new_user(tenant), new_user(other_tenant)):
        assert (found := Api(token=other.token()).patch(path, {"name": "x"})).status_code == 404
        assert found.json() == unknown.json()
    ben = new_user(tenant)
    token = ben.token()
    ben.enrol_totp(token=token)
    app = Api(token=strong(token))
    totp = app.get("/webauthn/factors").json()["factors"][0]["id"]
    assert app.patch(f"/webauthn/factors/{totp}", {"name": "x"}).status_code == 404


def test_remove_closes_window_and_ends_ticket(ann: TestUser) -> None:
    token = ann.token()
    ann.enrol_totp(token=token)
    body = {**ann.name, "proof_token": proof_token(token)}
    assert ann.api.post("/webauthn/totp/disable", body, token=strong(token)).status_code == 200
    assert ann.api.post("/webauthn/totp/beginSetup", ann.name).status_code == 401
    ticket = {"X-Enrollment-Ticket": ann.ticket}
    assert ann.api.post("/webauthn/totp/beginSetup", ann.name, headers=ticket).status_code == 401


def test_reset_removes_factors_and_opens_no_window(tenant: TestTenant, ann: TestUser) -> None:
    ann.enrol_totp().enrol_phone()
    ticket = ann.sign_in().json()["mfa_token"]
    ann.minutes_pass(60)
    body = {"tenant_id": str(tenant.id), "user_id": str(ann.id), "reason": "lost the phone"}
    done = tenant.api.post("/webauthn/factors/reset", body)
    assert done.status_code == 200
    assert done.json()["removed"] == {"webauthn": 0, "totp": 1, "sms": 1, "backup_code": 10}
    assert ann.row().mfa_methods == []
    late = Api().post("/webauthn/totp/verifyLogin", {**ann.name, "code": ann.code(1), "mfa_token": ticket})
    assert late.status_code == 401
    for api in (Api(address=tenant.api.address), ann.api):
        assert api.post("/webauthn/totp/beginSetup", ann.name).status_code == 401
    event = events(ann, "factor.reset")[0]
    assert (event.details["reason"], event.actor_kind, event.address) == ("lost the phone", "admin", tenant.api.address)


def test_reset_ends_waiting_logins_and_sent_codes(tenant: TestTenant, ann: TestUser) -> None:
    ann.enrol_totp().enrol_phone()
    assert Api().post("/webauthn/sms/requestCode", ann.named_with_client).status_code == 200
    waiting = ann.sign_in().json()["mfa_token"]
    body = {"tenant_id": str(tenant.id), "user_id": str(ann.id), "reason": "lost the phone"}
    assert tenant.api.post("/webauthn/factors/reset", body).status_code == 200
    with in_tenant(tenant.id):
        assert not SmsCode.objects.filter(user_id=ann.id).exists()
    ann.enrol_totp(token=ann.token())
    late = {**ann.name, "code": ann.code(1), "mfa_token": waiting}
    assert Api().post("/webauthn/totp/verifyLogin", late).status_code == 401


def test_reset_requires_reason_permission_and_tenant(
    tenant: TestTenant, other_tenant: TestTenant, ann: TestUser
) -> None:
    body = {"tenant_id": str(tenant.id), "user_id": str(ann.id), "reason": "lost"}
    assert tenant.api.post("/webauthn/factors/reset", {**body, "reason": "  "}).status_code == 400
    assert tenant.api.post("/webauthn/factors/reset", {**body, "user_id": str(uuid.uuid4())}).status_code == 404
    assert other_tenant.api.post("/webauthn/factors/reset", body).status_code == 403
    assert Api(token=ann.token()).post("/webauthn/factors/reset", body).status_code == 403
    assert Api().post("/webauthn/factors/reset", body).status_code == 401


def test_every_change_is_mailed_to_user(tenant: TestTenant, ann: TestUser, mailoutbox: list[Any]) -> None:
    first = ann.token()
    token = strong(first)
    body = {"tenant_id": str(tenant.id), "user_id": str(ann.id), "reason": "lost"}
    changes: list[Callable[[], Any]] = [
        lambda: ann.enrol_totp(token=first),
        lambda: ann.enrol_phone(token=strong(first)),
        lambda: ann.api.post(
            "/webauthn/totp/regenerateBackupCodes", {**ann.name, "proof_token": proof_token(token)}, token=token
        ),
        lambda: ann.enrol_totp(token=token),
        lambda: ann.api.post("/webauthn/totp/disable", {**ann.name, "proof_token": proof_token(token)}, token=token),
        lambda: tenant.api.post("/webauthn/factors/reset", body),
    ]
    for change in changes:
        change()
        # Of two mails that wait, either may be sent first.
        assert settle(60)
    told = [mail.body for mail in mailoutbox if mail.to == [ann.email] and "the way you sign in" in mail.subject]
    says = [
        "an authenticator app was added",
        "a phone for codes by SMS was added",
        "backup codes were replaced by new ones",
        "an authenticator app was replaced",
        "an authenticator app was removed",
        "all second factors were removed by an administrator",
    ]
    assert len(told) == len(says)
    for text, sentence in zip(told, says, strict=True):
        assert f"{sentence} for your user" in text
        assert ann.secret not in text


def _notice_to(person: Any, mailoutbox: list[Any]) -> str:
    """The newest mail about the person's factors."""
    assert settle(60)
    return [
        str(mail.body) for mail in mailoutbox if mail.to == [person.email] and "sign in has changed" in mail.subject
    ][-1]


def test_reset_notice_hides_admin_and_says_what_to_do(tenant: TestTenant, ann: TestUser, mailoutbox: list[Any]) -> None:
    ann.enrol_totp()
    body = {"tenant_id": str(tenant.id), "user_id": str(ann.id), "reason": "lost"}
    assert tenant.api.post("/webauthn/factors/reset", body).status_code == 200
    told = _notice_to(ann, mailoutbox)
    assert "set up a new second factor" in told
    for hidden in (
        tenant.api.address,
        tenant.admin.email,
        tenant.admin.username,
        str(tenant.admin.id),
        "network address",
    ):
        assert hidden not in told


def test_admin_reset_notice_hides_the_operator(operator: Api, new_tenant: Any, mailoutbox: list[Any]) -> None:
    own = new_tenant()
    body = {"user_id": str(own.admin.id), "reason": "lost the phone"}
    assert operator.post("/webauthn/admin/factors/reset", body).status_code == 200
    told = _notice_to(own.admin, mailoutbox)
    assert "removed by an administrator" in told
    assert operator.address not in told


def test_notice_of_own_change_shows_address(ann: TestUser, mailoutbox: list[Any]) -> None:
    ann.enrol_totp()
    assert f"from the network address {ann.api.address}" in _notice_to(ann, mailoutbox)


def test_enrollment_is_audited_with_proof_level_and_address(tenant: TestTenant, ann: TestUser) -> None:
    ann.enrol_totp(headers={})
    ben = new_user(tenant, ann.api)
    ben.enrol_phone(headers={"X-Enrollment-Ticket": ben.ticket})
    token = (carl := new_user(tenant, ann.api)).token()
    carl.enrol_totp(token=token)
    carl.enrol_totp(token=strong(token))
    found = [event for one in (ann, ben, carl) for event in events(one, "factor.enrolled")]
    found += events(carl, "factor.replaced")
    assert [(event.details["kind"], event.details["rung"]) for event in found] == [
        ("totp", "window"),
        ("sms", "ticket"),
        ("totp", "bearer"),
        ("totp", "bearer"),
    ]
    assert {event.address for event in found} == {ann.api.address}


@pytest.mark.usefixtures("unreachable_mail_server")
def test_unreachable_mail_server_undoes_nothing(ann: TestUser) -> None:
    ann.enrol_totp()
    assert ann.row().mfa_methods == ["totp", "backup_code"]


@pytest.mark.parametrize(("mode", "window", "ticket", "bearer"), [("ticket", 401, 200, 200), ("bearer", 401, 401, 200)])
def test_tenant_may_restrict_proof_levels(
    new_tenant: Any, operator: Api, mode: str, window: int, ticket: int, bearer: int
) -> None:
    own = new_tenant()
    asked = {"settings": {"enrollment_mode": mode}}
    assert operator.patch(f"/uflow/admin/tenants/{own.id}", asked).status_code == 200
    ann = new_user(own)
    token = str(ann.sign_in(ann.api).json()["access_token"])
    begin = "/webauthn/totp/beginSetup"
    assert ann.api.post(begin, ann.name).status_code == window
    assert ann.api.post(begin, ann.name, headers={"X-Enrollment-Ticket": ann.ticket}).status_code == ticket
    assert ann.api.post(begin, ann.name, token=token).status_code == bearer


def test_ticket_adds_one_factor_of_each_kind(ann: TestUser) -> None:
    ann.minutes_pass(10)
    ticket = {"X-Enrollment-Ticket": ann.ticket}
    ann.enrol_totp(headers=ticket)
    ann.enrol_phone(headers=ticket)
    assert Api().post("/webauthn/totp/beginSetup", ann.name, headers=ticket).status_code == 401


def test_ticket_and_window_expire(ann: TestUser) -> None:
    ann.minutes_pass(16)
    ticket = {"X-Enrollment-Ticket": ann.ticket}
    assert Api().post("/webauthn/totp/beginSetup", ann.name, headers=ticket).status_code == 401
    assert ann.api.post("/webauthn/totp/beginSetup", ann.name).status_code == 200
    ann.minutes_pass(15)
    assert ann.api.post("/webauthn/totp/beginSetup", ann.name).status_code == 401


def test_ipv6_network_is_one_address(tenant: TestTenant) -> None:
    ann = new_user(tenant, Api(address="2001:db8:1:2::a"))
    begin = "/webauthn/totp/beginSetup"
    assert Api(address="2001:db8:1:2:ffff::b").post(begin, ann.name).status_code == 200
    assert Api(address="2001:db8:1:3::a").post(begin, ann.name).status_code == 401


def test_purge_removes_expired_rows_only(tenant: TestTenant) -> None:
    ann, ben = new_user(tenant).enrol_totp().enrol_phone(), new_user(tenant)
    ben.api.post("/webauthn/totp/beginSetup", ben.name)
    for person in (ann, ben):
        person.minutes_pass(60 * 24 * 40)
    assert purge(Owner(tenant.slug, tenant.id)).problem == ""
    with in_tenant(tenant.id):
        assert EndUserTotpSecret.objects.filter(user_id=ann.id).count() == 1
        assert not EndUserTotpSecret.objects.filter(user_id=ben.id).exists()
        assert not SmsMessage.objects.filter(user_id=ann.id).exists()
        assert not SmsCode.objects.filter(user_id=ann.id).exists()
    assert ann.row().mfa_methods == ["totp", "sms", "backup_code"]


def test_listing_addresses_is_limited(tenant: TestTenant) -> None:
    api = Api()
    missing = {"tenant_id": str(tenant.id), "email": "unknown@example.com"}
    statuses = [api.post("/webauthn/totp/beginSetup", missing).status_code for _ in range(123)]
    assert (set(statuses), statuses[-1]) == ({404, 429}, 429)
    assert statuses.count(404) == 120
    phoneless = {**missing, "client_id": str(tenant.client_id)}
    assert api.post("/webauthn/sms/requestCode", phoneless).status_code == 429
    assert Api().post("/webauthn/totp/beginSetup", missing).status_code == 404


def test_reset_rejects_user_with_more_permissions(tenant: TestTenant, ann: TestUser) -> None:
    role = tenant.api.post("/authmgr/roles", {"name": uuid.uuid4().hex, "permissions": ["services:credentials"]}).json()
    group = tenant.api.post("/authmgr/groups", {"name": uuid.uuid4().hex, "roles": [role["name"]]}).json()
    tenant.api.post(f"/authmgr/groups/{group['id']}/users", {"user_ids": [str(ann.id)]})
    name = f"weak-{uuid.uuid4().hex[:8]}"
    made = {"username": name, "email": f"{name}@example.com", "password": PASSWORD, "first_name": "W", "last_name": "K"}
    tenant.api.post("/uflow/admin/users", {**made, "roles": ["user-manager"]})
    manager = Api(token=sign_in_admin(name)["access_token"])
    body = {"user_id": str(ann.id), "tenant_id": str(tenant.id), "reason": "lost"}
    assert manager.post("/webauthn/factors/reset", body).status_code == 403
    assert manager.post("/webauthn/enrollment-passes", {**body, "delivery": "show"}).status_code == 403
    body["user_id"] = str(new_user(tenant).id)
    assert manager.post("/webauthn/factors/reset", body).status_code == 200
