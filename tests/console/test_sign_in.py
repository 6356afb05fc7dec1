"""Sign-in by password, second factor and passkey."""

from django.test import Client

from tests.console.staff import new_operator, new_tenant_admin
from tests.world import Api, TestTenant, unique_ip


def test_an_operator_signs_in_and_sees_the_index() -> None:
    page = new_operator().sign_in().get("/admin/")
    assert page.status_code == 200
    assert b"<html" in page.content
    assert "default-src 'self'" in page.headers["Content-Security-Policy"]


def test_a_tenant_admin_signs_in_too(tenant: TestTenant) -> None:
    assert new_tenant_admin(tenant).sign_in().get("/admin/").status_code == 200


def test_second_factor_is_required_before_any_page() -> None:
    staff = new_operator().enrol_totp()
    assert staff.send_password("/admin/x").headers["Location"] == "/admin/second-step/"
    assert staff.get("/admin/").status_code == 302
    assert staff.get("/admin/second-step/").status_code == 200
    response = staff.post("/admin/second-step/", {"code": staff.code()})
    assert response.headers["Location"] == "/admin/x"
    assert staff.get("/admin/").status_code == 200


def test_a_backup_code_is_a_second_step_once() -> None:
    staff = new_operator().enrol_totp()
    spent = {"backup_code": staff.backup_codes[0].lower()}
    staff.send_password()
    assert staff.post("/admin/second-step/", spent).status_code == 302
    staff.send_password()
    assert staff.post("/admin/second-step/", spent).status_code == 400
    assert staff.get("/admin/").status_code == 302


def test_reauthenticating_by_password() -> None:
    staff = new_operator().sign_in()
    staff.time_passes(20)
    assert staff.get("/admin/reauthenticate/", next="/admin/x").status_code == 200
    assert staff.post("/admin/reauthenticate/", {"password": "wrong wrong", "next": "/admin/x"}).status_code == 400
    response = staff.post("/admin/reauthenticate/", {"password": staff.password, "next": "/admin/x"})
    assert response.headers["Location"] == "/admin/x"


def test_reauthenticating_by_a_factor_takes_no_password() -> None:
    staff = new_operator().enrol_totp().sign_in()
    staff.time_passes(20)
    assert staff.post("/admin/reauthenticate/", {"password": staff.password}).status_code == 400
    assert staff.post("/admin/reauthenticate/", {"code": staff.code()}).headers["Location"] == "/admin/"


def test_signing_out_ends_the_session() -> None:
    staff = new_operator().sign_in()
    assert staff.get("/admin/logout/").status_code == 405
    assert staff.post("/admin/logout/").headers["Location"] == "/admin/login/"
    assert staff.get("/admin/").status_code == 302


def test_wrong_passwords_lock_console_and_api() -> None:
    staff = new_operator()
    for _ in range(5):
        assert staff.send_password(password="wrong wrong").status_code == 400
    locked = staff.send_password()
    assert locked.status_code == 429
    assert "Wait 1 minute" in locked.content.decode()
    body = {"username": staff.username, "password": staff.password}
    assert Api().post("/uflow/admin/auth/login", body).status_code == 429


def test_a_form_without_its_token_is_refused() -> None:
    staff = new_operator()
    browser = Client(enforce_csrf_checks=True, REMOTE_ADDR=unique_ip())
    body = {"username": staff.username, "password": staff.password}
    for path in ("/admin/login/", "/admin/second-step/", "/admin/passkey-options/", "/admin/forgotten/"):
        refused = browser.post(path, body)
        assert refused.status_code == 403
        # It leads on, also in a second tab whose form is older than the sign-in in the first one.
        assert f'href="{path}"' in refused.content.decode()
