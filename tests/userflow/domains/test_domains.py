"""Domains of a tenant: add, verify by DNS, delete, and the daily check."""

import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.utils.timezone import now

from identity_platform.audit.models import TenantEvent
from identity_platform.environment import name_servers
from tenants.addresses.domain_claims import GRACE
from tenants.entering.context import in_tenant
from tenants.lifecycle import provisioning
from tenants.models import DomainClaim
from tests.userflow.domains.dns_server import DnsServer
from tests.world import Api, TestTenant, assert_created, capture_statements
from userflow.domains.actions import check_domains
from userflow.domains.models import TenantDomain

DOMAINS = "/uflow/federation/domains"


def new_domain() -> str:
    return f"login.{secrets.token_hex(5)}.example"


def added(tenant: TestTenant, domain: str) -> dict[str, Any]:
    return assert_created(tenant.api.post(DOMAINS, {"domain": domain}))


def verify(tenant: TestTenant, row: dict[str, Any]) -> Any:
    return tenant.api.post(f"{DOMAINS}/{row['id']}/verify", {})


def verified(tenant: TestTenant, name_server: DnsServer, domain: str | None = None) -> dict[str, Any]:
    row = added(tenant, domain or new_domain())
    name_server.records[row["record"]["name"]] = [row["record"]["value"]]
    response = verify(tenant, row)
    assert response.status_code == 200, response.content
    return dict(response.json())


@pytest.fixture
def home(new_tenant: Callable[[], TestTenant]) -> TestTenant:
    return new_tenant()


def test_domain_is_added_verified_and_deleted(home: TestTenant, name_server: DnsServer) -> None:
    domain = new_domain()
    row = added(home, f" {domain.upper()}. ")
    assert (row["domain"], row["status"], row["verified_at"]) == (domain, "pending", None)
    assert row["record"]["name"] == f"_identity-platform.{domain}"
    assert row["record"]["value"].startswith("identity-verification=")
    # Others of this name do not count, and do not hide it; long values come in several strings.
    value = row["record"]["value"]
    name_server.records[row["record"]["name"]] = ["identity-verification=other", f'"{value[:30]}" "{value[30:]}"']
    shown = verify(home, row).json()
    assert (shown["status"], shown["lost_since"]) == ("verified", None)
    assert home.api.get(DOMAINS).json() == {"domains": [shown]}
    assert home.api.get(f"{DOMAINS}/{row['id']}").json() == shown
    assert home.api.delete(f"{DOMAINS}/{row['id']}").json()["id"] == row["id"]
    assert home.api.get(DOMAINS).json() == {"domains": []}
    assert not DomainClaim.objects.filter(pk=domain).exists()
    with in_tenant(home.id):
        actions = list(TenantEvent.objects.filter(action__startswith="domain.").values_list("action", flat=True))
    assert sorted(actions) == ["domain.added", "domain.deleted", "domain.verified"]


@pytest.mark.parametrize(
    "domain",
    [
        "",
        "localhost",
        "192.0.2.1",
        "[2001:db8::1]",
        "1.2.3.0x4",
        "https://login.acme.example",
        "login.acme.example/path",
        "login.acme.example:443",
        "co.uk",
        "github.io",
        "example",
        "公司.cn",
        "printer.local",
        "a..example",
        "-a.example",
        "a_b.example",
        "*.acme.example",
        "testserver",
        f"{'a' * 64}.example",
        ".".join(["a" * 60] * 4),
    ],
)
def test_add_domain_rejects_what_no_tenant_can_have(tenant: TestTenant, domain: str) -> None:
    response = tenant.api.post(DOMAINS, {"domain": domain})
    assert (response.status_code, list(response.json()["details"])) == (400, ["domain"])


