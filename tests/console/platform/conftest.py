"""A new tenant with its admin in the console, and forms as the pages render them."""

from typing import Any

import pytest

from tests.console.staff import Staff, new_tenant_admin
from tests.world import TestTenant


@pytest.fixture
def home(new_tenant: Any) -> TestTenant:
    made: TestTenant = new_tenant()
    return made


@pytest.fixture
def head(home: TestTenant) -> Staff:
    return new_tenant_admin(home).sign_in()


def send(staff: Staff, tenant: TestTenant, path: str, **form: Any) -> Any:
    """Send a form as the page rendered it, with the id of its tenant."""
    return staff.post(path, {"form_tenant_id": str(tenant.id), **form})
