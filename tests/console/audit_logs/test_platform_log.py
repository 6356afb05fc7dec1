"""The platform's audit log in the console: search, names, pages and export."""

import csv
import io
import json
import re
import secrets
from typing import Any

import pytest

from console.audit_logs.export import as_csv
from identity_platform.audit.models import PlatformEvent
from identity_platform.audit.writer import record_for_platform
from identity_platform.transfer.rows import unescape_formula
from tests.console.staff import Staff, new_auditor, new_operator, new_tenant_admin
from tests.world import TestTenant, capture_statements

LOG = "/admin/platform/audit/"
EXPORT = f"{LOG}export/"


@pytest.fixture
def operator() -> Staff:
    return new_operator().sign_in()


def happened(target: str, tenant: TestTenant | None = None, times: int = 1, action: str = "service.updated") -> None:
    for _ in range(times):
        record_for_platform(action, tenant_id=tenant.id if tenant else None, target=("service", target))


def lines(response: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in b"".join(response.streaming_content).splitlines()]


def codes(response: Any) -> list[str]:
    return [event.code for event in response.context["events"]]


def test_search_by_target_action_tenant_and_time(operator: Staff, tenant: TestTenant) -> None:
    target = secrets.token_hex(8)
    happened(target, tenant)
    happened(target, action="service.deleted")
    assert codes(operator.get(LOG, target=target)) == ["service.deleted", "service.updated"]
    for asked in ({"action": "service.updated"}, {"tenant": tenant.slug}, {"tenant": str(tenant.id)}):
        assert codes(operator.get(LOG, target=target, **asked)) == ["service.updated"]
    assert codes(operator.get(LOG, target=target, until="2020-01-01T00:00")) == []
    assert len(codes(operator.get(LOG, target=target, since="2020-01-01T00:00", until="2999-01-01T00:00"))) == 2


def test_search_by_username_and_address(operator: Staff) -> None:
    for name in (operator.username.upper(), operator.email, str(operator.id)):
        page = operator.get(LOG, person=name, action="console.signed_in")
        (event,) = page.context["events"]
        assert (event.actor.text, event.actor.link) == (
            operator.username,
            f"/admin/userflow/adminuser/{operator.id}/change/",
        )
    assert codes(operator.get(LOG, actor=operator.username)) != []


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"since": "yesterday"}, "such as 2026-01-31T08:00"),
        ({"tenant": "no-such-tenant"}, "No tenant has this slug, name or id."),
        ({"before": "-1"}, "Search again."),
        ({"action": "thing.done"}, "Choose one from the list."),
        ({"person": "no.one@example.com"}, "No user has this address."),
        ({"actor": "no-such-user"}, "Enter an address, a username or an id."),
        ({"target": "no-such-target"}, "Enter an address, a username or an id."),
        ({"person": "no@address"}, "This is not a complete e-mail address."),
        ({"person": "\x00"}, "Null characters are not allowed."),
    ],
)
def test_wrong_filter_says_what_is_expected(operator: Staff, asked: dict[str, str], told: str) -> None:
    response = operator.get(LOG, **asked)
    assert (response.status_code, told in response.text, response.context["events"]) == (400, True, [])


def test_log_is_paged(operator: Staff) -> None:
    target = secrets.token_hex(8)
    happened(target, times=60)
    first = operator.get(LOG, target=target)
    second = operator.get(LOG + first.context["older"])
    assert [len(codes(page)) for page in (first, second)] == [50, 10]
    assert (second.context["older"], second.context["newest"]) == ("", f"?target={target}")


def test_views_are_hidden_unless_wanted(operator: Staff) -> None:
    target = secrets.token_hex(8)
    happened(target)
    happened(target, action="service_credential.read")
    happened(target, times=60, action="audit.viewed")
    # That a program has read a secret is what is looked for after a leak.
    assert codes(operator.get(LOG, target=target)) == ["service_credential.read", "service.updated"]
    assert len(codes(operator.get(LOG, target=target, views="on"))) == 50
    assert len(codes(operator.get(LOG, target=target, action="audit.viewed"))) == 50


def test_targets_and_tenants_have_names(operator: Staff, tenant: TestTenant) -> None:
    record_for_platform("client.updated", tenant_id=tenant.id, target=("client", tenant.client_id))
    record_for_platform("client.updated", tenant_id=tenant.id, target=("client", secrets.token_hex(4)))
    gone, known = operator.get(LOG, tenant=tenant.slug).context["events"][:2]
    assert (known.target.text, known.target.link) == (tenant.row.clients.get(pk=tenant.client_id).name, "")
    assert (known.tenant.text, known.tenant.link) == (tenant.name, f"/admin/tenants/tenant/{tenant.id}/change/")
    assert (gone.target.mono, gone.target.link) == (True, "")
    # The page of a client opens in its tenant only.
    inside = operator.choose(tenant).get(LOG, tenant=tenant.slug).context["events"][1]
    assert inside.target.link == f"/admin/userflow/client/{tenant.client_id}/change/"


