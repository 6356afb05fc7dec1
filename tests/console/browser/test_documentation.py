"""The documentation in a browser: Swagger UI signs in and its calls succeed; the site fits phones and finds words."""

import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.select import Select

from tests.console.browser.place import RunningPlatform
from tests.console.browser.visitor import PASSWORD, Visitor
from tests.documentation.built_site import built_site
from tests.mfa.browser.demo import totp

pytestmark = [pytest.mark.needs("chromium", "chromedriver"), pytest.mark.timeout(300)]


def test_swagger_ui_signs_in_and_calls_with_success(place: RunningPlatform, visit: Callable[[str], Visitor]) -> None:
    admin = visit(place.new_tenant("Documented")["admin"]["username"])
    operation = place.call("GET", "/schema/")["paths"]["/authmgr/profile"]["get"]
    # A part: Chromium takes seconds for all of it.
    deep_link = f"/docs/api/?part=applications#/{quote(operation['tags'][0])}/{operation['operationId']}"
    admin.opens(deep_link)
    admin.waits_until(lambda: bool(admin.browser.find_elements(By.CSS_SELECTOR, ".opblock.is-open")))
    admin.fills("Username", admin.username)
    admin.fills("Password", "wrong horse 9 battery")
    admin.presses("Sign in")
    admin.reads("is wrong")
    admin.fills("Password", PASSWORD)
    admin.presses("Sign in")
    admin.reads(f"Signed in as {admin.username}.")
    # The browser keeps the token over a reload.
    admin.browser.refresh()
    admin.presses("Try it out")
    admin.presses("Execute")
    status = (By.CSS_SELECTOR, ".live-responses-table .response .response-col_status")
    admin.waits_until(lambda: admin.browser.find_element(*status).text.startswith("200"))
    assert admin.username in admin.page
    assert admin.browser.find_elements(By.CSS_SELECTOR, ".operation-filter-input")
    # Swagger UI warns of underscores in operation ids, whether they stand for spaces or not.
    assert [line for line in admin.complaints() if "escaping deep link whitespace" not in line] == []


def test_swagger_ui_signs_in_with_a_second_step(place: RunningPlatform, visit: Callable[[str], Visitor]) -> None:
    tenant = place.new_tenant("Second steps")
    name = tenant["admin"]["username"]
    token = place.call("POST", "/uflow/admin/auth/login", {"username": name, "password": PASSWORD})["access_token"]
    email = place.call("GET", "/authmgr/profile", token=token)["email"]
    secret, _ = place.add_app(token, {"email": email}, path="/webauthn/admin/totp")
    user = {"tenant_id": tenant["tenant_id"], "email": "vera@example.com"}
    login = {**user, "client_id": tenant["client_id"], "password": PASSWORD}
    place.call("POST", "/uflow/user/clients/register", login)
    own = place.call("POST", "/uflow/auth/enduser/login", login)["access_token"]
    _, backup_codes = place.add_app(own, user)
    page = visit(name).opens("/docs/api/?part=applications")
    page.waits_until(lambda: bool(page.browser.find_elements(By.CSS_SELECTOR, ".opblock-tag")))

    # The calls of the second step name the user by e-mail address only.
    page.fills("Username", name)
    page.fills("Password", PASSWORD)
    page.presses("Sign in")
    page.reads("Enter the e-mail address instead of the username.")
    page.fills("Username", email)
    page.presses("Sign in")
    page.reads("Enter a code")
    # A wrong code does not cancel the sign-in.
    page.fills("Code of", "0000-0000-0000-0000")
    page.presses("Sign in")
    page.reads("invalid")
    # The code of now has enrolled the app.
    page.fills("Code of", totp(secret, time.time() + 30))
    page.presses("Sign in")
    page.reads(f"Signed in as {email}.")
    assert profile_of_page(place, page)["kind"] == "admin"

    # A sign-in that waits is dropped when another user is entered.
    page.fills("Password", PASSWORD)
    page.presses("Sign in")
    page.reads("Enter a code")
    Select(page.browser.find_element(By.ID, "kind")).select_by_value("user")
    assert not page.browser.find_element(By.ID, "code").is_displayed()
    page.fills("Client id", tenant["client_id"])
    page.fills("E-mail address", user["email"])
    page.fills("Password", PASSWORD)
    # The browser asks for the tenant, which the second step needs.
    page.presses("Sign in")
    assert page.browser.find_elements(By.CSS_SELECTOR, "#tenant_id:invalid")
    page.fills("Tenant id", tenant["tenant_id"])
    page.presses("Sign in")
    page.reads("Enter a code")
    page.fills("Code of", f" {backup_codes[0].lower()} ")
    page.presses("Sign in")
    page.reads(f"Signed in as {user['email']}.")
    assert profile_of_page(place, page)["email"] == user["email"]
    assert page.complaints() == []


def profile_of_page(place: RunningPlatform, page: Visitor) -> Any:
    """Return the profile of the user whose token Swagger UI keeps for its calls."""
    kept = page.browser.execute_script(
        "return Object.values(JSON.parse(localStorage.authorized)).map((one) => one.value)"
    )
    (token,) = kept
    return place.call("GET", "/authmgr/profile", token=token)


def test_site_fits_a_phone_and_search_finds_pages(place: RunningPlatform, visit: Callable[[str], Visitor]) -> None:
    built_site()
    reader = visit("")
    reader.browser.set_window_size(400, 800)
    for page in ["", "tutorial.html", "reference/sign-in.html", "configuration.html", "security-model.html"]:
        reader.opens(f"/docs/{page}")
        assert reader.browser.execute_script("return document.documentElement.scrollWidth - window.innerWidth") <= 0, (
            page
        )
    reader.opens("/docs/search.html?q=passkey")
    reader.waits_until(lambda: "adding-passkeys.html" in reader.browser.page_source)
    assert reader.complaints() == []
