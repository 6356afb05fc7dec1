"""A tenant of the test's own with its admin at the console, and forms as the pages draw them."""

from typing import Any

import pytest

from tests.console.staff import Staff, new_tenant_admin
from tests.world import House


@pytest.fixture
def home(new_house: Any) -> House:
    made: House = new_house()
    return made


@pytest.fixture
def head(home: House) -> Staff:
    return new_tenant_admin(home).sign_in()


def send(staff: Staff, house: House, path: str, **form: Any) -> Any:
    """A form as the page has drawn it: it says for which tenant."""
    return staff.post(path, {"drawn_for": str(house.id), **form})