def test_tenant_admin_sees_events_of_own_tenant(tenant: TestTenant, other_tenant: TestTenant) -> None:
    target = secrets.token_hex(8)
    happened(target, tenant, action="service.created")
    happened(target, other_tenant, action="service.updated")
    happened(target, action="service.deleted")
    head = new_tenant_admin(tenant).sign_in()
    for query in ({}, {"tenant": str(other_tenant.id)}):
        assert codes(head.get(LOG, target=target, **query)) == ["service.created"]
    exported = lines(head.post(EXPORT, {"target": target, "form": "jsonl", "tenant": str(other_tenant.id)}))
    assert [event["action"] for event in exported] == ["service.created"]


def test_tenant_admin_does_not_learn_names_of_operators(operator: Staff, tenant: TestTenant) -> None:
    head = new_tenant_admin(tenant).sign_in()
    operator.choose(tenant).post(EXPORT, {"tenant": tenant.slug, "form": "csv"})
    page = head.get(LOG, action="audit.exported")
    assert page.context["events"][0].actor.text == "an operator"
    assert (operator.username in page.text, str(operator.id) in page.text) == (False, False)
    for name in (operator.username, operator.email):
        assert head.get(LOG, person=name).status_code == 400
    exported = lines(head.post(EXPORT, {"action": "audit.exported", "form": "jsonl"}))
    hidden = [(event["actor_id"], event["address"]) for event in exported if event["actor_kind"] == "operator"]
    assert set(hidden) == {("", "")}


def test_search_by_username_needs_the_permission_to_see_admins(operator: Staff) -> None:
    reader = new_operator("audit:read").sign_in()
    response = reader.get(LOG, person=operator.username)
    assert (response.status_code, "admins:read" in response.text) == (400, True)
    assert reader.get(LOG, person=str(operator.id)).status_code == 200


def test_export_is_audited_and_filtered(operator: Staff) -> None:
    target = secrets.token_hex(8)
    happened(target, times=3)
    response = operator.post(EXPORT, {"target": target, "form": "jsonl"})
    assert "attachment" in response.headers["Content-Disposition"]
    assert [event["target_id"] for event in lines(response)] == [target] * 3
    event = PlatformEvent.objects.filter(action="audit.exported").latest("id")
    assert (event.actor_kind, event.actor_id) == ("operator", str(operator.id))


def test_export_requires_permission(tenant: TestTenant) -> None:
    before = PlatformEvent.objects.filter(action="audit.exported").count()
    outsider = new_tenant_admin(tenant, "services:read").sign_in()
    assert [outsider.get(LOG).status_code, outsider.post(EXPORT, {"form": "csv"}).status_code] == [403, 403]
    assert PlatformEvent.objects.filter(action="audit.exported").count() == before


def test_csv_export_escapes_formulas(operator: Staff) -> None:
    target = f"=HYPERLINK({secrets.token_hex(4)})"
    happened(target)
    response = operator.post(EXPORT, {"target": target, "form": "csv"})
    rows = list(csv.DictReader(io.StringIO(b"".join(response.streaming_content).decode())))
    assert [row["target_id"] for row in rows] == [f"'{target}"]


@pytest.mark.parametrize("beginning", ["=1", "+1", "-1", "@a", "\ta", "\ra"])
def test_formula_prefixes_get_an_apostrophe(beginning: str) -> None:
    written = b"".join(as_csv(iter([{"id": 1, "address": beginning}]))).decode()
    (row,) = csv.DictReader(io.StringIO(written, newline=""))
    assert row["address"] == f"'{beginning}"


@pytest.mark.parametrize("cell", ["a;=1", 'a;"=1', "a\t@b", "a;'-1", "x\n+1"])
def test_formulas_behind_other_separators_get_an_apostrophe(cell: str) -> None:
    written = b"".join(as_csv(iter([{"id": 1, "address": cell}]))).decode()
    assert not re.search(r'[;\t\n]"*[=+@-]', written.partition("\n")[2])
    (row,) = csv.DictReader(io.StringIO(written, newline=""))
    assert unescape_formula(row["address"]) == cell


def test_deep_page_costs_the_same(operator: Staff) -> None:
    target = str(operator.id)
    happened(target, times=5)
    costs = []
    for query in (
        {"views": "on"},
        {"target": target, "views": "on"},
        {"before": str(PlatformEvent.objects.latest("id").pk)},
    ):
        with capture_statements() as seen:
            assert operator.get(LOG, **query).status_code == 200
        costs.append(seen.counts)
    # Session, admin user; the page; names of tenants, admin users and other kinds on the page.
    assert max(costs) <= (12, 0)


def test_platform_auditor_reads_whole_log(tenant: TestTenant) -> None:
    target = secrets.token_hex(8)
    happened(target, tenant)
    assert codes(new_auditor().sign_in().get(LOG, target=target)) == ["service.updated"]
