"""The search over tenants, admin users, clients, services and end users of all tenants."""

import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection

from identity_platform.audit.models import PlatformEvent
from tenants.models import Tenant, TenantDatabase
from tests.console.people.browsing import CHOOSER, PEOPLE
from tests.console.staff import Staff, new_operator, new_tenant_admin
from tests.world import TestTenant, User, capture_statements
from userflow.user_index.entries import deliver, digest_of
from userflow.user_index.models import IndexedEndUser

FIND = "/admin/search/"


@pytest.fixture(scope="module")
def operator(django_db_setup: None, django_db_blocker: Any) -> Staff:
    with django_db_blocker.unblock():
        return new_operator().sign_in()


def found(staff: Staff, words: str) -> str:
    """Return the results as the dialog gets them."""
    response = staff.browser.post(FIND, {"q": words}, headers={"HX-Request": "true"})
    assert (response.status_code, "no-store" in response.headers["Cache-Control"]) == (200, True)
    page: str = response.content.decode()
    assert "<html" not in page
    return page


def indexed_user(tenant: TestTenant, email: str | None = None) -> User:
    """Register a user, and let the index follow."""
    user = tenant.register(email)
    deliver(tenant.id)
    return user


def searches(staff: Staff) -> list[dict[str, Any]]:
    events = PlatformEvent.objects.filter(action="people.searched", actor_id=str(staff.id)).order_by("id")
    return [event.details for event in events]


def new_service(tenant: TestTenant) -> dict[str, Any]:
    body = {"name": f"Ledger {secrets.token_hex(5)}", "type": "crm", "base_url": "https://crm.example.com"}
    return dict(tenant.api.post("/exsvc/api/v1/services", body).json())


def test_operator_finds_each_kind_by_beginning_of_name(operator: Staff, tenant: TestTenant) -> None:
    service = new_service(tenant)
    for words in (tenant.slug[:-1], tenant.name.upper()[:-1], str(tenant.id)):
        assert f'name="tenant" value="{tenant.id}"' in found(operator, words)
    for words in (tenant.admin.username[:-1], tenant.admin.email.upper()[:-4], str(tenant.admin.id)):
        assert f"/admin/userflow/adminuser/{tenant.admin.id}/change/" in found(operator, words)
    for words in (service["name"][:-1].lower(), service["id"]):
        assert f"/admin/registry/service/{service['id']}/change/" in found(operator, words)
    assert f"/admin/userflow/client/{tenant.client_id}/change/" in found(operator, str(tenant.client_id))


def test_person_of_unknown_tenant_opens_in_two_clicks(operator: Staff, tenant: TestTenant) -> None:
    person = indexed_user(tenant)
    page = found(operator, person.email.upper())
    assert tenant.name in page
    opened = {"tenant": str(tenant.id), "next": f"{PEOPLE}{person.id}/"}
    for name, value in opened.items():
        assert f'name="{name}" value="{value}"' in page
    response = operator.post(CHOOSER, opened)
    assert response.headers["Location"] == opened["next"]
    assert person.email in operator.get(opened["next"]).content.decode()
    # The tenant is open now, so the result is a link.
    assert f'href="{opened["next"]}"' in found(operator, str(person.id))


def test_address_of_several_tenants_finds_all(operator: Staff, tenant: TestTenant, other_tenant: TestTenant) -> None:
    person = indexed_user(tenant)
    other = indexed_user(other_tenant, person.email)
    page = found(operator, person.email)
    assert (str(person.id) in page, str(other.id) in page) == (True, True)
    assert str(person.id) not in found(operator, person.email[:-1])


def test_search_for_people_is_audited_without_address(tenant: TestTenant) -> None:
    staff, person = new_operator().sign_in(), indexed_user(tenant)
    for words in (person.email, str(person.id), f"none-{person.email}", tenant.slug):
        found(staff, words)
    assert searches(staff) == [
        {"by": "address", "matches": 1},
        {"by": "id", "matches": 1},
        {"by": "address", "matches": 0},
    ]


