"""The console's door: operators only, with the API's counters; pages and their assets come from here."""

import secrets

from django.test import Client

from tests.world import PASSWORD, House, some_address

LOGIN = "/admin/login/"


def sign_in(name: str, password: str = PASSWORD) -> Client:
    browser = Client(REMOTE_ADDR=some_address())
    browser.post(f"{LOGIN}?next=/admin/", {"username": name, "password": password})
    return browser


def test_an_operator_signs_in_and_sees_the_index(operator_name: str) -> None:
    page = sign_in(operator_name).get("/admin/")
    assert page.status_code == 200
    assert b"<html" in page.content
    assert "default-src 'self'" in page.headers["Content-Security-Policy"]


def test_tenant_admins_and_wrong_passwords_stay_outside(house: House, operator_name: str) -> None:
    for browser in (sign_in(house.admin.username), sign_in(operator_name, "wrong wrong"), Client()):
        assert browser.get("/admin/").status_code == 302


def test_six_wrong_passwords_lock_the_console_as_they_lock_the_api(django_db_setup: None) -> None:
    from userflow.admins.actions import create_admin_user

    name = f"console-{secrets.token_hex(4)}"
    create_admin_user(tenant_id=None, username=name, email=f"{name}@example.com", password=PASSWORD)
    for _ in range(5):
        sign_in(name, "wrong wrong")
    assert sign_in(name).get("/admin/").status_code == 302


def test_a_password_alone_is_not_enough_for_who_has_a_factor(django_db_setup: None) -> None:
    from userflow.admins.actions import create_admin_user

    name = f"console-{secrets.token_hex(4)}"
    operator, _ = create_admin_user(tenant_id=None, username=name, email=f"{name}@example.com", password=PASSWORD)
    operator.mfa_methods = ["totp"]
    operator.save()
    assert sign_in(name).get("/admin/").status_code == 302


def test_a_form_without_its_token_is_refused(operator_name: str) -> None:
    browser = Client(enforce_csrf_checks=True, REMOTE_ADDR=some_address())
    assert browser.post(LOGIN, {"username": operator_name, "password": PASSWORD}).status_code == 403


def test_the_documentation_page_needs_nothing_from_outside() -> None:
    page = Client().get("/docs/").content.decode()
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page
    assert Client().get("/static/drf_spectacular_sidecar/swagger-ui-dist/swagger-ui.css").status_code == 200
