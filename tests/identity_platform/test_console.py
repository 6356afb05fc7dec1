"""The console's door: operators only, with the API's counters; pages and their assets come from here."""

import secrets

import pytest
from django.test import Client
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.userflow.test_pages import browser as browser
from tests.userflow.tokens.test_oauth_libraries import place as place
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
    for outsider in (sign_in(house.admin.username), sign_in(operator_name, "wrong wrong"), Client()):
        assert outsider.get("/admin/").status_code == 302


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


def test_the_console_takes_no_password_that_the_api_refuses(django_db_setup: None) -> None:
    from userflow.admins.actions import create_admin_user

    name = f"console-{secrets.token_hex(4)}"
    create_admin_user(tenant_id=None, username=name, email=f"{name}@example.com", password=PASSWORD)
    operator = sign_in(name)
    for weak in ("password", name, "short"):
        body = {"old_password": PASSWORD, "new_password1": weak, "new_password2": weak}
        assert operator.post("/admin/password_change/", body).status_code == 200
    assert sign_in(name).get("/admin/").status_code == 200


@pytest.mark.needs("chromium", "chromedriver")
def test_a_browser_signs_in(place: str, operator_name: str, browser: webdriver.Chrome) -> None:
    # What browsers say of the origin of a form hangs on our headers; the check for forged requests hangs on what they say.
    browser.get(f"{place}/admin/")
    for name, text in (("username", operator_name), ("password", PASSWORD)):
        browser.find_element(By.NAME, name).send_keys(text)
    browser.find_element(By.CSS_SELECTOR, "button[type=submit]").click()
    WebDriverWait(browser, 10).until(lambda _: browser.current_url == f"{place}/admin/")
    assert operator_name in browser.page_source


def test_the_documentation_page_needs_nothing_from_outside() -> None:
    page = Client().get("/docs/").content.decode()
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page
    assert Client().get("/static/drf_spectacular_sidecar/swagger-ui-dist/swagger-ui.css").status_code == 200
