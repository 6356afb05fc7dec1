"""An operator provisions a tenant in a real browser and sees its progress."""

from collections.abc import Callable

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from tenants.lifecycle.provisioning import create_tenant
from tenants.models import Tenant
from tests.browsers import wait_on
from tests.console.staff import LOGIN, new_operator, new_tenant_admin
from tests.console.tenants.test_pages import LIST
from tests.console.tenants.test_steps import provision_form
from tests.jobs import run_waiting_jobs
from tests.machine.conftest import within
from tests.userflow.sessions.test_oauth_libraries import place as place
from tests.userflow.test_pages import browser as browser
from tests.world import PASSWORD, TestTenant

pytestmark = pytest.mark.needs("chromium", "chromedriver")


def fill(browser: webdriver.Chrome, fields: dict[str, str], form: str = "form") -> None:
    for name, text in fields.items():
        if text:
            browser.find_element(By.NAME, name).send_keys(text)
    browser.find_element(By.CSS_SELECTOR, f"{form} button[type=submit]").click()


def until(browser: webdriver.Chrome, holds: Callable[[], bool]) -> None:
    """Wait for the condition; the page may replace the element meanwhile."""
    wait_on(browser).until(lambda _: holds())


def test_provisioning_page_follows_job_to_its_end(place: str, browser: webdriver.Chrome) -> None:
    browser.get(f"{place}{LOGIN}?next={LIST}provision/")
    fill(browser, {"username": new_operator().username, "password": PASSWORD})
    until(browser, lambda: browser.current_url.endswith("/provision/"))
    asked = provision_form()
    fill(browser, asked, "#content form")
    until(browser, lambda: "WAITING" in browser.find_element(By.ID, "job").text.upper())
    run_waiting_jobs()
    # The page polls by itself.
    until(browser, lambda: "DONE" in browser.find_element(By.ID, "job").text.upper())
    until(browser, lambda: "The tenant is active." in browser.find_element(By.ID, "job").text)
    browser.find_element(By.LINK_TEXT, "Show tenant").click()
    until(browser, lambda: str(Tenant.objects.get(slug=asked["slug"]).pk) in browser.current_url)
    until(browser, lambda: asked["username"] in browser.page_source)


# Cells of lists that are lower than their content.
CUT_OFF = """
const cells = document.querySelectorAll('#result_list .data-row > *');
return [...cells].filter(cell => cell.scrollHeight > cell.clientHeight + 1).map(cell => cell.textContent.trim());
"""


@pytest.mark.parametrize("width", [1280, 390])
def test_plots_are_drawn_and_no_page_is_wider_than_the_screen(
    place: str, browser: webdriver.Chrome, width: int
) -> None:
    browser.get(f"{place}{LOGIN}")
    fill(browser, {"username": new_operator().username, "password": PASSWORD})
    until(browser, lambda: browser.current_url == f"{place}/admin/")
    asked = provision_form()
    create_tenant(name="Gesellschaft für internationale Angelegenheiten und andere lange Namen", slug=asked["slug"])
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    for path in ("/admin/", LIST, f"{LIST}provision/", "/admin/console/job/"):
        browser.get(place + path)
        # Wait until the scripts of the page have run.
        assert within(10, lambda: browser.execute_script("return document.documentElement.scrollWidth") <= width), path
        assert within(10, lambda: browser.execute_script(CUT_OFF) == []), (path, browser.execute_script(CUT_OFF))


def test_branding_preview_follows_the_form(
    place: str, browser: webdriver.Chrome, new_tenant: Callable[[], TestTenant]
) -> None:
    admin = new_tenant_admin(new_tenant())
    browser.get(f"{place}{LOGIN}?next=/admin/inside/branding/")
    fill(browser, {"username": admin.username, "password": PASSWORD})

    def in_preview(words: str) -> bool:
        browser.switch_to.default_content()
        browser.switch_to.frame("branding-preview")
        return words in browser.find_element(By.TAG_NAME, "body").text

    until(browser, lambda: in_preview("E-mail address"))
    browser.switch_to.default_content()
    browser.find_element(By.NAME, "name").send_keys("Acme Books")
    browser.find_element(By.NAME, "color_light").send_keys("#7a1fa2")
    until(browser, lambda: in_preview("Acme Books"))
    color = "return getComputedStyle(document.querySelector('form:not([hidden]) button')).backgroundColor"
    until(browser, lambda: browser.execute_script(color) == "rgb(122, 31, 162)")
    browser.switch_to.default_content()
    browser.find_element(By.NAME, "color_light").send_keys("x")
    until(browser, lambda: in_preview("Send at most 7 characters"))
