"""Forms that are older than another change: rejected, with the newer values, and nothing is overwritten."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.urls import reverse
from django.utils.timezone import now

from registry.models import Service, ServiceCredential
from tenants.entering.context import in_tenant, tenant_atomic
from tenants.entering.target import TENANT_ALIAS
from tenants.models import DatabaseServer, Tenant
from tests.console.staff import Staff, new_operator
from tests.console.test_every_url import Ids, add_rows
from tests.machine.conftest import within
from tests.userflow.sessions.clients import make_client
from tests.world import TestTenant, build_tenant
from userflow.accounts.models import AdminRole, AdminUser, Client, EndUser, Group, Role
from userflow.directory.models import DirectoryConfig
from userflow.events.models import WebhookEndpoint

NEWER = "set-meanwhile"  # also a well-formed region
# Page, kind of its id, model, the column that another caller changes, and whether it is in the tenant's database.
FORMS: list[tuple[str, str, Any, str, bool]] = [
    ("client_edit", "client", Client, "name", False),
    ("service_edit", "service", Service, "name", False),
    ("admin_edit", "admin", AdminUser, "first_name", False),
    ("admin_role_edit", "role", AdminRole, "permissions", False),
    ("tenants_tenant_settings", "tenant", Tenant, "name", False),
    ("server_change", "server", DatabaseServer, "region", False),
    ("directory_change", "directory", DirectoryConfig, "name", False),
    ("webhook_edit", "endpoint", WebhookEndpoint, "description", True),
    ("edit_person", "person", EndUser, "name", True),
    ("edit_group", "group", Group, "name", True),
    ("edit_role", "tenant_role", Role, "description", True),
]


@pytest.fixture(scope="module")
def rows(django_db_setup: None) -> tuple[TestTenant, Ids, Staff]:
    tenant = build_tenant()
    return tenant, add_rows(tenant), new_operator().sign_in().choose(tenant)


def change(tenant: TestTenant, model: Any, key: Any, column: str, value: Any, *, inside: bool) -> Any:
    """Store a value as another caller would; return the one before."""
    with other_transaction(tenant, inside=inside):
        before = model.objects.values_list(column, flat=True).get(pk=key)
        model.objects.filter(pk=key).update(**{column: value})
    return before


def sent_by_browser(page: Any, tenant: TestTenant) -> dict[str, Any]:
    """The form of the page as a browser sends it back untouched."""
    values = {field.html_name: field.value() for field in page.context["form"]}
    fields = {name: "on" if value is True else value for name, value in values.items() if value not in (None, False)}
    return {**fields, **page.context["hidden"], "form_tenant_id": str(tenant.id)}


@pytest.mark.parametrize(("name", "kind", "model", "column", "inside"), FORMS, ids=[form[0] for form in FORMS])
def test_stale_form_is_rejected_with_newer_values(
    rows: tuple[TestTenant, Ids, Staff], name: str, kind: str, model: Any, column: str, inside: bool
) -> None:
    tenant, ids, operator = rows
    key, path = ids[kind], reverse(f"admin:{name}", args=[ids[kind]])
    sent = sent_by_browser(operator.get(path), tenant)
    newer: Any = [NEWER] if column == "permissions" else NEWER
    before = change(tenant, model, key, column, newer, inside=inside)
    try:
        late = operator.post(path, sent)
        assert (late.status_code, "This was changed after you opened the page" in late.text) == (400, True)
        assert [value for _label, value in late.context["newer"].rows] == [newer]
        assert (NEWER in late.text, "Open the page again" in late.text) == (True, True)
    finally:
        assert change(tenant, model, key, column, before, inside=inside) == newer
    # The values are those of the form again.
    assert operator.post(path, sent).status_code == 302


@pytest.mark.parametrize(
    ("name", "kinds", "model", "inside"),
    [
        ("client_rotate", ["client"], Client, False),
        ("webhook_rotate", ["endpoint"], WebhookEndpoint, True),
        ("credential_rotate", ["service", "credential"], ServiceCredential, False),
    ],
)
def test_stale_rotation_is_rejected(
    rows: tuple[TestTenant, Ids, Staff], name: str, kinds: list[str], model: Any, inside: bool
) -> None:
    tenant, ids, operator = rows
    path = reverse(f"admin:{name}", args=[ids[kind] for kind in kinds])
    sent = {**sent_by_browser(operator.get(path), tenant), "secret": "another", "overlap_hours": "24"}
    change(tenant, model, ids[kinds[-1]], "updated_at", now(), inside=inside)
    late = operator.post(path, sent)
    assert (late.status_code, "This was changed after you opened the page" in late.text) == (400, True)


@pytest.mark.parametrize(("name", "kind", "model", "column", "inside"), FORMS, ids=[form[0] for form in FORMS])
def test_change_at_the_same_moment_is_kept(
    rows: tuple[TestTenant, Ids, Staff], name: str, kind: str, model: Any, column: str, inside: bool
) -> None:
    """The form is sent before the other change is committed, and reads the values from before it."""
    tenant, ids, operator = rows
    key, path = ids[kind], reverse(f"admin:{name}", args=[ids[kind]])
    newer, typed = (["groups:read"], ["roles:read"]) if column == "permissions" else (NEWER, "typed")
    sent = {**sent_by_browser(operator.get(path), tenant), column: typed}
    with ThreadPoolExecutor(1) as pool:
        with other_transaction(tenant, inside=inside) as database:
            before = model.objects.values_list(column, flat=True).get(pk=key)
            model.objects.filter(pk=key).update(**{column: newer})
            sending = pool.submit(in_thread, operator, path, sent)
            assert within(20, lambda: sending.done() or waiting_in(database) == 1)
        late = sending.result()
    # Later tests find the value of before.
    stored = change(tenant, model, key, column, before, inside=inside)
    assert (late.status_code, "This was changed after you opened the page" in late.text) == (400, True)
    assert (stored, NEWER in late.text or "groups:read" in late.text) == (newer, True)


def in_thread(operator: Staff, path: str, sent: dict[str, Any]) -> Any:
    try:
        return operator.post(path, sent)
    finally:
        connections.close_all()


@contextmanager
def other_transaction(tenant: TestTenant, *, inside: bool) -> Iterator[BaseDatabaseWrapper]:
    """Open a transaction in the global database, or in the tenant's."""
    with ExitStack() as entered:
        if inside:
            entered.enter_context(in_tenant(tenant.id))
        entered.enter_context(tenant_atomic() if inside else transaction.atomic())
        yield connections[TENANT_ALIAS if inside else "default"]


