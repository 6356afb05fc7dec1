"""The platform's audit log in the console: search, pages and export."""

import csv
import io
import json
import secrets
from typing import Any

import pytest

from console.platform.audit_logs import as_csv
from identity_platform.audit.models import PlatformEvent
from identity_platform.audit.writer import record_for_platform
from tests.console.staff import Staff, new_auditor, new_operator, new_tenant_admin
from tests.world import TestTenant, capture_statements

TRAIL = "/admin/platform/audit/"
EXPORT = f"{TRAIL}export/"


@pytest.fixture
def operator() -> Staff:
    return new_operator().sign_in()


def happened(target: str, tenant: TestTenant | None = None, times: int = 1, action: str = "thing.done") -> None:
    for _ in range(times):
        record_for_platform(action, tenant_id=tenant.id if tenant else None, target=("thing", target))


def lines(response: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in b"".join(response.streaming_content).splitlines()]


def test_audit_trail_is_searched(operator: Staff, tenant: TestTenant) -> None:
    target = secrets.token_hex(8)
    happened(target, tenant)
    happened(target, action="thing.undone")
    both = operator.get(TRAIL, target=target).text
    assert ("thing.done" in both, "thing.undone" in both) == (True, True)
    for asked in ({"action": "thing.done"}, {"tenant": str(tenant.id)}):
        found = operator.get(TRAIL, target=target, **asked).text
        assert "thing.undone" not in found.replace('value="thing.undone"', "")
    assert "No event fits" in operator.get(TRAIL, target=target, until="2020-01-01T00:00").text


def test_audit_trail_is_paged(operator: Staff) -> None:
    target = secrets.token_hex(8)
    happened(target, times=60)
    first = operator.get(TRAIL, target=target)
    second = operator.get(TRAIL + first.context["older"])
    assert [len(page.context["table"].rows) for page in (first, second)] == [50, 10]
    assert (second.context["older"], second.context["newest"]) == ("", f"?target={target}")


def test_invalid_filters_show_an_error(operator: Staff) -> None:
    for asked in ({"since": "yesterday"}, {"tenant": "acme"}, {"before": "-1"}, {"action": "x" * 65}):
        assert operator.get(TRAIL, **asked).status_code == 400


def test_tenant_admin_sees_events_of_own_tenant(tenant: TestTenant, other_tenant: TestTenant) -> None:
    target = secrets.token_hex(8)
    happened(target, tenant, action="thing.mine")
    happened(target, other_tenant, action="thing.theirs")
    happened(target, action="thing.platforms")
    head = new_tenant_admin(tenant).sign_in()
    for query in ({}, {"tenant": str(other_tenant.id)}):
        page = head.get(TRAIL, target=target, **query).text
        assert [f"thing.{whose}" in page for whose in ("mine", "theirs", "platforms")] == [True, False, False]
    exported = lines(head.post(EXPORT, {"target": target, "form": "jsonl", "tenant": str(other_tenant.id)}))
    assert [event["action"] for event in exported] == ["thing.mine"]


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
    assert [outsider.get(TRAIL).status_code, outsider.post(EXPORT, {"form": "csv"}).status_code] == [403, 403]
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


def test_deep_page_costs_the_same(operator: Staff) -> None:
    target = secrets.token_hex(8)
    happened(target, times=5)
    for query in ({}, {"target": target}, {"before": str(PlatformEvent.objects.latest("id").pk)}):
        with capture_statements() as seen:
            assert operator.get(TRAIL, **query).status_code == 200
        # Session, admin user; the page.
        assert seen.counts == (3, 0), "\n".join(seen.default)


def test_platform_auditor_reads_whole_trail(tenant: TestTenant) -> None:
    target = secrets.token_hex(8)
    happened(target, tenant)
    assert "thing.done" in new_auditor().sign_in().get(TRAIL, target=target).text