def test_tenant_admin_finds_the_own_tenant_only(operator: Staff, tenant: TestTenant, other_tenant: TestTenant) -> None:
    staff, own, other = new_tenant_admin(tenant).sign_in(), indexed_user(tenant), indexed_user(other_tenant)
    assert f'href="{PEOPLE}{own.id}/"' in found(staff, own.email)
    assert f'href="/admin/tenants/tenant/{tenant.id}/change/"' in found(staff, tenant.slug)
    theirs = [other.email, other.id, other_tenant.slug, other_tenant.id, other_tenant.client_id]
    for words in [*theirs, other_tenant.admin.username, new_service(other_tenant)["name"], operator.username]:
        assert "data-result" not in found(staff, str(words)), words


@pytest.mark.parametrize(
    ("permission", "kinds"),
    [
        ("endusers:read", ""),
        ("tenants:read", "tenants"),
        ("tenants:read clients:read", "tenants, clients"),
        ("tenants:read services:read", "tenants, services"),
        ("admins:read", "admin users"),
        ("tenants:read endusers:read", "tenants"),
    ],
)
def test_search_is_limited_by_permissions(permission: str, kinds: str, tenant: TestTenant) -> None:
    held = permission.split()
    staff, person = new_operator(*held).sign_in(), indexed_user(tenant)
    assert (f"by id: {kinds}." in found(staff, "")) == bool(kinds)
    may = {"tenants:read", "endusers:read"} <= set(held)
    assert (str(person.id) in found(staff, person.email), len(searches(staff))) == (may, int(may))
    assert ("data-result" in found(staff, str(tenant.client_id))) == ("clients:read" in held)
    assert ("data-result" in found(staff, tenant.admin.username)) == ("admins:read" in held)


def test_page_works_without_script(operator: Staff, tenant: TestTenant) -> None:
    page = operator.get(FIND, q=tenant.slug).content.decode()
    assert "End users are found by their whole e-mail address or id." in page
    assert "data-result" not in page
    page = operator.post(FIND, {"q": tenant.slug}).content.decode()
    assert ("<html" in page, f'value="{tenant.id}"' in page) == (True, True)
    assert 'id="find"' in page


def test_no_result_says_what_can_be_found(operator: Staff) -> None:
    page = found(operator, "<no such thing>")
    assert "Nothing was found for “&lt;no such thing&gt;”." in page
    assert "by id: tenants, admin users, clients, services." in page
    assert f'href="{CHOOSER}?q=%3Cno%20such%20thing%3E"' in page
    # An address does not get into a URL.
    assert f'href="{CHOOSER}"' in found(operator, "unknown@example.com")


# Longer than what fuzzed calls of other tests may have left.
@pytest.mark.parametrize(
    "odd", ["%%%%%%", "________", "\\" * 6, "''''", "\x00", "@", "a" * 300, "ſſſſ", "{00000000}", "💥💥"]
)
def test_odd_words_find_nothing(operator: Staff, odd: str) -> None:
    assert "data-result" not in found(operator, odd)


def test_results_are_limited(operator: Staff, new_tenant: Callable[[], TestTenant]) -> None:
    tenant, name = new_tenant(), f"Many {secrets.token_hex(5)}"
    for number in range(6):
        body = {"name": f"{name} {number}", "type": "crm", "base_url": "https://crm.example.com"}
        assert tenant.api.post("/exsvc/api/v1/services", body).status_code == 201
    page = found(operator, name)
    assert (page.count("data-result"), "There are more." in page) == (5, True)


