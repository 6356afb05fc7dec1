"""The page behind the link of a mail."""

import re

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.machine.groups import program
from tests.userflow.passwords.test_reset import ask, login
from tests.userflow.tokens.test_oauth_libraries import place as place
from tests.world import PASSWORD, Api, House

NEW = "another horse 8 battery"


def test_the_page_runs_its_own_script_only(api: Api) -> None:
    answer = api.get("/password/reset")
    assert (answer.status_code, answer.headers["Cache-Control"]) == (200, "no-store")
    policy = answer.headers["Content-Security-Policy"]
    nonce = re.search(r"script-src 'nonce-([A-Za-z0-9_-]+)'", policy)
    assert nonce
    assert answer.content.count(f'nonce="{nonce[1]}"'.encode()) == 2
    assert "unsafe" not in policy
    assert api.get("/password/reset").headers["Content-Security-Policy"] != policy


def test_the_page_takes_nothing(api: Api) -> None:
    answer = api.post("/password/reset", {"password": NEW})
    assert (answer.status_code, answer.json()["error"]) == (405, "Method Not Allowed")


@pytest.mark.needs("chromium", "chromedriver")
def test_a_person_sets_a_new_password(place: str, house: House, tmp_path: object) -> None:
    options = Options()
    options.binary_location = str(program("chromium"))
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", f"--user-data-dir={tmp_path}"):
        options.add_argument(argument)
    person = house.register()
    token = ask(house, person)
    browser = webdriver.Chrome(options=options, service=Service(str(program("chromedriver"))))
    try:
        browser.get(f"{place}/password/reset#realm=enduser&token={token}")
        problem, done = (browser.find_element(By.ID, name) for name in ("problem", "done"))
        assert "token" not in browser.current_url

        def submit(password: str, again: str) -> None:
            for name, text in (("password", password), ("again", again)):
                field = browser.find_element(By.ID, name)
                field.clear()
                field.send_keys(text)
            browser.find_element(By.TAG_NAME, "button").click()

        submit(NEW, NEW + "x")
        assert problem.text == "The two passwords are not the same."
        submit("Password2026!", "Password2026!")
        WebDriverWait(browser, 10).until(lambda _: "breaches" in problem.text)
        submit(NEW, NEW)
        WebDriverWait(browser, 10).until(lambda _: done.text.startswith("Your new password is set"))
    finally:
        browser.quit()
    assert (login(house, person, PASSWORD), login(house, person, NEW)) == (401, 200)
