"""Typical work of each role in a real browser: what it can do, and what it can neither see nor do."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from tests.console.browser.pictures import DARK, LAPTOP, LIGHT, PHONE, Camera
from tests.console.browser.place import RunningPlatform, address_of
from tests.console.browser.visitor import Visitor

pytestmark = [pytest.mark.needs("chromium", "chromedriver"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def acme(place: RunningPlatform) -> dict[str, Any]:
    """A tenant in daily use."""
    return place.add_rows(place.new_tenant("Acme Ltd", slug="acme"))


@pytest.fixture(scope="module")
def other(place: RunningPlatform) -> dict[str, Any]:
    """Another tenant."""
    return place.add_rows(place.new_tenant("Other Inc"))


def test_an_operators_day(
    place: RunningPlatform, acme: dict[str, Any], visit: Callable[[str], Visitor], camera: Camera
) -> None:
    ann = visit(place.new_operator("ann")).opens("/admin/")
    camera.takes("sign-in", ann, (PHONE, DARK))
    ann.sits_down_for_the_first_time()

    ann.follows("Tenants")
    ann.presses("Provision")
    ann.fills("Name", "Borealis")
    ann.fills("Slug", "borealis")
    ann.fills("First admin: username", "bo")
    ann.fills("First admin: e-mail", "bo@example.com")
    ann.presses("Provision")
    ann.reads("done")
    ann.presses("Show tenant")
    ann.reads("active")

    ann.opens(f"/admin/tenants/tenant/{acme['tenant_id']}/change/").reads("Acme Ltd")
    open_tenant_pages(ann, acme)
    a_day_inside_a_tenant(ann, camera)

    ann.opens("/admin/platform/audit/")
    ann.reads("credential")
    place.manage("collect_figures")
    ann.opens("/admin/").reads("Registry calls")
    camera.takes("dashboard", ann, (LAPTOP, LIGHT))
    assert ann.complaints() == []


def test_a_tenant_admins_day(
    acme: dict[str, Any], other: dict[str, Any], visit: Callable[[str], Visitor], camera: Camera
) -> None:
    ben = visit(other["admin"]["username"])
    ben.sends_password()
    ben.is_at("/admin/")
    ben.reads("Other Inc")
    a_day_inside_a_tenant(ben, camera.off())

    for elsewhere in (
        f"/admin/tenants/tenant/{acme['tenant_id']}/change/",
        "/admin/platform/servers/",
        "/admin/platform/signing-keys/",
        "/admin/tenants/tenant/provision/",
    ):
        ben.opens(elsewhere)
        assert "Acme" not in ben.page
        assert ben.is_rejected(), elsewhere


def test_an_auditors_day(place: RunningPlatform, acme: dict[str, Any], visit: Callable[[str], Visitor]) -> None:
    cleo = visit(place.new_tenant_staff(acme, role="auditor"))
    cleo.sends_password()
    cleo.is_at("/admin/")
    cleo.follows("End users")
    cleo.follows(address_of("Vera Visitor"))
    cleo.reads("Second factors")
    assert "Reset second factors" not in cleo.page
    person = cleo.browser.current_url.removeprefix(cleo.url)
    for forbidden in (f"{person}factors/reset/", f"{person}erase/", f"{person}edit/", "/admin/inside/groups/new/"):
        cleo.opens(forbidden)
        assert cleo.is_rejected(), forbidden
    cleo.opens("/admin/inside/trail/").reads("End user registered")
    cleo.follows("Services")
    cleo.follows("Card payments")
    cleo.reads("Live key")
    assert "Rotate" not in cleo.page
    assert "Reveal" not in cleo.page


def open_tenant_pages(visitor: Visitor, tenant: dict[str, Any]) -> None:
    """Choose a tenant by its name."""
    visitor.opens("/admin/inside/")
    visitor.fills("Name or slug", tenant["slug"])
    visitor.presses("Search")
    visitor.presses("Open Acme Ltd")


def a_day_inside_a_tenant(visitor: Visitor, camera: Camera) -> None:
    """Find a user, reset the factors, rotate a credential, read the audit log."""
    visitor.follows("End users")
    visitor.searches("vera")
    visitor.follows(address_of("Vera Visitor"))
    visitor.reads("Second factors")
    camera.takes("end-user", visitor, (LAPTOP, DARK), (PHONE, LIGHT))
    visitor.presses("Reset second factors")
    visitor.fills("Reason", f"Lost the phone, ticket {uuid4().hex[:6]}")
    visitor.presses("Remove all factors")
    visitor.reads("None: the user signs in with the password alone")

    visitor.follows("Services")
    visitor.follows("Card payments")
    visitor.presses("Rotate")
    visitor.fills("Secret", "sk-0816")
    visitor.presses("Rotate")
    visitor.reads("The credential is rotated.")

    visitor.opens("/admin/inside/trail/").reads("Factors reset by an admin")