def waiting_in(database: BaseDatabaseWrapper) -> int:
    """Return how many transactions wait for a lock in this database."""
    with database.cursor() as cursor:
        # A transaction sees one state of the activity otherwise.
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        return int(cursor.fetchone()[0])


@pytest.mark.parametrize(
    ("name", "kinds", "model", "inside"),
    [
        ("client_rotate", ["client"], Client, False),
        ("webhook_rotate", ["endpoint"], WebhookEndpoint, True),
        # A change of a credential locks its service.
        ("credential_rotate", ["service", "credential"], Service, False),
    ],
)
def test_one_of_two_rotations_at_the_same_moment(
    rows: tuple[TestTenant, Ids, Staff], name: str, kinds: list[str], model: Any, inside: bool
) -> None:
    tenant, ids, operator = rows
    # The client of the rows has no secret.
    ids = {**ids, "client": make_client(tenant)["id"]}
    path = reverse(f"admin:{name}", args=[ids[kind] for kind in kinds])
    colleague = new_operator().sign_in().choose(tenant)
    fields = {"secret": "another", "overlap_hours": "24"}
    senders = {
        staff.id: (staff, {**sent_by_browser(staff.get(path), tenant), **fields}) for staff in (operator, colleague)
    }
    with ThreadPoolExecutor(2) as pool:
        with other_transaction(tenant, inside=inside) as database:
            model.objects.select_for_update().get(pk=ids[kinds[0]])
            sending = [pool.submit(in_thread, staff, path, sent) for staff, sent in senders.values()]
            assert within(20, lambda: waiting_in(database) == 2 or any(each.done() for each in sending))
        responses = [each.result() for each in sending]
    assert [response.status_code == 400 for response in responses].count(True) == 1
    (late,) = [response for response in responses if response.status_code == 400]
    assert "This was changed after you opened the page" in late.text


def test_row_that_is_gone_leads_to_its_list(rows: tuple[TestTenant, Ids, Staff]) -> None:
    _tenant, ids, operator = rows
    for name, kind, page in (
        ("client_edit", "tenant", "userflow_client_changelist"),
        ("group", "tenant", "userflow_group_changelist"),
    ):
        gone = operator.get(reverse(f"admin:{name}", args=[ids[kind]]))
        link = f'href="{reverse(f"admin:{page}")}"'
        assert (gone.status_code, link in gone.text.partition('id="content"')[2]) == (404, True)
        assert f"give this number: {gone.headers['X-Request-ID']}" in gone.text
