"""axe on every page of the console that links lead to, as a laptop and as a phone, light and dark.

Each page is checked in one of the four ways, the next page in the next one; with AXE=all in the environment in all four.
With PICTURES each page is photographed too.
"""

import json
import os
import re
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.expected_conditions import presence_of_element_located
from selenium.webdriver.support.wait import WebDriverWait

from tests.console.browser.place import RunningPlatform
from tests.console.browser.visitor import Visitor
from tests.openid.node_client import PACKAGES, install_packages

pytestmark = [pytest.mark.needs("chromium", "chromedriver", "node"), pytest.mark.timeout(600)]
WAYS = [(1366, "light"), (320, "dark"), (1366, "dark"), (320, "light")]
VIOLATIONS = """
const done = arguments[0];
const faults = (found) => found.violations.map((one) => [one.id, one.nodes.map((node) => node.html.slice(0, 200))]);
axe.run({resultTypes: ['violations']}).then((found) => done(faults(found)));
"""
THEME = "return document.documentElement.classList.contains('dark') ? 'dark' : 'light'"
HEADING = presence_of_element_located((By.CSS_SELECTOR, "main h1"))
LINKS = "return [...document.querySelectorAll('a[href]')].map(link => link.href)"
SCROLLS = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
# UUIDs, numbers, and key ids (a SHA-256 in base64url).
IDS = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|(?<=/)\d+(?=/)|(?<=/)[\w-]{43}(?=/)")
# Other places, and files.
LEFT_OUT = re.compile(r"/admin/(logout|jsi18n)/|export")
EVERY_WAY = os.environ.get("AXE") == "all"
PICTURES = os.environ.get("PICTURES")


def kind_of(address: str) -> str:
    """Return the path of a page with `*` for ids: pages of one kind are checked once."""
    return IDS.sub("*", urlsplit(address).path)


def crawled(visitor: Visitor, start: str) -> Iterator[tuple[str, list[tuple[int, str]]]]:
    """Open one page of each kind that links lead to; yield its kind and the ways to check it while it is open."""
    waiting, known = [visitor.url + start], {kind_of(start)}
    for number in count():
        if not waiting:
            return
        address = waiting.pop(0)
        ways = WAYS if EVERY_WAY else [WAYS[number % len(WAYS)]]
        # Before the page is loaded: to change the theme, it is loaded again.
        show(visitor, *ways[0])
        visitor.browser.get(address)
        yield kind_of(address), ways
        for link in visitor.browser.execute_script(LINKS):
            path = urlsplit(link).path
            if path.startswith("/admin/") and kind_of(link) not in known and not LEFT_OUT.search(path):
                known.add(kind_of(link))
                waiting.append(link)


def show(visitor: Visitor, width: int, theme: str) -> None:
    """Give the browser this width and theme."""
    command: Callable[..., Any] = visitor.browser.execute_cdp_cmd  # type: ignore[attr-defined]  # Chromium's driver has it
    shown = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    command("Emulation.setDeviceMetricsOverride", shown)
    command("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": theme}]})


def faults_of(visitor: Visitor, name: str, ways: list[tuple[int, str]]) -> list[Any]:
    """Return what axe finds on the open page, and by how much it is too wide."""
    found: list[Any] = []
    for width, theme in ways:
        show(visitor, width, theme)
        if visitor.browser.execute_script(THEME) != theme:
            # The page follows the browser's theme when it is loaded.
            visitor.browser.refresh()
            WebDriverWait(visitor.browser, 10).until(HEADING, name)
        assert visitor.browser.execute_script(THEME) == theme
        if not visitor.browser.execute_script("return 'axe' in window"):
            visitor.browser.execute_script((PACKAGES / "axe-core" / "axe.min.js").read_text())
        found += [[width, theme, *fault] for fault in visitor.browser.execute_async_script(VIOLATIONS)]
        if (wide := visitor.browser.execute_script(SCROLLS)) > 0:
            found.append([width, theme, f"{wide} px too wide"])
        if PICTURES:
            Path(PICTURES).mkdir(parents=True, exist_ok=True)
            file = name.strip("/").replace("/", "-").replace("*", "x")
            visitor.browser.save_screenshot(f"{PICTURES}/{file}-{width}-{theme}.png")
    return found


@pytest.mark.nightly
def test_no_page_has_a_fault(place: RunningPlatform, visit: Callable[[str], Visitor]) -> None:
    install_packages()
    tenant = place.add_rows(place.new_tenant("Zephyr Ltd"))
    ann = visit(place.new_operator())
    ann.sits_down_for_the_first_time()
    ann.opens(f"/admin/inside/?tenant={tenant['tenant_id']}").presses("Open tenant")
    ann.reads("Exit tenant")
    ann.browser.implicitly_wait(0)
    faults: dict[str, Any] = {}
    pages = 0
    for name, ways in crawled(ann, "/admin/"):
        pages += 1
        WebDriverWait(ann.browser, 10).until(HEADING, name)
        if found := faults_of(ann, name, ways):
            faults[name] = found
    assert not faults, json.dumps(faults, indent=1)
    assert pages >= 60
