"""A browser on the shared platform, and its camera."""

from collections.abc import Callable

import pytest
from selenium import webdriver

from tests.console.browser.pictures import Camera
from tests.console.browser.place import RunningPlatform
from tests.console.browser.visitor import Visitor


@pytest.fixture
def visit(browser: webdriver.Chrome, place: RunningPlatform) -> Callable[[str], Visitor]:
    """`visit(username)` opens the browser as this user."""
    # Wait for elements of a page that is loading.
    browser.implicitly_wait(10)
    return lambda username: Visitor(browser, place.url, username)


@pytest.fixture
def camera() -> Camera:
    """Take screenshots if the environment asks for them."""
    return Camera.of_the_environment()
