"""The documentation in a browser: Swagger UI signs in and its calls succeed; the site fits phones and finds words."""

from collections.abc import Callable
from urllib.parse import quote

import pytest
from selenium.webdriver.common.by import By

from tests.console.browser.place import Place
from tests.console.browser.visitor import PASSWORD, Visitor
from tests.documentation.built_site import built_site

pytestmark = [pytest.mark.needs("chromium", "chromedriver"), pytest.mark.timeout(300)]


def test_swagger_ui_signs_in_and_calls_with_success(place: Place, visit: Callable[[str], Visitor]) -> None:
    admin = visit(place.new_tenant("Documented")["admin"]["username"])
    operation = place.call("GET", "/schema/")["paths"]["/authmgr/profile"]["get"]
    deep_link = f"/docs/api/#/{quote(operation['tags'][0])}/{operation['operationId']}"
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


def test_site_fits_a_phone_and_search_finds_pages(place: Place, visit: Callable[[str], Visitor]) -> None:
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
