"""Forms that are older than another change: rejected, with the newer values, and nothing is overwritten."""

from contextlib import ExitStack
from typing import Any

import pytest
from django.urls import reverse
from django.utils.timezone import now

from registry.models import Service, ServiceCredential
from tenants.context import in_tenant, tenant_atomic
from tenants.models import DatabaseServer, Tenant
from tests.console.staff import Staff, new_operator
from tests.console.test_every_url import Ids, add_rows
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
    with ExitStack() as entered:
        if inside:
            entered.enter_context(in_tenant(tenant.id))
            entered.enter_context(tenant_atomic())
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
