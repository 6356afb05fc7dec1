"""Names of resources: users read them in place of addresses, on the consent page and at their applications."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.openid.pages.visitor import Visitor, begin
from tests.openid.test_metadata_claims import SETTINGS
from tests.world import TestTenant

INVOICES = "https://api.example.com/invoices"
STOCK = "urn:example:stock"


def change(tenant: TestTenant, names: object) -> Any:
    return tenant.api.patch(SETTINGS.format(tenant.id), {"settings": {"resource_names": names}})


def test_consent_shows_names_of_resources(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    assert change(tenant, [f"{INVOICES} Invoices & payments"]).status_code == 200
    visitor = Visitor(tenant)
    visitor.signs_in(tenant.register())
    begin(visitor, client={"audiences": [INVOICES, STOCK]}, resource=[INVOICES, STOCK])
    assert visitor.at == "consent"
    assert "Use Invoices & payments" in visitor.words
    assert INVOICES not in visitor.words
    # One without a name is shown as it is.
    assert f"Use {STOCK}" in visitor.words
    visitor.sends(allow="1")
    visitor.opens("account/applications")
    assert "Use Invoices & payments" in visitor.words
    assert INVOICES not in visitor.words


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ([INVOICES], "the address of a resource, a blank"),
        ([f"{INVOICES} "], "the address of a resource, a blank"),
        ([f"{INVOICES} {'a' * 65}"], "at most 64 characters"),
        ([f"{INVOICES} Invoices\nand more"], "the address of a resource, a blank"),
        ([f"{INVOICES} pay@example.com"], "Choose a name without"),
        ([f"{INVOICES} Pay\u202eable"], "Choose a name without"),
        ([f"{INVOICES} Invoices", f"{INVOICES} Bills"], f"Name each resource once: {INVOICES}."),
        ({INVOICES: "Invoices"}, ""),
    ],
)
def test_names_are_validated(names: object, says: str, tenant: TestTenant) -> None:
    response = change(tenant, names)
    assert (response.status_code, response.json()["code"]) == (400, "validation_failed")
    assert says in " ".join(response.json()["details"]["settings.resource_names"])


def test_words_of_the_platform_cannot_be_replaced(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    assert change(tenant, ["email Nothing", "openid Nothing"]).status_code == 200
    visitor = Visitor(tenant)
    visitor.signs_in(tenant.register())
    begin(visitor, client={}, scope="openid email")
    assert "See your e-mail address" in visitor.words
    assert "Nothing" not in visitor.words