def test_deleted_tenant_is_not_found(operator: Staff) -> None:
    email = f"{secrets.token_hex(6)}@example.com"
    gone = Tenant.objects.create(slug=f"deleted-{uuid4()}", name="deleted")
    server = TenantDatabase.objects.all()[:1].get().server
    TenantDatabase.objects.create(tenant=gone, server=server, name=gone.slug, status="deleted")
    IndexedEndUser.objects.create(tenant_id=gone.pk, user_id=uuid4(), digest=digest_of(email))
    for words in (email, gone.slug, str(gone.pk)):
        assert "data-result" not in found(operator, words)


def test_search_enters_no_tenant_and_costs_the_same(tenant: TestTenant, other_tenant: TestTenant) -> None:
    staff, person, costs = new_operator().sign_in(), indexed_user(tenant), []
    # Results of an open tenant are links, so the search reads which one is open, once.
    staff.post(CHOOSER, {"tenant": str(tenant.id), "next": PEOPLE})
    body = {"name": tenant.name, "type": "crm", "base_url": "https://crm.example.com"}
    assert tenant.api.post("/exsvc/api/v1/services", body).status_code == 201
    staff.just_seen()
    found(staff, person.email)
    for words in (person.email, tenant.slug, tenant.name[:1]):
        with capture_statements() as seen:
            found(staff, words)
        costs.append(seen.counts)
    indexed_user(other_tenant, person.email)
    with capture_statements() as seen:
        found(staff, person.email)
    assert (seen.counts, costs) == (costs[0], [(12, 0), (8, 0), (9, 0)])


@contextmanager
def plans() -> Iterator[list[str]]:
    """Collect the plans of the statements on the global database, for tables that are too large to be read as a whole."""
    found: list[str] = []

    def explain(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith("SELECT"):
            execute(f"EXPLAIN {sql}", params, many, context)
            found.append("\n".join(line for (line,) in context["cursor"].fetchall()))
        return execute(sql, params, many, context)

    with connection.cursor() as cursor:
        cursor.execute("SET enable_seqscan = off; SET enable_bitmapscan = off")
        try:
            with connection.execute_wrapper(explain):
                yield found
        finally:
            cursor.execute("RESET enable_seqscan; RESET enable_bitmapscan")


def test_search_reads_indexes_in_their_order(operator: Staff, tenant: TestTenant) -> None:
    with plans() as by_name:
        found(operator, "a")
    used = re.findall(r"Index Scan using (\w+_begins)", "\n".join(by_name))
    assert sorted(used) == [
        "admin_email_begins",
        "admin_username_begins",
        "client_name_begins",
        "service_name_begins",
        "tenant_name_begins",
        "tenant_slug_begins",
    ]
    assert not [plan for plan in by_name if "_begins" in plan and "Sort" in plan]
    with plans() as by_address:
        found(operator, tenant.admin.email)
    assert [plan for plan in by_address if "indexed_end_user_address" in plan and "Seq Scan" not in plan]


@pytest.mark.parametrize("kind", ["client", "service"])
def test_one_permission_finds_its_kind_alone(tenant: TestTenant, other_tenant: TestTenant, kind: str) -> None:
    mark = f"Ledger {secrets.token_hex(5)}"
    pages = {}
    for each in (tenant, other_tenant):
        service = each.api.post(
            "/exsvc/api/v1/services", {"name": mark, "type": "crm", "base_url": "https://a.example.com"}
        )
        client = each.api.post(f"/clientms/tenants/{each.id}/clients", {"name": mark})
        pages[each.id] = {
            "service": f"/admin/registry/service/{service.json()['id']}/change/",
            "client": f"/admin/userflow/client/{client.json()['client_id']}/change/",
        }
    reader = new_tenant_admin(tenant, f"{kind}s:read").sign_in()
    shown = found(reader, mark)
    assert {page for rows in pages.values() for page in rows.values() if page in shown} == {pages[tenant.id][kind]}
    # An operator also needs to see tenants.
    assert pages[tenant.id][kind] not in found(new_operator(f"{kind}s:read").sign_in(), mark)
    assert pages[tenant.id][kind] in found(new_operator(f"{kind}s:read", "tenants:read").sign_in(), mark)