def test_add_domain_rejects_the_platforms_own_hosts(tenant: TestTenant, settings: Any) -> None:
    settings.BASE_URL = "https://id.platform.example"
    settings.ALLOWED_HOSTS = [*settings.ALLOWED_HOSTS, "Console.platform.example", ".wild.example"]
    for domain in ("id.platform.example", "console.platform.example"):
        assert tenant.api.post(DOMAINS, {"domain": domain}).status_code == 400


def test_add_domain_normalizes_other_scripts(home: TestTenant) -> None:
    mark = secrets.token_hex(4)
    row = added(home, f"Bücher-{mark}。example")
    assert row["domain"].encode().decode("idna") == f"bücher-{mark}.example"
    again = home.api.post(DOMAINS, {"domain": row["domain"]})
    assert again.status_code == 409


def test_add_domain_is_limited(home: TestTenant, settings: Any) -> None:
    settings.DOMAINS_PER_TENANT = 1
    added(home, new_domain())
    assert home.api.post(DOMAINS, {"domain": new_domain()}).status_code == 409


def test_verify_names_what_was_found(home: TestTenant, name_server: DnsServer) -> None:
    row = added(home, new_domain())
    name = row["record"]["name"]
    missing = verify(home, row)
    assert (missing.status_code, missing.json()["details"]) == (
        409,
        {"record": ["There is no TXT record of this name."]},
    )
    name_server.records[name] = []
    assert "no TXT record" in verify(home, row).json()["details"]["record"][0]
    name_server.records[name] = ['"v=spf1 -all"']
    assert verify(home, row).json()["details"]["found"] == ["v=spf1 -all"]
    name_server.broken.add(name)
    assert "did not answer" in verify(home, row).json()["details"]["record"][0]
    assert home.api.get(f"{DOMAINS}/{row['id']}").json()["status"] == "pending"


def test_domain_of_another_tenant_is_taken(tenant: TestTenant, home: TestTenant, name_server: DnsServer) -> None:
    domain = new_domain()
    second = added(home, domain)
    first = verified(tenant, name_server, domain)
    name_server.records[second["record"]["name"]].append(second["record"]["value"])
    assert verify(home, second).status_code == 409
    assert home.api.get(f"{DOMAINS}/{second['id']}").json()["status"] == "taken"
    assert home.api.delete(f"{DOMAINS}/{second['id']}").status_code == 200
    assert DomainClaim.objects.get(pk=domain).tenant_id == tenant.id
    assert home.api.post(DOMAINS, {"domain": domain}).status_code == 409
    assert tenant.api.delete(f"{DOMAINS}/{first['id']}").status_code == 200
    assert home.api.post(DOMAINS, {"domain": domain}).status_code == 201


def test_one_of_two_tenants_wins_the_race(tenant: TestTenant, home: TestTenant, name_server: DnsServer) -> None:
    domain = new_domain()
    rows = [(owner, added(owner, domain)) for owner in (tenant, home)]
    name_server.records[rows[0][1]["record"]["name"]] = [row["record"]["value"] for _, row in rows]

    def send(place: int) -> int:
        try:
            return int(verify(*rows[place]).status_code)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(send, range(2))) == [200, 409]


def test_domains_of_another_tenant_are_unknown(tenant: TestTenant, home: TestTenant) -> None:
    row = added(home, new_domain())
    path = f"{DOMAINS}/{row['id']}"
    assert tenant.api.get(path).status_code == 404
    assert tenant.api.delete(path).status_code == 404
    assert tenant.api.post(f"{path}/verify", {}).status_code == 404
    assert tenant.api.get(DOMAINS, {"tenant_id": str(home.id)}).status_code == 403
    assert tenant.api.get(f"{DOMAINS}/nonsense").status_code == 404
    assert row["id"] not in str(tenant.api.get(DOMAINS).json())


