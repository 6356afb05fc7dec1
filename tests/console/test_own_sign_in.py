"""The own sign-in: adding and removing factors, password, sessions; and the first sign-in without a factor."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import call_command

from identity_platform.audit.models import PlatformEvent
from tenants.lifecycle.provisioning import suspend_tenant
from tests.console.staff import Staff, new_operator, new_tenant_admin
from tests.mfa.people import wrong_code
from tests.mfa.webauthn.authenticator import Authenticator
from tests.mfa.webauthn.passkeys import new_authenticator
from tests.world import Api, TestTenant

MINE = "/admin/my-sign-in/"


def confirm_identity(staff: Staff) -> None:
    """Re-authenticate a user who is signed in: adding a factor needs a proof."""
    if "console_session" in staff.browser.session:
        proof = {"backup_code": staff.backup_codes.pop()} if staff.backup_codes else {"password": staff.password}
        response = staff.post("/admin/reauthenticate/", proof)
        assert response.status_code == 302, response.content.decode()


def set_up_app(staff: Staff) -> Any:
    """Enroll an authenticator app through the pages; return the page with the backup codes."""
    confirm_identity(staff)
    page = staff.post(f"{MINE}app/").content.decode()
    found = re.search(r'name="secret" value="([A-Z2-7]+)"', page)
    assert found is not None, page
    staff.secret = found[1]
    return staff.post(f"{MINE}app/", {"secret": staff.secret, "code": staff.code()})


def add_passkey(staff: Staff, name: str = "") -> Authenticator:
    """Enroll a passkey through the pages."""
    key = new_authenticator()
    confirm_identity(staff)
    options = staff.post(f"{MINE}passkeys/options/")
    assert options.status_code == 200, options.content
    body = {"name": name, "credential": json.dumps(key.create(options.json()))}
    response = staff.post(f"{MINE}passkeys/add/", body)
    assert response.status_code == 302, response.content.decode()
    return key


def answered(staff: Staff, key: Authenticator, stage: str) -> dict[str, str]:
    """Return the form that the script of the page sends."""
    options = staff.post("/admin/passkey-options/", {"stage": stage})
    assert options.status_code == 200, options.content
    return {"credential": json.dumps(key.get(options.json()))}


def test_a_suspended_tenants_passkey_is_not_accepted(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    staff, other = new_tenant_admin(tenant).sign_in(), new_operator().sign_in()
    key, other_key = add_passkey(staff), add_passkey(other)
    for someone in (staff, other):
        someone.post("/admin/logout/")
    suspend_tenant(tenant_id=tenant.id)
    said = answered(staff, key, "sign_in")
    # The second time the challenge is used up, so the response is rejected.
    right, wrong = staff.post("/admin/login/", said), staff.post("/admin/login/", said)
    assert right.status_code == wrong.status_code == 400
    assert ["The passkey was not accepted" in response.content.decode() for response in (right, wrong)] == [True, True]
    assert "suspended" not in right.content.decode()
    assert other.post("/admin/login/", answered(other, other_key, "sign_in")).status_code == 302


def test_an_app_with_backup_codes_shown_once() -> None:
    staff = new_operator().sign_in()
    page = set_up_app(staff)
    codes = re.findall(r"<code>([0-9A-Z-]{19})</code>", page.content.decode())
    assert len(set(codes)) == 10
    assert "no-store" in page.headers["Cache-Control"]
    shown = staff.get(MINE).content.decode()
    assert "10 backup codes left" in shown
    assert codes[0] not in shown
    staff.post("/admin/logout/")
    staff.sign_in()


def test_wrong_first_code_keeps_the_secret() -> None:
    staff = new_operator().sign_in()
    confirm_identity(staff)
    staff.secret = re.findall(r'name="secret" value="([A-Z2-7]+)"', staff.post(f"{MINE}app/").content.decode())[0]
    wrong = staff.post(f"{MINE}app/", {"secret": staff.secret, "code": wrong_code(staff.secret)})
    assert wrong.status_code == 400
    assert f'name="secret" value="{staff.secret}"' in wrong.content.decode()
    assert staff.post(f"{MINE}app/", {"secret": staff.secret, "code": staff.code()}).status_code == 200


def test_new_backup_codes_invalidate_old_ones() -> None:
    staff = new_operator().enrol_totp().sign_in()
    assert staff.post(f"{MINE}backup-codes/").headers["Location"].startswith("/admin/reauthenticate/")
    confirm_identity(staff)
    page = staff.post(f"{MINE}backup-codes/").content.decode()
    new = re.findall(r"<code>([0-9A-Z-]{19})</code>", page)
    assert (len(new), staff.backup_codes[0] in new) == (10, False)
    # The proof works once, and the new codes prove nothing in this session until another one has been used.
    assert staff.post(f"{MINE}backup-codes/").headers["Location"].startswith("/admin/reauthenticate/")
    assert staff.post("/admin/reauthenticate/", {"backup_code": new[0]}).status_code == 400
    assert staff.post(f"{MINE}backup-codes/").headers["Location"].startswith("/admin/reauthenticate/")
    assert staff.post("/admin/reauthenticate/", {"code": staff.code()}).status_code == 302
    assert staff.post("/admin/reauthenticate/", {"backup_code": new[0]}).status_code == 302
    staff.post("/admin/logout/")
    staff.send_password()
    assert staff.post("/admin/second-step/", {"backup_code": staff.backup_codes[0]}).status_code == 400


def test_a_passkey_is_added_named_used_and_removed() -> None:
    staff = new_operator().sign_in()
    key = add_passkey(staff, "Key on my ring")
    assert "Key on my ring" in staff.get(MINE).content.decode()
    staff.post("/admin/logout/")
    assert staff.send_password().headers["Location"] == "/admin/second-step/"
    assert staff.post("/admin/second-step/", answered(staff, key, "second_step")).headers["Location"] == "/admin/"
    (remove,) = re.findall(r"/admin/my-sign-in/factors/[0-9a-f-]+/remove/", staff.get(MINE).content.decode())
    assert "only second factor" in staff.get(remove).content.decode()
    # The password of a user with a factor proves too little.
    assert staff.post(remove, {"current_password": staff.password}).status_code == 400
    staff.post("/admin/reauthenticate/", answered(staff, key, "reauthenticate"))
    assert staff.post(remove).status_code == 302
    assert "Key on my ring" not in staff.get(MINE).content.decode().partition('id="passkeys"')[2]


def test_a_passkey_alone_is_enough() -> None:
    staff = new_operator().sign_in()
    key = add_passkey(staff)
    staff.post("/admin/logout/")
    response = staff.post("/admin/login/", {**answered(staff, key, "sign_in"), "next": MINE})
    assert response.headers["Location"] == MINE
    staff.time_passes(20)
    staff.post("/admin/reauthenticate/", answered(staff, key, "reauthenticate"))
    assert staff.get(f"{MINE}passkeys/add/").status_code == 200


def test_passkey_sign_in_requires_user_verification() -> None:
    staff = new_operator().sign_in()
    key = add_passkey(staff)
    staff.post("/admin/logout/")
    key.flags &= ~0x04
    assert staff.post("/admin/login/", answered(staff, key, "sign_in")).status_code == 400
    assert staff.get("/admin/").status_code == 302


def test_first_factor_proves_nothing_in_the_session_that_added_it(tenant: TestTenant) -> None:
    for staff in (new_operator().sign_in(), new_tenant_admin(tenant).sign_in()):
        assert staff.post(f"{MINE}app/").headers["Location"].startswith("/admin/reauthenticate/")
        page = set_up_app(staff)
        codes = re.findall(r"<code>([0-9A-Z-]{19})</code>", page.content.decode())
        assert "Enter your password first" in staff.get("/admin/reauthenticate/").content.decode()
        for proof in ({"code": staff.code()}, {"backup_code": codes[0]}):
            # The page asks for the password only.
            assert staff.post("/admin/reauthenticate/", proof).status_code == 400
        assert staff.row().sessions.get(pk=staff.browser.session["console_session"]).acr == "aal1"
        assert staff.post("/admin/reauthenticate/", {"password": staff.password}).status_code == 302
        assert staff.post("/admin/reauthenticate/", {"backup_code": codes[0]}).status_code == 302
        assert staff.row().sessions.get(pk=staff.browser.session["console_session"]).acr == "aal2"


def test_new_password_is_no_proof_in_its_session() -> None:
    staff = new_operator().sign_in()
    new = f"{staff.password} again"
    body = {"current_password": staff.password, "new_password": new, "repeated": new}
    assert staff.post("/admin/password_change/", body).status_code == 302
    assert staff.get("/admin/reauthenticate/").headers["Location"].startswith("/admin/login/")
    assert staff.get("/admin/").status_code == 302
    staff.password = new
    staff.sign_in()
    assert staff.post("/admin/reauthenticate/", {"password": new}).status_code == 302


def test_factors_change_only_after_a_fresh_sign_in() -> None:
    staff = new_operator().enrol_totp().sign_in()
    (remove,) = re.findall(r"/admin/my-sign-in/factors/[0-9a-f-]+/remove/", staff.get(MINE).content.decode())
    staff.time_passes(16)
    for path in (f"{MINE}passkeys/add/", f"{MINE}passkeys/options/", f"{MINE}app/", f"{MINE}backup-codes/", remove):
        assert staff.post(path).headers["Location"].startswith("/admin/reauthenticate/?next=%2Fadmin%2Fmy-sign-in%2F")
    assert staff.row().mfa_methods == ["totp", "backup_code"]


def test_my_sign_in_rejects_ids_of_other_users(tenant: TestTenant) -> None:
    other = new_operator().enrol_totp().sign_in()
    (factor,) = re.findall(r"factors/([0-9a-f-]+)/remove", other.get(MINE).content.decode())
    session = other.browser.session["console_session"]
    for staff in (new_operator().sign_in(), new_tenant_admin(tenant).sign_in()):
        assert staff.post(f"{MINE}factors/{factor}/remove/").status_code == 404
        staff.post(f"{MINE}sessions/{session}/end/")
    assert other.get("/admin/").status_code == 200
    assert other.row().mfa_methods == ["totp", "backup_code"]


def page_to_remove(staff: Staff) -> str:
    """Return the page that removes the first factor of the admin user."""
    return re.findall(r"/admin/my-sign-in/factors/[0-9a-f-]+/remove/", staff.get(MINE).text)[0]


def test_removing_a_factor_needs_a_proof_in_the_form() -> None:
    staff = new_operator().enrol_totp().sign_in()
    remove = page_to_remove(staff)
    wrong: list[dict[str, str]] = [
        {},
        {"current_password": "wrong wrong"},
        {"code": wrong_code(staff.secret)},
        {"proof_token": "x" * 43},
    ]
    assert [staff.post(remove, proof).status_code for proof in wrong] == [400] * 4
    assert staff.row().mfa_methods == ["totp", "backup_code"]
    assert staff.post(remove, {"code": staff.code()}).status_code == 302
    assert staff.row().mfa_methods == []
    assert staff.get("/admin/").status_code == 200


def test_step_up_proves_the_next_form_once() -> None:
    staff = new_operator().enrol_totp().sign_in()
    add_passkey(staff)
    removes = re.findall(r"/admin/my-sign-in/factors/[0-9a-f-]+/remove/", staff.get(MINE).text)
    staff.time_passes(16)
    assert (
        staff.post("/admin/reauthenticate/", {"code": staff.code(), "next": removes[0]}).headers["Location"]
        == removes[0]
    )
    assert "current_password" not in staff.get(removes[0]).text
    assert staff.post(removes[0]).status_code == 302
    assert "Confirm that it is you" in staff.get(removes[1]).text
    assert staff.post(removes[1]).status_code == 400


def test_step_up_over_the_console_is_audited_and_stored() -> None:
    staff = new_operator().enrol_totp().sign_in()
    staff.time_passes(16)
    old = staff.row().sessions.get(pk=staff.browser.session["console_session"])
    staff.post("/admin/reauthenticate/", {"code": staff.code()})
    session = staff.row().sessions.get(pk=old.pk)
    assert (session.acr, session.auth_time > old.auth_time) == ("aal2", True)
    assert PlatformEvent.objects.filter(action="session.stepped_up", target_id=str(old.pk)).count() == 1


# --- who must have a factor ------------------------------------------------------------------------------------------


@pytest.fixture
def factor_wanted(settings: Any) -> None:
    settings.OPERATORS_REQUIRE_FACTOR = True


def test_operator_without_factor_must_enroll_first(factor_wanted: None) -> None:
    staff = new_operator()
    assert staff.send_password().headers["Location"] == MINE
    for path in ("/admin/", "/admin/password_change/", "/admin/reauthenticate/"):
        assert staff.get(path).headers["Location"].startswith("/admin/login/")
    assert "requires a second factor" in staff.get(MINE).content.decode()
    assert "Backup codes" in set_up_app(staff).content.decode()
    assert staff.get("/admin/").status_code == 200
    staff.post("/admin/logout/")
    staff.sign_in()


def test_first_passkey_completes_the_sign_in(factor_wanted: None) -> None:
    staff = new_operator()
    staff.send_password("/admin/userflow/client/")
    key = add_passkey(staff)
    assert staff.get("/admin/").status_code == 200
    staff.post("/admin/logout/")
    assert staff.post("/admin/login/", answered(staff, key, "sign_in")).headers["Location"] == "/admin/"


def test_required_last_factor_cannot_be_removed(factor_wanted: None) -> None:
    staff = new_operator()
    staff.send_password()
    set_up_app(staff)
    (remove,) = re.findall(r"/admin/my-sign-in/factors/[0-9a-f-]+/remove/", staff.get(MINE).content.decode())
    assert staff.post(remove).headers["Location"] == MINE
    assert "add another one" in staff.get(MINE).content.decode()
    assert "totp" in staff.row().mfa_methods


def test_new_factor_policy_applies_to_open_sessions(settings: Any) -> None:
    staff = new_operator().sign_in()
    settings.OPERATORS_REQUIRE_FACTOR = True
    assert staff.get("/admin/").headers["Location"].startswith("/admin/login/")


def test_tenant_factor_policy_applies_to_its_admins(operator: Api, new_tenant: Any) -> None:
    tenant = new_tenant()
    staff = new_tenant_admin(tenant)
    changed = operator.patch(f"/uflow/admin/tenants/{tenant.id}", {"settings": {"mfa_policy": "required"}})
    assert changed.status_code == 200, changed.content
    assert staff.send_password().headers["Location"] == MINE
    set_up_app(staff)
    assert staff.get("/admin/").status_code == 200


def test_expired_sign_in_enrolls_nothing(factor_wanted: None) -> None:
    staff = new_operator()
    staff.send_password()
    staff.row().tickets.filter(purpose="second_step").delete()
    response = set_up_app(staff)
    assert response.headers["Location"].startswith("/admin/login/")
    assert staff.row().mfa_methods == []
    assert staff.get(MINE).headers["Location"].startswith("/admin/login/")


# --- password and sessions -------------------------------------------------------------------------------------------


def test_a_new_password_ends_every_other_session_and_is_audited() -> None:
    staff = new_operator().sign_in()
    token = staff.api_token()
    body = {"current_password": staff.password, "new_password": "a quite new pass 5", "repeated": "a quite new pass 5"}
    assert staff.post("/admin/password_change/", {**body, "current_password": "wrong wrong"}).status_code == 400
    assert staff.post("/admin/password_change/", {**body, "repeated": "another one 9 x"}).status_code == 400
    assert staff.post("/admin/password_change/", body).status_code == 302
    assert staff.get("/admin/").status_code == 200
    assert Api(token=token).get("/uflow/admin/users/me").status_code == 401
    assert "password.changed" in actions_on(staff)


def test_console_rejects_passwords_that_the_api_rejects() -> None:
    staff = new_operator().sign_in()
    for weak in ("password", staff.username, "short"):
        body = {"current_password": staff.password, "new_password": weak, "repeated": weak}
        assert staff.post("/admin/password_change/", body).status_code == 400


def test_sessions_are_listed_and_ended_one_by_one() -> None:
    staff, elsewhere = new_operator().sign_in(), new_operator()
    elsewhere.username = staff.username
    elsewhere.sign_in()
    both = set(re.findall(r"sessions/([0-9a-f-]{36})/end", staff.get(MINE).content.decode()))
    assert len(both) == 2
    own = str(staff.browser.session["console_session"])
    staff.post(f"{MINE}sessions/{(both - {own}).pop()}/end/")
    assert elsewhere.get("/admin/").status_code == 302
    assert staff.post(f"{MINE}sessions/{own}/end/").headers["Location"] == "/admin/login/"
    assert staff.get("/admin/").status_code == 302


def test_all_other_sessions_end_at_once() -> None:
    staff = new_operator().sign_in()
    tokens = [staff.api_token() for _ in range(2)]
    assert staff.post(f"{MINE}sessions/end-others/").status_code == 302
    assert [Api(token=token).get("/uflow/admin/users/me").status_code for token in tokens] == [401, 401]
    assert staff.get("/admin/").status_code == 200


def actions_on(staff: Staff) -> list[str]:
    """Return the actions in the platform's audit log about the user."""
    return list(PlatformEvent.objects.filter(target_id=str(staff.id)).values_list("action", flat=True))


def test_set_password_command_ends_sessions_and_audits(monkeypatch: pytest.MonkeyPatch) -> None:
    staff = new_operator().sign_in()
    typed = iter(["short", "short", "a new pass from the machine 1", "a new pass from the machine 1"])
    monkeypatch.setattr("getpass.getpass", lambda _prompt: next(typed))
    call_command("changepassword", staff.username)
    assert staff.get("/admin/").status_code == 302
    assert staff.send_password(password="a new pass from the machine 1").status_code == 302
    assert "password.set" in actions_on(staff)