def test_domains_need_admins(tenant: TestTenant) -> None:
    assert Api().get(DOMAINS).status_code == 401
    user = tenant.as_user(tenant.register())
    assert user.get(DOMAINS).status_code == 403
    assert user.post(DOMAINS, {"domain": new_domain()}).status_code == 403
    scopes = {"name": "dns", "type": "confidential", "scopes": ["domains:write"]}
    assert tenant.api.post(f"/clientms/tenants/{tenant.id}/clients", scopes).status_code == 400


def test_domain_list_takes_three_statements(home: TestTenant, name_server: DnsServer) -> None:
    for _ in range(3):
        verified(home, name_server)
    with capture_statements() as seen:
        assert len(home.api.get(DOMAINS).json()["domains"]) == 3
    # The caller with the tenant, and the claims.
    assert seen.counts == (2, 1)


def state(tenant: TestTenant, row: dict[str, Any]) -> dict[str, Any]:
    return dict(tenant.api.get(f"{DOMAINS}/{row['id']}").json())


def age(tenant: TestTenant, by: timedelta) -> None:
    DomainClaim.objects.filter(tenant_id=tenant.id).update(lost_since=now() - by)


def test_lost_record_warns_and_then_withdraws(home: TestTenant, name_server: DnsServer) -> None:
    row = verified(home, name_server)
    records = dict(name_server.records)
    name_server.records.clear()
    check_domains(tenant_id=home.id)
    check_domains(tenant_id=home.id)
    lost = state(home, row)
    assert (lost["status"], lost["withdrawn_after"] > lost["lost_since"]) == ("record_lost", True)
    name_server.records |= records
    check_domains(tenant_id=home.id)
    assert (state(home, row)["status"], state(home, row)["lost_since"]) == ("verified", None)
    name_server.records.clear()
    check_domains(tenant_id=home.id)
    age(home, GRACE - timedelta(minutes=1))
    check_domains(tenant_id=home.id)
    assert state(home, row)["status"] == "record_lost"
    age(home, GRACE)
    check_domains(tenant_id=home.id)
    assert (state(home, row)["status"], state(home, row)["withdrawn_after"]) == ("pending", None)
    with in_tenant(home.id):
        actions = list(TenantEvent.objects.filter(action__startswith="domain.").values_list("action", flat=True))
    assert sorted(actions) == [
        "domain.added",
        "domain.record_lost",
        "domain.record_lost",
        "domain.verified",
        "domain.withdrawn",
    ]


def test_name_servers_without_answer_withdraw_nothing(home: TestTenant, name_server: DnsServer) -> None:
    row = verified(home, name_server)
    name_server.broken.update(name_server.records)
    age(home, GRACE)
    check_domains(tenant_id=home.id)
    assert state(home, row)["status"] == "record_lost"


def test_restored_tenant_keeps_its_domains(home: TestTenant, name_server: DnsServer) -> None:
    row = verified(home, name_server)
    with in_tenant(home.id):
        # As in a backup from before it had the domain.
        TenantDomain.objects.all().delete()
    again = added(home, row["domain"])
    assert (again["status"], again["record"]) == ("verified", row["record"])
    with in_tenant(home.id):
        TenantDomain.objects.all().delete()
    check_domains(tenant_id=home.id)
    (shown,) = home.api.get(DOMAINS).json()["domains"]
    assert (shown["domain"], shown["status"], shown["record"]) == (row["domain"], "verified", row["record"])


def test_deleted_tenant_frees_its_domains(home: TestTenant, tenant: TestTenant, name_server: DnsServer) -> None:
    row = verified(home, name_server)
    provisioning.delete_tenant(tenant_id=home.id, final_backup=False)
    assert verified(tenant, name_server, row["domain"])["status"] == "verified"


def test_name_servers_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DNS_RESOLVERS", "10.0.0.2, 10.0.0.3:5353,[2001:db8::1]:54,2001:db8::2")
    expected = [("10.0.0.2", 53), ("10.0.0.3", 5353), ("2001:db8::1", 54), ("2001:db8::2", 53)]
    assert name_servers("DNS_RESOLVERS") == expected
